"""The lifespan of a process: what may be declared, and how it is entered and left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from relier import ConfigurationError, Settings, WorkerInitializationError
from relier.run.application import lifespan as module
from relier.run.application.lifespan import RunningLifespan, lifespan

pytestmark = pytest.mark.anyio
seen: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    seen.clear()
    module._declared = None
    yield
    module._declared = None


async def one() -> AsyncIterator[str]:
    async with asyncio.TaskGroup():  # must be left in the task that entered it
        yield "state"
    seen.append("left")


async def other() -> AsyncIterator[str]:
    yield "other"


@asynccontextmanager
async def managed() -> AsyncIterator[str]:
    yield "managed"
    seen.append("left")


async def entered(settings: Settings | None = None) -> tuple[RunningLifespan, Any]:
    running = RunningLifespan()
    return running, await running.enter(settings or Settings())


async def test_without_a_declaration_there_is_no_state() -> None:
    running, state = await entered()
    assert (state, running.entered) == (None, False)
    await running.leave()


@pytest.mark.parametrize(("function", "state"), [(one, "state"), (managed, "managed")])
async def test_a_lifespan_may_be_entered_and_left_from_different_tasks(function: Any, state: str) -> None:
    lifespan(function)
    running, found = await asyncio.create_task(entered())
    assert (found, running.entered, seen) == (state, True, [])
    await asyncio.create_task(running.leave())
    assert seen == ["left"]


async def test_a_setting_overrides_the_declaration() -> None:
    lifespan(one)
    running, state = await entered(Settings(lifespan="tests.run.test_lifespan:other"))
    assert state == "other"
    await running.leave()


async def test_a_failure_at_the_start_is_reported() -> None:
    async def broken() -> AsyncIterator[None]:
        raise OSError("away")
        yield

    lifespan(broken)
    with pytest.raises(WorkerInitializationError, match=r"broken failed before its yield \(OSError: away\)"):
        await entered()


async def test_a_failure_or_a_hang_at_the_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks() -> AsyncIterator[None]:
        yield
        raise OSError("cannot close")

    async def hangs() -> AsyncIterator[None]:
        yield
        await asyncio.Event().wait()

    for function, said in ((breaks, "breaks failed after its yield"), (hangs, "did not end within 0 s")):
        module._declared = None
        lifespan(function)
        running, _ = await entered()
        with caplog.at_level(logging.WARNING):
            await running.leave(1.0 if function is breaks else 0.0)
        assert said in caplog.text


def test_a_process_has_one_lifespan() -> None:
    lifespan(one)
    lifespan(one)  # as when its module is loaded again
    with pytest.raises(ConfigurationError, match=r"other and .*\.one are both declared as the lifespan"):
        lifespan(other)


def test_a_lifespan_is_an_async_generator_without_parameters() -> None:
    async def plain() -> None: ...
    async def for_app(app: Any) -> AsyncIterator[None]:
        yield

    with pytest.raises(ConfigurationError, match="takes an async function with one yield"):
        lifespan(plain)
    with pytest.raises(ConfigurationError, match=r"takes a function without parameters, but .*for_app has 'app'"):
        lifespan(for_app)  # type: ignore[arg-type, type-var]
