"""The backend: tasks of Django are pushed to the ledger, and their results are read from it.

Options of the backend (`OPTIONS` in TASKS) are those of `@rl_task`, for all its tasks, and TRANSACTION: what `enqueue`
does while a transaction is open.

    now         push at once, as Django documents it (default)
    on_commit   push after the commit. Not covered: the process ends between the commit and the push
    outbox      write a row that commits with the transaction; a relay sends it
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core import checks
from django.db import connections, transaction
from django.utils import timezone

from relier import registry
from relier.codec.foreign import foreign_advice
from relier.django.management.task_modules import modules_with_tasks
from relier.django.tasks.body import body_of
from relier.django.tasks.library import (
    TASK_MAX_PRIORITY,
    BaseTaskBackend,
    TaskResultDoesNotExist,
    normalize_json,
    signals,
)
from relier.django.tasks.results import about_task, call_in, result_of_call, result_of_record
from relier.errors import ConfigurationError, TaskNotFoundError
from relier.ledger.checks import PRIORITIES
from relier.ledger.records import Task, new_task_id
from relier.options import task_options
from relier.outbox.row import Row
from relier.outbox.row import body_of as body_of_row
from relier.submit.client import default_client
from relier.task.decorator import AsyncRlTask, RlTask, SyncRlTask
from relier.task.pushable import Pushable

TRANSACTION = "TRANSACTION"
WAYS = ("now", "on_commit", "outbox")
APP = "relier.django"
HIGHEST_LEVEL = PRIORITIES[-1]  # the ledger's levels go from -9 to 9, Django's priorities from -100 to 100

_known: dict[str, Any] = {}  # by name: Django's task, as it was declared
_made: dict[tuple[Any, ...], RlTask[Any, Any]] = {}  # Django makes a backend for each thread and asyncio task


class RelierBackend(BaseTaskBackend):
    """Push tasks of Django to the ledger."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._rl_options = {name: value for name, value in self.options.items() if name != TRANSACTION}
        self._way = self.options.get(TRANSACTION, "now")
        self._rl_key = repr(sorted(self._rl_options.items()))

    def validate_task(self, task: Any) -> None:
        """Check a task, and register it in this process: a worker finds tasks by the names of their functions."""
        super().validate_task(task)
        self._rl_task(task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result, pushable, call = self._prepared(task, args, kwargs)
        alias = None if self._way == "now" else open_transaction()
        if alias is None:
            pushable.push(*call)
        elif self._way == "outbox":
            pushable.push_in(alias, *call)
        else:
            transaction.on_commit(partial(pushable.push, *call), using=alias)
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        if self._way != "now":  # the transaction belongs to the thread of Django's connections
            return await sync_to_async(self.enqueue, thread_sensitive=True)(task, args, kwargs)
        result, pushable, call = self._prepared(task, args, kwargs)
        await pushable.apush(*call)
        await signals.task_enqueued.asend(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        client = default_client().of(str(result_id))
        try:
            found = client.run(client.ledger.get(str(result_id)))
        except TaskNotFoundError as error:
            return self._waiting_in_outbox(str(result_id), error)
        return self._result(found)

    async def aget_result(self, result_id: str) -> Any:
        client = default_client().of(str(result_id))
        try:
            found = await client.arun(client.ledger.get(str(result_id)))
        except TaskNotFoundError as error:
            return await sync_to_async(self._waiting_in_outbox, thread_sensitive=True)(str(result_id), error)
        return self._result(found)

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        yield from super().check(**kwargs)
        try:
            task_options("check", self._rl_options)
        except ConfigurationError as error:
            yield checks.Error(f"TASKS[{self.alias!r}]['OPTIONS']: {error}", id="relier.E005")
        if self._way not in WAYS:
            said = f"TASKS[{self.alias!r}]['OPTIONS']['{TRANSACTION}'] is {', '.join(WAYS)}, not {self._way!r:.60}"
            yield checks.Error(said, id="relier.E005")
        if not apps.is_installed(APP):
            yield checks.Error(
                f"TASKS[{self.alias!r}] needs the app {APP!r}, which reads settings.RELIER and has the worker",
                hint=f"Add {APP!r} to INSTALLED_APPS.",
                id="relier.E006",
            )

    # --- from a task of Django to a push -----------------------------------------------------------------------------

    def _prepared(self, task: Any, args: Any, kwargs: Any) -> tuple[Any, Pushable[Any, Any], tuple[Any, Any, Any]]:
        self.validate_task(task)
        refuse_foreign(task, [*args, *kwargs.values()])
        about, task_id = about_task(task), new_task_id()
        call = normalize_json(args), normalize_json(kwargs), about
        pushable = self._rl_task(task).with_options(
            task_id=task_id, eta=aware(task.run_after), priority=level_of(task.priority), queue=task.queue_name
        )
        return result_of_call(task, task_id, *call, task.queue_name), pushable, call

    def _rl_task(self, task: Any) -> RlTask[Any, Any]:
        key = (task.func, type(self), self._rl_key)
        made = _made.get(key)
        if made is None:
            made = _made[key] = new_rl_task(task, type(self), self._rl_options)
        return made

    # --- from the ledger to a result ---------------------------------------------------------------------------------

    def _result(self, found: Task) -> Any:
        return result_of_record(self._task_named(found.record.name, found.record.id), found, default_client())

    def _waiting_in_outbox(self, task_id: str, error: TaskNotFoundError) -> Any:
        """Return the result of a task whose row no relay has sent yet."""
        from relier.django.models import OutboxRow  # models are loaded after backends can be imported

        row = OutboxRow.objects.filter(task_id=task_id).first() if self._way == "outbox" else None
        if row is None:
            raise TaskResultDoesNotExist(str(error)) from error
        held = body_of_row(Row(row.id, task_id, row.kind, row.name, row.queue, bytes(row.body), 0, 0, 0)).task
        call = call_in(held.payload, task_id, row.name, default_client())
        return result_of_call(self._task_named(row.name, task_id), task_id, *call, row.queue)

    def _task_named(self, name: str, task_id: str) -> Any:
        """Return the task with this name. Only modules of the project are imported to find it."""
        module = name.rpartition(".")[0]
        if name not in _known and module in modules_with_tasks():
            import_module(module)
        if name not in _known:
            raise TaskResultDoesNotExist(
                f"task {task_id} is a call of {name}, which is not a task of Django that this process knows; import "
                f"its module"
            )
        return _known[name]


def new_rl_task(task: Any, backend: type, given: dict[str, Any]) -> RlTask[Any, Any]:
    """Return a Relier task for one of Django's. A worker runs it with the options of the backend it is declared with.

    If another backend of the project pushes the same function, the task of the declared backend stays registered.
    """
    name = registry.identity(task.func)
    options = task_options(name, given | {"queue": task.queue_name})  # a worker warns about queues nobody serves
    kind = AsyncRlTask if iscoroutinefunction(task.func) else SyncRlTask
    body: Any = body_of(task, backend, options.retries)
    body.declared = task  # for the testing kit
    made: RlTask[Any, Any] = kind(body, options)
    if name not in _known or _known[name].func is not task.func:
        registry.register(made)
        _known[name] = task
    return made


def open_transaction() -> str | None:
    """Return the database whose transaction a task joins: see `DjangoOutbox.current`."""
    if apps.is_installed(APP):
        from relier.django.outbox import outbox

        return outbox.current()
    begun = [alias for alias in connections if connections[alias].in_atomic_block]
    return str(begun[0]) if begun else None


def level_of(priority: int) -> int:
    """Return the ledger's level for a priority. Every priority above 0 is above the default, however small."""
    level = math.ceil(abs(priority) * HIGHEST_LEVEL / TASK_MAX_PRIORITY)
    return level if priority > 0 else -level


def aware(moment: Any) -> Any:
    return timezone.make_aware(moment) if moment is not None and timezone.is_naive(moment) else moment


def refuse_foreign(task: Any, values: Any) -> None:
    """Refuse models and similar values, and advise what to pass. Django would only say that the type is unsupported."""
    for value in values:
        if isinstance(value, dict | list | tuple):
            refuse_foreign(task, value.values() if isinstance(value, dict) else value)
        elif advice := foreign_advice(value):
            raise TypeError(f"Unsupported type in a call of {task.module_path}: {advice}; nothing was enqueued")
