"""dramatiq: one process, threads. A message stays in a hash until it is acked, so one HLEN shows how many are left."""

from __future__ import annotations

from typing import Any

from bench.peers import Kind, Load, Peer


class Dramatiq(Peer):
    name = "dramatiq"
    tasks = "bench.peers.dramatiq_tasks"
    slots = 64
    load = Load(one=3000, bulk=3000, sleeps=5000)
    looks = ("hlen",)
    sends = frozenset({"evalsha", "eval", "script|load"})

    def worker(self, kind: Kind) -> list[str]:
        """With the default of 8 threads, no-ops reach about 250 per second and thread, apparently because only two
        messages are prefetched per thread. 16 threads are faster. 24, 32 and 64 were no different from 16, within the
        noise.
        """
        threads = {"noop": 16, "sleep": self.slots, "latency": 8}[kind]
        return ["-m", "dramatiq", "--processes", "1", "--threads", str(threads), self.tasks]

    def left(self, redis: Any) -> int:
        return int(redis.hlen("dramatiq:default.msgs"))
