"""`@rl_task`: a typed function that can be pushed. Calling it still just calls it."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from relier import registry
from relier.arguments import Arguments
from relier.errors import ConfigurationError
from relier.ledger.checks import check_submission
from relier.ledger.records import Accepted, Admission, Submission
from relier.options import PushOptions, TaskOptions, durability_of, task_options
from relier.outbox.push import Writer, outbox_of
from relier.outbox.row import NewRow, new_row
from relier.store.call import Durability
from relier.submit.bulk import Bulk, blocks
from relier.submit.client import Client, default_client
from relier.submit.guards import Guards
from relier.submit.push import NO_OPTIONS, bytes_held, is_duplicate, level_of, submission_of, trouble_with
from relier.submit.receipt import SyncTaskReceipt, TaskReceipt

if TYPE_CHECKING:
    from relier.run.context import TaskContext

Migration = Callable[[dict[str, Any]], dict[str, Any]]
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
        level, task, admission = self._one(client, args, kwargs)
        (answer,) = await client.asubmit([task], admission, level)
        return TaskReceipt(answer.id, **self._about(client, level, self._judged(task, answer)))

    def push(self, *args: P.args, **kwargs: P.kwargs) -> SyncTaskReceipt[R]:
        """The same, blocking: for scripts, threads and sync frameworks. Works where an event loop runs, too."""
        client = default_client()
        level, task, admission = self._one(client, args, kwargs)
        (answer,) = client.submit([task], admission, level)
        return SyncTaskReceipt(answer.id, **self._about(client, level, self._judged(task, answer)))

    async def apush_many(
        self, calls: Iterable[tuple[Any, ...] | dict[str, Any]], *, task_ids: Iterable[str] | None = None
    ) -> list[TaskReceipt[R]]:
        """Push many calls, as many as you like: tuples are positional, dicts keyword arguments. Receipts in order.

        They are let in or refused as a whole. Where some fail otherwise, a PartialPushError says which. Every error
        that leaves it open what was accepted has `task_ids`: with them the same calls can be pushed again, and none
        becomes a second task.
        """
        client = default_client()
        bulk = Bulk(self._task, self._push, client, task_ids)
        for block in blocks(calls):
            bulk.add(block)
            await asyncio.sleep(0)
        while chunks := bulk.next_piece():
            bulk.heard(await client.asubmit_all(chunks, bulk.price(), bulk.level))
        return [TaskReceipt(one.id, **self._about(client, bulk.level, one.duplicate)) for one in bulk.pushed()]

    def push_many(
        self, calls: Iterable[tuple[Any, ...] | dict[str, Any]], *, task_ids: Iterable[str] | None = None
    ) -> list[SyncTaskReceipt[R]]:
        """The same, blocking."""
        client = default_client()
        bulk = Bulk(self._task, self._push, client, task_ids)
        for block in blocks(calls):
            bulk.add(block)
        while chunks := bulk.next_piece():
            bulk.heard(client.submit_all(chunks, bulk.price(), bulk.level))
        return [SyncTaskReceipt(one.id, **self._about(client, bulk.level, one.duplicate)) for one in bulk.pushed()]

    def push_in(self, where: Any, /, *args: P.args, **kwargs: P.kwargs) -> SyncTaskReceipt[R]:
        """Accept one call if and when a transaction commits: of a SQLAlchemy session or connection, or of a Django
        database, by its alias (None: the default one). Its id is known at once; a relay sends it after the commit."""
        return self.write_to(outbox_of(where), where, args, kwargs)

    async def apush_in(self, where: Any, /, *args: P.args, **kwargs: P.kwargs) -> TaskReceipt[R]:
        """The same, for async code."""
        return await self.awrite_to(outbox_of(where), where, args, kwargs)

    def write_to(self, outbox: Writer, where: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SyncTaskReceipt[R]:
        """`push_in` into this outbox."""
        client = default_client()
        row, about = self._row(client, args, kwargs)
        outbox.write(where, [row])
        return SyncTaskReceipt(row.task_id, **about)

    async def awrite_to(
        self, outbox: Writer, where: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TaskReceipt[R]:
        client = default_client()
        row, about = self._row(client, args, kwargs)
        await outbox.awrite(where, [row])
        return TaskReceipt(row.task_id, **about)

    def _row(self, client: Client, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[NewRow, dict[str, Any]]:
        _, task, admission = self._one(client, args, kwargs)
        check_submission(task, client.settings.max_payload_bytes)  # here, where the caller hears of it
        # No durability: none is reached, and nothing accepted, before a relay has sent it.
        about = {"read_result": self._task.arguments.decode_result, "client": client}
        return new_row(task, admission, self._push.order_key or ""), about

    def _one(
        self, client: Client, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Durability, Submission, Admission | None]:
        settings = client.settings
        level = level_of(self._task, self._push, client)
        submission = submission_of(self._task, args, kwargs, self._push, level, settings, client.keyring)
        held = bytes_held(submission) if settings.admission_max_bytes else 0
        guards = self._task.guards
        return level, submission, guards.admission(settings, guards.load(settings, [(args, kwargs)], held))

    def _judged(self, task: Submission, answer: Accepted) -> bool:
        """Whether an answered push is a duplicate; raises where it is no push at all."""
        trouble = trouble_with(task, answer, self._task.options.on_duplicate)
        if trouble is not None:
            raise trouble
        return is_duplicate(task, answer)

    def _about(self, client: Client, level: Durability, duplicate: bool) -> dict[str, Any]:
        return {
            "duplicate": duplicate,
            "durability": level,
            "read_result": self._task.arguments.decode_result,
            "client": client,
            "born": client.birth.mark,
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
        self.guards = Guards(self)
        self.migrations: dict[int, Migration] = {}

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
        idempotency_key: str | None = None,
        order_key: str | None = None,
    ) -> Pushable[P, R]:
        """The same task, pushed otherwise: `await t.with_options(delay=60).apush(…)`. `order_key`: rows of an outbox
        with the same one are sent in their order, by a relay with `--ordered`."""
        level = None if durability is None else durability_of(durability)
        return Pushable(
            self, PushOptions(task_id, delay, eta, expires, priority, queue, level, idempotency_key, order_key)
        )

    def migration(self, *, from_version: int) -> Callable[[Migration], Migration]:
        """Declare how a payload of `from_version` becomes one of the next version: `{"args": […], "kwargs": {…}}` in,
        and the same out. See run/migrations.py."""
        newest = self.options.schema_version - 1
        if isinstance(from_version, bool) or not isinstance(from_version, int) or not 1 <= from_version <= newest:
            raise ConfigurationError(
                f"task {self.name}: a migration leads from one of the versions 1 to {newest}, not {from_version!r}; "
                f"its schema_version is {self.options.schema_version}"
            )

        def keep(step: Migration) -> Migration:
            if from_version in self.migrations:
                raise ConfigurationError(f"task {self.name}: there are two migrations from version {from_version}")
            if not callable(step) or inspect.iscoroutinefunction(step):
                raise ConfigurationError(f"task {self.name}: a migration is a plain function, not {step!r:.60}")
            self.migrations[from_version] = step
            return step

        return keep

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
        if not _is_function(fn):
            raise ConfigurationError(f"@rl_task stands on a function (def or async def), not on {fn!r:.60}")
        options = task_options(registry.identity(fn), self._options)
        if options.name.endswith("<lambda>"):
            raise ConfigurationError(
                "@rl_task stands on a def, not on a lambda, which has no name; give it one: name=…"
            )
        if _is_method(fn):
            raise ConfigurationError(
                f"@rl_task stands on {options.name}, a method, and a worker has no object to call it on; make it a "
                f"function of the module, or a @staticmethod"
            )
        task: RlTask[Any, Any] = RlTask(fn, options)
        registry.register(task)
        return task


def _is_function(fn: Any) -> bool:
    """Or something else with a name that can be called like one: a static method, what another decorator made."""
    named = callable(fn) and not inspect.isclass(fn) and hasattr(fn, "__qualname__")
    return named and not inspect.isgeneratorfunction(fn) and not inspect.isasyncgenfunction(fn)


def _is_method(fn: Any) -> bool:
    """Whether it is defined in a class and takes `self`."""
    within = fn.__qualname__.rpartition(".")[0]
    if not inspect.isfunction(fn) or not within or within.endswith("<locals>"):
        return False
    return next(iter(inspect.signature(fn).parameters), "") == "self"


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
    dead_ttl, isolate (a process of its own), schema_version; admission (a key template or `Admit(…)`) and its weight;
    idempotent, idempotency_key (a template or a function), idempotency_ttl, on_duplicate ("return", "raise" or
    "replace").
    """
    decorator = Decorator(options)
    return decorator if fn is None else cast(RlTask[Any, Any], decorator(fn))
