"""The contents of a namespace as plain Python values: the model's moves change them, and the checker reads them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from proof.model.packed import unpack

ITEM = 11  # arguments per submission


@dataclass(slots=True)
class Rec:
    """A record. `expiry`: its keys have an expiry in the store (as a backstop). Only ended records may."""

    state: str
    queue: str
    name: str
    at: int
    priority: int
    body: bytes
    version: int = 1
    fence: int = 0
    owner: str = "-"
    attempt: int = 0
    flags: str = ""
    moved: int = 0
    expires: int | None = None
    held: int | None = None
    result_ttl: int | None = None
    dead_ttl: int | None = None
    key_ttl: int | None = None
    tomb_ttl: int | None = None
    max_resurrections: int | None = None
    on_lost: str | None = None
    durability: str | None = None
    expiry: bool = False
    more: dict[str, str] = field(default_factory=dict)
    history: list[list[str]] = field(default_factory=list)
    checkpoint: bytes | None = None
    steps: dict[str, bytes] = field(default_factory=dict)

    def mark(self, flag: str) -> None:
        if flag not in self.flags:
            self.flags += flag

    def unmark(self, flag: str) -> None:
        self.flags = self.flags.replace(flag, "")

    def say(self, tail: bytes) -> None:
        """Read the part of a submission that describes the task, from the priority on."""
        line, queue, name, self.body = tail.split(b"\n", 3)
        priority, *numbers, on_lost, durability = line.decode().split(" ")
        ttls = [None if word == "-" else int(word) for word in numbers]
        self.queue, self.name, self.priority = queue.decode(), name.decode(), int(priority)
        self.result_ttl, self.dead_ttl, self.key_ttl, self.tomb_ttl, self.max_resurrections = ttls
        self.on_lost = None if on_lost == "-" else on_lost
        self.durability = None if durability == "-" else durability

    def optional(self) -> bool:
        """Return whether any option differs from its default."""
        ttls = (self.result_ttl, self.dead_ttl, self.key_ttl, self.tomb_ttl, self.max_resurrections)
        words = (self.expires, self.held, *ttls, self.on_lost, self.durability)
        return any(word is not None for word in words)

    def text(self) -> bytes:
        """Return the record as the store keeps it."""
        core = f"{self.state} {self.version} {self.fence} {self.owner} {self.attempt} {self.flags or '-'} {self.moved}"
        options = (self.result_ttl, self.dead_ttl, self.key_ttl, self.tomb_ttl, self.max_resurrections)
        words = (self.at, self.expires, self.held, self.priority, *options, self.on_lost, self.durability)
        spec = " ".join("-" if word is None else str(word) for word in words)
        return f"{core:<96}\n{spec}\n{self.queue}\n{self.name}\n".encode() + self.body


@dataclass(frozen=True, slots=True)
class Item:
    """A submission as it is sent: a run of ITEM arguments."""

    id: str
    queue: str
    priority: int
    eta: int
    expires: int
    key: str
    on_conflict: str
    nonce: str
    options: bool
    tail: bytes
    extra: tuple[str, ...]  # flags, field, value, …
    opens: list[list[bytes]]  # headers of the batches that it creates

    @classmethod
    def read(cls, args: list[bytes], a: int) -> Item:
        task_id, queue, priority, eta, expires, key, on_conflict, nonce, options, tail, extra = args[a : a + ITEM]
        words = (key.decode(), on_conflict.decode(), nonce.decode())
        return cls(
            task_id.decode(),
            queue.decode(),
            int(priority),
            int(eta),
            int(expires),
            *words,
            options == b"1",
            tail,
            *_unpack(extra),
        )

    @staticmethod
    def absolute(number: int, now: int) -> int:
        """Return a time. Zero means none; a negative number means that many ms from now."""
        return now - number if number < 0 else number

    @property
    def join(self) -> tuple[int, str] | None:
        """Return how many parts the join waits for, and which one this end delivers."""
        word, *rest = self.on_conflict.split(" ")
        return (int(rest[0]), rest[1]) if word == "join" else None

    def record(self, at: int, now: int, charged: bool) -> Rec:
        rec = Rec("queued", self.queue, "", at, self.priority, b"")
        rec.say(self.tail)
        rec.expires = self.absolute(self.expires, now) if self.expires else None
        rec.held = len(self.tail) if charged else None
        rec.more = {name: value for name, value in (("key", self.key), ("nonce", self.nonce)) if value}
        rec.more.update(zip(self.extra[1::2], self.extra[2::2], strict=True))
        rec.flags = (
            ("m" if rec.more else "")
            + "".join(self.extra[:1])
            + ("o" if charged or self.expires or self.options else "")
        )
        return rec


def _unpack(extra: bytes) -> tuple[tuple[str, ...], list[list[bytes]]]:
    """Return flags and fields, and separately the headers of new batches."""
    words = unpack(extra) if extra else []
    opens = words[-1] if words and isinstance(words[-1], list) else []
    return tuple(word.decode() for word in (words[:-2] if opens else words)), opens


@dataclass(slots=True)
class BatchRec:
    """A batch, with its members by score, its plans and its results."""

    id: str
    state: str
    collects: str
    name: str
    parent: str
    root: str
    created: int
    lease: str
    result_ttl: str
    dead_ttl: str
    plans: dict[str, bytes] = field(default_factory=dict)
    ended: int = 0
    stopped: bool = False
    abandoned: bool = False
    fired: str = ""
    failed: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    callbacks: dict[str, str] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    results: dict[str, bytes] = field(default_factory=dict)

    def count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def add(self, name: str, n: int = 1) -> None:
        self.counts[name] = self.count(name) + n

    def fields(self) -> dict[bytes, bytes]:
        """Return the hash as the store keeps it."""
        words: dict[str, object] = {
            "state": self.state,
            "collects": self.collects,
            "name": self.name,
            "root": self.root,
            "created": self.created,
            "lease": self.lease,
            "result_ttl": self.result_ttl,
            "dead_ttl": self.dead_ttl,
            **self.counts,
            **{f"{name}_id": task_id for name, task_id in self.callbacks.items()},
        }
        given = {"parent": self.parent, "fired": self.fired, "failed": self.failed, "ended": self.ended or ""}
        given |= {"stopped": "1" if self.stopped else "", "abandoned": "1" if self.abandoned else ""}
        words |= {name: word for name, word in given.items() if word}
        return {name.encode(): str(word).encode() for name, word in words.items()}


@dataclass(slots=True)
class Sweep:
    """What a run of revive has done so far."""

    most: int
    deepest: int
    cause: str
    looked: int = 0
    deferred: int = 0
    removed: int = 0
    pending: int = 0
    outcomes: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Boot:
    """A registered node. `lanes`: lane -> (seq, [(id, fence), …]) of a worker's last claim."""

    lease_end: int  # on the ledger clock; 0 = declared lost
    lease: int
    registered: int
    role: str = "worker"
    helper_end: int = 0  # on the helpers' clock, for all other roles
    order: str = ""  # version and desired state
    report: str = ""
    lanes: dict[str, tuple[int, list[tuple[str, int]]]] = field(default_factory=dict)
    asked: set[tuple[str, int]] = field(default_factory=set)
    ran: int = 0
    cause: str = ""
    bare: bool = False  # known only as the owner of a task: not registered, therefore lost


