"""A relay's periodic work: count the table, warn of rows that no relay claims, and delete old dead rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress

from relier.outbox.relay.options import RelayOptions
from relier.outbox.row import CELERY, LEDGER
from relier.outbox.table.statements import Database, Depth, KindBacklog, OutboxTable

log = logging.getLogger("relier.outbox")

EVERY_S = 60.0
REPEAT_S = 600.0  # the interval between warnings of rows that no relay claims
LEFT_MS = 60_000  # another relay may be about to claim younger rows
FIRST = 1_000  # rows that are checked; unclaimed rows have been due for longest
EXPIRED_AT_ONCE = 1_000

TAKES = {
    CELERY: "start a relay with --celery-app",
    LEDGER: "start a relay without --no-ledger",
}
UNKNOWN = "this release does not know this kind: start a relay of the release that wrote the rows"


def left_alone(found: Collection[KindBacklog], taken: Collection[str]) -> list[KindBacklog]:
    """Return the kinds of rows that no relay claims: `taken` does not contain them, and their oldest row has waited for
    a minute."""
    return [one for one in found if one.kind not in taken and one.oldest_age_ms >= LEFT_MS]


class Upkeep:
    """Does a relay's periodic work. `kinds`: the kinds of rows that the relay claims."""

    def __init__(
        self,
        database: Database,
        rows: OutboxTable,
        options: RelayOptions,
        kinds: Collection[str],
        clock: Callable[[], float],
    ) -> None:
        self._database = database
        self._rows = rows
        self._options = options
        self._kinds = kinds
        self._clock = clock
        self._depth: Depth | None = None
        self._shows_depth = False
        self._next_count_at = self._next_run_at = clock()
        self._logged_at: dict[str, float] = {}

    def depth(self) -> Depth | None:
        """Return the latest count; None before the first one. The first call makes the relay count."""
        self._shows_depth = True
        return self._depth

    def run_due(self) -> None:
        """Do the work that is due. Errors are ignored: the relay's next statement reports a database that is
        unreachable."""
        now = self._clock()
        with suppress(Exception):
            if self._shows_depth and now >= self._next_count_at:
                self._next_count_at = now + self._options.queue_snapshot_refresh_seconds
                with self._database.begin() as tx:
                    self._depth = self._rows.depth(tx)
            if now >= self._next_run_at:
                self._next_run_at = now + EVERY_S
                self._warn_of_untaken(now)
                self._expire()

    def _warn_of_untaken(self, now: float) -> None:
        with self._database.begin() as tx:
            found = left_alone(self._rows.kinds(tx, FIRST), self._kinds)
        for one in found:
            if now >= self._logged_at.get(one.kind, now):
                self._logged_at[one.kind] = now + REPEAT_S
                log.warning(
                    "rows that this relay does not claim: rows=%d kind=%s table=%s oldest=%ds; %s",
                    one.rows,
                    one.kind,
                    self._options.table,
                    one.oldest_age_ms // 1000,
                    TAKES.get(one.kind, UNKNOWN),
                )

    def _expire(self) -> None:
        """Delete dead rows after their retention."""
        if not self._options.dead_retention:
            return
        kept_ms, gone = round(1000 * self._options.dead_retention), 0
        while True:
            with self._database.begin() as tx:
                some = self._rows.expire(tx, kept_ms, EXPIRED_AT_ONCE)
            gone += some
            if some < EXPIRED_AT_ONCE:
                break
        if gone:
            log.info("dead rows removed: rows=%d older_than=%gs", gone, self._options.dead_retention)
