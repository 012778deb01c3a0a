"""What goes into the ledger and what comes out: frozen values.

Times are whole milliseconds, on the store's TIME unless a name says otherwise. Fences are text: they have 16 digits.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

from relier.ledger.checks import check_number
from relier.states import State
from relier.store.call import Arg, Durability

DEFAULT_OPTIONS = "- - - - - - -"


def new_task_id() -> str:
    """A fresh id that sorts by time of making (UUID version 7, as 32 hex digits)."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return f"{value:032x}"


def new_worker_id() -> str:
    """A fresh id for one start of one process: host and process for people, and a random rest that no other has."""
    place = f"{platform.node()[:8]}.{os.getpid()}." if platform.node()[:8].isascii() else ""
    return "".join(place.split()) + secrets.token_hex(12)[: 24 - len(place)]


def new_mark() -> str:
    """The random part of a new birth mark: `<it>-<time of birth (ms)>`. Marks also name folders of checkpoint files."""
    return secrets.token_hex(8)


class Join(msgspec.Struct, frozen=True):
    """What a follow-up waits for: `size` parts, of which whoever names it brings one, called `part`."""

    size: int
    part: str


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """One task to accept. `key` is its idempotency key; `nonce` tells this push from another one of the same id.

    `join`: of follow-ups alone. Such a task waits for its parts, until its eta at the longest, and finds them in its
    steps. An id that may still be named after its record has expired needs a `tomb_ttl_ms`, or it enters once more.
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

    def options(self) -> str:
        """The end of the record's line 2: what differs from the default."""
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
        """The run of ARGV that lib/enter.lua reads."""
        options = self.options()
        return (
            self.id,
            self.queue,
            self.priority,
            -self.delay_ms if self.delay_ms else self.eta_ms,
            -self.expires_in_ms if self.expires_in_ms else self.expires_at_ms,
            short_key(self.key),
            self.on_conflict if self.join is None else f"join {self.join.size} {self.join.part}",
            self.nonce,
            "" if options == DEFAULT_OPTIONS else "1",
            f"{self.priority} {options}\n{self.queue}\n{self.name}\n".encode() + self.payload,
        )


def short_key(key: str) -> str:
    """An idempotency key as it is stored: itself, or its digest where it is long."""
    encoded = key.encode("utf-8", "surrogatepass")
    return key if len(encoded) <= 64 else hashlib.sha256(encoded).hexdigest()


class Limit(msgspec.Struct, frozen=True):
    """An admission limit as a leaky bucket: one task every `interval_us`, a burst of `tolerance_us` worth of them.

    `weight`: what one task counts; 0 where the whole call has a price of its own (`of`)."""

    name: str
    interval_us: int
    tolerance_us: int
    weight: int = 1

    @classmethod
    def per_window(cls, name: str, limit: int, window_ms: int, weight: int = 1) -> Limit:
        """At most `limit` at once, and that many again per window."""
        check_number("the limit", limit, 1, window_ms * 1000)
        interval = window_ms * 1000 // limit
        return cls(name, interval, interval * limit, weight)

    def weighing(self, weight: int) -> Limit:
        return self if weight == self.weight else Limit(self.name, self.interval_us, self.tolerance_us, weight)

    def of(self, cost: int) -> Limit:
        """This limit for a call that costs `cost` as a whole, under an Admission with `extra` 1."""
        return Limit(self.name, self.interval_us * cost, self.tolerance_us, 0)


class Admission(msgspec.Struct, frozen=True):
    """What a submit must pass: limits, the depth of each queue, the payload bytes held. `extra` is charged on top."""

    limits: tuple[Limit, ...] = ()
    max_depth: int = 0
    max_bytes: int = 0
    extra: int = 0


class Accepted(msgspec.Struct, frozen=True):
    """The answer to one submission. `status`: new, exists (same id), duplicate (same key; `id` is the other's),
    ended (the id ran long ago and left a tombstone), corrupt (something else holds the id's key: not accepted).
    `born`: the birth mark of the namespace that accepted it."""

    status: Literal["new", "exists", "duplicate", "ended", "corrupt"]
    id: str
    state: State | None
    version: int
    born: str = ""


class Lease(msgspec.Struct, frozen=True):
    """The right to finish one attempt. No finishing call without one."""

    task_id: str
    fence: str
    worker_id: str


