"""The states of a task and its legal moves: one table, from which scripts are tested, docs and colours are made.

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
_FOLLOWS = ((None, _S), (None, _Q), (None, _CANCELLED), (_Q, _CANCELLED), (_S, _CANCELLED), (_S, _Q))

# submit may end another task, even one of the same call: one whose idempotency key it replaces. claim and promote end
# what has expired. commit and bury enter the tasks that follow from them, and queue one whose last part they bring.
# Whatever meets a record that cannot be read buries it.
MOVES: dict[str, Move] = {
    "submit": _move("producer", (None, _S), (None, _Q), (None, _CANCELLED), (_Q, _CANCELLED), (_S, _CANCELLED)),
    "claim": _move("worker", (_Q, _R), (_Q, _CANCELLED), (_Q, _DEAD)),
    "commit": _move("owner", (_R, _DONE), (_R, _DEAD), *_FOLLOWS),
    "retry": _move("owner", (_R, _S), (_R, _Q), (_R, _CANCELLED), (_R, _DEAD)),
    "release": _move("owner", (_R, _Q), (_R, _CANCELLED), (_R, _DEAD)),
    "bury": _move("owner", (_R, _DEAD), *_FOLLOWS),
    "forfeit": _move("owner", (_R, _Q), (_R, _DEAD), (_R, _CANCELLED)),
    "revive": _move("sweeper", (_R, _Q), (_R, _DEAD), (_R, _CANCELLED)),
    "promote": _move("sweeper", (_S, _Q), (_S, _CANCELLED), (_S, _DEAD), (_Q, _CANCELLED)),
    "reap": _move("sweeper", (_DONE, None), (_DEAD, None), (_CANCELLED, None)),
    "replay": _move("operator", (_DEAD, _Q)),
    "cancel": _move("operator", (_S, _CANCELLED), (_Q, _CANCELLED)),
    "discard": _move("operator", (_DONE, None), (_DEAD, None), (_CANCELLED, None)),
}

# Scripts that change no task's state.
MARKS = frozenset(
    {"checkpoint", "step", "progress", "register", "beat", "retire", "pause", "resume", "open"}
    | {"lock", "renew", "conclude", "unlock", "ring_outbox"}
)
READS = frozenset({"get", "steps", "list", "owned", "stats"})
