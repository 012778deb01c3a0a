"""Dependencies: who provides them, where, how often, and what happens when they or the task fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from relier import INJECTED, ConfigurationError, Depends, TaskContext, rl_task
from relier.arguments import Arguments
from relier.arguments.dependencies import Dependencies, overrides
from relier.testing import context

calls: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    calls.clear()
    overrides.clear()
    yield
    overrides.clear()


def get_name() -> str:
    calls.append("name")
    return "plain"


async def get_async() -> str:
    await asyncio.sleep(0)
    calls.append("async")
    return "async"


def get_generated(name: Annotated[str, Depends(get_name)]) -> Iterator[str]:
    calls.append("open")
    try:
        yield f"{name}+"
    except BaseException as error:
        calls.append(f"saw {type(error).__name__}")
        raise
    finally:
        calls.append(f"closed in {threading.current_thread().name}")


async def get_async_generated(ctx: TaskContext, name: str = Depends(get_name)) -> AsyncIterator[str]:
    try:
        yield f"{name}@{ctx}"
    finally:
        await asyncio.sleep(0)
        calls.append("closed async")


Generated = Annotated[str, Depends(get_generated)]


async def with_all(
    a: int,
    plain: str = Depends(get_name),
    awaited: str = Depends(get_async),
    made: Generated = INJECTED,
    amade: Annotated[str, Depends(get_async_generated)] = INJECTED,
    b: int = 2,
) -> Any:
    return a, plain, awaited, made, amade, b


def in_thread(a: int, made: Generated, awaited: str = Depends(get_async)) -> Any:
    return a, made, awaited


async def run(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function as a worker does: on the loop what needs the loop, the rest where a `def` runs."""
    arguments = Arguments.of(fn)
    is_async = asyncio.iscoroutinefunction(fn)
    async with Dependencies(arguments, "ctx", on_loop=is_async) as provided:
        if is_async:
            placed, named = arguments.with_injected(args, kwargs, provided.values)
            return await fn(*placed, **named)

        def call() -> Any:
            with provided:
                placed, named = arguments.with_injected(args, kwargs, provided.values)
                return fn(*placed, **named)

        return await asyncio.to_thread(call)


def test_dependencies_are_no_arguments_of_a_push() -> None:
    arguments = Arguments.of(with_all)
    assert list(arguments.signature.parameters) == ["a", "b"]
    assert "plain" not in arguments.parameters
    assert arguments.decode(arguments.encode((1, 3), {})) == ((1, 3), {})
    with pytest.raises(TypeError, match="unexpected keyword argument 'plain'"):
        arguments.check((1,), {"plain": "x"})


def test_every_kind_of_provider_is_called_once_and_closed_in_reverse_order() -> None:
    assert asyncio.run(run(with_all, 1, b=5)) == (1, "plain", "async", "plain+", "plain@ctx", 5)
    assert calls == ["name", "async", "open", "closed async", f"closed in {threading.current_thread().name}"]


def test_a_def_gets_plain_dependencies_in_its_own_thread() -> None:
    assert asyncio.run(run(in_thread, 7)) == (7, "plain+", "async")
    assert calls[:3] == ["async", "name", "open"]
    assert calls[3].startswith("closed in asyncio_")


def test_a_generator_sees_the_error_of_the_task_and_cannot_hide_it() -> None:
    def hiding() -> Iterator[int]:
        try:
            yield 1
        except ValueError:
            calls.append("hidden")

    async def fails(value: int = Depends(hiding), other: Generated = INJECTED) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(run(fails))
    assert calls[2:] == ["saw ValueError", f"closed in {threading.current_thread().name}", "hidden"]


def test_what_was_opened_is_closed_when_a_later_provider_fails() -> None:
    def broken() -> int:
        raise OSError("away")

    async def needs(made: Generated = INJECTED, never: int = Depends(broken)) -> None: ...
    def needs_too(made: Generated = INJECTED, never: int = Depends(broken)) -> None: ...

    for fn in (needs, needs_too):
        calls.clear()
        with pytest.raises(OSError, match="away"):
            asyncio.run(run(fn))
        assert calls[2] == "saw OSError"


def test_without_a_cache_each_use_calls_the_provider() -> None:
    async def twice(one: str = Depends(get_name, cached=False), two: str = Depends(get_name, cached=False)) -> None: ...

    asyncio.run(run(twice))
    assert calls == ["name", "name"]