@dataclass(slots=True)
class Hold:
    """The mark of one lock of user code. `task_id` and `fence` are '-' outside a task."""

    until: int
    token: str
    owner: str
    task_id: str
    fence: str
    done: bool = False
    result: bytes = b""

    def text(self) -> bytes:
        """Return the mark as the store keeps it."""
        state = "done" if self.done else "held"
        return f"{state} {self.until} {self.token} {self.owner} {self.task_id} {self.fence}\n".encode() + self.result


class TaskChange(NamedTuple):
    """A change of a task, as an event reports it. '-' means no state: before submission and after removal."""

    id: str
    was: str
    state: str
    version: int
    attempt: int
    fence: int
    worker: str
    queue: str
    name: str
    reason: str


class Entry(NamedTuple):
    """An entry of a stream of events. `last` is the number of its last change."""

    last: int
    us: int
    move: str
    rows: tuple[Any, ...]

    @property
    def id(self) -> str:
        return f"{self.last}-{self.us}"

    @property
    def first(self) -> int:
        return self.last - len(self.rows) + 1


@dataclass(slots=True)
class Timetable:
    """A schedule of a user. `next` is None unless it is active; `fires` are its last firings, newest first."""

    version: int
    state: str
    group: str
    origin: str
    definition: bytes
    next: int | None = None
    last: str = ""
    fired: int = 0
    fires: list[list[str]] = field(default_factory=list)

    @staticmethod
    def shown(fire: list[str]) -> bytes:
        """Return a firing as the store keeps it."""
        return json.dumps(fire, separators=(",", ":")).encode()


