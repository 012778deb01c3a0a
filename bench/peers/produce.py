"""One producer, in a process of its own: `python -m bench.peers.produce <tasks module> <way> <n>`.

Ways: `one` (no-ops, one by one), `bulk` (no-ops, at once), `sleeps` (at once), `rate` (stamps, RATE a second). Prints
how many tasks it sent and the seconds that the timed part of them took.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from types import ModuleType

import uvloop

WARM = 20  # the first calls connect, load scripts and fill caches
RATE = 100


async def one_by_one(client: ModuleType, n: int) -> None:
    for _ in range(n):
        await client.one("noop")


async def at_rate(client: ModuleType, n: int) -> None:
    """Send by the clock, not by pauses, so that a slow call does not lower the rate."""
    begin = time.monotonic()
    for i in range(n):
        await asyncio.sleep(max(0.0, begin + i / RATE - time.monotonic()))
        await client.one("stamp", time.time())


async def produce(module: str, way: str, n: int) -> None:
    client = importlib.import_module(module)
    warm = 0 if way == "rate" else WARM
    ways = {
        "one": lambda: one_by_one(client, n),
        "bulk": lambda: client.many("noop", n),
        "sleeps": lambda: client.many("sleep", n),
        "rate": lambda: at_rate(client, n),
    }
    async with client.opened():
        await one_by_one(client, warm)
        begin = time.perf_counter()
        await ways[way]()
        seconds = time.perf_counter() - begin
    print(json.dumps({"sent": warm + n, "seconds": seconds}))


if __name__ == "__main__":
    uvloop.run(produce(sys.argv[1], sys.argv[2], int(sys.argv[3])))
