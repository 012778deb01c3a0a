"""How fast tasks enter and leave queues: what workers claimed, and how the depths changed in the last minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

APART_MS = 5_000
RECENT_MS = 65_000


class DepthHistory:
    """The depths of all queues in the last minute, at least APART_MS apart, as this process has read them."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Mapping[str, int]]] = deque()

    def add(self, now_ms: int, depths: Mapping[str, int]) -> None:
        while self._samples and not 0 <= now_ms - self._samples[0][0] <= RECENT_MS:
            self._samples.popleft()
        if not self._samples or now_ms - self._samples[-1][0] >= APART_MS:
            self._samples.append((now_ms, depths))

    def rates(self, queue: str, now_ms: int, depth: int, claimed: float | None) -> dict[str, float | None]:
        """Return tasks per second that entered and left a queue; None for what is not known yet.

        `claimed`: how many tasks left the queue per second. The number that entered it is `claimed` plus the growth of
        the depth.
        """
        since_ms, then = self._samples[0] if self._samples else (now_ms, {})
        if claimed is None or now_ms - since_ms < APART_MS:
            return {"in_rate": None, "out_rate": claimed}
        gained = (depth - then.get(queue, 0)) / ((now_ms - since_ms) / 1000)
        return {"in_rate": max(0.0, claimed + gained), "out_rate": claimed}
