"""`def` tasks in threads: a stop ends the whole call that it is meant for, and nothing else."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from relier.run.threads import StopThread, Threads, Work

pytestmark = pytest.mark.anyio
LOOK_S = 0.0005
number: contextvars.ContextVar[int] = contextvars.ContextVar("number")


@pytest.fixture
def threads() -> Iterator[Threads]:
    one = Threads()
    yield one
    one.close()


@pytest.fixture(autouse=True)
def no_gc_callbacks() -> Iterator[None]:
    """Hypothesis has one, which runs in whichever thread collects garbage. A stop that hits it there is only
    reported."""
    callbacks, gc.callbacks[:] = list(gc.callbacks), []
    yield
    gc.callbacks[:] = callbacks


@pytest.fixture
def eager_switches() -> Iterator[None]:
    """Make threads switch as often as possible, so that races within a few instructions occur."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def nothing() -> None:
    return None


def spin(gate: threading.Event) -> str:
    """Run Python instructions until the gate opens."""
    while not gate.is_set():
        time.sleep(LOOK_S)
    return "through"


def start(threads: Threads, call: Callable[[], Any]) -> Work:
    return threads.start(call, asyncio.get_running_loop())


async def ended(work: Work) -> str:
    """Return how the call ended. It must end within ten seconds."""
    async with asyncio.timeout(10):
        try:
            return f"returned {await work.future}"
        except StopThread:
            return "stopped"
        except Exception as error:  # noqa: BLE001
            return f"raised {type(error).__name__}"


async def test_the_outcome_of_a_call_is_its_return_value_or_exception(threads: Threads) -> None:
    assert await ended(start(threads, lambda: 5)) == "returned 5"
    assert await ended(start(threads, lambda: dict[str, str]()["missing"])) == "raised KeyError"
    assert await ended(start(threads, lambda: next(iter(())))) == "raised RuntimeError"  # a StopIteration


async def test_a_call_sees_the_context_it_was_started_in(threads: Threads) -> None:
    for value in range(3):
        number.set(value)
        assert await ended(start(threads, number.get)) == f"returned {value}"


async def test_context_changes_of_a_call_end_with_it(threads: Threads) -> None:
    number.set(1)
    await ended(start(threads, lambda: number.set(2)))
    assert number.get() == 1


async def test_threads_are_used_again_and_started_when_all_are_busy(threads: Threads) -> None:
    all_run = threading.Barrier(5)
    at_once = [start(threads, lambda: (all_run.wait(10), threading.get_ident())[1]) for _ in range(5)]
    first = {await ended(work) for work in at_once}
    assert len(first) == 5
    for _ in range(20):
        assert await ended(start(threads, threading.get_ident)) in first
    assert threads._count == 5


async def test_calls_one_after_another_share_a_thread(threads: Threads, eager_switches: None) -> None:
    """The thread is free before its result is known. Otherwise the next call would start another thread, with
    connections of its own."""
    assert len({await ended(start(threads, threading.get_ident)) for _ in range(2000)}) == 1


async def test_a_stop_is_raised_inside_the_call(threads: Threads) -> None:
    cleaned, running = threading.Event(), threading.Event()

    def call() -> None:
        running.set()
        try:
            spin(threading.Event())
        finally:
            cleaned.set()

    work = start(threads, call)
    running.wait(10)
    work.stop()
    assert await ended(work) == "stopped"
    assert cleaned.is_set()


async def test_a_stop_passes_through_except_exception(threads: Threads) -> None:
    running = threading.Event()

    def call() -> str:
        running.set()
        try:
            return spin(threading.Event())
        except Exception:  # noqa: BLE001
            return "swallowed"

    work = start(threads, call)
    running.wait(10)
    work.stop()
    assert await ended(work) == "stopped"


async def test_a_stop_interrupts_only_its_own_call(threads: Threads) -> None:
    gate, running = threading.Event(), threading.Barrier(6)
    works = [start(threads, lambda: (running.wait(10), spin(gate))[1]) for _ in range(5)]
    running.wait(10)
    works[2].stop()
    assert await ended(works[2]) == "stopped"
    gate.set()
    others = [await ended(work) for work in works[:2] + works[3:]]
    assert others == ["returned through"] * 4


async def test_a_stop_before_the_call_begins_keeps_it_from_beginning(threads: Threads) -> None:
    work = Work(pytest.fail, asyncio.get_running_loop())
    work.stop()
    work.run()
    assert await ended(work) == "stopped"


async def test_a_stop_after_the_end_changes_nothing(threads: Threads) -> None:
    work = start(threads, lambda: 5)
    assert await ended(work) == "returned 5"
    work.stop()
    assert await ended(start(threads, lambda: sum(range(1000)))) == "returned 499500"


@pytest.mark.parametrize("stops", [1, 3])
async def test_a_late_stop_never_interrupts_the_next_call(threads: Threads, eager_switches: None, stops: int) -> None:
    """Thousands of stops are aimed at the end of a short call, each followed by another call."""
    seen = {"returned None": 0, "stopped": 0}
    aim = 10.0
    for _ in range(4000):
        work = start(threads, nothing)
        for _ in range(round(aim)):
            nothing()
        for _ in range(stops):
            work.stop()
        innocent = start(threads, lambda: sum(range(50)))
        assert await ended(innocent) == "returned 1225"
        end = await ended(work)
        seen[end] += 1
        aim = min(10_000, aim * 1.1 + 1) if end == "stopped" else aim / 1.1  # too early: later; too late: earlier
    assert min(seen.values()) > 0, f"the stops always came at the same moment: {seen}"


async def test_a_stop_at_any_instruction_ends_only_its_own_call(eager_switches: None) -> None:
    """One thread runs one call after another, while a second thread keeps stopping the current one."""
    loop = asyncio.get_running_loop()
    current: list[Work] = []
    works: list[Work] = []
    escaped: list[BaseException] = []

    def serve() -> None:
        try:
            for _ in range(30_000):
                current[:] = [Work(lambda: sum(range(20)), loop)]
                works.append(current[0])
                current[0].run()
        except BaseException as error:  # noqa: BLE001 - the one that hit something else
            escaped.append(error)

    def keep_stopping() -> None:
        while server.is_alive():
            for work in current:
                work.stop()

    server, stopper = threading.Thread(target=serve), threading.Thread(target=keep_stopping)
    server.start()
    stopper.start()
    await asyncio.to_thread(server.join)
    await asyncio.to_thread(stopper.join)
    assert escaped == []
    ends = {await ended(work) for work in works}
    assert ends <= {"returned 190", "stopped"}


async def test_a_loop_that_has_ended_is_not_notified(threads: Threads) -> None:
    gate = threading.Event()

    async def leave_it_behind() -> Work:
        return start(threads, lambda: spin(gate))

    loop = asyncio.new_event_loop()
    work = await asyncio.to_thread(loop.run_until_complete, leave_it_behind())
    loop.close()
    gate.set()
    assert await ended(start(threads, lambda: 1)) == "returned 1"
    assert not work.future.done()
