"""The moves of a worker: claim tasks, record progress and settle attempts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from relier.errors import CommitIndeterminate, InvalidSubmissionError
from relier.ledger import replies
from relier.ledger.checks import (
    check_bytes,
    check_follow_up,
    check_name,
    check_number,
    check_replacement,
    check_word,
)
from relier.ledger.moves.base import MoveBase, durability_flag, plain
from relier.ledger.records import Claim, Lease, Recorded, Settled, Submission
from relier.store.call import Arg, Call, Durability

COMMIT_TASKS = 1000
COMMIT_ATTEMPTS = 250
CLAIM_BYTES = 4 * 1024 * 1024


class WorkerMoves(MoveBase):
    def claim(
        self,
        worker_id: str,
        seq: int,
        queues: Sequence[str],
        want: int,
        *,
        lane: str = "0",
        max_bytes: int = CLAIM_BYTES,
        rung: bool = True,
    ) -> Call[Claim]:
        """Claim up to `want` tasks, from the queues in the given order.

        `seq` grows by one with every claim of a lane; a claim that is sent again keeps its number. `rung`: a doorbell
        woke the worker, so the script rings it again if tasks are left.
        """
        check_word("the lane", lane)
        check_number("seq", seq, 1)
        check_number("want", want, 1, 1000)
        if not queues or isinstance(queues, str):
            raise InvalidSubmissionError(f"a claim needs a list of at least one queue, not {queues!r:.60}")
        for queue in queues:
            check_name("the queue", queue)
        args: list[Arg] = [worker_id, lane, seq, want, max_bytes, "1" if rung else "", *queues]
        return self._call("claim", args, partial(replies.claim, worker_id))

    def checkpoint(
        self, lease: Lease, seq: int, value: bytes, durability: Durability = Durability.MEMORY
    ) -> Call[Settled]:
        """Save a checkpoint. `seq` grows within an attempt; an older checkpoint never replaces a newer one."""
        check_number("seq", seq)
        check_bytes("the checkpoint", value, self._max_bytes)
        args: list[Arg] = [lease.worker_id, lease.task_id, lease.fence, seq, value, durability_flag(durability)]
        return self._call("checkpoint", args, replies.settled, durability)

    def step(self, lease: Lease, name: str, value: bytes, durability: Durability = Durability.MEMORY) -> Call[Recorded]:
        """Record the result of a step. The first record wins and is returned."""
        check_name("the step", name)
        check_bytes(f"the result of step {name!r:.80}", value, self._max_bytes)
        args: list[Arg] = [lease.worker_id, lease.task_id, lease.fence, name, value, durability_flag(durability)]
        return self._call("step", args, replies.recorded, durability)

    def progress(self, lease: Lease, text: str) -> Call[Settled]:
        """Store a progress message. The last one wins."""
        return self._call(
            "progress", [lease.worker_id, lease.task_id, lease.fence, plain(text)[:1000]], replies.settled
        )

    def commit(
        self,
        done: Sequence[tuple[Lease, bytes | None, Sequence[Submission]]],
        durability: Durability = Durability.MEMORY,
    ) -> Call[list[Settled]]:
        """End attempts as done. Each is given as its lease, its result and its follow-up tasks. A follow-up with a
        `join` gets the result as its part."""
        args: list[Arg] = [durability_flag(durability), *common_worker([lease for lease, _, _ in done])]
        if len(done) > COMMIT_ATTEMPTS:
            raise InvalidSubmissionError(f"one commit ends at most {COMMIT_ATTEMPTS} attempts; split it")
        if sum(1 + len(follow_ups) for _, _, follow_ups in done) > COMMIT_TASKS:
            raise InvalidSubmissionError(f"one commit takes at most {COMMIT_TASKS} tasks and follow-ups; split it")
        for lease, result, follow_ups in done:
            if result is not None:
                check_bytes(f"the result of {lease.task_id}", result, self._max_bytes)
            args += (lease.task_id, lease.fence, "" if result is None else "1", result or b"", len(follow_ups))
            if follow_ups:
                args += self._following(follow_ups)
        parse = partial(replies.committed, [lease.fence for lease, _, _ in done])
        call: Call[list[Settled]] = self._call("commit", args, parse, durability)
        return call.when_indeterminate(
            lambda: CommitIndeterminate(
                f"the commit of {done[0][0].task_id} ran, but its durability was not confirmed in time; commit it again"
            )
        )

    def retry(
        self,
        lease: Lease,
        delay_ms: int,
        detail: str = "",
        *,
        putback: bool = False,
        locked: bool = False,
        quiet: bool = False,
        replace: Submission | None = None,
    ) -> Call[Settled]:
        """Run the task again after a delay.

        `putback`: this worker cannot run the task, which uses up no attempt and is not a failure. `locked`: the same,
        because another caller holds a lock. `quiet`: the same, because there was no room; this adds no history entry,
        but counts in the counter `retried`. A quiet retry with a delay returns to its place in the queue; without a
        delay it goes to the end.

        `replace`: the record continues under its id with the name, queue, priority, options and payload of this
        submission. Its submission time, expiry, key, admission charge, checkpoint and steps stay.
        """
        check_number("delay_ms", delay_ms)
        kind = "quiet" if quiet else "locked" if locked else "putback" if putback else "failure"
        args: list[Arg] = [delay_ms, kind, plain(detail)]
        if replace is not None:
            check_replacement(lease, replace, self._max_bytes)
            args.append(replace.tail())
        return self._settle("retry", lease, *args)

    def release(self, leases: Sequence[Lease]) -> Call[list[Settled]]:
        """Return unfinished tasks to their queues without using up an attempt."""
        args: list[Arg] = list(common_worker(leases))
        for lease in leases:
            args += (lease.task_id, lease.fence)
        return self._call("release", args, partial(replies.all_settled, len(leases)))

    def bury(
        self,
        lease: Lease,
        reason: str,
        detail: str = "",
        follow_ups: Sequence[Submission] = (),
        part: bytes = b"",
    ) -> Call[Settled]:
        """End a task as dead with a reason, and submit its follow-up tasks. A follow-up with a `join` gets `part`."""
        check_name("the reason", reason)
        check_bytes(f"the part of {lease.task_id}", part, self._max_bytes)
        if 1 + len(follow_ups) > COMMIT_TASKS:
            raise InvalidSubmissionError(f"one burial takes at most {COMMIT_TASKS - 1} follow-ups; split them")
        items = self._following(follow_ups)
        return self._settle("bury", lease, reason, plain(detail), part, len(follow_ups), *items)

    def forfeit(self, lease: Lease, cause: str) -> Call[Settled]:
        """Revive a task whose own process died, and count the death."""
        return self._settle("forfeit", lease, plain(cause))

    def _following(self, follow_ups: Sequence[Submission]) -> list[Arg]:
        args: list[Arg] = []
        for task in follow_ups:
            check_follow_up(task, self._max_bytes)
            args += task.args()
        return args

    def _settle(self, move: str, lease: Lease, *args: Arg) -> Call[Settled]:
        run: tuple[Arg, ...] = (lease.worker_id, 1, lease.task_id, lease.fence, *args)
        return self._call(move, run, lambda raw: replies.all_settled(1, raw)[0])


def common_worker(leases: Sequence[Lease]) -> tuple[Arg, Arg]:
    worker_ids = {lease.worker_id for lease in leases}
    if len(worker_ids) != 1:
        raise InvalidSubmissionError(
            f"one call settles tasks of one worker, not of {len(worker_ids)}; make one call for each worker"
        )
    return worker_ids.pop(), len(leases)
