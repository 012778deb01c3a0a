"""The values that go into the ledger and come out of it, all frozen.

Times are whole milliseconds, on the store's TIME unless noted otherwise. Fences are text of 16 digits.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, cast

import msgspec

from relier.ledger.batches.membership import Member, entry_word, packed_extra
from relier.ledger.checks import check_number
from relier.ledger.limit_records import RunLimit
from relier.ledger.nodes import Orders
from relier.ledger.schedule_records import DueSchedule
from relier.states import State
from relier.store.call import Arg, Durability

DEFAULT_OPTIONS = "- - - - - - -"
TAIL = 9  # as in lib/item.lua


def new_task_id() -> str:
    """Return a new id that sorts by creation time (UUID version 7, as 32 hex digits)."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return f"{value:032x}"


def new_worker_id() -> str:
    """Return a new id for one run of a worker process: host and pid for people, then a random part."""
    place = f"{platform.node()[:8]}.{os.getpid()}." if platform.node()[:8].isascii() else ""
    return "".join(place.split()) + secrets.token_hex(12)[: 24 - len(place)]


def new_mark() -> str:
    """Return the random part of a new birth mark, `<random>-<time (ms)>`. Marks also name checkpoint folders."""
    return secrets.token_hex(8)


class Join(msgspec.Struct, frozen=True):
    """Say that a follow-up waits for `size` parts. The task that submits the follow-up delivers the part `part`."""

    size: int
    part: str


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """One task to accept. `key` is its idempotency key; `nonce` distinguishes two pushes of the same id. `member`: its
    place in a batch.

    `join`: for follow-ups only. Such a task waits for its parts, at most until its eta, and finds them in its steps.
    `tomb_ttl_ms`: how long the ledger remembers the id after the record has expired. Without it, the same id could run
    again.
    """

    id: str
    name: str
    payload: bytes
    queue: str = "default"
    priority: int = 0
    eta_ms: int = 0
    delay_ms: int = 0
    expires_at_ms: int = 0
    expires_in_ms: int = 0
    key: str = ""
    key_ttl_ms: int = 0
    on_conflict: Literal["return", "replace"] = "return"
    nonce: str = ""
    max_resurrections: int | None = None
    on_lost: Literal["retry", "bury", "hold"] = "retry"
    result_ttl_ms: int | None = None
    dead_ttl_ms: int | None = None
    tomb_ttl_ms: int | None = None
    durability: Durability = Durability.MEMORY
    join: Join | None = None
    limits: tuple[RunLimit, ...] = ()
    member: Member | None = None

    def options(self) -> str:
        """Return the end of line 2 of the record: the options that differ from the defaults."""
        words = (
            self.result_ttl_ms,
            self.dead_ttl_ms,
            self.key_ttl_ms if self.key else None,
            self.tomb_ttl_ms,
            self.max_resurrections,
            None if self.on_lost == "retry" else self.on_lost,
            None if self.durability is Durability.MEMORY else self.durability.value,
        )
        return " ".join("-" if word is None else str(word) for word in words)

    def args(self) -> tuple[Arg, ...]:
        """Return the ARGV that lib/enter.lua reads."""
        options = self.options()
        return (
            self.id,
            self.queue,
            self.priority,
            -self.delay_ms if self.delay_ms else self.eta_ms,
            -self.expires_in_ms if self.expires_in_ms else self.expires_at_ms,
            short_key(self.key),
            entry_word(self.on_conflict, self.join, self.member),
            self.nonce,
            "" if options == DEFAULT_OPTIONS else "1",
            f"{self.priority} {options}\n{self.queue}\n{self.name}\n".encode() + self.payload,
            self.extra(),
        )

    def extra(self) -> bytes:
        """Return the flags of the record and the fields stored alongside it, packed, or nothing if there are none."""
        return packed_extra(self.limits, self.member)

    def tail(self) -> bytes:
        """Return the record from the priority on."""
        return cast(bytes, self.args()[TAIL])


