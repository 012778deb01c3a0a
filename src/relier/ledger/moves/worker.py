"""The moves of a worker: it registers, sends heartbeats, claims tasks, records progress and settles attempts."""

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
from relier.ledger.records import Beat, Claim, Lease, Recorded, Settled, Submission
from relier.store.call import Arg, Call, Durability

COMMIT_TASKS = 1000
COMMIT_ATTEMPTS = 500
CLAIM_BYTES = 4 * 1024 * 1024


class WorkerMoves(MoveBase):
    def register(self, worker_id: str, lease_ms: int, about: str = "{}") -> Call[bool]:
        """A boot joins. False: it was declared lost before; start over with a new id."""
        check_word("the worker id", worker_id, 24)
        check_number("lease_ms", lease_ms, 1)
        return self._call("register", [worker_id, lease_ms, plain(about)], replies.registered)

    def beat(self, worker_id: str, lease_ms: int, polled: str = "") -> Call[Beat]:
        """One sign of life for all that the boot runs."""
        check_number("lease_ms", lease_ms, 1)
        return self._call("beat", [worker_id, lease_ms, polled], replies.beat)

    def retire(self, worker_id: str) -> Call[int]:
        """A boot leaves. Answers how many tasks it still holds: above 0 it has not left."""
        return self._call("retire", [worker_id], replies.retired)

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
        """Up to `want` tasks, queues in the order given. `seq` grows by one per claim of a lane; a re-send keeps it.

        `rung`: the worker was woken by a bell, and passes the ring on where it leaves something.
        """
        check_word("the lane", lane)
        check_number("seq", seq, 1)
        check_number("want", want, 1, 1000)
        if not queues or isinstance(queues, str):
            raise InvalidSubmissionError(f"a claim names its queues in a list, at least one, not {queues!r:.60}")
        for queue in queues:
            check_name("the queue", queue)
        args: list[Arg] = [worker_id, lane, seq, want, max_bytes, "1" if rung else "", *queues]
        return self._call("claim", args, partial(replies.claim, worker_id))

    def checkpoint(
        self, lease: Lease, seq: int, value: bytes, durability: Durability = Durability.MEMORY
    ) -> Call[Settled]:
        """Saves how far the attempt got. `seq` grows within the attempt; an older one never replaces a newer one."""
        check_number("seq", seq)
        check_bytes("the checkpoint", value, self._max_bytes)
        args: list[Arg] = [lease.worker_id, lease.task_id, lease.fence, seq, value, durability_flag(durability)]
        return self._call("checkpoint", args, replies.settled, durability)

    def step(self, lease: Lease, name: str, value: bytes, durability: Durability = Durability.MEMORY) -> Call[Recorded]:
        """Records a step's result; the first record stands and is what the answer holds."""
        check_name("the step", name)
        check_bytes(f"the result of step {name!r:.80}", value, self._max_bytes)
        args: list[Arg] = [lease.worker_id, lease.task_id, lease.fence, name, value, durability_flag(durability)]
        return self._call("step", args, replies.recorded, durability)

    def progress(self, lease: Lease, text: str) -> Call[Settled]:
        """How far the attempt got, in words for people. The last word stands."""
        return self._call(
            "progress", [lease.worker_id, lease.task_id, lease.fence, plain(text)[:1000]], replies.settled
        )

    def commit(
        self,
        done: Sequence[tuple[Lease, bytes | None, Sequence[Submission]]],
        durability: Durability = Durability.MEMORY,
    ) -> Call[list[Settled]]:
        """Ends attempts as done: for each its lease, its result, and the tasks that follow from it. A follow-up with a
        `join` gets the result as its part."""
        args: list[Arg] = [durability_flag(durability), *common_worker([lease for lease, _, _ in done])]
        if len(done) > COMMIT_ATTEMPTS:
            raise InvalidSubmissionError(f"one commit ends {COMMIT_ATTEMPTS} attempts at the most; split it")
        if sum(1 + len(follow_ups) for _, _, follow_ups in done) > COMMIT_TASKS:
            raise InvalidSubmissionError(f"one commit takes {COMMIT_TASKS} tasks and follow-ups at the most; split it")
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
        """Run again after a delay. `putback`: not for this worker; burns no attempt and counts as no failure. `locked`:
        the same, for a lock that another holds. `quiet`: the same, and leaves no trace: there was only no room;
        after the delay it returns to its place in the queue, and without one it goes to the end.

        `replace`: the record goes on under its id with the name, queue, priority, options and payload of this. When it
        entered, when it expires, its key and what admission took for it stay, and so do its checkpoint and steps.
        """
        check_number("delay_ms", delay_ms)
        kind = "quiet" if quiet else "locked" if locked else "putback" if putback else "failure"
        args: list[Arg] = [delay_ms, kind, plain(detail)]
        if replace is not None:
            check_replacement(lease, replace, self._max_bytes)
            args.append(replace.args()[-1])
        return self._settle("retry", lease, *args)

    def release(self, leases: Sequence[Lease]) -> Call[list[Settled]]:
        """Hands tasks back unfinished, without burning an attempt."""
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
        """Ends the task as dead, with a reason one can replay from, and enters the tasks that follow from that. A
        follow-up with a `join` gets `part`."""
        check_name("the reason", reason)
        check_bytes(f"the part of {lease.task_id}", part, self._max_bytes)
        if 1 + len(follow_ups) > COMMIT_TASKS:
            raise InvalidSubmissionError(f"one bury takes {COMMIT_TASKS - 1} follow-ups at the most")
        items = self._following(follow_ups)
        return self._settle("bury", lease, reason, plain(detail), part, len(follow_ups), *items)

    def forfeit(self, lease: Lease, cause: str) -> Call[Settled]:
        """The process that ran exactly this task is gone: revive it now, and count the death."""
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
    owners = {lease.worker_id for lease in leases}
    if len(owners) != 1:
        raise InvalidSubmissionError(f"one call settles tasks of one boot, not of {len(owners)}")
    return owners.pop(), len(leases)
