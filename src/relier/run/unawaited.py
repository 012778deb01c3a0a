"""Find the calls that a task forgot to await: `ctx.step(…)` or `ctx.set_partial(…)` without `await` does nothing."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from relier.errors import NotAwaitedError

R = TypeVar("R")


class UnawaitedCalls:
    """Hold the coroutines that one attempt's code has created but not started yet."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[object, tuple[Coroutine[Any, Any, Any], str]] = {}

    def make(
        self, method: str, shown: str, work: Callable[..., Coroutine[Any, Any, R]], *args: Any
    ) -> Coroutine[Any, Any, R]:
        """Return the coroutine `work(mark, *args)`, which calls `started(mark)` first. `shown`: the call, for messages.

        Raise where no event loop could await the coroutine.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise NotAwaitedError(
                f"ctx.{method}(…) was called where no event loop runs, so nothing can await it, and nothing was done; "
                f"in a `def`, call ctx.{method}_sync(…)"
            ) from None
        mark = object()
        made = work(mark, *args)
        self._calls[mark] = made, shown
        return made

    def started(self, mark: object) -> None:
        self._calls.pop(mark, None)

    def close(self) -> NotAwaitedError | None:
        """Close the coroutines that were never awaited, so that they can no longer start. Return an error naming them.

        A coroutine that was cancelled before it began does not count.
        """
        left = [each for each in self._calls.values() if inspect.getcoroutinestate(each[0]) == inspect.CORO_CREATED]
        if not left:
            return None
        for work, _ in left:
            work.close()
        calls = ", ".join(call for _, call in left)
        error = NotAwaitedError(
            f"the task returned, but never awaited {calls:.300}, so nothing of that was done; write `await` before the "
            f"call, and if the call was passed to create_task, await that task before you return"
        )
        error.final = True
        return error
