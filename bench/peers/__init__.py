"""Relier and its alternatives, each behind the same small contract, so that one program measures all of them.

A system is two modules:

    <system>.py        a Peer: how to start its worker, and how to see from outside what is left to do
    <system>_tasks.py  its tasks and its own client, imported only by processes of their own: workers and producers

The bench itself never imports a system. Each system runs in a new interpreter, and a system that is not installed only
loses its own row. A tasks module offers three names to `produce.py`:

    opened()                async context manager: connections open before anything is timed
    one(task, *args)        async: send one task, as a caller of this system would
    many(task, n)           async: send n at once, in the best way the system has

They are async even if the client is not, so that one loop can run all producers. Awaiting a call that never suspends
costs a fraction of a microsecond. The tasks are `noop()`, `sleep()` (10 ms, in the system's usual way of waiting) and
`stamp(sent)`, which calls `lateness.note`.
"""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

Kind = Literal["noop", "sleep", "latency"]

SLEEP_SECONDS = float(os.environ.get("BENCH_SLEEP_SECONDS", "0.01"))
URL_VARIABLE = "BENCH_REDIS_URL"
LATENESS_VARIABLE = "BENCH_LATENESS_FILE"


@dataclass(frozen=True, slots=True)
class Load:
    """The number of tasks, chosen per system so that every drain takes at least a second. A shorter drain
    would mostly measure the start of the processes."""

    one: int
    bulk: int
    sleeps: int

    def shortened(self, divisor: int) -> Load:
        return Load(self.one // divisor, self.bulk // divisor, self.sleeps // divisor)


class Peer(ABC):
    """The contract of a system."""

    name: ClassVar[str]
    tasks: ClassVar[str]
    """The tasks module, by its full name."""
    slots: ClassVar[int]
    """How many sleeps it runs at once, in the kind `sleep`."""
    load: ClassVar[Load]
    looks: ClassVar[tuple[str, ...]]
    """The commands of one `left`, named as in commandstats, to be taken off what the system itself cost."""
    sends: ClassVar[frozenset[str] | None] = None
    """The commands it sends, where it runs scripts: the time of commands inside a script is in the script's already.
    None where it runs none to speak of, and every command counts."""

    @abstractmethod
    def worker(self, kind: Kind) -> list[str]:
        """Return the arguments after `python` that start its worker in the foreground."""

    @abstractmethod
    def left(self, redis: Any) -> int:
        """Return the tasks sent and not completed yet, by one cheap read that does not disturb the worker. May be one
        too few for a moment if a system moves a task in two steps."""

    def env(self, url: str) -> Mapping[str, str]:  # noqa: ARG002
        """Return variables that its processes need in addition to BENCH_REDIS_URL."""
        return {}

    def verify(self, url: str) -> str:  # noqa: ARG002
        """If the system keeps a record of its work, return how that contradicts a complete drain. Empty if it does
        not."""
        return ""


ORDER = ("celery", "dramatiq", "taskiq", "relier")
_CLASSES = {
    "celery": ("bench.peers.celery", "Celery"),
    "dramatiq": ("bench.peers.dramatiq", "Dramatiq"),
    "taskiq": ("bench.peers.taskiq", "Taskiq"),
    "relier": ("bench.peers.relier_native", "RelierNative"),
    # for celery_engine.py: the same pool and concurrency on both sides
    "plain": ("bench.peers.celery_engine", "Plain"),
    "adopted": ("bench.peers.celery_engine", "Adopted"),
    "asyncio": ("bench.peers.celery_engine", "Asyncio"),
}


def peer(name: str) -> Peer:
    module, kind = _CLASSES[name]
    found: Peer = getattr(importlib.import_module(module), kind)()
    return found
