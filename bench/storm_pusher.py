"""One producer of bench/storms.py: it pushes every key once, at the same moments as the other producers.

    python -m bench.storm_pusher <who> <keys> <begun> <seconds>

It notes the answers in its own file. If it is killed and started again, it continues after the last answer that it
noted, like a producer that does not know whether its last pushes arrived: it pushes those again.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path

from bench import guard_jobs as jobs

AT_ONCE = 20
DISTRACTED_S = 0.1  # before the answer is noted, so a kill now loses it


def answers(who: int) -> Path:
    return jobs.FOLDER / f"answers{who}"


def order(keys: int) -> list[int]:
    """Return the keys in an order that is the same for all producers, so that all push a key at once."""
    shuffled = list(range(keys))
    random.Random(keys).shuffle(shuffled)
    return shuffled


async def push_rest(who: int, keys: int, begun: float, seconds: float) -> None:
    file = os.open(answers(who), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for at in range(len(answers(who).read_text().splitlines()), keys, AT_ONCE):
        await asyncio.sleep(max(0.0, begun + seconds * at / keys - time.monotonic()))
        some = order(keys)[at : at + AT_ONCE]
        receipts = await asyncio.gather(*(jobs.once.apush(key, who) for key in some))
        lines = [f"{key} {receipt.id} {receipt.duplicate:d}\n" for key, receipt in zip(some, receipts, strict=True)]
        await asyncio.sleep(random.uniform(0, DISTRACTED_S))
        os.write(file, "".join(lines).encode())
    os.close(file)


if __name__ == "__main__":
    asyncio.run(push_rest(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
