"""Repeat a call until the store answers.

The caller decides which errors are worth waiting for: `again` gets each error, and raises it to give up. Blocking code
passes a `send` that blocks instead of suspending, `blocking_sleep`, and runs the coroutine with `run_sync`
(store/wire.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

from relier.errors import RelierError

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0


def growing_pauses(longest: float = LONGEST_PAUSE_S) -> Iterator[float]:
    """Yield the pauses between attempts (s), without end: each is twice as long as the one before, up to `longest`."""
    pause = FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(longest, 2 * pause)


async def blocking_sleep(seconds: float) -> None:
    """Block the thread. Never suspends."""
    time.sleep(seconds)  # noqa: ASYNC251 - on purpose


async def until_answered(
    send: Callable[[], Awaitable[T]],
    again: Callable[[RelierError], None],
    pauses: Iterable[float] | None = None,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> T:
    """Await `send` until it returns. Pause after each error that `again` does not raise."""
    for pause in pauses or growing_pauses():
        try:
            return await send()
        except RelierError as error:
            again(error)
        await sleep(pause)
    raise AssertionError("pauses have no end")
