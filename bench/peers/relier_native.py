"""Relier: one native worker process.

The number of tasks left is read from the hash of counters with one HMGET, not with `Ledger.stats()`: a script would
count among the worker's own, and reading the head of the queue costs more than several tasks do. At the end of a drain,
the bench calls `stats()` once, to check that the ledger agrees that all tasks are done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.peers import Kind, Load, Peer
from relier.ledger import Ledger, keys, load_scripts
from relier.settings import Settings
from relier.store import SyncStore

NAMESPACE = "bench"
COUNTS = keys.spell(keys.prefix(NAMESPACE, "rl:"), "counts")


class RelierNative(Peer):
    name = "relier"
    tasks = "bench.peers.relier_native_tasks"
    slots = 1000
    load = Load(one=3000, bulk=27_000, sleeps=20_000)
    looks = ("hmget",)
    sends = frozenset({"evalsha", "eval", "script|load", "blpop", "ping"})

    def worker(self, kind: Kind) -> list[str]:
        slots = self.slots if kind == "sleep" else 100
        return ["-m", "relier.cli", "worker", self.tasks, "--concurrency", str(slots), "--log-level", "warning"]

    def left(self, redis: Any) -> int:
        submitted, done = redis.hmget(COUNTS, "submitted", "done")
        return int(submitted or 0) - int(done or 0)

    def env(self, url: str) -> Mapping[str, str]:
        return {"RELIER_REDIS_URL": url, "RELIER_NAMESPACE": NAMESPACE, "RELIER_ADMISSION_LIMIT": "0"}

    def verify(self, url: str) -> str:
        settings = Settings(redis_url=url, namespace=NAMESPACE)
        with SyncStore(settings, load_scripts()) as store:
            stats = store.run(Ledger(settings).stats())
        counts = stats.counts
        if counts.get("submitted", 0) == counts.get("done", 0) and not counts.get("dead", 0):
            return ""
        return f"the ledger counts {dict(counts)}"
