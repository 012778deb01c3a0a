"""The moves of sweeps and operators, and the locks of user code."""

from __future__ import annotations

from functools import partial

from relier.ledger import replies
from relier.ledger.checks import check_bytes, check_key, check_name, check_number, check_word
from relier.ledger.moves.base import MoveBase, plain
from relier.ledger.records import Lease, Locked, Operated, Promoted, Swept, Verdict, short_key
from relier.ledger.schedule_records import NATIVE
from relier.store.call import Arg, Call

SWEEP_TASKS = 100
UNUSED_MS = 3_600_000


class OperatorMoves(MoveBase):
    def revive(
        self,
        most: int = SWEEP_TASKS,
        deepest: int = 10_000,
        *,
        interval_ms: int = 500,
        worker_id: str = "",
        cause: str = "lease ran out",
    ) -> Call[Swept]:
        """Revive the tasks of workers whose lease ran out, or of `worker_id`, which is known to be dead."""
        return self._call(
            "revive", [min(most, SWEEP_TASKS), deepest, interval_ms, worker_id, plain(cause)], replies.swept
        )

    def promote(self, most: int = SWEEP_TASKS, *, skip_schedules: int = 0, group: str = NATIVE) -> Call[Promoted]:
        """Move due tasks into their queues, and cancel tasks past `expires` that never ran. Find due schedules of a
        group, after the first `skip_schedules`, which the caller cannot fire. With `most` 0, only find schedules."""
        return self._call("promote", [min(most, SWEEP_TASKS), skip_schedules, group], replies.promoted)

    def reap(self, most: int = SWEEP_TASKS, *, unused_ms: int = UNUSED_MS) -> Call[int]:
        """Remove expired records, and queues that were empty for `unused_ms`."""
        check_number("unused_ms", unused_ms, 1)
        return self._call("reap", [min(most, SWEEP_TASKS), unused_ms], replies.reaped)

    def replay(
        self, task_id: str, version: int, nonce: str, payload: bytes | None = None, *, fresh: bool = False
    ) -> Call[Operated]:
        """Queue a dead task again. `fresh` discards its checkpoint and steps."""
        check_word("the task id", task_id)
        check_word("the nonce", nonce)
        if payload is not None:
            check_bytes(f"the payload of {task_id}", payload, self._max_bytes)
        has = "" if payload is None else "1"
        args: list[Arg] = [task_id, version, nonce, has, payload or b"", "1" if fresh else ""]
        return self._call("replay", args, partial(replies.operated, "replay", task_id))

    def cancel(self, task_id: str, version: int) -> Call[Operated]:
        """Cancel a waiting task, or request the cancellation of a running one."""
        check_word("the task id", task_id)
        return self._call("cancel", [task_id, version], partial(replies.operated, "cancel", task_id))

    def discard(self, task_id: str, version: int) -> Call[Operated]:
        """Remove an ended record before it expires."""
        check_word("the task id", task_id)
        return self._call("discard", [task_id, version], partial(replies.operated, "discard", task_id))

    def pause(self, queue: str, version: int) -> Call[Operated]:
        """Stop claims from a queue. `version` is the one in `stats`, 0 for a queue that was never paused."""
        check_name("the queue", queue)
        return self._call("pause", [queue, version], partial(replies.operated, "pause", queue))

    def resume(self, queue: str, version: int) -> Call[Operated]:
        """Resume a paused queue."""
        return self._call("resume", [queue, version], partial(replies.operated, "resume", queue))

    def lock(self, key: str, token: str, hold_ms: int, holder: Lease | str) -> Call[Locked]:
        """Take a lock. If that is not possible, return its holder or its stored result.

        `token`: a random text, unique to this acquisition.

        `holder`: the lease of the asking attempt, or the name of a process outside any task. A lock taken with a lease
        ends with its worker, and a later attempt of the same task takes it over. Raises LeaseLostError for the lease of
        a lost worker. This does not check that the attempt still holds its task.
        """
        check_number("hold_ms", hold_ms, 1)
        lease = holder if isinstance(holder, Lease) else Lease("-", "-", holder)
        for what in ("worker_id", "task_id", "fence"):
            check_word(f"{what} of a lock", getattr(lease, what))
        args = [*_named(key, token), hold_ms, lease.worker_id, lease.task_id, lease.fence]
        return self._call("lock", args, partial(replies.locked, lease.worker_id))

    def renew(self, key: str, token: str, hold_ms: int) -> Call[Verdict]:
        """Extend a lock. `stale`: another caller holds it; `missing`: nobody does."""
        check_number("hold_ms", hold_ms, 1)
        return self._call("renew", [*_named(key, token), hold_ms], replies.verdict)

    def conclude(self, key: str, token: str, keep_ms: int, result: bytes) -> Call[Verdict]:
        """Store the result of the guarded work. A late holder may do so too, if nobody else took the lock."""
        check_number("keep_ms", keep_ms, 1)
        check_bytes(f"the result of lock {key!r:.80}", result, self._max_bytes)
        return self._call("conclude", [*_named(key, token), keep_ms, result], replies.verdict)

    def unlock(self, key: str, token: str) -> Call[Verdict]:
        """Release a lock without a result. Locks of others, and results, are left alone."""
        return self._call("unlock", _named(key, token), replies.verdict)


def _named(key: str, token: str) -> list[Arg]:
    check_key("the key of a lock", key)
    check_word("the token of a lock", token, 64)
    return [short_key(key), token]
