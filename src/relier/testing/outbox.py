"""An outbox for tests: its rows are read as calls, which tests can run.

This needs neither a store nor a worker, because a row holds the whole call. The work of the relay and the ledger
(limits, retries, the fence) is not covered.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

from relier import registry
from relier.envelope import open_envelope
from relier.errors import ConfigurationError, UnknownTaskError
from relier.ledger.records import Submission
from relier.outbox.inbox.exactly_once import AlreadyRan, earlier_result
from relier.outbox.push import DEFAULT_TABLE, known_outboxes
from relier.outbox.row import LEDGER, NewRow, Row, body_of
from relier.outbox.table.statements import OutboxTable, Transaction
from relier.outbox.wake.doorbell import muted
from relier.run.attempt import context_of
from relier.run.current import enter_context
from relier.run.migrations import migrated
from relier.submit.client import default_client
from relier.task import AsyncRlTask, RlTask, SyncRlTask
from relier.testing.declared import Call, relier_task, seen_arguments, seen_call, seen_result
from relier.testing.memory import MemoryChannel, TaskMemory, claimed_from

T = TypeVar("T")
LOOPS = 1_000  # rounds of tasks that push more tasks, before `drain` gives up


@dataclass(frozen=True)
class SentTask:
    """A call that is in the outbox, or was taken from it."""

    id: str
    name: str
    queue: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    submission: Submission | None = field(default=None, repr=False, compare=False)
    pushed: Call | None = field(default=None, repr=False, compare=False)  # a task of Django is pushed as another

    def __str__(self) -> str:
        words = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.name}({', '.join(words)}) for queue {self.queue}"

    def run(self) -> Any:
        """Call the task's function in this thread. An `async def` runs on its own event loop; see `arun`."""
        if self._task.is_async:
            return _on_another_loop(self.arun())
        return copy_context().run(self._run)

    async def arun(self) -> Any:
        """Call the task's function on the running event loop."""
        task = self._task
        if not task.is_async:
            return copy_context().run(self._run)
        self._enter_context()
        try:
            args, kwargs = self._call
            return seen_result(task, await task(*args, **kwargs))
        except (AlreadyRan, BaseExceptionGroup) as error:
            return _result_in(error)

    def _run(self) -> Any:
        task = self._task
        self._enter_context()
        try:
            args, kwargs = self._call
            return seen_result(task, task(*args, **kwargs))
        except (AlreadyRan, BaseExceptionGroup) as error:
            return _result_in(error)

    @property
    def _call(self) -> Call:
        return self.pushed or (self.args, self.kwargs)

    @property
    def _task(self) -> RlTask[Any, Any]:
        task = registry.find(self.name)
        if task is None or self.submission is None:
            raise UnknownTaskError(
                f"{self.name} cannot be run here: no imported module has an `@rl_task` of this name; import the "
                f"module, or run a Celery task with `app.tasks[{self.name!r}].apply(call.args, call.kwargs)`"
            )
        return task

    def _enter_context(self) -> None:
        """Give the task the context of a first attempt, whose steps and checkpoints are not stored."""
        assert self.submission is not None  # noqa: S101 - checked by _task
        client = default_client().shards[0]  # it only has the settings and the keys
        memory = TaskMemory()
        claimed = claimed_from(self.submission, memory)
        envelope = open_envelope(claimed.payload, task_id=self.id, name=self.name, keyring=client.keyring)
        ctx = context_of(claimed, envelope, *self._call, MemoryChannel(client, memory), None)
        enter_context(ctx)


class OutboxKit:
    """Implements the fixtures, for one outbox and one engine, session, connection or Django database."""

    def __init__(self, outbox: Any, bind: Any) -> None:
        self._outbox = outbox
        self._bind = bind
        table = getattr(outbox, "table", None)
        self._table = DEFAULT_TABLE if table is None else table.fullname

    def assert_sent(
        self, task: Any, /, *args: Any, queue: str | None = None, times: int = 1, **kwargs: Any
    ) -> list[SentTask]:
        """Return the calls of `task` with these arguments. Raise if their number is not `times`.

        Without arguments, every call of the task counts. Rows count if the bind sees them, committed or not, or if its
        session will insert them.
        """
        every, task = self.sent(), relier_task(task)
        wanted = None if not args and not kwargs else _effective(task, args, kwargs)
        found = [
            call
            for call in every
            if call.name == task.name
            and queue in (None, call.queue)
            and (wanted is None or _effective(task, call.args, call.kwargs) == wanted)
        ]
        if len(found) != times:
            raise AssertionError(_mismatch(task, args, kwargs, queue, times, len(found), every))
        return found

    def drain(self, *, run: bool = False) -> list[SentTask]:
        """Take all calls out of the outbox and return them. `run`: also run them, and the calls that they push, until
        none is left. Delays are skipped, and exceptions of a task are raised. Rows that a session has not yet inserted
        stay in the session: commit first."""
        if not run:
            return self._take()
        done: list[SentTask] = []
        for _ in range(LOOPS):
            calls = self._take()
            if not calls:
                return done
            for call in calls:
                call.run()
            done += calls
        raise AssertionError(
            f"drain(run=True) gave up after {LOOPS} rounds, because each round pushed more tasks; the last was "
            f"{done[-1]}; check whether that task pushes itself forever, or call drain() without run"
        )

    def sent(self) -> list[SentTask]:
        """Return every call in the outbox, and every call that the session will insert."""
        pending = getattr(self._outbox, "pending", None)
        written = self._looking(lambda rows, tx: rows.waiting(tx))
        return [*map(_read, written), *([] if pending is None else map(_read_new, pending(self._bind)))]

    def _take(self) -> list[SentTask]:
        def take(rows: OutboxTable, tx: Transaction) -> list[Row]:
            found = rows.waiting(tx)
            rows.remove(tx, [row.id for row in found])
            return found

        return [*map(_read, self._looking(take))]

    def _looking(self, look: Callable[[OutboxTable, Transaction], T]) -> T:
        through = _through_django if _is_django(self._bind) else _through_sqlalchemy
        found: T = through(self._bind, lambda tx, dialect: look(OutboxTable(dialect, self._table), tx))
        return found