def short_key(key: str) -> str:
    """Return an idempotency key as it is stored: a long one as its digest."""
    encoded = key.encode("utf-8", "surrogatepass")
    return key if len(encoded) <= 64 else hashlib.sha256(encoded).hexdigest()


class AdmissionLimit(msgspec.Struct, frozen=True):
    """An admission limit as a leaky bucket: one task per `interval_us`, with a burst of `tolerance_us` worth of tasks.

    `weight`: the cost of one task; 0 if the call as a whole has a cost (`of`).
    """

    name: str
    interval_us: int
    tolerance_us: int
    weight: int = 1

    @classmethod
    def per_window(cls, name: str, limit: int, window_ms: int, weight: int = 1) -> AdmissionLimit:
        """Return a limit of `limit` tasks at once, refilled over the window."""
        check_number("the limit", limit, 1, window_ms * 1000)
        interval = window_ms * 1000 // limit
        return cls(name, interval, interval * limit, weight)

    def weighing(self, weight: int) -> AdmissionLimit:
        return self if weight == self.weight else AdmissionLimit(self.name, self.interval_us, self.tolerance_us, weight)

    def of(self, cost: int) -> AdmissionLimit:
        """Return this limit for a call that costs `cost` as a whole, for an Admission with `extra` 1."""
        return AdmissionLimit(self.name, self.interval_us * cost, self.tolerance_us, 0)


class Admission(msgspec.Struct, frozen=True):
    """The limits of a submit: rates, queue depth and payload bytes. `extra` is charged on top."""

    limits: tuple[AdmissionLimit, ...] = ()
    max_depth: int = 0
    max_bytes: int = 0
    extra: int = 0


class Accepted(msgspec.Struct, frozen=True):
    """The answer to one submission.

    `status`: new, exists (same id), duplicate (same key; `id` is the other task's), ended (the id ran long ago and left
    a tombstone), corrupt (another program wrote to the record's key: not accepted) or closed (its batch takes no more
    tasks: not accepted). `born`: the birth mark of the namespace that accepted it.
    """

    status: Literal["new", "exists", "duplicate", "ended", "corrupt", "closed"]
    id: str
    state: State | None
    version: int
    born: str = ""


class Lease(msgspec.Struct, frozen=True):
    """The right to finish one attempt. Every finishing call needs one."""

    task_id: str
    fence: str
    worker_id: str


class Spec(msgspec.Struct, frozen=True):
    """The options of a submission as stored. None means the default. `held`: payload bytes charged to admission."""

    at_us: int
    priority: int
    expires_ms: int | None
    held: int | None
    result_ttl_ms: int | None
    dead_ttl_ms: int | None
    key_ttl_ms: int | None
    tomb_ttl_ms: int | None
    max_resurrections: int | None
    on_lost: str
    durability: Durability


class Record(msgspec.Struct, frozen=True):
    """A record at one moment, without its payload. `more` holds optional fields (see layout.lua)."""

    id: str
    state: State
    version: int
    fence: str
    worker_id: str
    attempt: int
    flags: str
    moved_ms: int
    spec: Spec
    queue: str
    name: str
    more: Mapping[str, str] = {}

    @property
    def reason(self) -> str:
        return self.more.get("reason", "")

    @property
    def progress(self) -> str:
        """The last progress message of the task."""
        return self.more.get("progress", "")


class HistoryEntry(msgspec.Struct, frozen=True):
    """One attempt that did not commit: the move that ended it, when, its number, its worker, details and start."""

    move: str
    at_ms: int
    attempt: int
    worker_id: str
    fence: str
    detail: str
    since_ms: int = 0


class Task(msgspec.Struct, frozen=True):
    """A complete task. `payload` is kept while it may still run; `result` exists once it is done with a result.

    `steps_left`: the cursor for further steps (`Ledger.steps`), empty if there are none.
    """

    record: Record
    payload: bytes | None
    result: bytes | None
    checkpoint: bytes | None
    steps: Mapping[str, bytes]
    history: tuple[HistoryEntry, ...]
    steps_left: str = ""


