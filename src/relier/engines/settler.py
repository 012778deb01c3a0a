"""Report the outcomes of attempts to the ledger.

Results of one turn of the loop are committed together, by one script. A move that the store does not answer is repeated
until it is answered, which is safe for every move.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from relier import background
from relier.errors import IndeterminateError, RelierError, StoreError
from relier.failure import failure_of, write_failure
from relier.ledger.ledger import Ledger
from relier.ledger.records import Claimed, Lease, Settled, Submission, Verdict
from relier.options import Retries
from relier.redact import showing
from relier.run.outcome import Done, Outcome, plan_of
from relier.store import AsyncStore, Call, Durability
from relier.until_answered import until_answered

log = logging.getLogger("relier.worker")

COMMIT_AT_ONCE = 100
COMMIT_BYTES = 1024 * 1024


@dataclass(slots=True)
class Tally:
    """Count what a worker did since its start."""

    done: int = 0
    failed: int = 0
    handed_back: int = 0
    zombies: int = 0
    missing: int = 0  # tasks in a row whose records are gone


class Settler:
    """Send the moves that settle one worker's attempts.

    `unsettled` holds the leases whose end the store has not confirmed yet.
    """

    def __init__(self, store: AsyncStore, ledger: Ledger, redact: str = "") -> None:
        self._store = store
        self._ledger = ledger
        self._redact = redact
        self._loop = asyncio.get_running_loop()
        self._done: dict[tuple[str, Durability], list[tuple[Lease, bytes | None, tuple[Submission, ...]]]] = {}
        self._moves: set[asyncio.Task[None]] = set()
        self.unsettled: dict[tuple[str, str], Lease] = {}
        self.tally = Tally()

    def settle(self, claimed: Claimed, outcome: Outcome, retries: Retries | None = None, now_ms: int = 0) -> None:
        """Start to report the outcome of a claimed task. Never blocks."""
        lease = claimed.lease
        if isinstance(outcome, Done):
            self.unsettled[lease.task_id, lease.fence] = lease
            if not self._done:
                self._loop.call_soon(self._commit_all)
            level = claimed.record.spec.durability
            self._done.setdefault((lease.worker_id, level), []).append((lease, outcome.result, outcome.follow_ups))
            return
        show = showing(self._redact, claimed.record.name)
        plan = plan_of(self._ledger, claimed, outcome, retries, now_ms or claimed.record.moved_ms, show)
        if plan.words:
            log.warning("task %s (%s) %s", claimed.record.id, claimed.record.name, plan.words)
        if plan.call is not None:
            self.unsettled[lease.task_id, lease.fence] = lease
            self._begin(plan.call, [lease], type(outcome).__name__)

    def release(self, leases: Sequence[Lease]) -> None:
        """Hand back tasks that never started here."""
        owners: dict[str, list[Lease]] = {}
        for lease in leases:
            self.unsettled[lease.task_id, lease.fence] = lease
            owners.setdefault(lease.worker_id, []).append(lease)
        for group in owners.values():
            self._begin(self._ledger.release(group), group, "HandBack")

    async def finish(self, seconds: float) -> bool:
        """Wait until the store has confirmed every move. Return False if that took longer than `seconds`."""
        self._commit_all()
        if self._moves:
            await asyncio.wait(self._moves, timeout=seconds)
        return not self._moves

    def _commit_all(self) -> None:
        groups, self._done = self._done, {}
        for (_, level), done in groups.items():
            for part in _parts(done):
                self._commit(part, level)

    def _commit(self, part: list[Any], level: Durability) -> None:
        """Commit results with one script. If the call cannot be built, commit each alone and bury those that fail."""
        leases = [lease for lease, _, _ in part]
        try:
            call = self._ledger.commit(part, level)
        except RelierError as error:
            if len(part) > 1:
                for item in part:
                    self._commit([item], level)
                return
            log.exception("task %s cannot be committed; it is buried", leases[0].task_id)
            detail = write_failure(failure_of(error))
            self._begin(self._ledger.bury(leases[0], type(error).__name__, detail), leases, "Failed")
            return
        self._begin(call, leases, "Done")

    def _begin(self, call: Call[Any], leases: list[Lease], what: str) -> None:
        move = background.start(self._loop, self._tell(call, leases, what))
        self._moves.add(move)
        move.add_done_callback(self._moves.discard)

    async def _tell(self, call: Call[Any], leases: list[Lease], what: str) -> None:
        try:
            answer = await self._until_answered(call)
        except RelierError:
            log.exception("%s of %d tasks was refused; they will be handed back", call.script, len(leases))
            return
        finally:
            for lease in leases:
                self.unsettled.pop((lease.task_id, lease.fence), None)
        for lease, settled in zip(leases, answer if isinstance(answer, list) else [answer], strict=True):
            self._count(lease, settled, what)

    async def _until_answered(self, call: Call[Any]) -> Any:
        def again(error: RelierError) -> None:
            if not isinstance(error, StoreError | IndeterminateError):
                raise error
            log.warning("%s will be sent again: %s", call.script, error)

        return await until_answered(partial(self._store.run, call), again)

    def _count(self, lease: Lease, settled: Settled, what: str) -> None:
        if settled.verdict is Verdict.MISSING:
            self._no_record_of(lease)
            return
        self.tally.missing = 0
        if not settled.ok:
            self.tally.zombies += 1
            log.warning(
                "zombie commit rejected: task %s, fence %s of worker %s; it is %s under fence %s now",
                lease.task_id,
                lease.fence,
                lease.worker_id,
                settled.state or settled.verdict,
                settled.fence,
            )
        elif what == "Done":
            self.tally.done += 1
        elif what in ("HandBack", "PutBack", "Crowded"):
            self.tally.handed_back += 1
        else:
            self.tally.failed += 1

    def _no_record_of(self, lease: Lease) -> None:
        """Log only the first of several missing records in a row: an emptied store has lost all of them."""
        if not self.tally.missing:
            log.error(
                "what came of task %s was refused: the ledger has no record of it; somebody removed it, or the store "
                "was emptied; the same of other tasks is not logged until one is settled again",
                lease.task_id,
            )
        self.tally.missing += 1


def _parts(done: list[Any]) -> list[list[Any]]:
    """Split results into parts small enough that no single script blocks the store for long."""
    parts: list[list[Any]] = [[]]
    tasks = size = 0
    for item in done:
        _, result, follow_ups = item
        more = len(result or b"") + sum(len(task.payload) for task in follow_ups)
        tasks, size = tasks + 1 + len(follow_ups), size + more
        if parts[-1] and (tasks > COMMIT_AT_ONCE or size > COMMIT_BYTES):
            parts.append([])
            tasks, size = 1 + len(follow_ups), more
        parts[-1].append(item)
    return parts
