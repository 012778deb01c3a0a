"""The states of a task and its legal moves, in one table. Tests, docs and colours derive from it.

scheduled ──promote──► queued ──claim──► running ──commit──► done
    ▲                    ▲  ▲              │ │ │
    └───── retry ────────┼──┼──────────────┘ │ └── bury ──► dead ──replay──► queued
                         │  └── release ─────┤
                         └── revive, forfeit ┘              cancel: any live state ──► cancelled
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


BY_WORD = {state.value: state for state in State}
LIVE = frozenset({State.SCHEDULED, State.QUEUED, State.RUNNING})
ENDED = frozenset({State.DONE, State.DEAD, State.CANCELLED})


@dataclass(frozen=True, slots=True)
class Move:
    """A change of state: who makes it, and every pair of states it may lead between. None: no record."""

    who: str
    pairs: frozenset[tuple[State | None, State | None]]


def _move(who: str, *pairs: tuple[State | None, State | None]) -> Move:
    return Move(who, frozenset(pairs))


_S, _Q, _R = State.SCHEDULED, State.QUEUED, State.RUNNING
_DONE, _DEAD, _CANCELLED = State.DONE, State.DEAD, State.CANCELLED
_ENTERS = ((None, _S), (None, _Q))  # the next tasks of a workflow, after the end of a member or of a batch
_FOLLOWS = ((None, _S), (None, _Q), (None, _CANCELLED), (_Q, _CANCELLED), (_S, _CANCELLED), (_S, _Q))

# submit may cancel another task, even one of the same call, if it takes over that task's idempotency key. claim and
# promote cancel expired tasks. claim schedules a task that must wait for a rate. commit and bury submit the follow-ups
# of a task, and queue a join when they deliver its last part. fire submits the tasks of a schedule. Every move that
# ends a member of a batch submits the next tasks of the workflow. Every move that finds an unreadable record buries it.
MOVES: dict[str, Move] = {
    "submit": _move("producer", (None, _S), (None, _Q), (None, _CANCELLED), (_Q, _CANCELLED), (_S, _CANCELLED)),
    "claim": _move("worker", (_Q, _R), (_Q, _S), (_Q, _CANCELLED), (_Q, _DEAD), *_ENTERS),
    "commit": _move("owner", (_R, _DONE), (_R, _DEAD), *_FOLLOWS),
    "retry": _move("owner", (_R, _S), (_R, _Q), (_R, _CANCELLED), (_R, _DEAD), *_ENTERS),
    "release": _move("owner", (_R, _Q), (_R, _CANCELLED), (_R, _DEAD), *_ENTERS),
    "bury": _move("owner", (_R, _DEAD), *_FOLLOWS),
    "forfeit": _move("owner", (_R, _Q), (_R, _DEAD), (_R, _CANCELLED), *_ENTERS),
    "revive": _move("sweeper", (_R, _Q), (_R, _DEAD), (_R, _CANCELLED), *_ENTERS),
    "promote": _move("sweeper", (_S, _Q), (_S, _CANCELLED), (_S, _DEAD), (_Q, _CANCELLED), *_ENTERS),
    "fire": _move("sweeper", (None, _S), (None, _Q), (None, _CANCELLED), (_Q, _CANCELLED), (_S, _CANCELLED)),
    "reap": _move("sweeper", (_DONE, None), (_DEAD, None), (_CANCELLED, None), *_ENTERS),
    "reconcile": _move("sweeper", *_ENTERS),
    "replay": _move("operator", (_DEAD, _Q)),
    "cancel": _move("operator", (_S, _CANCELLED), (_Q, _CANCELLED), *_ENTERS),
    "discard": _move("operator", (_DONE, None), (_DEAD, None), (_CANCELLED, None)),
    "open_batch": _move("producer", *_ENTERS),
    "seal_batch": _move("producer", *_ENTERS),
    "cancel_batch": _move("operator", (_S, _CANCELLED), (_Q, _CANCELLED), *_ENTERS),
}

# Scripts that change no task's state.
MARKS = frozenset(
    {"checkpoint", "step", "progress", "register", "beat", "retire", "order", "pause", "resume", "open"}
    | {"lock", "renew", "conclude", "unlock", "ring_outbox", "limit", "schedule", "unschedule", "extend_batch"}
    | {"watch"}
)
READS = frozenset(
    {"get", "steps", "list", "owned", "stats", "limits", "lanes", "schedules", "batch", "batches", "members"}
    | {"results", "events", "outcomes"}
)
