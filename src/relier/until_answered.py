"""Repeat a call until the store answers.

The caller decides which errors are worth waiting for: `again` gets each error, and raises it to give up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

from relier.errors import RelierError

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0


def pauses(longest: float = LONGEST_PAUSE_S) -> Iterator[float]:
    """Yield the pauses between attempts (s), without end: each is twice as long as the one before, up to `longest`."""
    pause = FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(longest, 2 * pause)


async def auntil_answered(
    send: Callable[[], Awaitable[T]], again: Callable[[RelierError], None], longest: float = LONGEST_PAUSE_S
) -> T:
    """Await `send` until it returns. Pause after each error that `again` does not raise."""
    for pause in pauses(longest):
        try:
            return await send()
        except RelierError as error:
            again(error)
        await asyncio.sleep(pause)
    raise AssertionError("pauses have no end")


def until_answered(
    send: Callable[[], T],
    again: Callable[[RelierError], None],
    every: Iterable[float] | None = None,
    sleep: Callable[[float], Any] = time.sleep,
) -> T:
    """Call `send` until it returns, like `auntil_answered`, but block. `every`: the pauses, if not the usual ones."""
    for pause in every or pauses():
        try:
            return send()
        except RelierError as error:
            again(error)
        sleep(pause)
    raise AssertionError("pauses have no end")
