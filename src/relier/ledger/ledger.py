"""The moves: one verb, one method, one Lua file. A method checks its input and answers with a `Call`; a store runs it.

    answer = await store.run(ledger.submit([Submission(id=…, name=…, payload=…)]))

Every move is safe to repeat: a second run of the same call changes nothing and answers as the first did, so a caller
that saw no reply just sends it again. Finishing moves take a `Lease`, and an attempt that lost its lease is told
`stale`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from relier.errors import CommitIndeterminate, InvalidSubmissionError, PushIndeterminate
from relier.ledger import defaults, keys, replies
from relier.ledger.checks import (
    check_bytes,
    check_fits,
    check_follow_up,
    check_key,
    check_name,
    check_number,
    check_replacement,
    check_submission,
    check_word,
)
from relier.ledger.records import (
    Accepted,
    Admission,
    Beat,
    Claim,
    Lease,
    Locked,
    Operated,
    Page,
    Promoted,
    Recorded,
    Settled,
    Stats,
    Submission,
    Swept,
    Task,
    Verdict,
    new_mark,
    short_key,
)
from relier.settings import Settings
from relier.store.call import Arg, Call, Durability
from relier.store.scripts import Scripts

T = TypeVar("T")

CHUNK_TASKS = 100
CHUNK_BYTES = 1024 * 1024
COMMIT_TASKS = 1000
COMMIT_ATTEMPTS = 500
CLAIM_BYTES = 4 * 1024 * 1024
SWEEP_TASKS = 100
UNUSED_MS = 3_600_000
OWNED_PAGE = 1000  # as in owned.lua
MAX_DETAIL_BYTES = 64 * 1024


def load_scripts(**replaced: str) -> Scripts:
    """All scripts of the ledger. `replaced` swaps the text of some: the proof runs them on a clock of its own."""
    swaps = {name.replace("__", "/"): source for name, source in replaced.items()}
    return Scripts(Path(__file__).parent / "lua", keys.SPELLED | defaults.SPELLED, replace=swaps)


class Ledger:
    """The moves of one namespace."""

    def __init__(self, settings: Settings) -> None:
        self.prefix = keys.prefix(settings.namespace, settings.key_prefix)
        self._namespace = settings.namespace
        self._max_bytes = settings.max_payload_bytes

    def _call(
        self, script: str, args: Iterable[Arg], parse: Any, durability: Durability = Durability.MEMORY
    ) -> Call[Any]:
        return Call(script, self.prefix, tuple(args), parse, durability)

    # --- the namespace -------------------------------------------------------------------------------------------

    def open(self, remembered: str = "", fresh: str = "") -> Call[str]:
        """Marks an empty namespace with this layout and a birth mark; a LayoutError for another layout's.

        Answers with the mark. `remembered`: the mark the caller knows. Where that is another one, the store was emptied
        or replaced since, which is noted for `rl doctor`. `fresh`: what a new mark begins with; else it is random.
        """
        args: list[Arg] = [keys.LAYOUT, fresh or new_mark(), remembered]
        return self._call("open", args, partial(replies.opened, self._namespace))

    # --- 1 enter -------------------------------------------------------------------------------------------------

    def submit(
        self,
        tasks: Sequence[Submission],
        admission: Admission | None = None,
        durability: Durability = Durability.MEMORY,
    ) -> Call[list[Accepted]]:
        """Accepts all tasks or, over a limit, none. At most 100 tasks or 1 MiB a call: see `chunks`."""
        guard = admission or Admission()
        if not tasks or len(tasks) > CHUNK_TASKS:
            raise InvalidSubmissionError(f"one submit takes 1 to {CHUNK_TASKS} tasks, not {len(tasks)}; use chunks()")
        for task in tasks:
            check_submission(task, self._max_bytes)
        for what in ("max_depth", "max_bytes", "extra"):
            check_number(what, getattr(guard, what))
        for limit in guard.limits:
            check_fits(limit, len(tasks), guard.extra)
        args: list[Arg] = [_flag(durability), guard.max_depth, guard.max_bytes, guard.extra, len(guard.limits)]
        for limit in guard.limits:
            args += (limit.name, limit.interval_us, limit.tolerance_us, limit.weight)
        args.append(len(tasks))
        ids = [task.id for task in tasks]
        parse = partial(replies.accepted, ids)
        for task in tasks:
            args += task.args()
        call: Call[list[Accepted]] = self._call("submit", args, parse, durability)
        return call.when_indeterminate(lambda: PushIndeterminate(ids[0], others=tuple(ids[1:])))

    @staticmethod
    def chunks(tasks: Iterable[Submission]) -> Iterator[list[Submission]]:
        """Splits a long list so that no single script holds the store up."""
        chunk: list[Submission] = []
        size = 0
        for task in tasks:
            if chunk and (len(chunk) == CHUNK_TASKS or size + len(task.payload) > CHUNK_BYTES):
                yield chunk
                chunk, size = [], 0
            chunk.append(task)
            size += len(task.payload)
        if chunk:
            yield chunk

    # --- 2 work --------------------------------------------------------------------------------------------------

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
        args: list[Arg] = [lease.worker_id, lease.task_id, lease.fence, seq, value, _flag(durability)]
        return self._call("checkpoint", args, replies.settled, durability)

    def step(self, lease: Lease, name: str, value: bytes, durability: Durability = Durability.MEMORY) -> Call[Recorded]:
        """Records a step's result; the first record stands and is what the answer holds."""
        check_name("the step", name)
        check_bytes(f"the result of step {name!r:.80}", value, self._max_bytes)
        args: list[Arg] = [lease.worker_id, lease.task_id, lease.fence, name, value, _flag(durability)]
        return self._call("step", args, replies.recorded, durability)

    def progress(self, lease: Lease, text: str) -> Call[Settled]:
        """How far the attempt got, in words for people. The last word stands."""
        return self._call(
            "progress", [lease.worker_id, lease.task_id, lease.fence, plain(text)[:1000]], replies.settled
        )

    # --- 3 settle ------------------------------------------------------------------------------------------------

    def commit(
        self,
        done: Sequence[tuple[Lease, bytes | None, Sequence[Submission]]],
        durability: Durability = Durability.MEMORY,
    ) -> Call[list[Settled]]:
        """Ends attempts as done: for each its lease, its result, and the tasks that follow from it. A follow-up with a
        `join` gets the result as its part."""
        args: list[Arg] = [_flag(durability), *_owner_of([lease for lease, _, _ in done])]
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
        args: list[Arg] = list(_owner_of(leases))
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

    def _following(self, follow_ups: Sequence[Submission]) -> list[Arg]:
        args: list[Arg] = []
        for task in follow_ups:
            check_follow_up(task, self._max_bytes)
            args += task.args()
        return args

    def forfeit(self, lease: Lease, cause: str) -> Call[Settled]:
        """The process that ran exactly this task is gone: revive it now, and count the death."""
        return self._settle("forfeit", lease, plain(cause))

    def _settle(self, move: str, lease: Lease, *args: Arg) -> Call[Settled]:
        run: tuple[Arg, ...] = (lease.worker_id, 1, lease.task_id, lease.fence, *args)
        return self._call(move, run, lambda raw: replies.all_settled(1, raw)[0])

    # --- 4 sweep -------------------------------------------------------------------------------------------------

    def revive(
        self,
        most: int = SWEEP_TASKS,
        deepest: int = 10_000,
        *,
        interval_ms: int = 500,
        worker_id: str = "",
        cause: str = "lease ran out",
    ) -> Call[Swept]:
        """Returns the tasks of boots whose lease ran out; with `boot`, of that one, which is known to be dead."""
        return self._call(
            "revive", [min(most, SWEEP_TASKS), deepest, interval_ms, worker_id, plain(cause)], replies.swept
        )

    def promote(self, most: int = SWEEP_TASKS) -> Call[Promoted]:
        """Due tasks enter their queues; tasks past `expires` that never ran are cancelled."""
        return self._call("promote", [min(most, SWEEP_TASKS)], replies.promoted)

    def reap(self, most: int = SWEEP_TASKS, *, unused_ms: int = UNUSED_MS) -> Call[int]:
        """Removes ended records past their end of life, and queues that were empty for that long."""
        check_number("unused_ms", unused_ms, 1)
        return self._call("reap", [min(most, SWEEP_TASKS), unused_ms], replies.reaped)

    # --- 5 operate -----------------------------------------------------------------------------------------------

    def replay(
        self, task_id: str, version: int, nonce: str, payload: bytes | None = None, *, fresh: bool = False
    ) -> Call[Operated]:
        """Sends a dead task round again. `fresh` forgets its checkpoint and steps."""
        check_word("the task id", task_id)
        check_word("the nonce", nonce)
        if payload is not None:
            check_bytes(f"the payload of {task_id}", payload, self._max_bytes)
        has = "" if payload is None else "1"
        args: list[Arg] = [task_id, version, nonce, has, payload or b"", "1" if fresh else ""]
        return self._call("replay", args, partial(replies.operated, "replay", task_id))

    def cancel(self, task_id: str, version: int) -> Call[Operated]:
        """Ends a waiting task; asks a running one to end."""
        check_word("the task id", task_id)
        return self._call("cancel", [task_id, version], partial(replies.operated, "cancel", task_id))

    def discard(self, task_id: str, version: int) -> Call[Operated]:
        """Removes an ended record before its time."""
        check_word("the task id", task_id)
        return self._call("discard", [task_id, version], partial(replies.operated, "discard", task_id))

    def pause(self, queue: str, version: int) -> Call[Operated]:
        """Stops claims from a queue. `version` is the one `stats` showed, 0 for a queue never paused."""
        check_name("the queue", queue)
        return self._call("pause", [queue, version], partial(replies.operated, "pause", queue))

    def resume(self, queue: str, version: int) -> Call[Operated]:
        """Lets a paused queue go on."""
        return self._call("resume", [queue, version], partial(replies.operated, "resume", queue))

    # --- 6 locks of user code ------------------------------------------------------------------------------------

    def lock(self, key: str, token: str, hold_ms: int, holder: Lease | str) -> Call[Locked]:
        """Takes a lock, or tells who holds it, or what came of it. `token`: random, of this one taking alone.

        `holder`: the lease of the attempt that asks, or a place outside any task. The lock of a lease ends with its
        boot, and a later attempt of the same task takes it over. LeaseLostError for the lease of a boot that is lost;
        whether the attempt is still the task's is not looked at.
        """
        check_number("hold_ms", hold_ms, 1)
        lease = holder if isinstance(holder, Lease) else Lease("-", "-", holder)
        for what in ("worker_id", "task_id", "fence"):
            check_word(f"{what} of a lock", getattr(lease, what))
        args = [*_named(key, token), hold_ms, lease.worker_id, lease.task_id, lease.fence]
        return self._call("lock", args, partial(replies.locked, lease.worker_id))

    def renew(self, key: str, token: str, hold_ms: int) -> Call[Verdict]:
        """Holds a lock for longer. `stale`, `missing`: it is another's, or nobody's."""
        check_number("hold_ms", hold_ms, 1)
        return self._call("renew", [*_named(key, token), hold_ms], replies.verdict)

    def conclude(self, key: str, token: str, keep_ms: int, result: bytes) -> Call[Verdict]:
        """What the lock guards is done: keeps the result. It counts also for a holder that is late, if nobody came."""
        check_number("keep_ms", keep_ms, 1)
        check_bytes(f"the result of lock {key!r:.80}", result, self._max_bytes)
        return self._call("conclude", [*_named(key, token), keep_ms, result], replies.verdict)

    def unlock(self, key: str, token: str) -> Call[Verdict]:
        """Gives a lock up without a result. Anyone else's, and any result, is left alone."""
        return self._call("unlock", _named(key, token), replies.verdict)

    # --- reads ---------------------------------------------------------------------------------------------------

    def get(self, task_id: str, born: str = "") -> Call[Task]:
        """One task, whole. TaskNotFoundError, CorruptRecordError. `born`: the birth mark under which it was accepted,
        if that is known: a StoreEmptiedError where the task is gone and the store has another mark."""
        check_word("the task id", task_id)
        return self._call("get", [task_id], partial(replies.task, task_id, born))

    def steps(self, task_id: str, cursor: str = "0") -> Call[tuple[dict[str, bytes], str]]:
        """The steps of a task from a cursor on, and the next cursor, '' at the end: a `get` or a claim that had no room
        for all says in `steps_left` where to go on."""
        check_word("the task id", task_id)
        return self._call("steps", [task_id, cursor], replies.steps)

    def list(
        self, index: str, of: str = "", *, cursor: str | None = None, most: int = 100, name: str = ""
    ) -> Call[Page]:
        """One page of an index: due, ready of a queue, owned of a boot, ended of a state."""
        if index not in {"due", "ready", "owned", "ended"}:
            raise InvalidSubmissionError(f"there is no index {index!r}: it is due, ready, owned or ended")
        check_number("most", most, 1, 1000)
        return self._call("list", [index, of, cursor or "", most, name], replies.page)

    def owned(self, worker_id: str, first: int = 0) -> Call[dict[str, str]]:
        """id -> fence of what a boot holds, to compare with what it really runs: OWNED_PAGE of them from `first` on."""
        return self._call("owned", [worker_id, first], replies.owned)

    def stats(self, cursor: str = "") -> Call[Stats]:
        """Counts, queues, boots: numbers for people and metrics, at one moment. One page of them: see `read_stats`."""
        queues, _, boots = (cursor or "0 0").partition(" ")
        return self._call("stats", [queues, boots], replies.stats)

    def ring_outbox(self) -> Call[None]:
        """Rows were committed to an outbox: a relay wakes."""
        return self._call("ring_outbox", [], lambda _: None)

    @property
    def outbox_bell(self) -> str:
        """The key a relay waits at."""
        return keys.spell(self.prefix, "outbox")

    def bell(self, queue: str) -> str:
        """The key a worker blocks on while a queue is empty."""
        return keys.spell(self.prefix, "bell", queue)


def plain(text: str) -> bytes:
    """What a person may read later, in bytes: never refused for its letters, cut where it is endless."""
    return text.encode("utf-8", "backslashreplace")[:MAX_DETAIL_BYTES].decode("utf-8", "ignore").encode()


def _named(key: str, token: str) -> list[Arg]:
    check_key("the key of a lock", key)
    check_word("the token of a lock", token, 64)
    return [short_key(key), token]


def _flag(durability: Durability) -> str:
    return "" if durability is Durability.MEMORY else "1"


def _owner_of(leases: Sequence[Lease]) -> tuple[Arg, Arg]:
    owners = {lease.worker_id for lease in leases}
    if len(owners) != 1:
        raise InvalidSubmissionError(f"one call settles tasks of one boot, not of {len(owners)}")
    return owners.pop(), len(leases)
