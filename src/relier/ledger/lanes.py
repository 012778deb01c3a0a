"""The answer to `lanes`: the lanes of tasks that wait behind limits. See lua/lib/lanes.lua."""

from __future__ import annotations

import msgspec


class Lane(msgspec.Struct, frozen=True):
    """The tasks of one queue that have the same limit keys. At least one of them waits.

    `head`: the first task. It is in the queue or, if it waits for a rate, scheduled. A lane without a head sleeps on
    the limit `asleep_on`. `waiting`: the number of tasks behind the head. `last_score`: the score of the last of them.
    """

    name: str
    head: str
    asleep_on: str
    waiting: int
    last_score: str

    @property
    def queue(self) -> str:
        return self.name.partition(" ")[2]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.name.partition(" ")[0].split(","))


class LanePage(msgspec.Struct, frozen=True):
    """One page of lanes. `cursor`: for the next call; empty at the end. A page may be empty before the end."""

    cursor: str
    lanes: tuple[Lane, ...]