@contextmanager
def open_outbox(bind: Any = None, outbox: Any = None) -> Iterator[OutboxKit]:
    """Read the rows of an outbox in a test without pytest: `rows.assert_sent(task, …)`, `rows.drain(run=True)`.

    `bind`: the engine, session, connection or Django database to read through; by default Django's default database.
    `outbox`: if the process has several. Commits wake no relay inside the block.
    """
    if bind is None:
        default_bind()  # raises unless there is Django
    kit = OutboxKit(only_outbox() if outbox is None else outbox, bind)
    with muted():
        yield kit


def only_outbox() -> Any:
    """Return the outbox of this process, if there is only one."""
    found = known_outboxes()
    if len(found) == 1:
        return found[0]
    if not found and _django_is_set_up():
        return import_module("relier.django.outbox").outbox
    if found:
        raise ConfigurationError(
            f"this process has {len(found)} outboxes; define a fixture `relier_outbox` that returns the one under test"
        )
    raise ConfigurationError(
        "this process has no outbox; import the module that creates it, or define a fixture `relier_outbox` that "
        "returns the outbox under test"
    )


def default_bind() -> None:
    """Return None, which means Django's default database."""
    if not _django_is_set_up():
        raise ConfigurationError(
            "no database is known for the outbox; define a fixture `relier_outbox_bind` that returns the engine, "
            "session or connection of your tests, or pass it to `open_outbox`"
        )


def _django_is_set_up() -> bool:
    try:
        return bool(import_module("django.apps").apps.is_installed("relier.django"))
    except Exception:  # noqa: BLE001 - not installed, or not configured
        return False


def _is_django(bind: Any) -> bool:
    return bind is None or isinstance(bind, str) or type(bind).__module__.startswith("django.")


def _through_django(bind: Any, look: Callable[[Transaction, str], Any]) -> Any:
    connection = import_module("relier.django.outbox").connection_of(bind)
    return look(import_module("relier.django.database").DjangoTransaction(connection), connection.vendor)


def _through_sqlalchemy(bind: Any, look: Callable[[Transaction, str], Any]) -> Any:
    return import_module("relier.outbox.sqlalchemy.outbox").run_in_transaction_of(bind, look)


# --- reading ---------------------------------------------------------------------------------------------------------


def _read_new(row: NewRow) -> SentTask:
    return _read(Row(0, row.task_id, row.kind, row.name, row.queue, row.body, 0, 0, 0))


def _read(row: Row) -> SentTask:
    if row.kind != LEDGER:
        args, kwargs = import_module("relier.celery.outbox").sent_in(row.body)
        return SentTask(row.task_id, row.name, row.queue, args, kwargs)
    task = body_of(row).task
    known = registry.find(row.name)
    envelope = open_envelope(task.payload, task_id=task.id, name=task.name, keyring=default_client().keyring)
    if not isinstance(known, AsyncRlTask | SyncRlTask):  # unknown, or adopted from Celery
        args, kwargs = import_module("relier.celery.outbox").adopted_in(envelope.body)
        return SentTask(task.id, task.name, task.queue, args, kwargs)
    args, kwargs = known.arguments.decode(migrated(known, envelope))
    return SentTask(task.id, task.name, task.queue, *seen_call(known, args, kwargs), task, (args, kwargs))


def _effective(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the arguments by name, with defaults; unchanged for a task whose signature is unknown."""
    if not isinstance(task, RlTask):
        return args, kwargs
    return seen_arguments(task, args, kwargs)


def _mismatch(
    task: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    queue: str | None,
    times: int,
    found: int,
    every: list[SentTask],
) -> str:
    words = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    wanted = f"{task.name}({', '.join(words) or '…'}){f' for queue {queue}' if queue else ''}"
    listed = "".join(f"\n  {call}" for call in every) or " nothing"
    return f"{wanted} should be in the outbox {_times(times)}, but was found {_times(found)}. There is:{listed}"


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


# --- running ---------------------------------------------------------------------------------------------------------


def _result_in(error: BaseException) -> Any:
    ran = earlier_result(error)
    if ran is None:
        raise error
    return ran.value


def _on_another_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, even if an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    box: list[Any] = []

    def run() -> None:
        try:
            box.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            box.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(box[0], BaseException):
        raise box[0]
    return box[0]
