"""What the checker remembers about every task and node: derived from calls and replies, not from the ledger's state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec.structs import replace

from proof.checker.timetable_ghost import GhostTimetable
from proof.model.state import Entry
from relier.ledger.defaults import DEAD_TTL_MS, PRIORITY_STEP_US, RESULT_TTL_MS
from relier.ledger.limit_records import LimitNumbers
from relier.ledger.records import Submission

LIVE = frozenset({"scheduled", "queued", "running"})


class Violation(AssertionError):
    """An invariant does not hold. `name` names the invariant."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail


@dataclass(slots=True)
class Ghost:
    """A task as the history says it must be. `fence` is the highest ever issued, `order` its place in its queue."""

    sub: Submission
    state: str
    at: int
    order: int
    due: int
    expires: int
    payload: bytes
    version: int = 1
    fence: int = 0
    owner: str = "-"
    attempt: int = 0
    deaths: int = 0
    scares: int = 0
    alone: bool = False
    asked: bool = False
    settled: str = ""
    committed: tuple[str, int] | None = None
    checkpoint: bytes | None = None
    mark: tuple[int, int] = (0, 0)  # fence and seq of the checkpoint
    steps: dict[str, bytes] = field(default_factory=dict)
    eol: float = 0
    lost: str = ""  # died with its worker and may not be retried: bury or hold
    reason: str = ""
    replayed: str = ""
    keeps: bool = False  # its place in the queue, while it is scheduled
    waits_for_rate: bool = False  # or waited when it was last scheduled
    since: dict[str, str] = field(default_factory=dict)  # reason -> since when it was put back for it (TIME, ms)

    def line_up(self, at_us: int) -> None:
        self.order = at_us - self.sub.priority * PRIORITY_STEP_US

    def goes_on_as(self, other: Submission) -> None:
        """Continue as another task under the same id. The key and its time stay, and so does the nonce of the push."""
        old = self.sub
        self.sub = replace(other, key=old.key, key_ttl_ms=old.key_ttl_ms, nonce=old.nonce, limits=old.limits)
        self.payload = other.payload

    def end(self, state: str, now: int) -> None:
        """Compute how long the ended task must be kept."""
        ttl = self.sub.result_ttl_ms
        keep = RESULT_TTL_MS if ttl is None else ttl
        if state == "done" and self.sub.key:
            keep = max(keep, self.sub.key_ttl_ms)
        if state == "dead":
            keep = DEAD_TTL_MS if self.sub.dead_ttl_ms is None else self.sub.dead_ttl_ms
        self.eol = float("inf") if self.lost == "hold" else now + keep
        if state != "dead":
            self.checkpoint, self.steps = None, {}


@dataclass(slots=True)
class GhostBoot:
    """A node. `seen`: virtual time (µs) of its last accepted sign of life. `credit`: what clock jumps since then may
    have cost it (ms).
    """

    lease: int
    seen: int
    credit: int = 0
    lost: bool = False
    ran: int = 0
    lanes: dict[str, tuple[int, dict[str, int]]] = field(default_factory=dict)
    role: str = "worker"
    order: str = ""  # what the answer to its next heartbeat must say

    @property
    def helps(self) -> bool:
        return self.role != "worker"


@dataclass(slots=True)
class GhostClock:
    """The clock that measures the leases of workers, or the one for helpers."""

    last_tick: int | None = None
    clamp: int = 0
    grace: int = 0  # virtual µs until which nobody may be declared lost


@dataclass(slots=True)
class GhostHold:
    """Who holds a lock of user code, and until when (TIME, ms), or the result that was stored."""

    token: str
    until: int
    owner: str
    task_id: str
    fence: str
    result: bytes | None = None


@dataclass(slots=True)
class GhostStrand:
    """One member of a batch, with all its links: the current link, its outcome, and the value that it was given."""

    at: int
    outcome: str = ""
    value: bytes = b""
    given: bytes | None = None


