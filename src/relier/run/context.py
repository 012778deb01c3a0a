"""Give a running task access to its own attempt: its identity, lease, checkpoints, steps and progress.

A task gets the context through a parameter `ctx: TaskContext`, or through `task_context`.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
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
from relier.outbox.inbox.exactly_once import Blocks, ExactlyOnce
from relier.outbox.inbox.marks import DEFAULT_INBOX
from relier.redact import shown
from relier.run.channel import LedgerChannel
from relier.run.checkpoints import Checkpoints
from relier.run.steps import Journal, Progress, Step, current_line, doing, read_result, write_result
from relier.run.unawaited import UnawaitedCalls
from relier.run.waits import Waits
from relier.store.call import Call, Durability
from relier.trace import step_span
from relier.workflows.open_batch import OwnBatch

R = TypeVar("R")
PROGRESS_EVERY_S = 1.0
_NOT_CALLED: Any = object()


class TaskContext:
    """Represent one attempt to the code that it runs.

    `fence` grows with every attempt of this task: pass it to a system that can refuse an older one. `lost` becomes true
    when another attempt may have begun. From then on the ledger refuses this attempt's writes, but other systems do
    not.
    """

    is_task_context = True  # how code below this layer recognises a TaskContext

    __slots__ = (
        "_batch",
        "_blocks",
        "_channel",
        "_checkpoints",
        "_claimed",
        "_journal",
        "_lost",
        "_main_line",
        "_reported",
        "_reported_at",
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
        channel: LedgerChannel,
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
        self.worker_id = claimed.lease.worker_id
        self.args = args
        self.kwargs = dict(kwargs or {})
        self.metadata = dict(metadata or {})
        self._claimed = claimed
        self._channel = channel
        self._trusted_until = trusted_until
        self._lost = False
        self._batch: OwnBatch | None = None
        self._blocks: Blocks | None = None
        self._checkpoints: Checkpoints | None = None
        self._journal: Journal | None = None
        self._main_line: object = None
        self._reported = ""
        self._waits: Waits | None = None
        self._reported_at = -PROGRESS_EVERY_S
        self._unawaited = UnawaitedCalls()
        self.gave_up = False  # the attempt stopped because its lease is, or may be, lost: not a failure

    def __repr__(self) -> str:
        return f"TaskContext({self.task_name} {self.task_id}, attempt {self.attempt})"

    # --- the lease -----------------------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        return self._lost

    @property
    def suspect(self) -> bool:
        """Return whether the worker's last successful heartbeat is so old that its lease may run out soon."""
        return self._trusted_until is not None and self._channel.clock() > self._trusted_until()

    def guard(self) -> None:
        """Raise LeaseLostError unless this attempt still holds the task, as far as this process can know.

        Call this right before an effect that must not happen twice. The check does not cover the time between itself
        and the effect. If that matters, pass `fence` to the system that performs the effect. Do not catch the error. It
        ends the attempt without an outcome, and the next attempt does the remaining work.
        """
        if self.suspect:
            self.gave_up = True
            raise LeaseLostError(
                f"attempt {self.attempt} of {self.task_id} may be lost: its worker has not reached the store for "
                f"nearly a whole lease; stop here; the task will run again"
            )
        self._stop_if_lost()

    @property
    def retries(self) -> int:
        """Return how often this task has failed and was retried."""
        return self._claimed.retries

    @property
    def state(self) -> Any:
        """Return what the lifespan of this process yielded, or None if there is no lifespan."""
        return self._channel.state

    @property
    def batch(self) -> OwnBatch | None:
        """Return the batch to which the task belongs, or None. With it, the task can add tasks to its batch."""
        if self._batch is None and "batch" in self.metadata:
            self._batch = OwnBatch(self.metadata["batch"], self._claimed.lease, self._channel.client)
        return self._batch

    def lose(self) -> None:
        """Mark the attempt as lost. Called by the engine."""
        self._lost = True

    def _stop_if_lost(self) -> None:
        if self._lost:
            self.gave_up = True
            raise LeaseLostError(
                f"attempt {self.attempt} of {self.task_id} is lost: another attempt may run; stop here"
            )

    def _check(self, settled: Settled) -> None:
        if not settled.ok:
            self._lost = self.gave_up = True
            why = f"the task is {settled.state or settled.verdict} under another fence"
            if settled.verdict is Verdict.MISSING:
                why = "the record of the task is gone: somebody removed it, or the store was emptied"
            raise LeaseLostError(
                f"attempt {self.attempt} of {self.task_id} is lost: the ledger refused its write, because "
                f"{why}; stop here"
            )

    @property
    def _level(self) -> Durability:
        """Return the durability level the task was pushed at. Its steps and checkpoints are stored at that level."""
        return self._claimed.record.spec.durability

    # --- the store -----------------------------------------------------------------------------------------------

    @property
    def waits(self) -> Waits:
        """Return the record of when this attempt waited for the store."""
        if self._waits is None:
            self._waits = Waits()
        return self._waits

    @property
    def kept_waiting(self) -> float:
        """Return how long the attempt waited for the store (s). This does not count towards its hard timeout."""
        return 0.0 if self._waits is None else self._waits.seconds()

    async def _areport(self, call: Call[R]) -> R:
        with self.waits.one():
            return await self._channel.areport(call, lambda: self._lost)

    def _report(self, call: Call[R]) -> R:
        with self.waits.one():
            return self._channel.report(call, lambda: self._lost)

    # --- checkpoints ---------------------------------------------------------------------------------------------

    @property
    def partial_result(self) -> Any:
        """Return the value saved by the last `set_partial` of this or an earlier attempt, or None if there is none."""
        return self._keeper.load()

    def set_partial(self, value: Any) -> Coroutine[Any, Any, None]:
        """Save a checkpoint under the attempt's fence. A revived, retried or replayed attempt finds it.

        The call must be awaited. In a `def` task, use `set_partial_sync`.
        """
        return self._unawaited.make("set_partial", "ctx.set_partial", self._set_partial, value)

    async def _set_partial(self, mark: object, value: Any) -> None:
        self._unawaited.started(mark)
        seq, kept = await self._channel.in_own_thread(self._keeper.dump, value)
        call = self._channel.ledger.checkpoint(self._claimed.lease, seq, kept, self._level)
        await self._channel.in_own_thread(self._kept, await self._areport(call), seq, kept)

    def set_partial_sync(self, value: Any) -> None:
        """Save a checkpoint like `set_partial`, for `def` tasks."""
        seq, kept = self._keeper.dump(value)
        call = self._channel.ledger.checkpoint(self._claimed.lease, seq, kept, self._level)
        self._kept(self._report(call), seq, kept)

    def _kept(self, answer: Settled, seq: int, kept: bytes) -> None:
        # A refused checkpoint keeps its file: if an earlier answer was lost, the record may name the file. If not, the
        # cleanup of old checkpoint files removes it.
        self._check(answer)
        self._keeper.kept(seq, kept)

    async def fetch_partial(self) -> None:
        """Read the checkpoint's file before an `async def` begins, which must not block on it. Called by the engine."""
        if self._claimed.checkpoint:
            with contextlib.suppress(RelierError):  # reported when the task reads the value
                await self._channel.in_own_thread(self._keeper.fetch)

    @property
    def _keeper(self) -> Checkpoints:
        if self._checkpoints is None:
            lease, kept = self._claimed.lease, self._claimed.checkpoint
            settings, keyring = self._channel.settings, self._channel.keyring
            self._checkpoints = Checkpoints(settings, self.task_id, lease.fence, keyring, kept, self._born)
        return self._checkpoints

    def _born(self) -> str:
        with self.waits.one():
            return self._channel.born(lambda: self._lost)

    # --- the inbox -----------------------------------------------------------------------------------------------

    def exactly_once(self, where: Any, *, table: str = DEFAULT_INBOX) -> ExactlyOnce:
        """Return a block whose effects in a database happen once for the life of this task.

        The effects and the mark that the block ran commit together. Use `with` for a Session, a Connection or a Django
        alias, and `async with` for SQLAlchemy's async classes. If the mark already exists, the task ends here with the
        `result` that an earlier attempt stored. See outbox/inbox.
        """
        task, keyring = registry.find(self.task_name), self._channel.keyring
        if task is None:
            raise UnknownTaskError(
                f"{self.task_name} is not a task of this process, so its marks cannot be read here; "
                f"import the module that defines the task"
            )

        def encode(value: Any) -> bytes | None:
            raw: bytes | None = task.arguments.encode_result(value)
            return keyring.wrap(raw, self.task_id, "inbox") if raw is not None and keyring.encrypts else raw

        def decode(raw: bytes | None) -> Any:
            return None if raw is None else task.arguments.decode_result(keyring.unwrap(raw, self.task_id, "inbox"))

        if self._blocks is None:
            self._blocks = Blocks()
        return ExactlyOnce(where, self.task_id, self._claimed.revision, encode, decode, table, self._blocks)

    def lost_effects(self) -> ExactlyOnceError | None:
        """Return an error if effects of an `exactly_once` block are not in the database although it ended normally.

        Called by the engine at the end.
        """
        return None if self._blocks is None else self._blocks.broken()

    # --- steps ---------------------------------------------------------------------------------------------------

    @overload
    def step(
        self, name: str, fn: Callable[..., Awaitable[R]], /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def step(self, name: str, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, R]: ...
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Call `fn(*args, **kwargs)` once for the life of this task, and record its result.

        The result is recorded under the fence before this returns. A later attempt reads the recorded result and does
        not call `fn`. A step that raised is not done: the next attempt calls `fn` again, and so does this attempt if it
        repeats the step. If the process dies between the effect and the record, `fn` is called again: make it safe to
        repeat, or pass it the fence. The call must be awaited. In a `def` task, use `step_sync`.
        """
        return self._unawaited.make("step", f"ctx.step({name!r:.60})", self._step, name, fn, args, kwargs)

    async def _step(
        self, mark: object, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._unawaited.started(mark)
        step, value = self._steps.begin(name, self._main_line), _NOT_CALLED
        if step.progress is Progress.RUNS:
            with doing(step):
                if not step.entry:
                    self._stop_if_lost()
                    with step_span(name):
                        value = fn(*args, **kwargs)
                        if inspect.isawaitable(value):
                            value = await value
                    self._returned(step, write_result(fn, value))
                if self._differs(step, await self._areport(self._record(step))):
                    value = _NOT_CALLED
        return read_result(fn, step.result) if value is _NOT_CALLED else value

    def step_sync(self, name: str, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Call `fn` once and record its result like `step`, for `def` tasks."""
        if inspect.iscoroutinefunction(fn):
            raise StepJournalError(
                f"the step {name!r} calls an async function, which step_sync cannot await: use ctx.step"
            )
        step, value = self._steps.begin(name, self._main_line), _NOT_CALLED
        if step.progress is Progress.RUNS:
            with doing(step):
                if not step.entry:
                    self._stop_if_lost()
                    with step_span(name):
                        value = fn(*args, **kwargs)
                    self._returned(step, write_result(fn, value))
                if self._differs(step, self._report(self._record(step))):
                    value = _NOT_CALLED
        return cast(R, read_result(fn, step.result) if value is _NOT_CALLED else value)

    def _returned(self, step: Step, result: bytes) -> None:
        """Keep the result of `fn` on the step. Raise if it is too large to be recorded."""
        entry = self._steps.entry_for(step, result)
        self._channel.ledger.step(self._claimed.lease, step.field, entry, self._level)
        step.entry, step.result = entry, result

    def _record(self, step: Step) -> Call[Recorded]:
        return self._channel.ledger.step(self._claimed.lease, step.field, step.entry, self._level)

    def _differs(self, step: Step, answer: Recorded) -> bool:
        """Return whether the journal already holds a different result for the step. If so, use that result."""
        self._check(answer.settled)
        if answer.value is None or answer.value == step.entry:
            return False
        step.result = self._steps.result_in(step, answer.value)
        return True

    @property
    def _steps(self) -> Journal:
        if self._journal is None:
            self._journal = Journal(self._claimed.steps, self.task_id, self._channel.keyring)
        return self._journal

    def begin_here(self) -> None:
        """Take the current asyncio task or thread as the main line of the task's body. Called by the engine."""
        self._main_line = current_line()

    def never_awaited(self) -> NotAwaitedError | None:
        """Return an error naming the calls of this context that the task never awaited, or None.

        Called by the engine at the end.
        """
        return self._unawaited.close()

    # --- progress ------------------------------------------------------------------------------------------------

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report the task's progress to people. Sent at most once a second; never waits for the store.

        Reports in between are dropped, except the one with `done` at `total`.
        """
        of = "" if total is None else f" of {total:.12g}"
        report = f"{done:.12g}{of} {note}"
        now = self._channel.clock()
        finished = total is not None and done >= total
        if report == self._reported or (now - self._reported_at < PROGRESS_EVERY_S and not finished):
            return
        self._reported, self._reported_at = report, now
        note = shown(self._channel.settings, self.task_name, note) if note else ""
        text = f"{done:.12g}{of}{': ' if note else ''}{note}"
        self._channel.post(self._channel.ledger.progress(self._claimed.lease, text))
