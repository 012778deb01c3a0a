"""The tasks of the conformance suite. They note what a test must know about a run in the folder that the test
passes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pydantic

from relier import LeaseLostError, Retries, TaskContext, rl_task, task_context
from tests.support.conformance.signals import LOOK_S, block_until_noted, note, until_noted

SCHEMA = int(os.environ.get("CONFORMANCE_SCHEMA", "1"))  # which version of the code this worker runs


# --- results -----------------------------------------------------------------------------------------------------


@rl_task
def add(a: int, b: int = 0) -> int:
    return a + b


@rl_task
async def aadd(a: int, b: int = 0) -> int:
    await asyncio.sleep(0)
    return a + b


@rl_task(isolate=True)
def add_alone(a: int, b: int = 0) -> int:
    return a + b


@rl_task
async def nothing() -> None:
    return None


@rl_task
async def echo(value: Any) -> Any:
    return value


@rl_task(queue="other")
async def echo_on_other(value: Any) -> Any:
    return value


@rl_task(isolate=True)
async def echo_alone(value: Any) -> Any:
    return value


@rl_task
async def who_am_i() -> str:
    return "tasks"


@rl_task
async def unencodable() -> Any:
    return object()


@rl_task(isolate=True)
async def unencodable_alone() -> Any:
    return object()


@rl_task
async def large(size: int) -> str:
    return "x" * size


@rl_task(result_ttl=0)
async def forgotten() -> str:
    return "soon gone"


@rl_task(name="versioned", schema_version=SCHEMA)
async def versioned(value: str) -> str:
    return f"{value} by version {SCHEMA}"


if SCHEMA > 1:

    @versioned.migration(from_version=1)
    def nothing_changed(payload: dict[str, Any]) -> dict[str, Any]:
        return payload


# --- models ------------------------------------------------------------------------------------------------------


class Colour(Enum):
    RED = 1
    BLUE = "blue"


@dataclass
class Line:
    article: str
    price: Decimal
    tags: set[str] = field(default_factory=set)


@dataclass
class Order:
    id: UUID
    day: date
    lines: list[Line]
    colour: Colour = Colour.RED


class Point(msgspec.Struct):
    x: float
    at: datetime


class Customer(pydantic.BaseModel):
    name: str
    since: datetime
    points: dict[int, Decimal]


@rl_task
async def order_of(order: Order, *, more: Line) -> Order:
    assert isinstance(order, Order)
    assert isinstance(more, Line)
    order.lines.append(more)
    return order


@rl_task
def point_of(point: Point) -> Point:
    assert isinstance(point, Point)
    return Point(point.x + 1, point.at)


@rl_task(isolate=True)
async def customer_of(customer: Customer, colour: Colour) -> Customer:
    assert isinstance(customer, Customer)
    assert colour is Colour.BLUE
    return customer.model_copy(update={"name": customer.name.upper()})


# --- failures ----------------------------------------------------------------------------------------------------


class DeclinedError(Exception):
    """An error with its own arguments, which must survive."""

    def __init__(self, code: str, cents: int) -> None:
        super().__init__(code, cents)
        self.code = code
        self.cents = cents

    def __str__(self) -> str:
        return f"declined: {self.code}"


@rl_task
async def decline(code: str, cents: int) -> None:
    raise DeclinedError(code, cents)


@rl_task
def decline_def(code: str, cents: int) -> None:
    raise DeclinedError(code, cents)


@rl_task(isolate=True)
async def decline_alone(code: str, cents: int) -> None:
    raise DeclinedError(code, cents)


DECLINES = {"async": decline, "def": decline_def, "isolated": decline_alone}


@rl_task
async def fail_strangely() -> None:
    class StrangeError(Exception):  # nobody else can know it
        pass

    raise StrangeError("only I know what this is")


@rl_task
async def leave() -> None:
    sys.exit(7)


@rl_task
def leave_def() -> None:
    sys.exit(7)


def _fail_until(folder: str, succeeds_at: int, error: str) -> str:
    note(folder, "runs", task_context.attempt)
    if task_context.attempt < succeeds_at:
        raise {"KeyError": KeyError, "ValueError": ValueError, "LookupError": LookupError}[error](folder)
    return f"attempt {task_context.attempt}"


@rl_task(retries=Retries(attempts=2, backoff=0.02, jitter=0))
async def flaky(folder: str, succeeds_at: int) -> str:
    return _fail_until(folder, succeeds_at, "KeyError")


@rl_task(retries=Retries(attempts=2, backoff=60, factor=3, jitter=0))
async def flaky_for_minutes(folder: str) -> str:
    return _fail_until(folder, 99, "KeyError")


@rl_task(retries=Retries(attempts=1, backoff=0, retry_on=LookupError))
async def retried_on_lookup(folder: str, error: str) -> str:
    return _fail_until(folder, 99, error)


@rl_task(retries=Retries(attempts=1, backoff=0, never_on=(KeyError, TypeError)))
def never_retried_on_key(folder: str, error: str) -> str:
    return _fail_until(folder, 99, error)


@rl_task(retries=2, isolate=True)
async def flaky_alone(folder: str, succeeds_at: int) -> str:
    return _fail_until(folder, succeeds_at, "KeyError")


class StatusError(Exception):
    """An error that cannot be rebuilt from its `args`."""

    def __init__(self, *, status: int) -> None:
        super().__init__(f"status {status}")


@rl_task(isolate=True, retries=Retries(attempts=1, backoff=0, retry_on=StatusError))
def retried_on_status_alone() -> None:
    raise StatusError(status=503)


@rl_task(isolate=True, retries=Retries(attempts=1, backoff=0, never_on=StatusError))
def never_retried_on_status_alone() -> None:
    raise StatusError(status=400)


@rl_task(retries=Retries(attempts=1, backoff=0))
async def fails_then_waits(folder: str) -> str:
    note(folder, "runs", f"{task_context.attempt} {task_context.fence}")
    if task_context.attempt == 1:
        raise ValueError("the first attempt")
    await until_noted(folder, "go")
    return "went"


@rl_task
async def needs(folder: str, name: str) -> str:
    """Fail as long as there is no such note."""
    note(folder, "runs", task_context.attempt)
    if not os.path.exists(os.path.join(folder, name)):  # noqa: ASYNC240
        raise FileNotFoundError(name)
    return f"found {name}"


# --- waiting, in every way a task can run --------------------------------------------------------------------------


async def _wait(folder: str) -> str:
    note(folder, "runs", f"{task_context.attempt} {task_context.worker_id}")
    try:
        await until_noted(folder, "go")
    except asyncio.CancelledError:
        note(folder, "stopped", task_context.attempt)
        raise
    return f"attempt {task_context.attempt}"


def _block(folder: str) -> str:
    note(folder, "runs", f"{task_context.attempt} {task_context.worker_id}")
    try:
        block_until_noted(folder, "go")
    except BaseException:
        note(folder, "stopped", task_context.attempt)
        raise
    return f"attempt {task_context.attempt}"


@rl_task
async def wait(folder: str) -> str:
    return await _wait(folder)


@rl_task
def wait_def(folder: str) -> str:
    return _block(folder)


@rl_task(isolate=True)
async def wait_alone(folder: str) -> str:
    return await _wait(folder)


@rl_task(isolate=True)
def wait_alone_def(folder: str) -> str:
    return _block(folder)


WAITS = {"async": wait, "def": wait_def, "isolated async": wait_alone, "isolated def": wait_alone_def}


@rl_task(hard_timeout=0.4)
async def hang(folder: str) -> str:
    return await _wait(folder)


@rl_task(hard_timeout=0.4)
def hang_def(folder: str) -> str:
    return _block(folder)


@rl_task(hard_timeout=0.4, isolate=True)
async def hang_alone(folder: str) -> str:
    return await _wait(folder)


@rl_task(hard_timeout=0.4, isolate=True)
def hang_alone_def(folder: str) -> str:
    return _block(folder)


def plainly(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that does not know coroutines: it turns an `async def` into a `def`."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call


@rl_task(hard_timeout=0.4)
@plainly
async def hang_decorated(folder: str) -> str:
    return await _wait(folder)


HANGS = {
    "async": hang,
    "def": hang_def,
    "async, decorated": hang_decorated,
    "isolated async": hang_alone,
    "isolated def": hang_alone_def,
}


@rl_task(hard_timeout=0.3, retries=Retries(attempts=1, backoff=0))
async def hang_twice(folder: str) -> str:
    return await _wait(folder)


@rl_task(hard_timeout=0.3)
async def returns_when_stopped(folder: str) -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await _wait(folder)
    return "too late"


@rl_task
async def finishes_when_stopped(folder: str) -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await _wait(folder)
    return "finished all the same"


@rl_task
async def cleans_up_when_stopped(folder: str) -> str:
    """Clean up for as long as the test wants, and note every further attempt to stop the task."""
    try:
        return await _wait(folder)
    finally:
        await _noting_stops(folder, "cleaned")


@rl_task
def cleans_up_when_stopped_def(folder: str) -> str:
    try:
        return _block(folder)
    finally:
        try:
            block_until_noted(folder, "cleaned")
        except BaseException:
            note(folder, "stopped", "again")
            raise


async def _noting_stops(folder: str, name: str) -> None:
    try:
        await until_noted(folder, name)
    except asyncio.CancelledError:
        note(folder, "stopped", "again")
        raise


@rl_task
def sleep_in_c(folder: str) -> str:
    """Sleep in a call that cannot be interrupted from inside the process."""
    note(folder, "runs", task_context.attempt)
    if not os.path.exists(os.path.join(folder, "go")):
        time.sleep(3600)
    return f"attempt {task_context.attempt}"


@rl_task
async def answers_nonsense_when_stopped(folder: str) -> Any:
    try:
        return await _wait(folder)
    except asyncio.CancelledError:
        return object()


@rl_task
async def waits_or_waits_longer(folder: str, name: str) -> str:
    note(folder, "runs", f"{task_context.attempt} {task_context.worker_id}")
    await until_noted(folder, name)
    return f"attempt {task_context.attempt}"


# --- soft timeouts -----------------------------------------------------------------------------------------------


def hook(ctx: TaskContext) -> None:
    note(ctx.args[0], "soft", f"{ctx.task_id} {ctx.attempt} {task_context.task_id}")


async def ahook(ctx: TaskContext) -> None:
    await asyncio.sleep(0)
    hook(ctx)


def failing_hook(ctx: TaskContext) -> None:
    hook(ctx)
    raise ValueError("the hook itself fails")


@rl_task(soft_timeout=0.1, on_soft_timeout=ahook)
async def slow(folder: str) -> str:
    return await _wait(folder)


@rl_task(soft_timeout=0.1, on_soft_timeout=hook)
def slow_def(folder: str) -> str:
    return _block(folder)


@rl_task(soft_timeout=0.1, on_soft_timeout=hook, isolate=True)
async def slow_alone(folder: str) -> str:
    return await _wait(folder)


@rl_task(soft_timeout=0.1, on_soft_timeout=ahook, isolate=True)
def slow_alone_def(folder: str) -> str:
    return _block(folder)


SLOW = {"async": slow, "def": slow_def, "isolated async": slow_alone, "isolated def": slow_alone_def}


@rl_task(soft_timeout=0.1, on_soft_timeout=failing_hook)
async def slow_with_a_failing_hook(folder: str) -> str:
    return await _wait(folder)


@rl_task(soft_timeout=0.1)
async def slow_without_a_hook(folder: str) -> str:
    return await _wait(folder)


@rl_task(soft_timeout=3600, on_soft_timeout=hook)
async def warned_at_drain(folder: str) -> str:
    return await _wait(folder)


@rl_task(soft_timeout=3600, on_soft_timeout=hook, isolate=True)
def warned_at_drain_alone(folder: str) -> str:
    return _block(folder)


# --- context -----------------------------------------------------------------------------------------------------


def told(ctx: TaskContext) -> dict[str, Any]:
    return {
        "task_id": ctx.task_id,
        "task_name": ctx.task_name,
        "attempt": ctx.attempt,
        "fence": ctx.fence,
        "worker_id": ctx.worker_id,
        "args": ctx.args,
        "kwargs": ctx.kwargs,
        "metadata": ctx.metadata,
        "lost": ctx.lost,
    }


@rl_task
async def ctx_first(ctx: TaskContext, a: int, b: int = 2) -> dict[str, Any]:
    return told(ctx) | {"a": a, "b": b}


@rl_task
def ctx_between(a: int, ctx: TaskContext, b: int = 2) -> dict[str, Any]:
    return told(ctx) | {"a": a, "b": b}


@rl_task
async def ctx_last(a: int, b: int = 2, *, ctx: TaskContext) -> dict[str, Any]:
    return told(ctx) | {"a": a, "b": b}


@rl_task(isolate=True)
def ctx_alone(a: int, b: int = 2, ctx: TaskContext | None = None) -> dict[str, Any]:
    assert ctx is not None
    return told(ctx) | {"a": a, "b": b}


@rl_task
async def ctx_by_proxy(a: int, b: int = 2) -> dict[str, Any]:
    await asyncio.sleep(0)
    return told(task_context) | {"a": a, "b": b}


@rl_task
def ctx_by_proxy_def(a: int, b: int = 2) -> dict[str, Any]:
    return told(task_context) | {"a": a, "b": b}


@rl_task(isolate=True)
async def ctx_by_proxy_alone(a: int, b: int = 2) -> dict[str, Any]:
    return told(task_context) | {"a": a, "b": b}


@rl_task
@plainly
async def ctx_decorated(a: int, ctx: TaskContext, b: int = 2) -> dict[str, Any]:
    await ctx.set_partial(a)
    return told(task_context) | {"a": ctx.partial_result, "b": b}


@rl_task(isolate=True)
@plainly
async def ctx_decorated_alone(a: int, ctx: TaskContext, b: int = 2) -> dict[str, Any]:
    await asyncio.sleep(0)
    return told(ctx) | {"a": a, "b": b}


WITH_CONTEXT = {
    "first": ctx_first,
    "between": ctx_between,
    "last": ctx_last,
    "isolated": ctx_alone,
    "by proxy": ctx_by_proxy,
    "by proxy, def": ctx_by_proxy_def,
    "by proxy, isolated": ctx_by_proxy_alone,
    "decorated": ctx_decorated,
    "decorated, isolated": ctx_decorated_alone,
}


@rl_task
async def own_context(folder: str, name: str) -> str:
    """Many of these run at once. Each must see its own context before and after it waited."""
    before = task_context.task_id
    note(folder, "runs")
    await until_noted(folder, name)
    assert task_context.task_id == before
    return before


# --- tasks that push -----------------------------------------------------------------------------------------------


@rl_task
async def parent(a: int) -> str:
    return (await add.apush(a, 1)).id


@rl_task
async def parent_that_blocks(a: int) -> str:
    return add.push(a, 1).id


@rl_task
def parent_def(a: int) -> str:
    return add.push(a, 1).id


@rl_task(isolate=True)
async def parent_alone(a: int) -> str:
    return (await add.apush(a, 1)).id


@rl_task
async def parent_that_waits(a: int) -> int:
    return await (await add.apush(a, 1)).result(timeout=20)


@rl_task(isolate=True)
def parent_that_waits_alone(a: int) -> int:
    return add.push(a, 1).result(timeout=20)


PARENTS = {"async": parent, "push on the loop": parent_that_blocks, "def": parent_def, "isolated": parent_alone}


@rl_task
async def traced_parent() -> str:
    return (await ctx_by_proxy.apush(1)).id


# --- processes that end ------------------------------------------------------------------------------------------


@rl_task(isolate=True, max_resurrections=1)
def kill_own_process(folder: str) -> None:
    note(folder, "runs", task_context.attempt)
    os.kill(os.getpid(), signal.SIGKILL)


@rl_task
def die_and_leave_a_child(folder: str) -> None:
    """The child process holds the file descriptors of its parent, as with multiprocessing."""
    if os.fork() == 0:
        block_until_noted(folder, "end")
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


@rl_task
def hang_up() -> None:
    """Close file descriptors that belong to the worker, so that it can no longer report."""
    os.closerange(3, 1024)
    time.sleep(3600)


@rl_task(isolate=True)
def die_once(folder: str) -> str:
    note(folder, "runs", task_context.attempt)
    if task_context.attempt == 1:
        os._exit(9)
    return f"attempt {task_context.attempt}"


@rl_task(on_lost="bury")
async def wait_or_be_buried(folder: str) -> str:
    return await _wait(folder)


@rl_task(on_lost="hold")
async def wait_or_be_held(folder: str) -> str:
    return await _wait(folder)


@rl_task(max_resurrections=0)
async def wait_in_one_life(folder: str) -> str:
    return await _wait(folder)


@rl_task
async def zombie(ctx: TaskContext, folder: str) -> str:
    """The first attempt ends only after it is lost, and then tries to commit. The second one just ends."""
    note(folder, "runs", f"{ctx.attempt} {ctx.worker_id}")
    while ctx.attempt == 1 and not ctx.lost:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LOOK_S)
    note(folder, "ends", f"{ctx.attempt} lost={ctx.lost}")
    return f"attempt {ctx.attempt}"


@rl_task
def zombie_def(ctx: TaskContext, folder: str) -> str:
    note(folder, "runs", f"{ctx.attempt} {ctx.worker_id}")
    if ctx.attempt == 1:
        with contextlib.suppress(BaseException):
            block_until_noted(folder, "never")
    note(folder, "ends", f"{ctx.attempt} lost={ctx.lost}")
    return f"attempt {ctx.attempt}"


@rl_task(isolate=True)
async def zombie_alone(ctx: TaskContext, folder: str) -> str:
    note(folder, "runs", f"{ctx.attempt} {ctx.worker_id}")
    if ctx.attempt == 1:
        with contextlib.suppress(asyncio.CancelledError):
            await until_noted(folder, "never")
    note(folder, "ends", f"{ctx.attempt} lost={ctx.lost}")
    return f"attempt {ctx.attempt}"


ZOMBIES = {"async": zombie, "def": zombie_def, "isolated": zombie_alone}


@rl_task
async def guarded(ctx: TaskContext, folder: str) -> str:
    """Note when the task may no longer trust its lease, and when it may again."""
    note(folder, "runs", ctx.attempt)
    while _guard_holds(ctx):  # noqa: ASYNC110 - what is waited for is outside
        await asyncio.sleep(LOOK_S)
    note(folder, "suspect", ctx.lost)
    while not _guard_holds(ctx):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_S)
    return f"attempt {ctx.attempt}"


@rl_task(isolate=True)
async def guarded_alone(ctx: TaskContext, folder: str) -> str:
    return await guarded.fn(ctx, folder)  # type: ignore[no-any-return]


def _guard_holds(ctx: TaskContext) -> bool:
    try:
        ctx.guard()
    except LeaseLostError:
        return False
    return True


@rl_task
async def count(folder: str, number: int) -> int:
    note(folder, "counted", number)
    return number


@rl_task
async def when() -> float:
    return datetime.now(UTC).timestamp()


@rl_task(priority=9)
async def urgent(folder: str, number: int) -> None:
    note(folder, "counted", number)


# --- code that harms others --------------------------------------------------------------------------------------


@rl_task
async def cancel_everybody(folder: str) -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)
    note(folder, "cancelled")


@rl_task
async def wait_in_branches(folder: str, ctx: TaskContext) -> str:
    note(folder, "runs", "branches")
    await asyncio.gather(until_noted(folder, "go"), until_noted(folder, "go"))
    return f"attempt {ctx.attempt}"


def fork(folder: str) -> bool:
    """Fork, and return in both processes: True in the process that forked."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)  # the copy must end by itself
    note(folder, "forked")
    return pid > 0


@rl_task
async def fork_on_the_loop(folder: str) -> bool:
    return fork(folder)


@rl_task
def fork_in_a_thread(folder: str) -> bool:
    return fork(folder)


@rl_task
async def change_folder(to: str) -> str:
    os.chdir(to)
    return os.getcwd()


@rl_task(retries=Retries(attempts=1, backoff=0.0))
async def steps_in_branches(folder: str, ctx: TaskContext) -> list[str]:
    """In the second attempt, the branches run in the opposite order."""
    first = asyncio.Event()

    async def branch(name: str, *, waits: bool) -> str:
        if waits:
            await first.wait()
        found = await ctx.step(name, effect, folder, name)
        found += await ctx.step(name + " again", effect, folder, name + " again")
        first.set()
        return found

    found = await asyncio.gather(branch("a", waits=ctx.attempt == 2), branch("b", waits=ctx.attempt == 1))
    if ctx.attempt == 1:
        raise OSError("and then the process died")
    return list(found)


def effect(folder: str, name: str) -> str:
    note(folder, "effects", name)
    return f"<{name}>"
