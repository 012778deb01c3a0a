"""Check an outbox: whether its database is usable, and whether a relay sends every waiting row."""

from __future__ import annotations

from collections.abc import Iterator

from relier.cli.doctor.check_result import CheckResult, bad, ok, warn
from relier.cli.outbox_database import open_database
from relier.cli.output import plural, span
from relier.cli.session import CommandFailure
from relier.errors import RelierError
from relier.ledger.stats import Stats
from relier.outbox.relay.database_health import DatabaseHealth, WatchedDatabase, ask_within
from relier.outbox.relay.membership import living_relays
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.upkeep import TAKES, UNKNOWN, left_alone
from relier.outbox.table.statements import Database, Depth, KindBacklog, OutboxTable
from relier.store.connect.address import redact

LONG_WAIT_MS = 300_000


def _counts(database: Database, rows: OutboxTable) -> tuple[Depth, list[KindBacklog]]:
    with database.begin() as tx:
        return rows.depth(tx), rows.kinds(tx)


def check_outbox(url: str, table: str, stats: Stats) -> Iterator[CheckResult]:
    try:
        database = open_database(url)
    except CommandFailure as error:
        yield bad("outbox", f"{error.message}.", "Correct --database.")
        return
    try:
        rows = OutboxTable(database.dialect, RelayOptions(table=table).table)
        DatabaseHealth(WatchedDatabase(database), rows, table).check(redact(url))
        depth, kinds = ask_within(database, lambda: _counts(database, rows))
    except RelierError as error:
        what, _, advice = str(error).rpartition("; ")
        yield bad("outbox", f"{what}.", f"{advice}.")
        return
    except Exception as error:  # noqa: BLE001 - drivers raise anything
        yield bad(
            "outbox", f"The database {redact(url)} does not answer: {type(error).__name__}.", "Check that it runs."
        )
        return
    finally:
        database.close()
    relays = living_relays(stats.nodes)
    left = left_alone(kinds, {kind for relay in relays for kind in relay.takes(table)})
    for one in left:
        yield warn(
            "outbox",
            f"{plural(one.rows, f'{one.kind} row')} wait, the oldest for {span(one.oldest_age_ms)}, and no relay sends "
            f"them.",
            f"{(TAKES.get(one.kind, UNKNOWN)).capitalize()}. Relays with --no-ledger are not visible here.",
        )
    if depth.dead:
        yield warn("outbox", f"{plural(depth.dead, 'dead row')} in table {table}.", "See `rl outbox dead`.")
    if not left:
        yield ok(
            "outbox", f"{plural(depth.waiting, 'row')} waiting in table {table}; {plural(len(relays), 'live relay')}."
        )