def test_a_test_overrides_a_provider_also_below_others() -> None:
    overrides[get_name] = lambda: "fake"
    assert asyncio.run(run(in_thread, 1))[1] == "fake+"


def first() -> None: ...
def second(value: Any = Depends(first)) -> None: ...


def test_dependencies_that_need_each_other_are_refused() -> None:
    overrides[first] = second
    with pytest.raises(ConfigurationError, match="second → second need each other; break the cycle"):
        asyncio.run(run(in_thread_of(second)))


def in_thread_of(provider: Any) -> Any:
    def fn(value: Any = Depends(provider)) -> None: ...

    return fn


def test_a_provider_with_a_parameter_that_nobody_fills_in_is_refused() -> None:
    def needs(session: str) -> str:
        return session

    with pytest.raises(ConfigurationError, match=r"needs has the parameter 'session', which nothing fills in"):
        asyncio.run(run(in_thread_of(needs)))


def test_depends_takes_a_function() -> None:
    with pytest.raises(ConfigurationError, match="Depends takes a function"):
        Depends("get_session")


# --- direct calls ----------------------------------------------------------------------------------------------------


@rl_task(name="direct.async")
async def direct_async(ctx: TaskContext, a: int, made: Generated = INJECTED) -> Any:
    return ctx, a, made


@rl_task(name="direct.sync")
def direct_sync(a: int, made: Generated = INJECTED, ctx: TaskContext = INJECTED) -> Any:
    return ctx, a, made


@rl_task(name="direct.mixed")
def direct_mixed(a: int, awaited: str = Depends(get_async)) -> Any:
    return a, awaited


def test_a_direct_call_provides_what_is_not_passed() -> None:
    ctx: Any = type("Fake", (), {"is_task_context": True})()
    assert asyncio.run(direct_async.fn(ctx, 1, "mine")) == (ctx, 1, "mine")
    assert asyncio.run(direct_async(ctx, 1)) == (ctx, 1, "plain+")  # type: ignore[arg-type, call-arg]
    assert asyncio.run(direct_async(ctx, 1, made="mine")) == (ctx, 1, "mine")  # type: ignore[arg-type, call-arg, misc]
    assert direct_sync(1, ctx=ctx) == (ctx, 1, "plain+")
    assert direct_sync(1, "mine", ctx) == (ctx, 1, "mine")


def test_a_dependency_that_needs_a_context_says_so_outside_tasks() -> None:
    def get_state(ctx: TaskContext) -> Any:
        return ctx.state

    @rl_task(name="dep.state")
    def task(state: Any = Depends(get_state)) -> Any:
        return state

    with pytest.raises(TypeError, match=r"get_state needs a context, .*relier.testing.context\(state=…\)"):
        task()
    assert task(state=1) == 1
    with context(state=2):
        assert task() == 2

    @rl_task(name="dep.passed")
    def with_context(ctx: TaskContext, state: Any = Depends(get_state)) -> Any:
        return state

    assert with_context(context(state=3)) == 3  # type: ignore[arg-type]


def test_an_annotation_that_cannot_be_read_is_reported() -> None:
    class Session: ...  # a local class: annotations that name it cannot be resolved, as with `if TYPE_CHECKING:`

    def with_default(session: Annotated[Session, Depends(get_async)] = INJECTED) -> None: ...
    def without_default(session: Annotated[Session, Depends(get_async)]) -> None: ...
    def with_nothing(session: Session = INJECTED) -> None: ...
    def in_the_default(session: Session = Depends(get_async)) -> None: ...

    said = r"fill in the parameter 'session', because .* outside `if TYPE_CHECKING:`"
    for fn in (with_default, without_default, with_nothing):
        task = rl_task(name=f"dep.{fn.__name__}")(fn)
        with pytest.raises(ConfigurationError, match=said):
            task.arguments.check((), {})
    rl_task(name="dep.in_the_default")(in_the_default).arguments.check((), {})


def test_a_direct_call_without_a_context_says_what_to_pass() -> None:
    with pytest.raises(TypeError, match=r"direct_sync\(\) needs its context 'ctx'.*relier.testing.context\(\)"):
        direct_sync(1)


def test_a_direct_call_of_a_def_cannot_wait_for_an_async_dependency() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot wait for its async dependency get_async; pass awaited=…"):
        direct_mixed(1)
    assert direct_mixed(1, awaited="mine") == (1, "mine")
