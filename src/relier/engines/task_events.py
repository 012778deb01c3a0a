"""Emit the events of tasks: one `TaskEvent` for each, from one place, to the log and to hooks.

started    the attempt starts
succeeded  the ledger has confirmed the result
retried    the ledger has confirmed that a failed attempt is tried again
dead       the ledger has confirmed that the task is a dead letter
cancelled  the ledger has confirmed that a task that was being stopped is cancelled
revived    a worker or process died, and its task has returned to its queue

An attempt that lost its lease causes no event: the ledger refuses its outcome. Not covered: a process that dies between
the ledger's answer and the event, and tasks that end without a worker (cancelled or expired while they wait).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from relier import background, registry
from relier.engines.hooks import HookRunner, has_global_hook, hooks_for
from relier.errors import RelierError
from relier.failure import read_failure
from relier.ledger.ledger import Ledger
from relier.ledger.records import Claimed, Lease, Settled, Task, Verdict
from relier.run.attempt import Attempt
from relier.run.outcome import MOST_SHOWN, Plan
from relier.states import State
from relier.store import AsyncStore

log = logging.getLogger("relier.task")

Kind = Literal["started", "succeeded", "retried", "dead", "revived", "cancelled"]
Audience = Literal["all", "hooks", "nobody"]
LEVELS: dict[str, int] = {
    "started": logging.INFO,
    "succeeded": logging.INFO,
    "retried": logging.WARNING,
    "dead": logging.ERROR,
    "revived": logging.WARNING,
    "cancelled": logging.INFO,
}
MOST_SWEPT = 1000  # swept tasks whose records wait to be read; more are only counted


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """An event in the life of a task.

    attempt, worker_id   the attempt that the event is about, and the worker that ran it
    run_s                how long the attempt ran (s), if it started and that is known
    reason, error        why the task was retried, revived or is dead: one word, and a redacted message
    delay_s              after how many seconds a retried task runs again
    waited_s             how long the task waited in its queue (s), if it starts for the first time and had no delay
    """

    kind: Kind
    task_id: str
    task_name: str
    queue: str
    attempt: int
    worker_id: str
    run_s: float | None = None
    reason: str = ""
    error: str = ""
    delay_s: float | None = None
    waited_s: float | None = None


class Draft(NamedTuple):
    """Hold the values that an event will report once the ledger has confirmed the move.

    `plan` is None for a result. `claimed` is None if only the record knows what to report.
    """

    lease: Lease
    claimed: Claimed | None
    run_s: float | None = None
    plan: Plan | None = None


FinishedTask = tuple[Claimed, float | None]  # a task that succeeded, and how long its attempt ran (s)


class TaskCounter(Protocol):
    """Counts events, for metrics.

    Most events are counted only. Those of every task have methods that get what the worker has at hand, because to
    build an event costs more than to count it.
    """

    def started(self, task: str, queue: str, waited_s: float) -> None:
        """Count how long a task waited in its queue."""
        ...

    def succeeded(self, finished: Iterable[FinishedTask]) -> None:
        """Count tasks whose results the ledger confirmed together."""
        ...

    def __call__(
        self, kind: str, task: str, queue: str, run_s: float | None, waited_s: float | None, reason: str
    ) -> None: ...


class TaskEvents:
    """Emit the events of one worker.

    `wants_started`, `wants_succeeded`: whether the log, or a hook for all tasks, wants the two events that every task
    causes. They are plain values because they are read once per task; `refresh` updates them. `counts_succeeded`: they
    are wanted for the metrics alone. `audience` decides by the name of a task where its events go: Celery itself logs
    adopted tasks. `observe` counts every event.
    """

    def __init__(
        self,
        store: AsyncStore,
        ledger: Ledger,
        redact: str = "",
        audience: Callable[[str], Audience] | None = None,
        observe: TaskCounter | None = None,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._audience = audience
        self._observe = observe
        self._hooks = HookRunner(redact)
        self._readers: set[asyncio.Task[None]] = set()
        self._unread = 0
        self.refresh()

    def refresh(self) -> None:
        """Check again which events are wanted: log levels and hooks may change while the worker runs."""
        logs, counts = log.isEnabledFor(logging.INFO), self._observe is not None
        self._emits_started = logs or has_global_hook("started")
        self.wants_started = counts or self._emits_started
        self.wants_succeeded = logs or has_global_hook("succeeded")
        self.counts_succeeded = counts and not self.wants_succeeded

    def started(self, attempt: Attempt) -> None:
        waited_s = waiting_time(attempt.claimed)
        if self._emits_started or attempt.task.options.on_start is not None:
            self.emit(_event("started", attempt.claimed, waited_s=waited_s))
        elif waited_s is not None and self._observe is not None:
            record = attempt.claimed.record
            if self._audience is None or self._audience(record.name) != "nobody":
                self._observe.started(record.name, record.queue, waited_s)

    def succeeded(self, finished: list[FinishedTask]) -> None:
        """Count tasks whose event neither the log nor a hook wants. The ledger has confirmed their results."""
        if self._audience is not None:
            finished = [one for one in finished if self._audience(one[0].record.name) != "nobody"]
        if self._observe is not None:
            self._observe.succeeded(finished)

    def confirmed(self, draft: Draft, settled: Settled) -> None:
        """Emit the event of a move that the ledger has confirmed."""
        kind, plan = _kind_of(draft, settled), draft.plan
        if kind == "":
            return
        if draft.claimed is None or (plan is not None and plan.again == "revived"):
            self.swept([(draft.lease.task_id, settled.state)])
        elif plan is None or kind == "cancelled":
            self.emit(_event(kind, draft.claimed, draft.run_s))
        else:
            delay_s = plan.delay_s if kind == "retried" else None
            event = _event(kind, draft.claimed, draft.run_s, plan.reason, plan.error, delay_s)
            self.emit(event, plan.traceback)

    def swept(self, outcomes: Sequence[tuple[str, str]]) -> None:
        """Emit the events of tasks that a sweep returned or ended: (id, new state). Their records are read first."""
        wanted = outcomes[: max(0, MOST_SWEPT - self._unread)]
        if len(outcomes) > len(wanted):
            log.warning(
                "%d more tasks were revived or are dead; see `rl tasks` and `rl dlq`", len(outcomes) - len(wanted)
            )
        if not wanted:
            return
        self._unread += len(wanted)
        reader = background.start(asyncio.get_running_loop(), self._read_swept(wanted))
        self._readers.add(reader)  # a loop holds its tasks by weak references only
        reader.add_done_callback(self._readers.discard)

    async def _read_swept(self, outcomes: Sequence[tuple[str, str]]) -> None:
        for task_id, state in outcomes:
            try:
                self.emit(_swept_event(await self._store.run(self._ledger.get(task_id)), state))
            except RelierError as error:
                log.warning("task %s was swept, state=%s, but its record cannot be read: %s", task_id, state, error)
            finally:
                self._unread -= 1

    def emit(self, event: TaskEvent, traceback: str = "") -> None:
        audience = "all" if self._audience is None else self._audience(event.task_name)
        if audience == "all" or (audience == "hooks" and event.kind == "revived"):  # Celery does not log revivals
            log_event(event, traceback)
        if audience != "nobody":
            self.notify(event)

    def notify(self, event: TaskEvent) -> None:
        """Pass an event to the metrics and to hooks."""
        if self._observe is not None:
            self._observe(event.kind, event.task_name, event.queue, event.run_s, event.waited_s, event.reason)
        for hook in hooks_for(event.kind, registry.find(event.task_name)):
            self._hooks.start(hook, event)

    async def finish(self) -> None:
        """Wait until every event has been emitted and every hook has ended."""
        while waiting := self._readers | self._hooks.running:
            await asyncio.wait(waiting)

    def close(self) -> None:
        self._hooks.close()


def log_event(event: TaskEvent, traceback: str = "") -> None:
    """Log one line for an event, with its fields as attributes of the LogRecord. A traceback follows the line."""
    level = LEVELS[event.kind]
    if not log.isEnabledFor(level):
        return
    extra: dict[str, Any] = {
        "task_event": event.kind,
        "task_id": event.task_id,
        "task_name": event.task_name,
        "attempt": event.attempt,
        "queue": event.queue,
        "worker_id": event.worker_id,
    }
    for name in ("run_s", "delay_s", "reason", "error"):
        value = getattr(event, name)
        if value not in (None, ""):
            extra[name] = round(value, 6) if isinstance(value, float) else value
    # Not `log.log`: it has no parameter for a traceback as text, and looks for its caller, which is always this line.
    record = log.makeRecord(log.name, level, __file__, 0, _line_of(event), (), None, "log_event", extra)
    record.exc_text = traceback or None
    log.handle(record)


def buried_event(attempt: Attempt, reason: str, error: str) -> TaskEvent:
    """Return the event of an attempt that was buried while it ran, because it did not stop."""
    return _event("dead", attempt.claimed, run_time(attempt), reason, error)


def run_time(attempt: Attempt | None) -> float | None:
    """Return how long the attempt has run (s), or None if it has not started."""
    return None if attempt is None or attempt.began is None else time.monotonic() - attempt.began


def waiting_time(claimed: Claimed) -> float | None:
    """Return how long a task waited in its queue (s); None if it has run before, or was scheduled for later.

    The record has the time of the push. The second version of a record is a claim right after its push.
    """
    record = claimed.record
    direct = record.attempt == 1 and record.version == 2
    if not direct:
        return None
    waited_s = record.moved_ms / 1000 - record.spec.at_us / 1e6
    return waited_s if waited_s > 0 else 0.0


def _line_of(event: TaskEvent) -> str:
    return (
        f"task {event.kind}: name={event.task_name} id={event.task_id} attempt={event.attempt} queue={event.queue}"
        f"{'' if event.run_s is None else f' took={event.run_s:.3f}s'}"
        f"{'' if event.delay_s is None else f' retry_in={event.delay_s:.1f}s'}"
        f"{f' reason={event.reason}' if event.reason else ''}{f' error={event.error!r}' if event.error else ''}"
    )


def _event(
    kind: Any,
    claimed: Claimed,
    run_s: float | None = None,
    reason: str = "",
    error: str = "",
    delay_s: float | None = None,
    waited_s: float | None = None,
) -> TaskEvent:
    record, worker_id = claimed.record, claimed.lease.worker_id
    return TaskEvent(
        kind, record.id, record.name, record.queue, record.attempt, worker_id, run_s, reason, error, delay_s, waited_s
    )


def _kind_of(draft: Draft, settled: Settled) -> str:
    """Return the kind of event for a confirmed move, or "" if there is none: the task was put back or handed back.

    The state decides, because a task that should be retried may end as cancelled or dead. The answer to a repeated move
    has the current state, which may be that of a later attempt. In that case, the plan decides.
    """
    plan = draft.plan
    if plan is None:
        return "succeeded"
    if settled.verdict is Verdict.REPEAT:
        return plan.again or ("dead" if plan.reason and plan.delay_s is None else "")
    if settled.state in (State.DEAD, State.CANCELLED):
        return settled.state
    return plan.again


def _swept_event(task: Task, state: str) -> TaskEvent:
    record = task.record
    ended = next((entry for entry in reversed(task.history) if entry.move in ("revive", "bury")), None)
    kind: Any = state if state in (State.DEAD, State.CANCELLED) else "revived"
    reason = record.reason if kind == "dead" else "lost" if kind == "revived" else ""
    if ended is None:
        return TaskEvent(kind, record.id, record.name, record.queue, record.attempt, record.worker_id, reason=reason)
    error = read_failure(ended.detail).message[:MOST_SHOWN]
    attempt, worker_id = ended.attempt, ended.worker_id  # nobody knows how long it ran
    return TaskEvent(kind, record.id, record.name, record.queue, attempt, worker_id, None, reason, error)
