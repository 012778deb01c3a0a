"""Define `@rl_task`, which makes a typed function that can be pushed. Calling the task still calls the function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, final, overload

from relier import registry
from relier.arguments import Arguments
from relier.arguments.direct_call import call_directly
from relier.errors import ConfigurationError
from relier.options import (
    DurabilityName,
    GivenTaskOptions,
    PushOptions,
    Span,
    TaskOptions,
    durability_of,
    task_options,
)
from relier.store.call import Durability
from relier.submit.guards import Guards
from relier.submit.in_task import pushing_attempt
from relier.submit.push import NO_OPTIONS
from relier.submit.receipt import SyncTaskReceipt, TaskReceipt
from relier.task.other_queues import no_attribute, refuse_other_options, refuse_unknown
from relier.task.pushable import Pushable

if TYPE_CHECKING:
    from relier.run.context import TaskContext

Migration = Callable[[dict[str, Any]], dict[str, Any]]
P = ParamSpec("P")
R = TypeVar("R")


class RlTask(Pushable[P, R]):
    """Represent a function that can be pushed. `name` identifies the task: module and name, unless it was given one."""

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
        self.guards = Guards(self)
        self.migrations: dict[int, Migration] = {}

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function here and now. The context and dependencies are filled in unless they are passed."""
        if not self.arguments.injected:
            return self.fn(*args, **kwargs)
        running = pushing_attempt.get()
        return call_directly(self.arguments, self.fn, args, kwargs, running and running.context)

    @refuse_unknown
    def with_options(
        self,
        *,
        task_id: str | None = None,
        delay: Span | None = None,
        eta: datetime | None = None,
        expires: Span | datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        durability: Durability | DurabilityName | None = None,
        idempotency_key: str | None = None,
        order_key: str | None = None,
    ) -> Pushable[P, R]:
        """Return the same task with other options for its pushes: `await t.with_options(delay=60).apush(…)`.

        `order_key`: a relay with `--ordered` sends outbox rows that have the same key in their order.
        """
        level = None if durability is None else durability_of(durability)
        return Pushable(
            self, PushOptions(task_id, delay, eta, expires, priority, queue, level, idempotency_key, order_key)
        )

    def migration(self, *, from_version: int) -> Callable[[Migration], Migration]:
        """Register a function that turns a payload of `from_version` into one of the next version.

        The function gets and returns `{"args": […], "kwargs": {…}}`. See run/migrations.py.
        """
        newest = self.options.schema_version - 1
        if isinstance(from_version, bool) or not isinstance(from_version, int) or not 1 <= from_version <= newest:
            raise ConfigurationError(
                f"task {self.name}: from_version must be from 1 to {newest}, not {from_version!r}, because the task's "
                f"schema_version is {self.options.schema_version}"
            )

        def keep(step: Migration) -> Migration:
            if from_version in self.migrations:
                raise ConfigurationError(f"task {self.name} has two migrations from version {from_version}; remove one")
            if not callable(step) or inspect.iscoroutinefunction(step):
                raise ConfigurationError(f"task {self.name}: a migration must be a plain function, not {step!r:.60}")
            self.migrations[from_version] = step
            return step

        return keep

    def receipt(self, task_id: str) -> TaskReceipt[R]:
        """Return the receipt of an earlier `apush`, from the task's id."""
        return TaskReceipt(task_id, read_result=self.arguments.decode_result)

    def sync_receipt(self, task_id: str) -> SyncTaskReceipt[R]:
        """Return the receipt of an earlier `push`, from the task's id."""
        return SyncTaskReceipt(task_id, read_result=self.arguments.decode_result)

    if not TYPE_CHECKING:  # a type checker would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self.__dict__.get("name", "a task"), name)


class AsyncRlTask(RlTask[P, R]):
    """Represent an `async def` that can be pushed. Calling it returns a coroutine."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        coroutine: Coroutine[Any, Any, R] = super().__call__(*args, **kwargs)
        return coroutine


class SyncRlTask(RlTask[P, R]):
    """Represent a `def` that can be pushed. Calling it returns its value."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        value: R = super().__call__(*args, **kwargs)
        return value


@final
class AnyFirst:
    """Match functions whose first parameter accepts any value, so that type checkers do not mistake it for `ctx`.

    Type checkers do not check the arguments of such a task. A TaskContext would fit its first parameter as well, and
    no type can say that the decorator drops a TaskContext but keeps any other first parameter.
    """


