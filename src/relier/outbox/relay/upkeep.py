"""What a relay does besides sending: it counts its table, says which rows nobody takes, and removes old dead ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress

from relier.outbox.relay.options import RelayOptions
from relier.outbox.row import CELERY, LEDGER
from relier.outbox.table.statements import Database, Depth, KindBacklog, OutboxTable

log = logging.getLogger("relier.outbox")

EVERY_S = 60.0
REPEAT_S = 600.0  # rows that nobody takes are told of so often
LEFT_MS = 60_000  # rows that are younger may be another relay's, which is about to take them
FIRST = 1_000  # rows that are looked at; those that nobody takes have been due for longest
EXPIRED_AT_ONCE = 1_000

TAKES = {
    CELERY: "start a relay with --celery-app",
    LEDGER: "start a relay without --no-ledger",
}
UNKNOWN = "no relay of this release knows them: start one of the release that wrote them"


def left_alone(found: Collection[KindBacklog], taken: Collection[str]) -> list[KindBacklog]:
    """Kinds of rows that wait for a relay that takes them, for longer than a relay that does would let them."""
    return [one for one in found if one.kind not in taken and one.oldest_age_ms >= LEFT_MS]


class Upkeep:
    """`kinds`: of the rows that its relay takes."""

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
        """The table's, as it was lately; None before the first look. Asking for it makes the relay look."""
        self._shows_depth = True
        return self._depth

    def run_due(self) -> None:
        """Do what is due. A database that does not answer complains at the next statement."""
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
                    "%d rows of kind %s wait in %s, the oldest for %d s, and this relay does not take them: %s",
                    one.rows,
                    one.kind,
                    self._options.table,
                    one.oldest_age_ms // 1000,
                    TAKES.get(one.kind, UNKNOWN),
                )

    def _expire(self) -> None:
        """Remove dead rows that were kept for long enough."""
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
            log.info("%d dead rows were removed: they died more than %g s ago", gone, self._options.dead_retention)
