"""Phoenix: the sweep that every worker runs, and that `rl resurrector` runs alone.

There is no leader. Several sweeps never conflict, because each pass is one atomic script that acts only on expired
leases and records.

One round returns the tasks of workers whose lease ran out, moves due tasks into their queues, fires schedules that are
due, removes expired records, deletes checkpoint files that no task needs, and repairs damaged keys (repair.py). Limits:
at most `resurrection_batch_size` tasks per pass, a pause of `resurrection_requeue_delay` between passes while more are
left, and at most `resurrection_max_queue_depth` revived tasks waiting in a queue.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence

from relier.codec.keyring import Keyring
from relier.errors import ConfigurationError, RelierError, StoreReplyError, StoreSetupError
from relier.ledger.ledger import Ledger
from relier.ledger.moves.operator import SWEEP_TASKS
from relier.rescue.janitor import Janitor
from relier.rescue.repair import Repairer
from relier.schedules.firing import DueSchedules, FireContext
from relier.settings import Settings
from relier.store import AsyncStore

log = logging.getLogger("relier.phoenix")

REAP_EVERY_S = 5.0
TIDY_EVERY_S = 60.0
MOST_AT_ONCE = 5_000  # due or ended tasks moved in one round, so that a round is bounded


class Rhythm:
    """Measures the actual interval between sweeps (s): the configured interval or, if longer, the shortest of the last
    three pauses.

    The ledger treats a gap of two intervals as an outage and then declares no worker lost for a while. If rounds are
    slow (a backlog, a distant store), a sweep that reports too short an interval would never find dead workers. A
    single long pause may have been a real outage, so three are compared.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._pauses: deque[float] = deque([interval] * 3, maxlen=3)
        self._last: float | None = None

    def sweep(self, now: float) -> float:
        if self._last is not None:
            self._pauses.append(now - self._last)
        self._last = now
        return max(self._interval, min(self._pauses))


class Phoenix:
    """Sweeps until `end` is called. Calls `on_swept` with (id, new state) of each task that it returned or ended.

    `suspended`: whether to leave the sweeps to others for now.
    """

    def __init__(
        self,
        settings: Settings,
        store: AsyncStore,
        ledger: Ledger,
        on_swept: Callable[[Sequence[tuple[str, str]]], None] = lambda _: None,
        keyring: Keyring | None = None,
        suspended: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._suspended = suspended
        self._store = store
        self._ledger = ledger
        self._on_swept = on_swept
        self._janitor = Janitor(settings, store, ledger)
        self._repairer = Repairer(store, ledger)
        self._repair_trouble = ""
        context = FireContext.of(settings, ledger, Keyring.of(settings) if keyring is None else keyring)
        self._schedules = DueSchedules(context, store.run)
        self._rhythm = Rhythm(settings.resurrection_check_interval)
        self._ending = asyncio.Event()
        self._reaped_at = 0.0
        self._tidied_at = 0.0
        self._braked = False
        self.revived = 0

    def end(self) -> None:
        self._ending.set()

    async def run(self) -> None:
        """Sweep round after round, also through outages of the store."""
        trouble = ""
        while not self._ending.is_set():
            if self._suspended():
                self._rhythm = Rhythm(self._settings.resurrection_check_interval)
                await self._wait(self._settings.resurrection_check_interval)
                continue
            try:
                pause = await self.sweep_once()
                if trouble:
                    log.info("sweep resumed")
                trouble = ""
            except RelierError as error:
                pause = self._settings.resurrection_check_interval
                if type(error).__name__ != trouble:
                    trouble = type(error).__name__
                    log.warning("sweep failed, will retry: %s", error)
            except Exception:  # if the sweep ended silently, dead workers would go unnoticed
                pause = self._settings.resurrection_check_interval
                log.exception("sweep failed unexpectedly, will retry")
            await self._wait(pause)

    async def sweep_once(self) -> float:
        """Run one round. Return how long to wait before the next one (s)."""
        more = await self._revive()
        next_due = await self._promote()
        await self._reap()
        await self._tidy()
        await self._repair()
        if more:
            return self._settings.resurrection_requeue_delay
        interval = self._settings.resurrection_check_interval
        wait = interval * random.uniform(0.8, 1.0)  # so that workers that started together drift apart
        return wait if next_due is None else min(wait, max(0.0, next_due))

    async def _revive(self) -> bool:
        """Revive the tasks of lost workers. Return True if more are left and no limit holds them back."""
        settings, left = self._settings, self._settings.resurrection_batch_size
        interval_ms = round(1000 * self._rhythm.sweep(time.monotonic()))
        while left > 0:
            swept = await self._store.run(
                self._ledger.revive(
                    min(left, SWEEP_TASKS), settings.resurrection_max_queue_depth, interval_ms=interval_ms
                )
            )
            left -= max(1, len(swept.outcomes))
            self._report(swept.outcomes, swept.deferred)
            if swept.deferred or not swept.pending:
                return False
        return True

    def _report(self, outcomes: tuple[tuple[str, str], ...], deferred: int) -> None:
        self.revived += len(outcomes)
        if outcomes:
            self._on_swept(outcomes)
        if deferred and not self._braked:
            log.warning(
                "Resurrection scan deferred: recovery queue backlog too deep (%d tasks wait; the limit is "
                "RELIER_RESURRECTION_MAX_QUEUE_DEPTH=%d)",
                deferred,
                self._settings.resurrection_max_queue_depth,
            )
        self._braked = deferred > 0

    async def _promote(self) -> float | None:
        """Move due tasks into their queues, and fire due schedules. Return the seconds until the next one is due, if
        known. Due schedules that cannot be fired here are skipped: the next round tries them again."""
        skipped = 0
        for _ in range(MOST_AT_ONCE // SWEEP_TASKS):
            promoted = await self._store.run(self._ledger.promote(SWEEP_TASKS, skip_schedules=skipped))
            skipped += await self._schedules.fire(promoted.schedules, promoted.now_ms)
            if promoted.count < SWEEP_TASKS and not promoted.schedules:
                return promoted.next_in_s
        return 0.0

    async def _reap(self) -> None:
        if time.monotonic() - self._reaped_at < REAP_EVERY_S:
            return
        for _ in range(MOST_AT_ONCE // SWEEP_TASKS):
            if await self._store.run(self._ledger.reap(SWEEP_TASKS)) < SWEEP_TASKS:
                self._reaped_at = time.monotonic()
                return

    async def _tidy(self) -> None:
        if not self._settings.checkpoint_dir or time.monotonic() - self._tidied_at < TIDY_EVERY_S:
            return
        self._tidied_at = time.monotonic()
        try:
            await self._janitor.tidy()
        except ConfigurationError as error:
            log.warning("cannot remove unneeded checkpoint files: %s", error)

    async def _repair(self) -> None:
        """Check and repair the pages that the store assigns to this worker. If its user may not scan keys, sweeps
        continue.
        """
        try:
            await self._repairer.turn()
        except (StoreReplyError, StoreSetupError) as error:
            if str(error) != self._repair_trouble:
                self._repair_trouble = str(error)
                log.warning("cannot repair damaged keys, will retry: %s", error)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            return
