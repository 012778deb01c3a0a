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
        "queued": "The task waits in its queue: pushed, retried, handed back, put back, revived, replayed, or due now.",
        "running": "A worker has claimed the task.",
        "done": "The result of the task is stored.",
        "dead": "The task is a dead letter; `reason` says why.",
        "cancelled": "The task was cancelled, before it started or while it ran; `reason` says why.",
        "cancel_requested": "The worker was asked to stop the task.",
        "removed": "The record of the task is gone: its retention is over, or an operator deleted it.",
    },
    "batches": {
        "open": "The batch was created, and its producer can add tasks.",
        "sealed": "The producer has added all tasks; only running members can add more. With the reason `replay`: the "
        "batch had ended, and a dead member was replayed.",
        "cancelled": "Tasks of the batch that wait are cancelled. Workers are asked to stop the others.",
        "abandoned": "The producer stopped before it had added all tasks.",
        "ended": "All members have ended; `reason` is `done`, `dead` or `cancelled`.",
        "removed": "The record of the batch is gone.",
    },
    "schedules": {
        "created": "The schedule exists now.",
        "changed": "The definition of the schedule changed.",
        "paused": "The schedule does not fire until it is resumed.",
        "disabled": "The code that declared the schedule no longer declares it.",
        "resumed": "The schedule fires again.",
        "ended": "The schedule has no further times.",
        "removed": "The schedule is gone.",
        "fired": "The schedule pushed a task, whose id is in `name`; `reason` is the intended time.",
        "duplicate": "No task was pushed, because the task exists already; its id is in `name`.",
        "skipped_overlap": "No task was pushed, because the previous one, whose id is in `name`, has not ended.",
        "missed": "The schedule skipped times that had passed; `reason` is the number of these times.",
    },
    "cluster": {
        "registered": "A worker or another node has started.",
        "retired": "A node has shut down.",
        "lost": "The lease of a node ran out, or its parent saw it die.",
        "paused": "Workers claim no tasks from this queue.",
        "resumed": "Workers claim tasks from this queue again.",
        "limit_set": "An operator changed a limit; `reason` has the new numbers.",
        "limit_cleared": "An operator withdrew a changed limit; the numbers in the code apply again.",
    },
}


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change, as the script that made it reported it.

    `kind` says what happened: for a task its new state, `cancel_requested` or `removed`. `id` says what changed: the id
    of a task, batch or node, or the name of a schedule, queue or limit. Pass `cursor` as `since` to continue after this
    event.
    """

    topic: Topic
    kind: str
    id: str
    move: str  # the move of the ledger that made the change
    at_us: int  # the store's clock
    number: int  # changes are numbered per topic, without gaps
    cursor: str
    name: str = ""  # of the task or the batch; of a schedule that was due: the id of a task
    queue: str = ""
    old_state: str = ""  # empty: did not exist before
    new_state: str = ""  # empty: no longer exists
    version: int = 0  # grows with every change of the record
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

    `count` is the number of changes whose events are missing, or None if the number is unknown. `why` says why they are
    missing. `trimmed`: they were older than the events that are kept. `replaced`: the store was emptied or rolled back.
    `unwatched`: with RELIER_EVENTS=watched, events are written only while somebody reads them, and nobody did.
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
