"""Backends that look like Django's own to the upstream tests: `dummy` only enqueues, `immediate` waits for the end."""

from __future__ import annotations

import time
from typing import Any

from asgiref.sync import sync_to_async

from relier import Client, Settings, use_client
from relier.django.tasks import RelierBackend
from relier.ledger.records import new_task_id
from relier.submit.client import default_client
from tests.support.worker_thread import PATIENCE_S, WorkerThread


class DummyBackend(RelierBackend):
    """Only enqueue. `results`, as in Django's dummy backend: the tasks enqueued so far."""

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
    """Enqueue, and return once a worker in this process has run the task."""

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
    """Start a worker on the namespace of this process, unless it already has one."""
    settings = default_client().settings
    if settings.namespace not in _workers:
        _workers[settings.namespace] = WorkerThread(settings).start()


_workers: dict[str, WorkerThread] = {}
