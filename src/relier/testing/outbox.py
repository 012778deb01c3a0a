"""An outbox as tests see it: its rows read as calls, which can be run here and now.

No store is asked, and no worker needed: a row holds the whole call. What a relay and the ledger do with it (limits,
retries, the fence) is not tested so.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

from relier import registry
from relier.envelope import open_envelope
from relier.errors import ConfigurationError, UnknownTaskError
from relier.ledger.records import Claimed, Lease, Record, Recorded, Settled, Spec, Submission, Verdict
from relier.outbox.inbox.exactly_once import AlreadyRan
from relier.outbox.push import DEFAULT_TABLE, known_outboxes
from relier.outbox.row import LEDGER, NewRow, Row, body_of
from relier.outbox.table.statements import OutboxTable, Transaction
from relier.run.attempt import context_of
from relier.run.channel import LedgerChannel
from relier.run.context import enter_context
from relier.run.migrations import migrated
from relier.states import State
from relier.store.call import Call
from relier.submit.client import Client, default_client
from relier.task import RlTask

T = TypeVar("T")
LOOPS = 1_000  # so often tasks may push more tasks before a drain gives up


@dataclass(frozen=True)
class SentTask:
    """One call that stands in the outbox, or stood there."""

    id: str
    name: str
    queue: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    submission: Submission | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        words = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.name}({', '.join(words)}) for queue {self.queue}"

    def run(self) -> Any:
        """Call the task's function, in this thread. An `async def` runs on a loop of its own: see `arun`."""
        if self._task.is_async:
            return _on_another_loop(self.arun())
        return copy_context().run(self._run)

    async def arun(self) -> Any:
        """The same on the running loop."""
        task = self._task
        if not task.is_async:
            return copy_context().run(self._run)
        args, kwargs = self._prepared(task)
        try:
            return await task.fn(*args, **kwargs)
        except AlreadyRan as ran:
            return ran.value

    def _run(self) -> Any:
        task = self._task
        args, kwargs = self._prepared(task)
        try:
            return task.fn(*args, **kwargs)
        except AlreadyRan as ran:
            return ran.value

    @property
    def _task(self) -> RlTask[Any, Any]:
        task = registry.find(self.name)
        if task is None or self.submission is None:
            raise UnknownTaskError(
                f"{self.name} cannot be run here: it is no `@rl_task` of a module that was imported; a Celery task can "
                f"be called as `app.tasks[{self.name!r}].apply(call.args, call.kwargs)`"
            )
        return task

    def _prepared(self, task: RlTask[Any, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """With the context where it takes one: of a first attempt, whose steps and checkpoints are kept nowhere."""
        assert self.submission is not None  # noqa: S101 - _task has looked
        client = default_client()
        claimed = _claimed(self.submission)
        envelope = open_envelope(claimed.payload, task_id=self.id, name=self.name, keyring=client.keyring)
        ctx = context_of(claimed, envelope, self.args, self.kwargs, DisconnectedChannel(client), None)
        enter_context(ctx)
        return task.arguments.with_context(self.args, self.kwargs, ctx)


class OutboxKit:
    """What the fixtures do, for one outbox seen through one engine, session, connection or Django database."""

    def __init__(self, outbox: Any, bind: Any) -> None:
        self._outbox = outbox
        self._bind = bind
        table = getattr(outbox, "table", None)
        self._table = DEFAULT_TABLE if table is None else table.fullname

    def assert_sent(
        self, task: Any, /, *args: Any, queue: str | None = None, times: int = 1, **kwargs: Any
    ) -> list[SentTask]:
        """The calls of `task` with these arguments, of which there must be `times`; without any arguments, all calls of
        it. Committed or not: what the bind sees, and what its session will insert."""
        every = self.sent()
        wanted = None if not args and not kwargs else _effective(task, args, kwargs)
        found = [
            call
            for call in every
            if call.name == task.name
            and queue in (None, call.queue)
            and (wanted is None or _effective(task, call.args, call.kwargs) == wanted)
        ]
        if len(found) != times:
            raise AssertionError(_told(task, args, kwargs, queue, times, len(found), every))
        return found

    def drain(self, *, run: bool = False) -> list[SentTask]:
        """Take all calls out of the outbox, and answer with them. `run`: call their functions, and those of what they
        push in turn, until nothing is left; delays are not waited for, and what a task raises is raised here. Rows that
        a session has not inserted yet stay with it: commit first."""
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
        raise AssertionError(f"{LOOPS} times tasks pushed more tasks, the last {done[-1]}; they seem to have no end")

    def sent(self) -> list[SentTask]:
        """All that stands there, and all that is about to."""
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


def only_outbox() -> Any:
    """The outbox of this process, where there is no choice."""
    found = known_outboxes()
    if len(found) == 1:
        return found[0]
    if not found and _django_is_set_up():
        return import_module("relier.django.outbox").outbox
    told = f"there are {len(found)}" if found else "none was made; import the module that makes it"
    raise ConfigurationError(f"define a fixture `relier_outbox` that returns the outbox under test: {told}")


def default_bind() -> None:
    """Django's default database."""
    if not _django_is_set_up():
        raise ConfigurationError(
            "define a fixture `relier_outbox_bind` that returns the engine, session or connection your tests use"
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
    if known is None or type(known) is not RlTask:
        args, kwargs = import_module("relier.celery.outbox").adopted_in(envelope.body)
        return SentTask(task.id, task.name, task.queue, args, kwargs)
    args, kwargs = known.arguments.decode(migrated(known, envelope))
    return SentTask(task.id, task.name, task.queue, args, kwargs, task)


def _effective(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the function would get, by name, defaults filled in; as they are where that cannot be told."""
    if not isinstance(task, RlTask):
        return args, kwargs
    bound = task.arguments.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _told(
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
    return f"{wanted} should be in the outbox {_times(times)}, and is {_times(found)}. There is:{listed}"


def _times(number: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(number, f"{number} times")


# --- running ---------------------------------------------------------------------------------------------------------


class DisconnectedChannel(LedgerChannel):
    """A line to no ledger: whatever is told is well, and kept nowhere."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def arun(self, call: Call[T]) -> T:
        return self.run(call)

    def run(self, call: Call[T]) -> T:
        well = Settled(Verdict.OK, State.RUNNING, "1")
        answer: Any = Recorded(well, None) if call.script == "step" else well
        return answer  # type: ignore[no-any-return]

    def post(self, call: Call[Any]) -> None: ...


def _claimed(task: Submission) -> Claimed:
    """Its first attempt."""
    spec = Spec(0, task.priority, None, None, None, None, None, None, None, task.on_lost, task.durability)
    record = Record(task.id, State.RUNNING, 1, "1", "test", 1, "", 0, spec, task.queue, task.name)
    return Claimed(Lease(task.id, "1", "test"), record, task.payload)


def _on_another_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """To its end, also where a loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    box: list[Any] = []

    def run() -> None:
        try:
            box.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - raised where it was asked for
            box.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(box[0], BaseException):
        raise box[0]
    return box[0]
