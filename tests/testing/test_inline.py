"""Tasks that run at push: sync and async, with retries, steps and errors, without a store."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import pytest

from relier import Depends, Retries, TaskContext, TaskProgress, TaskState, idempotency_lock, rl_task
from relier.testing import inline, override

pytestmark = pytest.mark.anyio
ran: list[Any] = []


@pytest.fixture(autouse=True)
def _no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIER_REDIS_URL", "redis://127.0.0.1:1")
    ran.clear()


@rl_task(name="inl.add")
def add(a: int, b: int) -> int:
    ran.append((threading.current_thread(), _loop_runs()))
    return a + b


@rl_task(name="inl.aadd")
async def aadd(a: int, b: int) -> int:
    await asyncio.sleep(0)
    ran.append(asyncio.get_running_loop())
    return a + b


@rl_task(name="inl.flaky", retries=Retries(attempts=2, backoff=3600, max_backoff=7200))
async def flaky(ctx: TaskContext, fail: int) -> str:
    ran.append(ctx.attempt)
    token = await ctx.step("once", lambda: f"token of attempt {ctx.attempt}")
    await ctx.set_partial(ctx.attempt)
    if ctx.attempt <= fail:
        raise ValueError(f"attempt {ctx.attempt}")
    return token


@rl_task(name="inl.state")
def read_state(ctx: TaskContext) -> Any:
    return ctx.state


@rl_task(name="inl.report")
def report(ctx: TaskContext, fails: bool) -> None:
    ctx.progress(1, 3, "page 1")
    ctx.progress(3, 3, "page 3")
    if fails:
        raise ValueError("no paper")


@rl_task(name="inl.parent")
def parent(n: int) -> int:
    return add.push(n, 1).result() * 2


def session() -> str:
    return "real"


async def fake() -> str:
    return "fake"


@rl_task(name="inl.depends")
def depends(s: Annotated[str, Depends(session)]) -> str:
    return s


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def test_a_blocking_push_runs_a_def_in_this_thread_without_a_loop() -> None:
    with inline():
        receipt = add.push(1, 2)
    assert receipt.result() == 3
    assert receipt.state() is TaskState.DONE
    assert ran == [(threading.current_thread(), False)]


@pytest.mark.parametrize("fails", [False, True])
def test_receipts_know_the_last_progress(fails: bool) -> None:
    with inline():
        assert report.push(fails).progress() == TaskProgress(3, 3, "page 3")


def test_a_blocking_push_runs_an_async_def() -> None:
    with inline():
        assert aadd.push(1, 2).result() == 3


async def test_an_awaited_push_runs_an_async_def_on_this_loop() -> None:
    with inline():
        receipt = await aadd.apush(1, 2)
        assert await receipt.result() == 3
        assert await receipt.state() is TaskState.DONE
        assert (await add.apush(3, 4)).duplicate is False
        assert aadd.push(5, 6).result() == 11  # a blocking push where a loop runs
    assert ran[0] is asyncio.get_running_loop()


def test_retries_follow_at_once_and_keep_their_steps() -> None:
    with inline():
        receipt = flaky.with_options(delay=86_400).push(2)
    assert receipt.result() == "token of attempt 1"
    assert ran == [1, 2, 3]
    assert receipt.info().record.attempt == 3


def test_a_task_without_retries_left_is_dead_and_its_receipt_knows_why() -> None:
    with inline():
        receipt = flaky.push(3)
        assert receipt.state() is TaskState.DEAD
        with pytest.raises(ValueError, match="attempt 3"):
            receipt.result()
        assert receipt.info().record.reason == "ValueError"


def test_a_task_that_pushes_gets_the_result_of_the_other() -> None:
    with inline():
        assert parent.push(4).result() == 10
        assert [each.result() for each in parent.push_many([(1,), (2,)])] == [4, 6]


def test_a_duplicate_does_not_run_again() -> None:
    @rl_task(name="inl.once", idempotency_key="once:{n}")
    def once(n: int) -> int:
        ran.append(n)
        return n

    with inline():
        first, second = once.push(1), once.push(1)
        assert second.duplicate
        assert second.id == first.id
        assert second.result() == 1
    assert ran == [1]


async def test_locks_work_in_inline_tasks() -> None:
    @rl_task(name="inl.locked")
    async def locked() -> str:
        async with idempotency_lock("key", ttl=60) as lock:
            if lock.already_executed:
                return f"again: {lock.cached_result}"
            lock.set_result("first")
            return "ran"

    with inline():
        assert await (await locked.apush()).result() == "ran"
        assert await (await locked.apush()).result() == "again: first"


def test_dependencies_can_be_replaced_inside_a_block() -> None:
    with inline():
        assert depends.push().result() == "real"
        with override(session, fake), override(session, lambda: "inner"):
            assert depends.push().result() == "inner"
        with override(session, fake):
            assert depends.push().result() == "fake"
        assert depends.push().result() == "real"


async def test_a_traceback_shows_the_code_of_the_user_only() -> None:
    async def around(call_next: Any, ctx: TaskContext) -> Any:
        return await call_next(ctx)

    def opened() -> Iterator[None]:
        raise LookupError("no pool")
        yield

    @rl_task(name="inl.provided", middleware=[around])
    def provided(value: Any = Depends(opened)) -> None: ...

    with inline(), pytest.raises(LookupError) as caught:
        await (await provided.apush()).result()
    (note,) = caught.value.__notes__
    assert re.findall(r'File ".*?([^/]+)", line \d+, in (\w+)', note) == [
        ("test_inline.py", "around"),
        ("test_inline.py", "opened"),
    ]


class TestState:
    """A fixture of the project provides what its lifespan would."""

    @pytest.fixture
    def relier_inline_state(self) -> Any:
        return {"database": "mine"}

    def test_the_fixture_provides_the_state(self, relier_inline: None) -> None:
        assert read_state.push().result() == {"database": "mine"}
