"""The outbox: tasks that commit with the user's own transaction.

write        a task becomes a row of the user's database, inside the user's transaction
relay        another process turns committed rows into records of the ledger, under the ids they already have
inbox        the other way round: a task's effects in a database, and the mark that it ran, commit together

row.py          what a row holds                       rows.py         every statement on the table, for three databases
sqlalchemy.py   the way in for SQLAlchemy (tables.py, gathered.py, binds.py); engines.py for relays; relier.django
names.py        tables' names, checked and quoted      liveness.py     the file that a relay touches
books.py        the inbox's transactions in SQLAlchemy contention.py   which errors of a database only mean "again"
relay.py        claim, publish, close; shutdown        route.py        to a target, target.py: outages, poison
process.py      relays until a signal, fleet.py: one    publishers.py   the threads that publish, given up in time
                for each table                         health.py       away or refused; upkeep.py: counts, old rows
members.py      relays know which of them live         bell.py         a commit wakes a relay; postgres.py: by NOTIFY
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relier.outbox.engines import database_of
    from relier.outbox.options import RelayOptions
    from relier.outbox.relay import Relay, relay_to_ledger
    from relier.outbox.sqlalchemy import Outbox
    from relier.outbox.tables import inbox_table, outbox_table

_HOMES = {
    "Outbox": "relier.outbox.sqlalchemy",
    "Relay": "relier.outbox.relay",
    "RelayOptions": "relier.outbox.options",
    "database_of": "relier.outbox.engines",
    "relay_to_ledger": "relier.outbox.relay",
    "inbox_table": "relier.outbox.tables",
    "outbox_table": "relier.outbox.tables",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'relier.outbox' has no attribute {name!r}")
    return getattr(import_module(home), name)


__all__ = [
    "Outbox",
    "Relay",
    "RelayOptions",
    "database_of",
    "inbox_table",
    "outbox_table",
    "relay_to_ledger",
]
