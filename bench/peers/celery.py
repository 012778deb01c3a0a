"""Celery: prefork, late acknowledgement, no results, otherwise the defaults. Tasks move from a list to `unacked` and
out."""

from __future__ import annotations

from typing import Any

from bench.peers import Kind, Load, Peer


class Celery(Peer):
    name = "celery"
    tasks = "bench.peers.celery_tasks"
    slots = 16
    load = Load(one=1200, bulk=1200, sleeps=1600)
    looks = ("llen", "hlen")

    def worker(self, kind: Kind) -> list[str]:
        processes = self.slots if kind == "sleep" else 2
        options = ["--pool", "prefork", "--concurrency", str(processes), "--loglevel", "WARNING"]
        return ["-m", "celery", "--app", self.tasks, "worker", *options]

    def left(self, redis: Any) -> int:
        """Between its BRPOP and its entry in `unacked`, a task is in neither place."""
        pipe = redis.pipeline(transaction=False)
        pipe.llen("celery")
        pipe.hlen("unacked")
        queued, unacked = pipe.execute()
        return int(queued) + int(unacked)
