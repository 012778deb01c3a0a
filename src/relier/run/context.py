"""What a running task may know of itself. Asked for by a parameter `ctx: TaskContext`, or through `task_context`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from relier.errors import LeaseLostError, RelierError

_current: ContextVar[TaskContext] = ContextVar("relier_task_context")


class TaskContext:
    """One attempt, seen from inside.

    `fence` grows with every attempt of this task: hand it to a system that can refuse an older one. `lost` turns true
    when another attempt may have begun; what this one still does is refused by the ledger, but not by the world.
    """

    __slots__ = (
        "_lost",
        "_trusted_until",
        "args",
        "attempt",
        "fence",
        "kwargs",
        "metadata",
        "task_id",
        "task_name",
        "worker_id",
    )

    def __init__(
        self,
        *,
        task_id: str,
        task_name: str,
        attempt: int,
        fence: str,
        worker_id: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        trusted_until: Callable[[], float] | None = None,
    ) -> None:
        self.task_id = task_id
        self.task_name = task_name
        self.attempt = attempt
        self.fence = int(fence)
        self.worker_id = worker_id
        self.args = args
        self.kwargs = dict(kwargs or {})
        self.metadata = dict(metadata or {})
        self._trusted_until = trusted_until
        self._lost = False

    def __repr__(self) -> str:
        return f"TaskContext({self.task_name} {self.task_id}, attempt {self.attempt})"

    @property
    def lost(self) -> bool:
        return self._lost

    @property
    def suspect(self) -> bool:
        """The worker has not reached the store for so long that another may be about to take over."""
        return self._trusted_until is not None and time.monotonic() > self._trusted_until()

    def guard(self) -> None:
        """Raise LeaseLostError unless this attempt still holds the task, as far as can be known from here.

        Call it right before an effect that must not happen twice. It cannot see what happens between the check and the
        effect: where that matters, hand `fence` to whoever does the effect.
        """
        if self._lost:
            raise LeaseLostError(f"attempt {self.attempt} of {self.task_id} is lost: another may run; stop here")
        if self.suspect:
            raise LeaseLostError(
                f"attempt {self.attempt} of {self.task_id} is suspect: for nearly a lease the store was not reached"
            )

    def lose(self) -> None:
        """Called by the engine."""
        self._lost = True


def enter_context(ctx: TaskContext) -> None:
    """Make it the one `task_context` shows, in the current contextvars context."""
    _current.set(ctx)


def current_context() -> TaskContext | None:
    """The context of whichever task runs here; None outside tasks."""
    return _current.get(None)


class _Proxy:
    """`task_context`: the context of whichever task runs here."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python itself asks, of anything
            raise AttributeError(name)
        try:
            ctx = _current.get()
        except LookupError:
            raise RelierError(
                f"task_context.{name} was read outside a running task; it is there only in what a worker runs"
            ) from None
        return getattr(ctx, name)

    def __repr__(self) -> str:
        ctx = current_context()
        return "task_context (no task runs here)" if ctx is None else f"task_context of {ctx!r}"


task_context: TaskContext = _Proxy()  # type: ignore[assignment]
