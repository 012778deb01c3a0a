"""Tasks for features that the previous release does not have. It can import this module all the same."""

from __future__ import annotations

from typing import Any

import relier
from relier import rl_task

MODERN = hasattr(relier, "batch")
one_at_a_time: dict[str, Any] = {"limits": [relier.Limit(concurrency=1, per="till")]} if MODERN else {}


@rl_task
async def member(n: int) -> int:
    return n


@rl_task(**one_at_a_time)
async def limited(n: int) -> int:
    return n


@rl_task
async def add(numbers: list[int]) -> int:
    return sum(numbers)


@rl_task(queue="doubles")
async def double(n: int) -> int:
    return 2 * n
