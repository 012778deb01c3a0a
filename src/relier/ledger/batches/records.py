"""The ledger's replies about batches as values, all frozen. Times are milliseconds on the store's TIME."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec


class BatchState(StrEnum):
    OPEN = "open"  # its producer may still add members
    SEALED = "sealed"  # the producer has added all members, and some have not ended
    ENDED = "ended"


class Stage(StrEnum):
    """The stage of a member of a batch, in the order of the index `members`."""

    LIVE = "live"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class BatchRecord(msgspec.Struct, frozen=True):
    """A batch at one moment.

    `size` counts members. `tasks` counts the tasks of the whole workflow; only the outermost batch has it. `failed`:
    the first task that failed. `fired`: the callbacks that have been queued. `stopped`: the batch was cancelled.
    """

    id: str
    state: BatchState
    name: str = ""
    size: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    tasks: int = 0
    tasks_done: int = 0
    tasks_dead: int = 0
    tasks_cancelled: int = 0
    collects: bool = False
    is_chain: bool = False
    stopped: bool = False
    abandoned: bool = False
    parent: str = ""
    root: str = ""
    failed: str = ""
    fired: frozenset[str] = frozenset()
    created_ms: int = 0
    ended_ms: int = 0
    callbacks: Mapping[str, str] = {}

    @property
    def left(self) -> int:
        """How many members have not ended."""
        return self.size - self.done - self.dead - self.cancelled

    @property
    def succeeded(self) -> bool:
        return self.state is BatchState.ENDED and self.done == self.size and not self.abandoned


class BatchAnswer(msgspec.Struct, frozen=True):
    """The answer to a move on a batch: its verdict, and the state of the batch now ("" if there is none)."""

    verdict: Literal["ok", "repeat", "closed", "abandoned", "missing"]
    state: str


class BatchCancelled(msgspec.Struct, frozen=True):
    """The answer to `cancel_batch`.

    `cursor`: where the next call begins, "" at the end. `inner`: inner batches to cancel too.
    """

    verdict: Literal["ok", "ended", "missing"]
    cursor: str
    inner: tuple[str, ...]


class BatchPage(msgspec.Struct, frozen=True):
    """One page of batches. `cursor` is None on the last page."""

    batches: tuple[BatchRecord, ...]
    cursor: str | None


class BatchMember(msgspec.Struct, frozen=True):
    """A member of a batch: a task, or an inner batch."""

    id: str
    place: int
    stage: Stage
    inner: bool = False