class TaskDecorator:
    """Make a function a task, with the options given to `@rl_task(…)`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    @overload
    def __call__(self, fn: Callable[Concatenate[AnyFirst, P], Awaitable[R]]) -> AsyncRlTask[..., R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[Concatenate[TaskContext, P], Awaitable[R]]) -> AsyncRlTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]]) -> AsyncRlTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[Concatenate[AnyFirst, P], R]) -> SyncRlTask[..., R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[TaskContext, P], R]) -> SyncRlTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R]) -> SyncRlTask[P, R]: ...
    def __call__(self, fn: Callable[..., Any]) -> RlTask[Any, Any]:
        if not _is_function(fn):
            raise ConfigurationError(f"@rl_task decorates a function (def or async def), not {fn!r:.60}")
        refuse_other_options(registry.identity(fn), self._options)
        options = task_options(registry.identity(fn), self._options)
        if options.name.endswith("<lambda>"):
            raise ConfigurationError("@rl_task needs a name for a lambda, which has none; pass name=…, or use def")
        if _is_method(fn):
            raise ConfigurationError(
                f"@rl_task decorates {options.name}, a method, but a worker has no object to call it on; make it a "
                f"function of the module, or a @staticmethod"
            )
        kind = AsyncRlTask if inspect.iscoroutinefunction(fn) else SyncRlTask
        task: RlTask[Any, Any] = kind(fn, options)
        registry.register(task)
        if options.schedule is not None:
            from relier.schedules.declared import schedule_task  # a process without schedules does not pay for it

            schedule_task(task, options.schedule)
        return task


def _is_function(fn: Any) -> bool:
    """Return whether `fn` is a function or can be called like one: a static method, the result of a decorator."""
    named = callable(fn) and not inspect.isclass(fn) and hasattr(fn, "__qualname__")
    return named and not inspect.isgeneratorfunction(fn) and not inspect.isasyncgenfunction(fn)


def _is_method(fn: Any) -> bool:
    """Return whether `fn` is defined in a class and takes `self`."""
    within = fn.__qualname__.rpartition(".")[0]
    if not inspect.isfunction(fn) or not within or within.endswith("<locals>"):
        return False
    return next(iter(inspect.signature(fn).parameters), "") == "self"


@overload
def rl_task(fn: Callable[Concatenate[AnyFirst, P], Awaitable[R]], /) -> AsyncRlTask[..., R]: ...  # type: ignore[overload-overlap]
@overload
def rl_task(fn: Callable[Concatenate[TaskContext, P], Awaitable[R]], /) -> AsyncRlTask[P, R]: ...  # type: ignore[overload-overlap]
@overload
def rl_task(fn: Callable[P, Awaitable[R]], /) -> AsyncRlTask[P, R]: ...  # type: ignore[overload-overlap]
@overload
def rl_task(fn: Callable[Concatenate[AnyFirst, P], R], /) -> SyncRlTask[..., R]: ...
@overload
def rl_task(fn: Callable[Concatenate[TaskContext, P], R], /) -> SyncRlTask[P, R]: ...
@overload
def rl_task(fn: Callable[P, R], /) -> SyncRlTask[P, R]: ...
@overload
def rl_task(**options: Unpack[GivenTaskOptions]) -> TaskDecorator: ...
def rl_task(fn: Callable[..., Any] | None = None, /, **options: Any) -> RlTask[Any, Any] | TaskDecorator:
    """Make a function a task: `@rl_task`, or `@rl_task(…)` with options.

    name, queue, priority (−9 … 9), soft_timeout, hard_timeout, on_soft_timeout (called with the TaskContext),
    max_resurrections, retries (a number or `Retries(…)`), on_lost ("retry", "bury", "hold"), durability, result_ttl,
    dead_ttl, isolate (runs in its own process), schema_version; admission (a key template or `Admit(…)`) and its
    weight; limits (`Limit(…)` or several) on how many run at once and how often; idempotent, idempotency_key (a
    template or a function), idempotency_ttl, on_duplicate ("return", "raise" or "replace"); middleware around its runs,
    push_middleware around its pushes; on_start, on_success, on_retry, on_dead and on_revived (called with a TaskEvent);
    schedule (a cron expression, `Cron(…)`, `Every(…)`, `At(…)`): when it runs by itself.
    """
    decorator = TaskDecorator(options)
    return decorator if fn is None else cast(RlTask[Any, Any], decorator(fn))
