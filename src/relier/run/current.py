"""Find the context of the task that runs here: `task_context`, and the functions with which the engine sets it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from relier.errors import RelierError
from relier.logs.record_fields import install_record_factory
from relier.run.context import TaskContext
from relier.submit.in_task import PushingAttempt, pushing_attempt

_current: ContextVar[TaskContext] = ContextVar("relier_task_context")
_hook_fields: ContextVar[dict[str, Any] | None] = ContextVar("relier_hook_fields", default=None)


def enter_context(ctx: TaskContext) -> None:
    """Make `ctx` the context that `task_context` refers to, in the current contextvars context."""
    _current.set(ctx)
    pushing_attempt.set(PushingAttempt(ctx.task_id, lambda: ctx.lost, lambda: ctx.waits.one(), ctx))
    if "structlog.contextvars" in sys.modules:  # only an application that uses structlog has imported it
        sys.modules["structlog.contextvars"].bind_contextvars(**_log_fields_of(ctx))


@contextmanager
def entered(ctx: TaskContext) -> Iterator[None]:
    """Make `ctx` the context that `task_context` refers to, inside the block only."""
    before = _current.set(ctx), pushing_attempt.set(pushing_attempt.get())
    try:
        enter_context(ctx)
        yield
    finally:
        _current.reset(before[0])
        pushing_attempt.reset(before[1])
        if "structlog.contextvars" in sys.modules:
            sys.modules["structlog.contextvars"].unbind_contextvars(*_log_fields_of(ctx))


def current_context() -> TaskContext | None:
    """Return the context of the task that runs here, or None outside tasks."""
    return _current.get(None)


def enter_hook(**fields: Any) -> None:
    """Put the fields of an event on every LogRecord that a hook creates, in the current contextvars context."""
    _hook_fields.set(fields)
    if "structlog.contextvars" in sys.modules:
        sys.modules["structlog.contextvars"].bind_contextvars(**fields)


def install_log_fields() -> None:
    """Put the fields of the task on every LogRecord that a task or a hook creates in this process."""
    install_record_factory(_log_fields)


def _log_fields() -> dict[str, Any] | None:
    ctx = _current.get(None)
    return _hook_fields.get() if ctx is None else _log_fields_of(ctx)


def _log_fields_of(ctx: TaskContext) -> dict[str, Any]:
    return {
        "task_id": ctx.task_id,
        "task_name": ctx.task_name,
        "attempt": ctx.attempt,
        "queue": ctx.metadata.get("queue", ""),
        "worker_id": ctx.worker_id,
    }


if TYPE_CHECKING:
    Context = TaskContext
else:
    Context = object


class ContextProxy(Context):
    """Forward attribute access on `task_context` to the context of the task that runs here. Calling it returns that."""

    is_task_context = True

    def __init__(self) -> None:
        pass

    def __call__(self) -> TaskContext:
        return self._found("()")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python looks up such names on any object
            raise AttributeError(name)
        return getattr(self._found(f".{name}"), name)

    @staticmethod
    def _found(used: str) -> TaskContext:
        try:
            return _current.get()
        except LookupError:
            raise RelierError(
                f"task_context{used} was read outside a running task, where there is no context; read it in code "
                f"that a worker runs"
            ) from None

    def __repr__(self) -> str:
        ctx = current_context()
        return "task_context (no task runs here)" if ctx is None else f"task_context of {ctx!r}"


task_context = ContextProxy()
