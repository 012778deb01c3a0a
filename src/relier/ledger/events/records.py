"""The values that readers of events get, all frozen. No event carries a payload or a result."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, get_args

import msgspec

Topic = Literal["tasks", "batches", "schedules", "cluster"]
TOPICS: tuple[Topic, ...] = get_args(Topic)
# Every kind of event, by topic. For a task, its new state is a kind.
KINDS: dict[Topic, dict[str, str]] = {
    "tasks": {
        "scheduled": "The task waits until it is due.",
        "queued": "The task waits in its queue: pushed, retried, released, revived, replayed, or now due.",
        "running": "A worker has claimed it.",
        "done": "The result of the task is stored.",
        "dead": "The task is a dead letter; `reason` says why.",
        "cancelled": "The task will not run; `reason` says why.",
        "cancel_requested": "The worker was asked to stop the task.",
        "removed": "The record is gone: its retention is over, or an operator deleted it.",
    },
    "batches": {
        "open": "The batch was created, and takes more tasks.",
        "sealed": "The batch takes no more tasks; with the reason `replay`, a dead member runs again.",
        "cancelled": "Tasks of the batch that wait are cancelled. Workers are asked to stop the others.",
        "abandoned": "The producer stopped before it had added all tasks.",
        "ended": "All members have ended; `reason` is how.",
        "removed": "The record of the batch is gone.",
    },
    "schedules": {
        "created": "The schedule exists now.",
        "changed": "The definition of the schedule changed.",
        "paused": "The schedule does not fire until it is resumed.",
        "disabled": "The code that declared it no longer does.",
        "resumed": "The schedule fires again.",
        "ended": "The schedule has no further times.",
        "removed": "The schedule is gone.",
        "fired": "The schedule pushed a task, whose id is in `name`; `reason` is the intended time.",
        "duplicate": "The task of this time exists already.",
        "skipped_overlap": "The task before it, whose id is in `name`, has not ended.",
        "missed": "The schedule skipped times that had passed; `reason` is how many.",
    },
    "cluster": {
        "registered": "A worker or another node has started.",
        "retired": "A node has shut down.",
        "lost": "The lease of a node ran out, or its parent saw it die.",
        "paused": "Workers claim no tasks from this queue.",
        "resumed": "Workers claim tasks from this queue again.",
        "limit_set": "An operator changed a limit; `reason` has the numbers.",
        "limit_cleared": "The numbers of the tasks hold again.",
    },
}


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change, as the script that made it reported it.

    `kind` is what happened: for a task its new state, `cancel_requested` or `removed`. `id` is what changed: a task, a
    batch, a schedule by its name, a worker, a queue or a limit. Pass `cursor` as `since` to continue after this event.
    """

    topic: Topic
    kind: str
    id: str
    move: str  # the move of the ledger that made the change
    at_us: int  # the store's clock
    number: int  # changes are numbered per topic, without gaps
    cursor: str
    name: str = ""  # of the task or the batch; for a firing, the id of its task
    queue: str = ""
    old_state: str = ""  # empty: it is new
    new_state: str = ""  # empty: it is removed
    version: int = 0
    attempt: int = 0
    fence: str = ""
    worker_id: str = ""  # of the attempt that begins or ends
    reason: str = ""

    @property
    def at(self) -> datetime:
        """When the change was made, by the store's clock."""
        return datetime.fromtimestamp(self.at_us / 1e6, UTC)


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    """Some events of a topic cannot be delivered: read the state of what you follow, then continue.

    `count`: how many changes, None if unknown. `why`: `trimmed` (they were older than what is kept), `replaced` (the
    store was emptied or rolled back) or `unwatched` (no reader had left its mark, so they were not written).
    """

    topic: Topic
    why: Literal["trimmed", "replaced", "unwatched"]
    cursor: str
    count: int | None = None


class EventEntry(msgspec.Struct, frozen=True):
    """One entry of a stream: the changes of one call."""

    id: str
    move: str
    changes: tuple[Event, ...]

    @property
    def first(self) -> int:
        """The number of its first change."""
        return int(self.id.partition("-")[0]) - len(self.changes) + 1


class EventPage(msgspec.Struct, frozen=True):
    """Entries that a reader gets at once. `missed`: there are changes before them that cannot be delivered."""

    position: str
    entries: tuple[EventEntry, ...] = ()
    missed: bool = False
    count: int | None = None
