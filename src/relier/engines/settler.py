"""Report the outcomes of attempts to the ledger.

Results of one turn of the loop are committed together, by one script. A move that the store does not answer is repeated
until the store answers, which is safe for every move.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from relier import background
from relier.engines.task_events import Draft, FinishedTask, TaskEvents, run_time
from relier.errors import IndeterminateError, RelierError, StoreError
from relier.failure import failure_of, write_failure
from relier.ledger.ledger import Ledger
from relier.ledger.records import Claimed, Lease, Settled, Submission, Verdict
from relier.redact import showing
from relier.run.attempt import Attempt
from relier.run.outcome import Done, Outcome, Plan, plan_of
from relier.store import AsyncStore, Call, Durability
from relier.store.until_answered import until_answered

log = logging.getLogger("relier.worker")

COMMIT_AT_ONCE = 100
COMMIT_BYTES = 1024 * 1024
COUNTED = {"commit": "done", "retry": "retried", "release": "released", "bury": "dead", "forfeit": "revived"}


class Settler:
    """Send the moves that settle one worker's attempts.

    `unsettled` holds the leases of attempts whose outcome the store has not confirmed yet. `counts`: how the attempts
    of this worker process have ended so far.
    """

    def __init__(self, store: AsyncStore, ledger: Ledger, redact: str = "", events: TaskEvents | None = None) -> None:
        self._store = store
        self._ledger = ledger
        self._redact = redact
        self._events = events or TaskEvents(store, ledger, redact)
        self._drafts: dict[tuple[str, str], Draft] = {}  # events to emit once the store has confirmed the move
        self._counted: dict[tuple[str, str], FinishedTask] = {}  # successes that are only counted, then
        self._loop = asyncio.get_running_loop()
        self._done: dict[tuple[str, Durability], list[tuple[Lease, bytes | None, tuple[Submission, ...]]]] = {}
        self._moves: set[asyncio.Task[None]] = set()
        self.unsettled: dict[tuple[str, str], Lease] = {}
        self.counts = dict.fromkeys(COUNTED.values(), 0)  # moves that the store confirmed
        self.refused = 0  # outcomes of attempts that had lost their lease
        self._record_was_missing = False  # for the last settled task

    def settle(self, claimed: Claimed, outcome: Outcome, attempt: Attempt | None = None, now_ms: int = 0) -> None:
        """Start to report the outcome of a claimed task. Never blocks. `attempt` is None if the task did not start."""
        lease = claimed.lease
        options = None if attempt is None else attempt.task.options
        if isinstance(outcome, Done):
            self.unsettled[lease.task_id, lease.fence] = lease
            if self._events.wants_succeeded or (options is not None and options.on_success is not None):
                self._drafts[lease.task_id, lease.fence] = Draft(lease, claimed, run_time(attempt))
            elif self._events.counts_succeeded:
                self._counted[lease.task_id, lease.fence] = claimed, run_time(attempt)
            if not self._done:
                self._loop.call_soon(self._commit_all)
            level = claimed.record.spec.durability
            self._done.setdefault((lease.worker_id, level), []).append((lease, outcome.result, outcome.follow_ups))
            return
        show = showing(self._redact, claimed.record.name)
        retries = None if options is None else options.retries
        plan = plan_of(self._ledger, claimed, outcome, retries, now_ms or claimed.record.moved_ms, show)
        if plan.words:
            log.warning("task %s (%s) %s", claimed.record.id, claimed.record.name, plan.words)
        if plan.call is not None:
            self.unsettled[lease.task_id, lease.fence] = lease
            self._drafts[lease.task_id, lease.fence] = Draft(lease, claimed, run_time(attempt), plan)
            self._begin(plan.call, [lease])

    def release(self, leases: Sequence[Lease]) -> None:
        """Hand back tasks that never started here."""
        owners: dict[str, list[Lease]] = {}
        for lease in leases:
            self.unsettled[lease.task_id, lease.fence] = lease
            owners.setdefault(lease.worker_id, []).append(lease)
        for group in owners.values():
            self._begin(self._ledger.release(group), group)

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
            self._bury_uncommitted(leases[0], error)
            return
        self._begin(call, leases)

    def _bury_uncommitted(self, lease: Lease, error: RelierError) -> None:
        reason = type(error).__name__
        call = self._ledger.bury(lease, reason, write_failure(failure_of(error)))
        self._drafts[lease.task_id, lease.fence] = Draft(lease, None, plan=Plan(call, reason=reason))
        self._begin(call, [lease])

    def _begin(self, call: Call[Any], leases: list[Lease]) -> None:
        move = background.start(self._loop, self._report(call, leases))
        self._moves.add(move)
        move.add_done_callback(self._moves.discard)

    async def _report(self, call: Call[Any], leases: list[Lease]) -> None:
        try:
            answer = await self._until_answered(call)
        except RelierError:
            log.exception("%s of %d tasks was refused; they will be handed back", call.script, len(leases))
            return
        finally:
            drafts = [self._drafts.pop((lease.task_id, lease.fence), None) for lease in leases] if self._drafts else []
            counted = self._counted and [self._counted.pop((lease.task_id, lease.fence), None) for lease in leases]
            for lease in leases:
                self.unsettled.pop((lease.task_id, lease.fence), None)
        answers = answer if isinstance(answer, list) else [answer]
        oks = [settled.ok for settled in answers]
        for lease, settled, ok in zip(leases, answers, oks, strict=True):
            self._check(lease, settled)
            self.counts[COUNTED[call.script]] += ok
        for draft, settled, ok in zip(drafts, answers, oks, strict=False):
            if draft is not None and ok:
                self._events.confirmed(draft, settled)
        if counted:
            self._events.succeeded([one for one, ok in zip(counted, oks, strict=True) if one and ok])

    async def _until_answered(self, call: Call[Any]) -> Any:
        def again(error: RelierError) -> None:
            if not isinstance(error, StoreError | IndeterminateError):
                raise error
            log.warning("%s will be sent again: %s", call.script, error)

        return await until_answered(partial(self._store.run, call), again)

    def _check(self, lease: Lease, settled: Settled) -> None:
        """Log a move that the ledger refused."""
        if settled.verdict is Verdict.MISSING:
            self._log_missing(lease)
            return
        self._record_was_missing = False
        if not settled.ok:
            self.refused += 1
            log.warning(
                "zombie commit rejected: task %s, fence %s of worker %s; it is %s under fence %s now",
                lease.task_id,
                lease.fence,
                lease.worker_id,
                settled.state or settled.verdict,
                settled.fence,
            )

    def _log_missing(self, lease: Lease) -> None:
        """Log only the first of several missing records in a row: an emptied store has lost all of them."""
        if not self._record_was_missing:
            log.error(
                "the outcome of task %s was refused: the ledger has no record of the task; somebody removed the "
                "record, or the store was emptied; further tasks without a record are not logged until a task is "
                "settled again",
                lease.task_id,
            )
        self._record_was_missing = True


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
