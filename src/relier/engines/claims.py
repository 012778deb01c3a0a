"""Claim tasks for one worker: ask the ledger, and wait for a queue's doorbell while there is nothing to do."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from msgspec.structs import replace

from relier import background
from relier.engines.heartbeat import Liveness
from relier.engines.orphaned_claims import OrphanedClaims
from relier.engines.settler import Settler
from relier.errors import RelierError, StoreError
from relier.ledger.ledger import Ledger
from relier.ledger.moves.worker import CLAIM_BYTES
from relier.ledger.records import Claim, Claimed, ClaimStatus, Lease
from relier.store import AsyncStore, Call
from relier.store.until_answered import growing_pauses, until_answered

log = logging.getLogger("relier.worker")

CLAIM_AT_ONCE = 100
BELL_S = 1.0  # the longest wait for a doorbell, and the longest pause between two tries of a claim


class Claims:
    """Send the claims of one worker, one at a time, until `stop` is set.

    on_gone     called when the store no longer knows the worker
    changed     ends a pause: there may be room now, or the store may be back
    suspended   whether an operator ordered the worker to claim nothing for now
    """

    def __init__(
        self,
        store: AsyncStore,
        ledger: Ledger,
        settler: Settler,
        liveness: Liveness,
        orphans: OrphanedClaims,
        queues: Callable[[], Sequence[str]],
        on_gone: Callable[[], None],
        stop: asyncio.Event,
        changed: asyncio.Event,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._settler = settler
        self._liveness = liveness
        self._orphans = orphans
        self._queues = queues
        self._on_gone = on_gone
        self._stop = stop
        self._changed = changed
        self._seq = 0
        self._rung = False  # a doorbell rang before this claim
        self.suspended = False
        self.counts = {"tasks": 0, "empty": 0, "gone": 0}  # answers to claims
        self.tasks = 0  # claimed so far

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    async def take(self, room: int) -> Claim | None:
        """Claim up to `room` tasks. Return None, after a pause, if there is no room, if the lease is in doubt, or while
        claims are suspended."""
        want = min(room, CLAIM_AT_ONCE)
        if want <= 0 or self._liveness.suspect or self.suspended:
            await self._pause(BELL_S if want > 0 else None)
            return None
        worker_id, self._seq = self._liveness.worker_id, self._seq + 1
        claim = await self._send(self._ledger.claim(worker_id, self._seq, self._queues(), want, rung=self._rung))
        self._rung = False
        self._orphans.answered += 1
        self.tasks += len(claim.tasks)
        self.counts["gone" if claim.status is ClaimStatus.GONE else "tasks" if claim.tasks else "empty"] += 1
        if claim.status is ClaimStatus.GONE and worker_id == self._liveness.worker_id:
            self._on_gone()
            await self._pause(BELL_S)
        return claim

    async def wait_for_more(self, claim: Claim, room: int) -> None:
        """Wait for a doorbell if the claim emptied the queues; return at once if there may be more to claim."""
        full = len(claim.tasks) >= min(room, CLAIM_AT_ONCE)
        if not full and sum(len(task.payload) for task in claim.tasks) < CLAIM_BYTES // 2:
            self._rung = await self._doorbell()

    def complete(self, tasks: Sequence[Claimed]) -> AsyncIterator[Claimed]:
        return with_all_steps(tasks, self._store, self._ledger, self._settler.release)

    async def _send(self, call: Call[Claim]) -> Claim:
        """Send one claim, and repeat it under the same number until the store answers: a lost answer loses no task."""
        outage = False

        def again(error: RelierError) -> None:
            nonlocal outage
            if not isinstance(error, StoreError):
                raise error
            if not outage:  # log once per outage, however long it lasts
                log.warning("claim failed, will retry: %s", error)
            outage = True

        return await until_answered(partial(self._try, call), again, growing_pauses(BELL_S))

    async def _try(self, call: Call[Claim]) -> Claim:
        self._liveness.polled_ms = time.time_ns() // 1_000_000
        return await self._store.run(call)

    async def _doorbell(self) -> bool:
        """Wait until a queue's doorbell rings, a second has passed, or the worker is asked to stop.

        Return whether a doorbell rang.
        """
        loop = asyncio.get_running_loop()
        keys = [self._ledger.bell(queue) for queue in self._queues()]
        bell = background.start(loop, self._store.wait_for_bell(keys, BELL_S))
        stopping = background.start(loop, self._stop.wait())
        try:
            await asyncio.wait({bell, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return bell.done() and not bell.cancelled() and bell.result() is not None
        except RelierError:
            await self._pause(BELL_S / 4)
            return False
        finally:
            bell.cancel()
            stopping.cancel()

    async def _pause(self, seconds: float | None) -> None:
        """Wait until something changes or the time is up."""
        self._changed.clear()
        if self.stopping:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return


async def with_all_steps(
    tasks: Sequence[Claimed], store: AsyncStore, ledger: Ledger, release: Callable[[Sequence[Lease]], None]
) -> AsyncIterator[Claimed]:
    """Yield the claimed tasks with all their steps, complete ones first.

    A task may have more steps than one answer holds, such as the body of a large chord. If they cannot be read, the
    task is released, and a later claim tries again.
    """
    for claimed in tasks:
        if not claimed.steps_left:
            yield claimed
    for claimed in tasks:
        if claimed.steps_left:
            try:
                yield await _read_steps(claimed, store, ledger)
            except RelierError as error:
                log.warning("task %s is handed back: its steps cannot be read: %s", claimed.record.id, error)
                release([claimed.lease])


async def _read_steps(claimed: Claimed, store: AsyncStore, ledger: Ledger) -> Claimed:
    steps, left = dict(claimed.steps), claimed.steps_left
    while left:
        more, left = await store.run(ledger.steps(claimed.record.id, left))
        steps |= more
    return replace(claimed, steps=steps, steps_left="")
