"""Limits at run time, as values: the limits of a task, and the answers to the moves on limits."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class LimitNumbers(msgspec.Struct, frozen=True):
    """Hold the numbers of a limit.

    `concurrency`: how many tasks may run at once (0: any number). `interval_us`: the time between two starts (0: none).

    `tolerance_us`: the burst, as the time in which that many starts would be due.
    """

    concurrency: int = 0
    interval_us: int = 0
    tolerance_us: int = 0

    def words(self) -> str:
        return f"{self.concurrency} {self.interval_us} {self.tolerance_us}"


class RunLimit(msgspec.Struct, frozen=True):
    """One limit of a task at run time. All tasks with the same key share its slots and its rate.

    `name`: shared by all keys of one declared limit. Operators change a limit by its name or by its key.
    """

    name: str
    key: str
    numbers: LimitNumbers

    def words(self) -> str:
        return f"{self.name} {self.key} {self.numbers.words()}"


class LimitChange(msgspec.Struct, frozen=True):
    """The answer to `limit`. `cursor`: for the next call; empty once all waiting tasks have been checked."""

    verdict: str
    version: int
    cursor: str


class LimitedKey(msgspec.Struct, frozen=True):
    """A key that limits live tasks.

    `numbers` and `name` come from a running task or, in `read_limits`, from a task that waits in a lane. Numbers that
    an operator set replace those of the task. Without such a task, `numbers` is None and `name` is empty.
    """

    key: str
    live: int
    running: int
    numbers: LimitNumbers | None
    name: str = ""


class LimitPage(msgspec.Struct, frozen=True):
    """One page of limited keys. `set`: name or key -> the numbers that an operator set, and their version."""

    now_ms: int
    cursor: str
    keys: tuple[LimitedKey, ...]
    set: Mapping[str, tuple[LimitNumbers, int]]