@dataclass(slots=True)
class GhostBatch:
    """A batch as the history says it must be, with its strands by their names in the simulated plan (flows.py)."""

    id: str
    open: bool
    lease_end: int = 0
    stopped: bool = False
    abandoned: bool = False
    ended: int | None = None
    fired: set[str] = field(default_factory=set)
    strands: dict[str, GhostStrand] = field(default_factory=dict)

    def count(self, outcome: str) -> int:
        return sum(1 for strand in self.strands.values() if strand.outcome == outcome)


class WrittenEntry(NamedTuple):
    """An entry of a stream of events, with the serial number that the checker gave it."""

    id: str
    serial: int
    last: int
    changes: int


@dataclass(slots=True)
class EventMemory:
    """What events have reported so far."""

    log: dict[str, list[WrittenEntry]] = field(default_factory=dict)  # topic -> all entries, also trimmed ones
    trimmed: dict[str, int] = field(default_factory=dict)
    entries: dict[str, list[Entry]] = field(default_factory=dict)  # topic -> its stream after the last call
    tasks: dict[str, tuple[str, int, str]] = field(default_factory=dict)  # id -> state, version, owner
    batches: dict[str, tuple[str, bool, bool]] = field(default_factory=dict)  # id -> state, stopped, abandoned
    schedules: dict[str, tuple[str, int]] = field(default_factory=dict)  # name -> state, version
    cluster: dict[tuple[str, str], str] = field(default_factory=dict)
    compared: tuple[Any, ...] = ()  # nodes, lost ones, pauses, limits when `cluster` was last compared with them


@dataclass(slots=True)
class OutcomeMemory:
    """What has been counted so far."""

    since: dict[str, int] = field(default_factory=dict)  # id -> when it came into its present state (ms)
    hashes: dict[str, dict[str, int]] = field(default_factory=dict)  # as after the last call


@dataclass(slots=True)
class Memory:
    """Everything that a rollback of the store also takes back in the checker."""

    ghosts: dict[str, Ghost] = field(default_factory=dict)
    boots: dict[str, GhostBoot] = field(default_factory=dict)
    paused: dict[str, bool] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    tombs: dict[str, int] = field(default_factory=dict)  # id -> until
    entered: int = 0  # submitted + replayed
    ended: int = 0
    holds: dict[str, GhostHold] = field(default_factory=dict)
    timetables: dict[str, GhostTimetable] = field(default_factory=dict)  # the schedules of users
    removed_fired: int = 0  # the latest time of a firing of a removed schedule
    occurrences: set[tuple[str, int]] = field(default_factory=set)  # (timetable, intended time) that ran
    tat: dict[str, int] = field(default_factory=dict)  # limit -> when it is idle (µs)
    admitted: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    limit_set: dict[str, tuple[LimitNumbers, int]] = field(default_factory=dict)  # set by an operator; with its version
    paced: dict[str, int] = field(default_factory=dict)  # limit key -> when its rate is idle (µs)
    ledger_now: int = 0
    workers_clock: tuple[int, int, int, int] | None = None  # as the store kept it after the last call
    clock: GhostClock = field(default_factory=GhostClock)
    helper_clock: GhostClock = field(default_factory=GhostClock)
    accepted: set[str] = field(default_factory=set)
    born: str = ""  # the birth mark
    batches: dict[str, GhostBatch] = field(default_factory=dict)
    emptied: bool = False  # a caller remembered another mark
    events: EventMemory = field(default_factory=EventMemory)
    outcomes: OutcomeMemory = field(default_factory=OutcomeMemory)

    def held(self, boot: str) -> list[str]:
        return [i for i, ghost in self.ghosts.items() if ghost.state == "running" and ghost.owner == boot]


def holds_key(ghost: Ghost, now: int) -> bool:
    """Return whether a task holds its key: while it is live, for the key's time after done, or while a person must
    decide.
    """
    if ghost.state in LIVE or ghost.lost:
        return True
    return ghost.state == "done" and key_until(ghost) > now


def key_until(ghost: Ghost) -> float:
    ttl = ghost.sub.result_ttl_ms
    keep = max(RESULT_TTL_MS if ttl is None else ttl, ghost.sub.key_ttl_ms)
    return ghost.eol - keep + ghost.sub.key_ttl_ms
