"""The outbox: tasks that commit with the user's own transaction.

write   a task becomes a row of the user's database, inside the user's transaction
relay   another process turns committed rows into records of the ledger, under the ids that the rows already have
inbox   the other way round: a task's effects in a database, and the mark that the task ran, commit together

In the order of a row's path:

    row.py        the content of a row
    push.py       the outbox that a push writes to
    sqlalchemy/   rows in the transactions of SQLAlchemy; the tables; the engines of a relay (for Django: relier.django)
    wake/         a commit wakes a relay, through the ledger's store or by PostgreSQL's NOTIFY
    table/        every statement on the outbox table, for three databases
    relay/        claim, publish, close; the process that runs relays; membership, health, metrics
    publish/      the targets of a relay, its publishing threads, outages, and rows that a limit refused
    inbox/        `ctx.exactly_once`
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relier.outbox.relay.options import RelayOptions
    from relier.outbox.relay.relay import Relay
    from relier.outbox.relay.to_ledger import relay_to_ledger
    from relier.outbox.sqlalchemy.engines import database_of
    from relier.outbox.sqlalchemy.outbox import Outbox
    from relier.outbox.sqlalchemy.tables import inbox_table, outbox_table

_HOMES = {
    "Outbox": "relier.outbox.sqlalchemy.outbox",
    "Relay": "relier.outbox.relay.relay",
    "RelayOptions": "relier.outbox.relay.options",
    "database_of": "relier.outbox.sqlalchemy.engines",
    "relay_to_ledger": "relier.outbox.relay.to_ledger",
    "inbox_table": "relier.outbox.sqlalchemy.tables",
    "outbox_table": "relier.outbox.sqlalchemy.tables",
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