@dataclass(slots=True)
class Namespace:
    """Everything in a namespace. Times are in ms; `time_us` is the store's TIME, set from outside."""

    time_us: int = 1_700_000_000_000_000
    full: bool = False  # a full store refuses a script whose first write needs memory
    layout: str | None = None
    born: str = ""  # the birth mark
    removed_fired: int = 0  # the latest time of a firing of a removed timetable
    emptied: str = ""  # when a caller remembered another mark, and which mark
    tasks: dict[str, Rec] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    expiring: dict[str, int] = field(default_factory=dict)  # id of a task without an attempt -> expires
    ready: dict[str, dict[str, int]] = field(default_factory=dict)  # queue -> id -> order
    owned: dict[str, dict[str, int]] = field(default_factory=dict)  # boot -> id -> time of claim
    ended: dict[str, dict[str, float]] = field(default_factory=dict)  # state -> id -> end of life
    boots: dict[str, Boot] = field(default_factory=dict)
    idem: dict[str, tuple[str, int | None]] = field(default_factory=dict)  # key -> (id, until)
    rates: dict[str, int] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)  # the locks of user code
    timetables: dict[str, Timetable] = field(default_factory=dict)  # the schedules of users
    tombs: dict[str, tuple[int, str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    queues: set[str] = field(default_factory=set)
    idle: dict[str, int] = field(default_factory=dict)  # queue -> since when it has been empty
    pauses: dict[str, tuple[bool, int]] = field(default_factory=dict)
    bells: set[str] = field(default_factory=set)
    clock: tuple[int, int, int, int] | None = None  # now, last TIME, clamp, end of grace
    helper_clock: tuple[int, int, int, int] | None = None  # the same, for the leases of helpers
    # limits at run time; a lane is `<keys> <queue>`
    lanes: dict[str, str] = field(default_factory=dict)  # lane -> +head or -key
    lane_waits: dict[str, dict[str, int]] = field(default_factory=dict)  # lane -> id -> order
    sleepers: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)  # (key, queue) -> lane -> order
    pacers: dict[tuple[str, str], str] = field(default_factory=dict)  # (key, queue) -> id that waits for a rate, in due
    slots: dict[str, dict[str, int]] = field(default_factory=dict)  # key -> running id -> fence
    paces: dict[str, int] = field(default_factory=dict)  # key -> when its rate is idle (µs)
    limited: dict[str, int] = field(default_factory=dict)  # key -> live tasks
    limits: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)  # set by an operator, with its version
    lined_up: set[str] = field(default_factory=set)  # queues to ring at the end of a script
    batches: dict[str, BatchRec] = field(default_factory=dict)
    batch_index: dict[str, float] = field(default_factory=dict)  # outermost batch -> when a sweep must act
    opening: bool = False  # the running submit creates batches
    parted: list[tuple[str, str, bytes | None, str]] = field(
        default_factory=list
    )  # members that the running move ended
    going_on: str = ""  # the place of a member that continues as another task
    streams: dict[str, list[Entry]] = field(default_factory=dict)  # topic of events -> its entries
    event_numbers: dict[str, int] = field(default_factory=dict)
    watched: bool = False  # a reader of events left its mark
    told: list[TaskChange] = field(default_factory=list)  # changes of tasks in the running call
    told_news: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)  # changes of other topics
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)  # minute or hour -> field -> count
    counted: list[tuple[str, str]] = field(default_factory=list)  # outcomes of the running call
    answers: list[Any] = field(default_factory=list)  # the answers of a settling script so far
    # repair
    repair_turn: tuple[str, int] = ("0", 0)  # the shared cursor, and the time of the last turn
    repaired: dict[str, int] = field(default_factory=dict)  # by the running reconcile
    long_bells: set[str] = field(default_factory=set)  # that somebody rang by hand
    leftovers: dict[tuple[str, str], str] = field(default_factory=dict)  # (kind, of) of keys that belong to nothing
