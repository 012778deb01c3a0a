"""Let the code under test sleep in virtual time: its timers fire when the clock is moved, and nothing waits for them.

While VirtualTimers are installed on an event loop, `asyncio.sleep`, `asyncio.timeout` and everything built on
`call_later`, `call_at` and `time` of the loop use the virtual clock, but only in code that called `enter`, and in what
that code starts. Other code on the same loop, such as the test itself, keeps the real clock.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections.abc import Callable, Iterable
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any

_entered: ContextVar[VirtualTimers | None] = ContextVar("relier_virtual_timers", default=None)
PATCHED = ("call_at", "call_later", "run_in_executor", "time")
OWN_DESCRIPTORS = 1  # the pipe by which threads wake a loop
ANYIO_THREADS = "AnyIO worker thread"
MOST_TURNS = 100_000  # turns of the loop, if something that the test started is always ready


class VirtualHandle(asyncio.TimerHandle):
    """Represent a timer that the loop does not know."""

    def cancel(self) -> None:
        asyncio.Handle.cancel(self)


class VirtualTimers:
    """Hold the timers of the code under test, and the clock that they wait for (s)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: float = 0.0) -> None:
        self.now = now
        self._loop = loop
        self._timers: list[tuple[float, int, VirtualHandle, tuple[Any, ...]]] = []
        self._numbers = count()
        self._executing = 0
        self._threads = frozenset(threading.enumerate())

    def install(self) -> None:
        """Route the loop's timers through this object. Undo it with `remove`."""
        self._real = {name: getattr(self._loop, name) for name in PATCHED}
        for name in PATCHED:
            setattr(self._loop, name, getattr(self, f"_{name}"))

    def remove(self) -> None:
        for name in PATCHED:
            delattr(self._loop, name)

    def enter(self) -> None:
        """Use the virtual clock in the current context from now on."""
        _entered.set(self)

    # --- what the loop does instead ------------------------------------------------------------------------------

    def _time(self) -> float:
        return self.now if _entered.get() is self else self._real["time"]()

    def _call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if _entered.get() is not self:
            return self._real["call_later"](delay, callback, *args, context=context)  # type: ignore[no-any-return]
        return self._call_at(self.now + delay, callback, *args, context=context)

    def _call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if _entered.get() is not self:
            return self._real["call_at"](when, callback, *args, context=context)  # type: ignore[no-any-return]
        context = copy_context() if context is None else context
        handle = VirtualHandle(when, callback, args, self._loop, context)

        def fire() -> None:
            if not handle.cancelled():
                callback(*args)

        heapq.heappush(self._timers, (when, next(self._numbers), handle, (fire, context, args)))
        return handle

    def _run_in_executor(self, executor: Any, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._real["run_in_executor"](executor, work, *args)
        self._executing += 1
        future.add_done_callback(self._executed)
        return future

    def _executed(self, _: asyncio.Future[Any]) -> None:
        self._executing -= 1

    # --- what the driver does ------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """Return when the next timer fires, or None if there is none."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def advance(self, to: float) -> None:
        """Move the clock, and schedule the callbacks of all timers that are due."""
        self.now = max(self.now, to)
        while (due := self.next_due()) is not None and due <= self.now:
            _, _, _, (fire, context, _) = heapq.heappop(self._timers)
            self._loop.call_soon(fire, context=context)

    async def until_quiet(self) -> None:
        """Run the loop until nothing on it is ready to run."""
        ready = getattr(self._loop, "_ready", None)
        if ready is None:  # uvloop does not show what is ready
            for _ in range(100):
                await asyncio.sleep(0)
            return
        await asyncio.sleep(0)
        turns = 0
        while ready and turns < MOST_TURNS:
            await asyncio.sleep(0)
            turns += 1

    @staticmethod
    async def wait_really(seconds: float) -> float:
        """Wait in real time. Return how long that took."""
        began = time.monotonic()
        await asyncio.sleep(seconds)
        return time.monotonic() - began

    def only_time_can_wake(self, tasks: Iterable[asyncio.Task[Any]]) -> bool:
        """Return whether only a timer can wake these tasks.

        This is true if the loop has no sockets, threads or executor calls, or if every task waits directly for a sleep.
        """
        if not self._executing and self._has_no_descriptors() and not self._has_new_threads():
            return True
        sleeps = {id(arg) for _, _, _, (_, _, args) in self._timers for arg in args if asyncio.isfuture(arg)}
        return all(_waits_for(sleeps, task) for task in tasks)

    def _has_no_descriptors(self) -> bool:
        selector = getattr(self._loop, "_selector", None)
        return selector is not None and len(selector.get_map()) <= OWN_DESCRIPTORS

    def _has_new_threads(self) -> bool:
        return any(
            thread.name == ANYIO_THREADS or (thread not in self._threads and not thread.name.startswith("relier-"))
            for thread in threading.enumerate()
        )


def _waits_for(sleeps: set[int], future: Any) -> bool:
    """Return whether a future ends with one of these sleeps: it is a sleep, or a task or `gather` waiting for
    sleeps."""
    if id(future) in sleeps or future.done():
        return True
    if children := getattr(future, "_children", None):  # asyncio.gather
        return all(_waits_for(sleeps, child) for child in children)
    waiter = getattr(future, "_fut_waiter", None)
    return waiter is not None and _waits_for(sleeps, waiter)
