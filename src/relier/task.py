"""`@rl_task`: a typed function that can be pushed. Calling it still just calls it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from relier import registry
from relier.arguments import Arguments
from relier.errors import ConfigurationError
from relier.ledger.records import Accepted, Submission
from relier.options import PushOptions, TaskOptions, durability_of, task_options
from relier.store.call import Durability
from relier.submit.client import Client, default_client
from relier.submit.push import (
    NO_OPTIONS,
    all_accepted,
    call_of,
    is_duplicate,
    level_of,
    submission_of,
    submits,
)
from relier.submit.receipt import SyncTaskReceipt, TaskReceipt

if TYPE_CHECKING:
    from relier.run.context import TaskContext

P = ParamSpec("P")
R = TypeVar("R")


class Pushable(Generic[P, R]):
    """A task with the options of its next pushes."""

    def __init__(self, task: RlTask[P, R], push: PushOptions) -> None:
        self._task = task
        self._push = push

    async def apush(self, *args: P.args, **kwargs: P.kwargs) -> TaskReceipt[R]:
        """Accept one call; when this returns, the record exists."""
        client = default_client()
        level = level_of(self._task, self._push, client)
        task = submission_of(self._task, args, kwargs, self._push, level, client.settings)
        (answer,) = await client.asubmit([task], level)
        return TaskReceipt(answer.id, **self._about(client, level, task, answer))

    def push(self, *args: P.args, **kwargs: P.kwargs) -> SyncTaskReceipt[R]:
        """The same, blocking: for scripts, threads and sync frameworks. Works where an event loop runs, too."""
        client = default_client()
        level = level_of(self._task, self._push, client)
        task = submission_of(self._task, args, kwargs, self._push, level, client.settings)
        (answer,) = client.submit([task], level)
        return SyncTaskReceipt(answer.id, **self._about(client, level, task, answer))

    async def apush_many(self, calls: Iterable[tuple[Any, ...] | dict[str, Any]]) -> list[TaskReceipt[R]]:
        """Many calls, a hundred to a script: tuples are positional, dicts keyword arguments. Receipts in order."""
        client = default_client()
        level, tasks = self._many(client, calls)
        chunks = submits(client, tasks, level)
        await client.aopen()
        pairs = all_accepted(chunks, await client.store.run_many(call for _, call in chunks))
        return [TaskReceipt(answer.id, **self._about(client, level, task, answer)) for task, answer in pairs]

    def push_many(self, calls: Iterable[tuple[Any, ...] | dict[str, Any]]) -> list[SyncTaskReceipt[R]]:
        """The same, blocking."""
        client = default_client()
        level, tasks = self._many(client, calls)
        chunks = submits(client, tasks, level)
        client.open()
        pairs = all_accepted(chunks, client.sync_store.run_many(call for _, call in chunks))
        return [SyncTaskReceipt(answer.id, **self._about(client, level, task, answer)) for task, answer in pairs]

    def _many(self, client: Client, calls: Iterable[Any]) -> tuple[Durability, list[Submission]]:
        level = level_of(self._task, self._push, client)
        if self._push.task_id is not None:
            raise ConfigurationError("push_many makes an id per task; task_id names one: push that one alone")
        return level, [submission_of(self._task, *call_of(item), self._push, level, client.settings) for item in calls]

    def _about(self, client: Client, level: Durability, task: Submission, answer: Accepted) -> dict[str, Any]:
        return {
            "duplicate": is_duplicate(task, answer),
            "durability": level,
            "read_result": self._task.arguments.decode_result,
            "client": client,
        }


class RlTask(Pushable[P, R]):
    """A function that can be pushed. `name` is its identity: module and name, unless it was given one."""

    __name__: str
    __qualname__: str

    def __init__(self, fn: Callable[..., Any], options: TaskOptions) -> None:
        super().__init__(self, NO_OPTIONS)
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.options = options
        self.name = options.name
        self.is_async = inspect.iscoroutinefunction(fn)
        self.arguments = Arguments.of(fn)

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self.fn(*args, **kwargs)

    def with_options(
        self,
        *,
        task_id: str | None = None,
        delay: Any = None,
        eta: Any = None,
        expires: Any = None,
        priority: int | None = None,
        queue: str | None = None,
        durability: Durability | str | None = None,
    ) -> Pushable[P, R]:
        """The same task, pushed otherwise: `await t.with_options(delay=60).apush(…)`."""
        level = None if durability is None else durability_of(durability)
        return Pushable(self, PushOptions(task_id, delay, eta, expires, priority, queue, level))

    def receipt(self, task_id: str) -> TaskReceipt[R]:
        """The receipt of an earlier `apush`, from its id."""
        return TaskReceipt(task_id, read_result=self.arguments.decode_result)

    def sync_receipt(self, task_id: str) -> SyncTaskReceipt[R]:
        """The receipt of an earlier `push`, from its id."""
        return SyncTaskReceipt(task_id, read_result=self.arguments.decode_result)


class Decorator:
    """`@rl_task(…)`: what is left to do once the options are known."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    @overload
    def __call__(self, fn: Callable[Concatenate[TaskContext, P], Awaitable[R]]) -> RlTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]]) -> RlTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[TaskContext, P], R]) -> RlTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R]) -> RlTask[P, R]: ...
    def __call__(self, fn: Callable[..., Any]) -> RlTask[Any, Any]:
        if not callable(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise ConfigurationError(f"@rl_task stands on a function (def or async def), not on {fn!r:.60}")
        task: RlTask[Any, Any] = RlTask(fn, task_options(registry.identity(fn), self._options))
        registry.register(task)
        return task


@overload
def rl_task(fn: Callable[Concatenate[TaskContext, P], Awaitable[R]], /) -> RlTask[P, R]: ...
@overload
def rl_task(fn: Callable[P, Awaitable[R]], /) -> RlTask[P, R]: ...
@overload
def rl_task(fn: Callable[Concatenate[TaskContext, P], R], /) -> RlTask[P, R]: ...
@overload
def rl_task(fn: Callable[P, R], /) -> RlTask[P, R]: ...
@overload
def rl_task(**options: Any) -> Decorator: ...
def rl_task(fn: Callable[..., Any] | None = None, /, **options: Any) -> RlTask[Any, Any] | Decorator:
    """Make a function a task, bare or with options.

    name, queue, priority (−9 … 9), soft_timeout, hard_timeout, on_soft_timeout (called with the TaskContext),
    max_resurrections, retries (a number or `Retries(…)`), on_lost ("retry", "bury", "hold"), durability, result_ttl,
    dead_ttl, isolate (a process of its own), schema_version.
    """
    decorator = Decorator(options)
    return decorator if fn is None else cast(RlTask[Any, Any], decorator(fn))
