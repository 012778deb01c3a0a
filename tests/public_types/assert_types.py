"""The types that an editor sees for tasks, pushes and receipts. `make types` checks this file with mypy --strict and
pyright."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, assert_type

from relier import (
    INJECTED,
    Admit,
    Client,
    Depends,
    Durability,
    Push,
    Pushable,
    PushOptions,
    Retries,
    RlTask,
    Settings,
    SyncTaskReceipt,
    TaskContext,
    TaskEvent,
    TaskReceipt,
    TaskState,
    WorkflowReceipt,
    batch,
    chain,
    group,
    lifespan,
    rl_task,
    task_context,
    use_hooks,
    use_middleware,
)
from relier.testing import (
    PushedCall,
    RanAttempt,
    arun_pending,
    context,
    inline,
    kill_after_step,
    lose_lease,
    override,
    recorded,
    store,
)


class Session: ...


def get_session() -> Iterator[Session]:
    yield Session()


SessionDep = Annotated[Session, Depends(get_session)]


@rl_task
async def charge(customer: str, cents: int = 0) -> dict[str, int]:
    return {customer: cents}


@rl_task(queue="big", hard_timeout=30, retries=3)
def resize(ctx: TaskContext, image: bytes, *, width: int) -> bytes:
    assert_type(ctx.fence, int)
    return image


def alert(event: TaskEvent) -> None:
    assert_type(event.run_s, float | None)
    assert_type(event.reason, str)


async def note(event: TaskEvent) -> None:
    assert_type(event.attempt, int)


use_hooks(on_dead=alert, on_revived=note)


@rl_task(
    on_dead=alert,
    on_success=note,
    name="everything",
    priority=3,
    soft_timeout=timedelta(seconds=5),
    retries=Retries(backoff=2),
    on_lost="hold",
    durability="fsync",
    result_ttl=timedelta(hours=1),
    isolate=True,
    admission=["tenant:{customer}", Admit("all", limit=5)],
    idempotency_key=str.lower,
    on_duplicate="raise",
)
async def everything(customer: str) -> None: ...


@rl_task()
async def injected(
    order_id: int, session: Session = Depends(get_session), ctx: TaskContext = INJECTED, other: SessionDep = INJECTED
) -> str:
    return f"{ctx.task_id} {session} {other} {order_id}"


@rl_task
async def anything(value: Any) -> int:
    return hash(value)


@rl_task
def any_object(value: object) -> int:
    return hash(value)


@lifespan
async def resources() -> AsyncIterator[Session]:
    yield Session()


async def timed(call_next: Callable[[TaskContext], Coroutine[Any, Any, Any]], ctx: TaskContext) -> Any:
    return await call_next(ctx)


async def stamped(call_next: Callable[[Push], Coroutine[Any, Any, list[Any]]], push: Push) -> list[Any]:
    assert_type(push.options, PushOptions)
    return await call_next(push)


def takes_any_task(task: RlTask[..., Any], push: Pushable[[str], None]) -> str:
    push.push("a")
    return task.name


async def pushes() -> None:
    assert_type(await charge.apush("a", cents=5), TaskReceipt[dict[str, int]])
    assert_type(await (await charge.apush("a")).result(timeout=1), dict[str, int])
    assert_type(resize.push(b"", width=3), SyncTaskReceipt[bytes])
    assert_type(resize.push(b"", width=3).result(), bytes)
    assert_type((await charge.apush_many([("a", 1), {"customer": "b"}]))[0], TaskReceipt[dict[str, int]])
    assert_type(resize.push_many([{"image": b"", "width": 1}]), list[SyncTaskReceipt[bytes]])
    assert_type(charge.push_in(None, "a"), SyncTaskReceipt[dict[str, int]])
    assert_type(await charge.apush_in(None, "a"), TaskReceipt[dict[str, int]])
    assert_type(await everything.apush("a"), TaskReceipt[None])
    assert_type(await injected.apush(5), TaskReceipt[str])
    assert_type(injected.push_in(None, order_id=5).result(), str)
    assert_type(any_object.push("a").result(), int)
    assert_type(any_object.push(value="a").result(), int)
    await anything.apush(1)
    await anything.apush(value=1)


async def options() -> None:
    later = charge.with_options(delay=5, expires=timedelta(hours=1), durability=Durability.FSYNC)
    assert_type(await later.apush("a"), TaskReceipt[dict[str, int]])
    assert_type(charge.with_options(eta=datetime.now(UTC)).push("a", 1), SyncTaskReceipt[dict[str, int]])


async def calls() -> None:
    assert_type(await charge("a"), dict[str, int])
    assert_type(resize(b"", width=1), bytes)
    assert_type(await injected(1), str)
    assert_type(any_object(1), int)


async def receipts() -> None:
    assert_type(charge.sync_receipt("id").result(), dict[str, int])
    assert_type(await charge.receipt("id").state(), TaskState)
    assert_type(charge.sync_receipt("id").cancel(), bool)
    assert_type(task_context(), TaskContext)
    assert_type(task_context.fence, int)
    assert_type(Client(Settings()).settings, Settings)


async def tests_of_tasks() -> None:
    async with context(charge, steps={"draw": 1}) as ctx, store(heartbeat_ttl=3.0) as virtual:
        assert_type(await charge("a"), dict[str, int])
        assert_type(ctx.recorded.steps, dict[str, Any])
        assert_type(await arun_pending(kill_after_step("draw", task=charge), within=5), list[RanAttempt])
        assert_type(virtual.run_pending(lose_lease(), concurrency=2)[0].at, timedelta)
    with recorded() as pushed, inline(), override(len, lambda: 1):
        assert_type(pushed.assert_pushed(charge, "a", delay=timedelta(hours=1)), list[PushedCall])


use_middleware(run=[timed], push=[stamped])
takes_any_task(charge, everything)
takes_any_task(resize, everything.with_options(delay=1))


@rl_task
def count(numbers: dict[str, int], factor: int = 1) -> int:
    return len(numbers) * factor


@rl_task
def add_up(numbers: list[int]) -> float:
    return sum(numbers)


async def workflows() -> None:
    one = await chain(charge.s("a", 5), count.s(factor=2)).apush()
    assert_type(one, WorkflowReceipt[int])
    assert_type(await one.result(5), int)
    many = group(count.s(2), count.s(factor=3))
    assert_type(await (await many.apush()).result(), list[int])
    assert_type(await (await chain(charge.s("a"), many, add_up.s()).apush()).result(), float)
    assert_type(await (await batch([count.si({}), add_up.si([])], then=add_up.si([])).apush()).result(), None)
    assert_type((await one.progress()).done, int)
