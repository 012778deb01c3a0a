"""Make a TaskContext of your own, without a store: `relier.testing.context(…)`.

    ctx = context(attempt=2, steps={"charge": "tx-1"})
    assert await fulfil.fn(ctx, 42) == "sent"
    assert ctx.recorded.steps == {"mail": "sent"}

Inside `with context(…):` it is the context of the running task: `task_context` finds it, and a direct call such as
`await fulfil(42)` gets it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from relier import codec
from relier.envelope import Envelope
from relier.ledger.records import Claimed, Lease, Submission, new_task_id
from relier.run.attempt import metadata_of
from relier.run.checkpoints import Checkpoints
from relier.run.context import TaskContext
from relier.run.current import entered
from relier.run.steps import BRANCH
from relier.settings import Settings, get_settings
from relier.submit.client import Client
from relier.task import RlTask
from relier.testing.memory import MemoryChannel, TaskMemory, claimed_from
from relier.testing.storeless import without_shards


@dataclass
class FakeClock:
    """Hold a time (s) that moves only when a test says so."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class RecordedWork:
    """Hold what a task recorded through its context. Models are plain dicts of their fields.

    steps        the results of the steps that ran, by name
    checkpoint   the value of the last `set_partial`, or the one that the test gave
    progress     the reports, as people read them
    """

    steps: dict[str, Any]
    checkpoint: Any
    progress: list[str]


class OwnContext(TaskContext):
    """A TaskContext that a test made. `clock` is the time that the context measures with."""

    def __init__(
        self,
        claimed: Claimed,
        envelope: Envelope,
        channel: MemoryChannel,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
        trusted_for: float | None,
    ) -> None:
        self.clock: FakeClock = channel.clock  # type: ignore[assignment]
        until = None if trusted_for is None else self.clock.now + trusted_for
        trusted = None if until is None else (lambda: until)
        super().__init__(claimed, channel, args, kwargs, metadata_of(claimed, envelope), trusted)
        self._memory, self._given = channel.memory, frozenset(channel.memory.steps)
        self._memory.lost = lambda: self.lost
        self._entered = ExitStack()
        self.begin_here()

    @property
    def recorded(self) -> RecordedWork:
        """Return what the task has recorded so far, without what the test gave."""
        memory = self._memory
        ran = {name: entry for name, entry in memory.steps.items() if name not in self._given}
        steps = {name: codec.decode(entry.partition(b":")[2]) for name, entry in ran.items()}
        return RecordedWork(steps, self.partial_result, list(memory.progress))

    def __enter__(self) -> Self:
        self._entered.enter_context(entered(self))
        self.begin_here()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the context. Raise, as a worker would, if the task forgot to await a step or a checkpoint."""
        self._entered.close()
        forgotten = self.never_awaited()
        if error is None and forgotten is not None:
            raise forgotten

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def context(
    task: RlTask[Any, Any] | str = "test",
    *,
    task_id: str = "",
    attempt: int = 1,
    fence: int = 1,
    worker_id: str = "test",
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    queue: str = "default",
    priority: int = 0,
    retries: int = 0,
    deaths: int = 0,
    steps: Mapping[str, Any] | None = None,
    checkpoint: Any = None,
    state: Any = None,
    trusted_for: float | None = None,
    clock: FakeClock | None = None,
) -> OwnContext:
    """Make a context. Pass it to the task's function, or enter it with `with` or `async with`.

    task         the task, or its name; needed for `ctx.exactly_once`
    steps        results of steps that earlier attempts recorded, by name: they do not run again
    checkpoint   what `ctx.partial_result` returns
    state        what a lifespan would have yielded
    trusted_for  the seconds after which the lease is in doubt, on the fake clock: `ctx.guard()` raises then
    """
    name = task if isinstance(task, str) else task.name
    submission = Submission(id=task_id or new_task_id(), name=name, payload=b"", queue=queue, priority=priority)
    memory = memory_with(steps or {}, checkpoint)
    claimed = claimed_from(submission, memory, attempt, Lease(submission.id, str(fence), worker_id), retries, deaths)
    schema = 1 if isinstance(task, str) else task.options.schema_version
    envelope = Envelope(schema_version=schema, pushed_ms=time.time_ns() // 1_000_000, trace="", body=b"")
    channel = MemoryChannel(Client(keyless_settings()), memory, state, clock or FakeClock())
    return OwnContext(claimed, envelope, channel, args, kwargs, trusted_for)


def memory_with(steps: Mapping[str, Any], checkpoint: Any) -> TaskMemory:
    """Return the records of earlier attempts, as the test gives them. The order of these steps does not matter."""
    known = {name: codec.encode(value, f"the step {name!r}", models=True) for name, value in steps.items()}
    memory = TaskMemory({name: b"%s1:" % BRANCH + entry for name, entry in known.items()})
    if checkpoint is not None:
        memory.checkpoint = Checkpoints(keyless_settings(), "", "").dump(checkpoint)[1]
    return memory


def keyless_settings() -> Settings:
    """Return the settings of the environment without signing and encryption keys: the tasks stay in this process."""
    return without_shards(get_settings()).replace(signing_keys="", encryption_keys="")
