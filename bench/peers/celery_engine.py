"""Celery with and without Relier: plain tasks, adopted ones, and our coroutines in the asyncio pool."""

from __future__ import annotations

from bench.peers import Kind, Load
from bench.peers.celery import Celery
from bench.peers.relier_native import RelierNative


class Plain(Celery):
    """Late acknowledgement, two processes, for all kinds of tasks."""

    name = "plain"
    slots = 2
    load = Load(one=1200, bulk=1800, sleeps=300)


class Adopted(RelierNative):
    """Celery with `install(app, adopt=True)`: the same app, pool and concurrency as plain Celery."""

    name = "adopted"
    tasks = "bench.peers.adopted_tasks"
    slots = 2
    load = Load(one=1200, bulk=1800, sleeps=300)

    def worker(self, kind: Kind) -> list[str]:  # noqa: ARG002
        return ["-m", "celery", "--app", self.tasks, "worker", "--concurrency", "2", "--loglevel", "WARNING"]


class Asyncio(RelierNative):
    """`@rl_task` coroutines in a Celery worker: pushed with apush, run by the pool `asyncio`."""

    name = "asyncio"
    tasks = "bench.peers.asyncio_tasks"
    slots = 1000
    load = Load(one=3000, bulk=27_000, sleeps=10_000)

    def worker(self, kind: Kind) -> list[str]:  # noqa: ARG002
        options = ["-P", "asyncio", "--concurrency", str(self.slots), "--loglevel", "WARNING"]
        return ["-m", "celery", "--app", self.tasks, "worker", *options]
