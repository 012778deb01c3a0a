"""What a running task may know of itself, and how it keeps what it did. Asked for by a parameter `ctx: TaskContext`, or
through `task_context`."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar, cast, overload

from relier import registry
from relier.errors import (
    ExactlyOnceError,
    LeaseLostError,
    NotAwaitedError,
    RelierError,
    StepJournalError,
    UnknownTaskError,
)
from relier.ledger.records import Claimed, Recorded, Settled, Verdict
from relier.outbox.inbox import DEFAULT_INBOX, Blocks, ExactlyOnce
from relier.redact import shown
from relier.run.checkpoints import Checkpoints
from relier.run.line import Line
from relier.run.steps import Journal, Progress, Step, current_line, doing, read_result, write_result
from relier.run.waits import Waits
from relier.store.call import Call, Durability
from relier.submit.insist import Pusher, pusher

R = TypeVar("R")
PROGRESS_EVERY_S = 1.0
_NOT_CALLED: Any = object()

_current: ContextVar[TaskContext] = ContextVar("relier_task_context")


class TaskContext:
    """One attempt, seen from inside.

    `fence` grows with every attempt of this task: hand it to a system that can refuse an older one. `lost` turns true
    when another attempt may have begun; what this one still does is refused by the ledger, but not by the world.
    """

    __slots__ = (
        "_blocks",
        "_checkpoints",
        "_claimed",
        "_journal",
        "_line",
        "_lost",
        "_main_line",
        "_told",
        "_told_at",
        "_trusted_until",
        "_unawaited",
        "_waits",
        "args",
        "attempt",
        "fence",
        "gave_up",
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
        self._blocks: Blocks | None = None
        self._checkpoints: Checkpoints | None = None
        self._journal: Journal | None = None
        self._main_line: object = None
        self._told = ""
        self._waits: Waits | None = None
        self._told_at = -PROGRESS_EVERY_S
        self._unawaited: dict[object, tuple[Coroutine[Any, Any, Any], str]] = {}
        self.gave_up = False  # it stopped because the lease is lost, or may be: that is no failure

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
        effect: where that matters, hand `fence` to whoever does the effect. Let the error pass: the attempt then ends
        without an outcome, and what it did not do is done by the next.
        """
        if self.suspect:
            self.gave_up = True
            raise LeaseLostError(
                f"attempt {self.attempt} of {self.task_id} is suspect: for nearly a lease the store was not reached"
            )
        self._stop_if_lost()

    def lose(self) -> None:
        """Called by the engine."""
        self._lost = True

    def _stop_if_lost(self) -> None:
        if self._lost:
            self.gave_up = True
            raise LeaseLostError(f"attempt {self.attempt} of {self.task_id} is lost: another may run; stop here")

    def _check(self, settled: Settled) -> None:
        if not settled.ok:
            self._lost = self.gave_up = True
            why = f"the task is {settled.state or settled.verdict} under another fence"
            if settled.verdict is Verdict.MISSING:
                why = "it has no record of the task any more: somebody removed it, or the store was emptied"
            raise LeaseLostError(
                f"attempt {self.attempt} of {self.task_id} is lost: the ledger refused what it wanted to keep, because "
                f"{why}; stop here"
            )

    @property
    def _level(self) -> Durability:
        """What a task keeps, it keeps at the level it was pushed at."""
        return self._claimed.record.spec.durability

    # --- the store -----------------------------------------------------------------------------------------------

    @property
    def waits(self) -> Waits:
        """When this attempt waited for the store."""
        if self._waits is None:
            self._waits = Waits()
        return self._waits

    @property
    def kept_waiting(self) -> float:
        """How long the store kept it waiting (s): no part of its own time."""
        return 0.0 if self._waits is None else self._waits.seconds()

    def waiting(self) -> contextlib.AbstractContextManager[None]:
        """Around a call that is repeated until the store answers."""
        return self.waits.one()

    async def _atell(self, call: Call[R]) -> R:
        with self.waiting():
            return await self._line.atell(call, lambda: self._lost)

    def _tell(self, call: Call[R]) -> R:
        with self.waiting():
            return self._line.tell(call, lambda: self._lost)

    # --- checkpoints ---------------------------------------------------------------------------------------------

    @property
    def partial_result(self) -> Any:
        """What the last `set_partial` kept, by this attempt or an earlier one; None where there was none."""
        return self._keeper.load()

    def set_partial(self, value: Any) -> Coroutine[Any, Any, None]:
        """Keep how far the task got, under its fence. A revived, retried or replayed attempt finds it. To be awaited;
        in a `def` it is `set_partial_sync`."""
        return self._to_await("set_partial", self._set_partial, value)

    async def _set_partial(self, mark: object, value: Any) -> None:
        self._unawaited.pop(mark, None)
        seq, kept = await self._line.aside(self._keeper.dump, value)
        call = self._line.ledger.checkpoint(self._claimed.lease, seq, kept, self._level)
        await self._line.aside(self._kept, await self._atell(call), seq, kept)

    def set_partial_sync(self, value: Any) -> None:
        """The same, for `def` tasks."""
        seq, kept = self._keeper.dump(value)
        call = self._line.ledger.checkpoint(self._claimed.lease, seq, kept, self._level)
        self._kept(self._tell(call), seq, kept)

    def _kept(self, answer: Settled, seq: int, kept: bytes) -> None:
        # Refused, a file stays: told once before, with its answer lost, the record may name it. Else the janitor comes.
        self._check(answer)
        self._keeper.kept(seq, kept)

    async def fetch_partial(self) -> None:
        """Called by the engine: reads a checkpoint's file before an `async def` begins, which must not wait for it."""
        if self._claimed.checkpoint:
            with contextlib.suppress(RelierError):  # told to whoever asks for the value
                await self._line.aside(self._keeper.fetch)

    async def aside(self, work: Callable[..., R], *args: Any) -> R:
        """Called by the engine: runs it in a thread that no code of the user's keeps busy."""
        return await self._line.aside(work, *args)

    @property
    def _keeper(self) -> Checkpoints:
        if self._checkpoints is None:
            lease, kept = self._claimed.lease, self._claimed.checkpoint
            settings, keyring = self._line.settings, self._line.keyring
            self._checkpoints = Checkpoints(settings, self.task_id, lease.fence, keyring, kept, self._born)
        return self._checkpoints

    def _born(self) -> str:
        with self.waiting():
            return self._line.born(lambda: self._lost)

    # --- the inbox -----------------------------------------------------------------------------------------------

    def exactly_once(self, where: Any, *, table: str = DEFAULT_INBOX) -> ExactlyOnce:
        """A block whose effects in a database happen once for the life of this task: they and the mark that it ran
        commit together. `with` for a Session, a Connection or a Django alias, `async with` for SQLAlchemy's async ones.

        Where the mark is there, the task ends here with the `result` an earlier attempt left. See outbox/inbox.py.
        """
        task, keyring = registry.find(self.task_name), self._line.keyring
        if task is None:
            raise UnknownTaskError(f"{self.task_name} is no task of this process, so its marks cannot be read here")

        def encode(value: Any) -> bytes | None:
            raw: bytes | None = task.arguments.encode_result(value)
            return keyring.wrap(raw, self.task_id, "inbox") if raw is not None and keyring.encrypts else raw

        def decode(raw: bytes | None) -> Any:
            return None if raw is None else task.arguments.decode_result(keyring.unwrap(raw, self.task_id, "inbox"))

        if self._blocks is None:
            self._blocks = Blocks()
        return ExactlyOnce(where, self.task_id, self._claimed.revision, encode, decode, table, self._blocks)

    def broken_promise(self) -> ExactlyOnceError | None:
        """Called by the engine at the end: what the task believes to be in a database, and is not."""
        return None if self._blocks is None else self._blocks.broken()

    # --- steps ---------------------------------------------------------------------------------------------------

    @overload
    def step(
        self, name: str, fn: Callable[..., Awaitable[R]], /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def step(self, name: str, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, R]: ...
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Call `fn(*args, **kwargs)` once for the life of this task, and keep what it returned.

        Recorded under the fence before this returns; an attempt that finds it recorded gets that and calls nothing. A
        step that raised was not done: it is called again by the next attempt, or by this one if it asks. If the process
        dies between the effect and the record, `fn` is called again: make it safe to repeat, or hand it the fence. To
        be awaited; in a `def` it is `step_sync`.
        """
        return self._to_await("step", self._step, name, fn, args, kwargs)

    async def _step(
        self, mark: object, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._unawaited.pop(mark, None)
        step, value = self._steps.begin(name, self._main_line), _NOT_CALLED
        if step.progress is Progress.RUNS:
            with doing(step):
                if not step.entry:
                    self._stop_if_lost()
                    value = fn(*args, **kwargs)
                    if inspect.isawaitable(value):
                        value = await value
                    self._returned(step, write_result(fn, value))
                if self._differs(step, await self._atell(self._record(step))):
                    value = _NOT_CALLED
        return read_result(fn, step.result) if value is _NOT_CALLED else value

    def step_sync(self, name: str, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """The same, for `def` tasks."""
        if inspect.iscoroutinefunction(fn):
            raise StepJournalError(f"the step {name!r} calls an async function, which step_sync cannot await: use step")
        step, value = self._steps.begin(name, self._main_line), _NOT_CALLED
        if step.progress is Progress.RUNS:
            with doing(step):
                if not step.entry:
                    self._stop_if_lost()
                    value = fn(*args, **kwargs)
                    self._returned(step, write_result(fn, value))
                if self._differs(step, self._tell(self._record(step))):
                    value = _NOT_CALLED
        return cast(R, read_result(fn, step.result) if value is _NOT_CALLED else value)

    def _returned(self, step: Step, result: bytes) -> None:
        """Note what `fn` returned; raises where it is too large to be recorded."""
        entry = self._steps.entry_for(step, result)
        self._line.ledger.step(self._claimed.lease, step.field, entry, self._level)
        step.entry, step.result = entry, result

    def _record(self, step: Step) -> Call[Recorded]:
        return self._line.ledger.step(self._claimed.lease, step.field, step.entry, self._level)

    def _differs(self, step: Step, answer: Recorded) -> bool:
        """Whether the journal holds another result than the one just told; that one counts."""
        self._check(answer.settled)
        if answer.value is None or answer.value == step.entry:
            return False
        step.result = self._steps.result_in(step, answer.value)
        return True

    @property
    def _steps(self) -> Journal:
        if self._journal is None:
            self._journal = Journal(self._claimed.steps, self.task_id, self._line.keyring)
        return self._journal

    def begin_here(self) -> None:
        """Called by the engine where the body begins: its main line is this asyncio task or thread."""
        self._main_line = current_line()

    # --- what must be awaited ------------------------------------------------------------------------------------

    def _to_await(self, method: str, work: Callable[..., Coroutine[Any, Any, R]], *args: Any) -> Coroutine[Any, Any, R]:
        """A coroutine that does nothing until it is awaited; so where nobody can await it, it is refused at once."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise NotAwaitedError(
                f"ctx.{method}(…) was called where no event loop runs, so nothing can await it, and nothing was done; "
                f"in a `def` call ctx.{method}_sync(…)"
            ) from None
        mark = object()
        made = work(mark, *args)
        self._unawaited[mark] = made, f"ctx.step({args[0]!r:.60})" if method == "step" else "ctx.set_partial"
        return made

    def forgotten(self) -> NotAwaitedError | None:
        """Called by the engine at the end: what the task thought it had done, and never awaited. It is closed, so that
        it cannot begin any more. One that was cancelled before it began is no oversight."""
        left = [each for each in self._unawaited.values() if inspect.getcoroutinestate(each[0]) == inspect.CORO_CREATED]
        if not left:
            return None
        for work, _ in left:
            work.close()
        calls = ", ".join(call for _, call in left)
        return NotAwaitedError(
            f"the task returned, but never awaited {calls:.300}: what that should do was not done; write `await` "
            f"before it, and where it was given to create_task, await that before you return"
        )

    # --- for people ----------------------------------------------------------------------------------------------

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far it is, for people. Told once a second at the most; never waits, never fails."""
        of = "" if total is None else f" of {total:.12g}"
        said = f"{done:.12g}{of} {note}"
        now = time.monotonic()
        finished = total is not None and done >= total
        if said == self._told or (now - self._told_at < PROGRESS_EVERY_S and not finished):
            return
        self._told, self._told_at = said, now
        note = shown(self._line.settings, self.task_name, note) if note else ""
        text = f"{done:.12g}{of}{': ' if note else ''}{note}"
        self._line.post(self._line.ledger.progress(self._claimed.lease, text))


def enter_context(ctx: TaskContext) -> None:
    """Make it the one `task_context` shows, in the current contextvars context."""
    _current.set(ctx)
    pusher.set(Pusher(ctx.task_id, lambda: ctx.lost, ctx.waiting))


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