class Spec(msgspec.Struct, frozen=True):
    """What a submission said, as the record keeps it. None: the default. `held`: payload bytes charged to admission."""

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
    """A record as read at one moment, without its payload. `more` is what few records need (see layout.lua)."""

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
        """What the task last said of how far it got."""
        return self.more.get("progress", "")


class HistoryEntry(msgspec.Struct, frozen=True):
    """One attempt that did not commit: what ended it, when, which attempt of whom, what is known, when it began."""

    move: str
    at_ms: int
    attempt: int
    worker_id: str
    fence: str
    detail: str
    since_ms: int = 0


class Task(msgspec.Struct, frozen=True):
    """One task, whole. `payload` is there while it may still be run, `result` once it is done and has one.

    `steps_left`: where the rest of its steps begins (`Ledger.steps`), empty where this is all."""

    record: Record
    payload: bytes | None
    result: bytes | None
    checkpoint: bytes | None
    steps: Mapping[str, bytes]
    history: tuple[HistoryEntry, ...]
    steps_left: str = ""


class Claimed(msgspec.Struct, frozen=True):
    """One attempt handed to a worker, with what earlier ones left behind. `steps_left`: where the rest of its steps
    begins (`Ledger.steps`), empty where this is all."""

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

    @property
    def alone(self) -> bool:
        """A suspect: it runs in a process of its own."""
        return "a" in self.record.flags


class ClaimStatus(StrEnum):
    OK = "ok"
    GONE = "gone"  # the boot was declared lost: cancel what runs, register anew
    OLD = "old"  # a newer claim of this lane was seen: this one arrived too late


class Claim(msgspec.Struct, frozen=True):
    status: ClaimStatus
    now_ms: int
    tasks: tuple[Claimed, ...]


class Verdict(StrEnum):
    OK = "ok"
    REPEAT = "repeat"  # the same call ran before
    STALE = "stale"  # another attempt, or nobody, owns the task
    MISSING = "missing"
    CORRUPT = "corrupt"


class Settled(msgspec.Struct, frozen=True):
    """The answer to a finishing call. `state` and `fence` are what the record says now."""

    verdict: Verdict
    state: str
    fence: str

    @property
    def ok(self) -> bool:
        return self.verdict in {Verdict.OK, Verdict.REPEAT}


class Recorded(msgspec.Struct, frozen=True):
    """The answer to a step: the value that stands."""

    settled: Settled
    value: bytes | None


class Operated(msgspec.Struct, frozen=True):
    """The answer to an operator's move that was carried out; refusals are raised."""

    verdict: Literal["ok", "repeat", "asked", "missing"]
    state: str
    version: int


class Beat(msgspec.Struct, frozen=True):
    """`alive` False: the boot was declared lost. `asked`: attempts (id, fence) a person wants cancelled."""

    alive: bool
    owned: int = 0
    asked: tuple[tuple[str, str], ...] = ()


class Swept(msgspec.Struct, frozen=True):
    """One pass of revive: (id, new state) of each, how many the brake held back, and whether boots have more to do."""

    outcomes: tuple[tuple[str, str], ...]
    deferred: int
    removed: int
    pending: int


class LockState(StrEnum):
    """What came of asking for a lock."""

    CLAIMED = "claimed"  # it is the asker's: do the work
    IN_FLIGHT = "in_flight"  # another does it right now
    COMPLETED = "completed"  # it was done before; there is a result


class Locked(msgspec.Struct, frozen=True):
    """The answer to a lock. In flight: for how long at the most unless renewed, and who holds it. `task_id` is empty
    where no task does."""

    state: LockState
    left_ms: int = 0
    holder: str = ""
    task_id: str = ""
    result: bytes = b""


class Promoted(msgspec.Struct, frozen=True):
    """`next_due_ms`: when the next task is due, or expires."""

    count: int
    next_due_ms: int | None
    now_ms: int = 0

    @property
    def next_in_s(self) -> float | None:
        """Seconds until the next task is due; None: none is scheduled."""
        return None if self.next_due_ms is None else max(0, self.next_due_ms - self.now_ms) / 1000


class Page(msgspec.Struct, frozen=True):
    """One page of a listing; `cursor` is None at the end. `corrupt`: ids whose record cannot be read."""

    records: tuple[Record, ...]
    cursor: str | None
    corrupt: tuple[str, ...] = ()