class Claimed(msgspec.Struct, frozen=True):
    """One claimed attempt, with the checkpoint and the steps that earlier attempts saved. `steps_left`: the cursor for
    further steps (`Ledger.steps`), empty if there are none."""

    lease: Lease
    record: Record
    payload: bytes
    checkpoint: bytes | None = None
    steps: Mapping[str, bytes] = {}
    retries: int = 0
    deaths: int = 0
    scares: int = 0
    since_ms: int = 0
    revision: int = 0
    locked_since_ms: int = 0
    steps_left: str = ""
    given: bytes = b""  # its first argument as JSON, if another task of its workflow provides it

    @property
    def alone(self) -> bool:
        """Whether the task is suspected of killing processes and must run in an isolated one."""
        return "a" in self.record.flags


class ClaimStatus(StrEnum):
    OK = "ok"
    GONE = "gone"  # the worker was declared lost: cancel its tasks, register again
    OLD = "old"  # a newer claim of this lane came first: this one is too late


class Claim(msgspec.Struct, frozen=True):
    status: ClaimStatus
    now_ms: int
    tasks: tuple[Claimed, ...]


class Verdict(StrEnum):
    OK = "ok"
    REPEAT = "repeat"  # the same call ran before
    STALE = "stale"  # the attempt no longer holds the task
    MISSING = "missing"
    CORRUPT = "corrupt"


class Settled(msgspec.Struct, frozen=True):
    """The answer to a finishing call, with the current `state` and `fence` of the record."""

    verdict: Verdict
    state: str
    fence: str

    @property
    def ok(self) -> bool:
        return self.verdict in {Verdict.OK, Verdict.REPEAT}


class Recorded(msgspec.Struct, frozen=True):
    """The answer to a step: the value that was recorded first."""

    settled: Settled
    value: bytes | None


class Operated(msgspec.Struct, frozen=True):
    """The answer to an operator's move. Refusals are raised instead."""

    verdict: Literal["ok", "repeat", "asked", "missing"]
    state: str
    version: int


class Beat(msgspec.Struct, frozen=True):
    """`alive` is False if the node was declared lost. `asked`: attempts (id, fence) to cancel. `orders`: the desired
    state of the node, None if nobody has set one."""

    alive: bool
    owned: int = 0
    asked: tuple[tuple[str, str], ...] = ()
    orders: Orders | None = None


class Swept(msgspec.Struct, frozen=True):
    """One pass of revive: (id, new state) of each task, how many were deferred, and whether more are pending."""

    outcomes: tuple[tuple[str, str], ...]
    deferred: int
    removed: int
    pending: int


class LockState(StrEnum):
    """The state of a lock, as seen by the caller."""

    CLAIMED = "claimed"  # the caller holds it: do the work
    IN_FLIGHT = "in_flight"  # another caller is doing the work
    COMPLETED = "completed"  # the work is done; there is a result


class Locked(msgspec.Struct, frozen=True):
    """The answer to a lock. If the lock is in flight, this has the time until it expires unless renewed, and its
    holder: a worker id, or a process outside any task. `task_id` is empty if no task holds the lock."""

    state: LockState
    left_ms: int = 0
    holder: str = ""
    task_id: str = ""
    result: bytes = b""


class Promoted(msgspec.Struct, frozen=True):
    """The answer to promote. `next_due_ms`: when the next task or schedule is due, or a task expires. `schedules`: the
    schedules of the group that are due now."""

    count: int
    next_due_ms: int | None
    now_ms: int = 0
    schedules: tuple[DueSchedule, ...] = ()

    @property
    def next_in_s(self) -> float | None:
        """Seconds until the next task or schedule is due, or None if there is none."""
        return None if self.next_due_ms is None else max(0, self.next_due_ms - self.now_ms) / 1000


class Page(msgspec.Struct, frozen=True):
    """One page of an index. `cursor` is None on the last page; `corrupt` lists ids whose record cannot be read."""

    records: tuple[Record, ...]
    cursor: str | None
    corrupt: tuple[str, ...] = ()
