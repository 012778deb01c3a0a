"""Run a task of Django in a worker: its function, its context, and the signals `task_started` and `task_finished`.

A task of Django is a Relier task of the same name that takes `(args, kwargs, about)`, plain JSON. Its result holds the
arguments again, because the ledger keeps a payload only while its task may still run.
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from relier.django.tasks.library import TaskContext, TaskError, TaskResultStatus, normalize_json, signals
from relier.django.tasks.results import moment_of, result_of_call
from relier.errors import LeaseLostError
from relier.failure import failure_of
from relier.options import Retries
from relier.outbox.inbox.exactly_once import earlier_result
from relier.run.current import current_context
from relier.run.threads import StopThread
from relier.submit.client import Client, default_client

STOPPED = (CancelledError, LeaseLostError, StopThread)  # such an attempt has not finished: the task runs again


def body_of(task: Any, backend: type, retries: Retries | None) -> Callable[..., Any]:
    """Return the function that a worker calls to run a Django task. It has the name of Django's function."""

    def run(args: list[Any], kwargs: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
        call = RunningCall(task, retries, args, kwargs, about)
        call.know(call.history_call and call.client.run(call.history_call))
        signals.task_started.send(backend, task_result=call.result)
        try:
            value = normalize_json(task.func(*call.arguments, **kwargs))
        except BaseException as error:
            ran = earlier_result(error)
            if ran is None:
                if call.failed(error):
                    signals.task_finished.send(backend, task_result=call.result)
                raise
            value = ran.value
        stored = call.succeeded(value)
        signals.task_finished.send(backend, task_result=call.result)
        return stored

    async def arun(args: list[Any], kwargs: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
        call = RunningCall(task, retries, args, kwargs, about)
        call.know(call.history_call and await call.client.arun(call.history_call))
        await signals.task_started.asend(backend, task_result=call.result)
        try:
            value = normalize_json(await task.func(*call.arguments, **kwargs))
        except BaseException as error:
            ran = earlier_result(error)
            if ran is None:
                if call.failed(error):
                    await signals.task_finished.asend(backend, task_result=call.result)
                raise
            value = ran.value
        stored = call.succeeded(value)
        await signals.task_finished.asend(backend, task_result=call.result)
        return stored

    body: Callable[..., Any] = arun if iscoroutinefunction(task.func) else run
    body.__module__, body.__qualname__ = task.func.__module__, task.func.__qualname__
    return body


class RunningCall:
    """One attempt, as the task's context and the receivers of signals see it."""

    def __init__(
        self, task: Any, retries: Retries | None, args: list[Any], kwargs: dict[str, Any], about: dict[str, Any]
    ) -> None:
        ctx = current_context()
        assert ctx is not None  # noqa: S101 - only a worker calls bodies
        self._ctx, self._retries = ctx, retries
        self._started_ms = time.time_ns() // 1_000_000
        self._stored = {"args": args, "kwargs": kwargs, "about": about, "started_ms": self._started_ms}
        started = moment_of(self._started_ms)
        self.result = result_of_call(task, ctx.task_id, args, kwargs, about)
        self._set(
            status=TaskResultStatus.RUNNING, started_at=started, last_attempted_at=started, worker_ids=[ctx.worker_id]
        )
        self.arguments = [TaskContext(task_result=self.result), *args] if task.takes_context else args

    @property
    def client(self) -> Client:
        """Return the client of the ledger that holds the task."""
        return default_client().of(self._ctx.task_id)

    @property
    def history_call(self) -> Any:
        """Return the call that reads earlier attempts, or None if this is the first."""
        return self.client.ledger.get(self._ctx.task_id) if self._ctx.attempt > 1 else None

    def know(self, found: Any) -> None:
        """Store what the ledger knows about earlier attempts."""
        if found is not None:
            workers = {entry.attempt: entry.worker_id for entry in found.history}
            earlier = [workers.get(nth, "") for nth in range(1, self._ctx.attempt)]
            self._set(worker_ids=[*earlier, self._ctx.worker_id])
            if found.history and found.history[0].since_ms:
                self._set(started_at=moment_of(found.history[0].since_ms))

    def succeeded(self, value: Any) -> dict[str, Any]:
        """Note the return value, and return what the ledger stores."""
        self._set(status=TaskResultStatus.SUCCESSFUL, finished_at=moment_of(time.time_ns() // 1_000_000))
        self._set(_return_value=value)
        return self._stored | {"value": value}

    def failed(self, error: BaseException) -> bool:
        """Note an error. Return whether it ends the task: not if the task is retried or was stopped."""
        if isinstance(error, STOPPED):
            return False
        failure = failure_of(error)
        self.result.errors.append(
            TaskError(exception_class_path=failure.kind.replace(":", "."), traceback=failure.traceback)
        )
        if self._retries is not None and self._retries.delay_ms(self._ctx.retries + 1, error) is not None:
            self._set(status=TaskResultStatus.READY)
            return False
        self._set(status=TaskResultStatus.FAILED, finished_at=moment_of(time.time_ns() // 1_000_000))
        return True

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self.result, name, value)  # frozen, but Django's own backends do the same
