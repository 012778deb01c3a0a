"""taskiq with the stream broker: one process, tasks are acknowledged when done. The consumer group knows how many
messages it has not read (its lag), and how many are not acknowledged (pending).
"""

from __future__ import annotations

from typing import Any

from bench.peers import Kind, Load, Peer


class Taskiq(Peer):
    name = "taskiq"
    tasks = "bench.peers.taskiq_tasks"
    slots = 100
    load = Load(one=2500, bulk=2500, sleeps=5000)
    looks = ("xinfo|groups",)

    def worker(self, kind: Kind) -> list[str]:  # noqa: ARG002 - 100 slots, its default, serve all kinds
        options = ["--workers", "1", "--max-async-tasks", str(self.slots), "--log-level", "WARNING"]
        return ["-m", "taskiq", "worker", *options, f"{self.tasks}:broker"]

    def left(self, redis: Any) -> int:
        """The group exists as soon as the first producer has started."""
        (group,) = redis.xinfo_groups("taskiq")
        return int(group["lag"]) + int(group["pending"])
