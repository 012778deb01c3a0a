"""What a running task may know of itself, and how it keeps what it did. Asked for by a parameter `ctx: TaskContext`, or
through `task_context`."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar, cast, overload

from relier.errors import LeaseLostError, RelierError
from relier.ledger.records import Claimed, Settled
from relier.redact import shown
from relier.run.checkpoints import Checkpoints
from relier.run.line import Line
from relier.run.steps import Journal, read_result, write_result

R = TypeVar("R")
PROGRESS_EVERY_S = 1.0

_current: ContextVar[TaskContext] = ContextVar("relier_task_context")


class TaskContext:
    """One attempt, seen from inside.

    `fence` grows with every attempt of this task: hand it to a system that can refuse an older one. `lost` turns true
    when another attempt may have begun; what this one still does is refused by the ledger, but not by the world.
    """

    __slots__ = (
        "_checkpoint",
        "_checkpoints",
        "_claimed",
        "_journal",
        "_line",
        "_lost",
        "_told_at",
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
        claimed: Claimed,
        line: Line,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        trusted_until: Callable[[], float] | None = None,
    ) -> None:
        record = claimed.record
        self.task_id = record.id
        self.task_name = record.name
        self.attempt = record.attempt
        self.fence = int(claimed.lease.fence)
        self.worker_id = claimed.lease.owner
        self.args = args
        self.kwargs = dict(kwargs or {})
        self.metadata = dict(metadata or {})
        self._claimed = claimed
        self._line = line
        self._trusted_until = trusted_until
        self._lost = False
        self._checkpoint = claimed.checkpoint
        self._checkpoints: Checkpoints | None = None
        self._journal: Journal | None = None
        self._told_at = 0.0

    def __repr__(self) -> str:
        return f"TaskContext({self.task_name} {self.task_id}, attempt {self.attempt})"

    # --- the lease -----------------------------------------------------------------------------------------------

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

    def _check(self, settled: Settled) -> None:
        if not settled.ok:
            self._lost = True
            raise LeaseLostError(
                f"attempt {self.attempt} of {self.task_id} is lost: the ledger refused what it wanted to keep, because "
                f"the task is {settled.state or settled.verdict} under another fence; stop here"
            )

    # --- checkpoints ---------------------------------------------------------------------------------------------

    @property
    def partial_result(self) -> Any:
        """What the last `set_partial` kept, by this attempt or an earlier one; None where there was none."""
        return self._keeper.load(self._checkpoint)

    async def set_partial(self, value: Any) -> None:
        """Keep how far the task got, under its fence. A revived, retried or replayed attempt finds it."""
        seq, kept = await asyncio.to_thread(self._keeper.dump, value)
        self._check(await self._line.arun(self._line.ledger.checkpoint(self._claimed.lease, seq, kept)))
        self._checkpoint = kept
        self._keeper.superseded(kept)

    def set_partial_sync(self, value: Any) -> None:
        """The same, for `def` tasks."""
        seq, kept = self._keeper.dump(value)
        self._check(self._line.run(self._line.ledger.checkpoint(self._claimed.lease, seq, kept)))
        self._checkpoint = kept
        self._keeper.superseded(kept)

    @property
    def _keeper(self) -> Checkpoints:
        if self._checkpoints is None:
            settings, keyring = self._line.settings, self._line.keyring
            self._checkpoints = Checkpoints(settings, self.task_id, self._claimed.lease.fence, keyring)
        return self._checkpoints

    # --- steps ---------------------------------------------------------------------------------------------------

    @overload
    async def step(self, name: str, fn: Callable[..., Awaitable[R]], /, *args: Any, **kwargs: Any) -> R: ...
    @overload
    async def step(self, name: str, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> R: ...
    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `fn(*args, **kwargs)` once for the life of this task, and keep what it returned.

        Recorded under the fence before this returns; an attempt that finds it recorded gets that and calls nothing. If
        the process dies between the effect and the record, `fn` is called again: make it safe to repeat, or hand it
        the fence.
        """
        recorded = self._steps.begin(name)
        if recorded is None:
            value = fn(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            entry = self._steps.entry(name, write_result(fn, value))
            answer = await self._line.arun(self._line.ledger.step(self._claimed.lease, name, entry))
            self._check(answer.settled)
            if answer.value is None or answer.value == entry:
                return value
            recorded = self._steps.result_in(name, answer.value)
        return read_result(fn, recorded)

    def step_sync(self, name: str, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """The same, for `def` tasks."""
        recorded = self._steps.begin(name)
        if recorded is None:
            value = fn(*args, **kwargs)
            entry = self._steps.entry(name, write_result(fn, value))
            answer = self._line.run(self._line.ledger.step(self._claimed.lease, name, entry))
            self._check(answer.settled)
            if answer.value is None or answer.value == entry:
                return value
            recorded = self._steps.result_in(name, answer.value)
        return cast(R, read_result(fn, recorded))

    @property
    def _steps(self) -> Journal:
        if self._journal is None:
            self._journal = Journal(self._claimed.steps, self.task_id, self._line.keyring)
        return self._journal

    # --- for people ----------------------------------------------------------------------------------------------

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far it is, for people. Told once a second at the most; never waits, never fails."""
        now = time.monotonic()
        finished = total is not None and done >= total
        if now - self._told_at < PROGRESS_EVERY_S and not finished:
            return
        self._told_at = now
        note = shown(self._line.settings, self.task_name, note) if note else ""
        of = "" if total is None else f" of {total:g}"
        text = f"{done:g}{of}{': ' if note else ''}{note}"
        self._line.post(self._line.ledger.progress(self._claimed.lease, text))


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
