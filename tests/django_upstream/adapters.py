"""Backends that look to the upstream tests like Django's own: `dummy` only enqueues, `immediate` waits for the end."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from asgiref.sync import sync_to_async

from relier import Client, Settings, use_client
from relier.django.tasks import RelierBackend
from relier.engines.worker import Worker, WorkerOptions
from relier.ledger.records import new_task_id
from relier.submit.client import default_client

PATIENCE_S = 20.0


class DummyBackend(RelierBackend):
    """Enqueues. `results` is what Django's dummy backend has: what was enqueued so far."""

    results: list[Any] = []  # noqa: RUF012 - one list, as the tests expect

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self.results.append(result)
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = await super().aenqueue(task, args, kwargs)
        self.results.append(result)
        return result

    def clear(self) -> None:
        self.results.clear()
        use_client(Client(Settings(namespace=new_task_id())))


class ImmediateBackend(RelierBackend):
    """Enqueues, and returns once a worker in this process has run the task."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        with_worker()
        return finished(super().enqueue(task, args, kwargs))

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        with_worker()
        return await sync_to_async(finished)(await super().aenqueue(task, args, kwargs))


def finished(result: Any) -> Any:
    until = time.monotonic() + PATIENCE_S
    while not result.is_finished:
        assert time.monotonic() < until, "no worker ran the task"
        time.sleep(0.005)
        result.refresh()
    return result


def with_worker() -> None:
    """Start a worker on the namespace of this process, unless it has one."""
    settings = default_client().settings
    if settings.namespace in _workers:
        return
    ready = threading.Event()
    _workers[settings.namespace] = threading.Thread(target=_work, args=(settings, ready), daemon=True)
    _workers[settings.namespace].start()
    assert ready.wait(PATIENCE_S)


def _work(settings: Settings, ready: threading.Event) -> None:
    async def run() -> None:
        await Worker(Client(settings), WorkerOptions(recycles=False, on_ready=ready.set)).run()

    asyncio.run(run())


_workers: dict[str, threading.Thread] = {}
