"""What `rl doctor` says of an outbox: whether its database takes us, and whether rows wait that no relay takes."""

from __future__ import annotations

from collections.abc import Iterator

from relier.cli.doctor.verdict import Verdict, bad, ok, warn
from relier.cli.outbox_database import open_database
from relier.cli.output import many, span
from relier.cli.session import Failure
from relier.errors import RelierError
from relier.ledger.stats import Stats
from relier.outbox.relay.database_health import DatabaseHealth
from relier.outbox.relay.membership import living_relays
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.upkeep import TAKES, UNKNOWN, left_alone
from relier.outbox.table.statements import OutboxTable
from relier.store.connect.address import redact

LONG_WAIT_MS = 300_000


def check_outbox(url: str, table: str, stats: Stats) -> Iterator[Verdict]:
    try:
        database = open_database(url)
    except Failure as error:
        yield bad("outbox", f"{error.message}.", "Correct --database.")
        return
    try:
        rows = OutboxTable(database.dialect, RelayOptions(table=table).table)
        DatabaseHealth(database, rows, table).check(redact(url))
        with database.begin() as tx:
            depth, kinds = rows.depth(tx), rows.kinds(tx)
    except RelierError as error:
        what, _, advice = str(error).rpartition("; ")
        yield bad("outbox", f"{what}.", f"{advice}.")
        return
    except Exception as error:  # noqa: BLE001 - a driver's, whatever it is
        yield bad("outbox", f"The database {redact(url)} does not answer: {type(error).__name__}.", "See that it runs.")
        return
    finally:
        database.close()
    relays = living_relays(stats.workers)
    left = left_alone(kinds, {kind for relay in relays for kind in relay.takes(table)})
    for one in left:
        yield warn(
            "outbox",
            f"{many(one.rows, f'{one.kind} row')} wait, the oldest for {span(one.oldest_age_ms)}, and no relay takes "
            f"them.",
            f"{(TAKES.get(one.kind, UNKNOWN)).capitalize()}. Relays with --no-ledger are not known here.",
        )
    if depth.dead:
        yield warn("outbox", f"{many(depth.dead, 'row')} in table {table} are dead.", "See `rl outbox dead`.")
    if not left:
        yield ok("outbox", f"{many(depth.waiting, 'row')} wait in table {table}; {many(len(relays), 'relay')} live.")
