"""Decide which tasks of an app are adopted, and submit them to the ledger. `install` makes one `Adoption` per app."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from celery.app.utils import find_app
from kombu.serialization import loads, prepare_accept_content
from msgspec.structs import replace

from relier import registry
from relier.celery.compat import known_task, wrap_original_run
from relier.celery.messages import Message, is_failure_awaited, message_from_broker, submission_of
from relier.celery.operational import as_operational_errors
from relier.celery.options import REPORTED_BY_WORKER, options_of
from relier.celery.pool.coroutines import ContextStack, is_coroutine_task, running_coroutines
from relier.celery.sending.collect import collect_after, collect_during, current_collector, mark_added
from relier.celery.sending.publish import broker_scheme, queue_of
from relier.errors import ConfigurationError, CorruptRecordError
from relier.ledger.checks import check_submission
from relier.ledger.records import Admission, Submission
from relier.options import PushOptions, TaskOptions
from relier.outbox.row import new_row
from relier.settings import Settings
from relier.store.call import Durability
from relier.submit.client import Client, KeptValue, default_client
from relier.submit.push import bytes_held
from relier.submit.push import submission_of as submission_of_push
from relier.task import RlTask

log = logging.getLogger("relier.celery")

LEDGER_STRATEGY = "relier.celery.working.strategy:strategy"
CELERY_STRATEGY = "celery.worker.strategy:default"
NEVER_ADOPTED = ("celery.chord_unlock",)  # chords join in the ledger


class AdoptedTask(RlTask[Any, Any]):
    """Register a Celery task with Relier. Its only argument is the message."""

    def __init__(self, name: str) -> None:
        super().__init__(celery_message, TaskOptions(name=name))


def celery_message(message: dict[str, Any]) -> Any:
    """Serve as the function of every adopted task. Never called: Celery runs the message."""
    raise ConfigurationError(
        f"the task {message['headers']['task']!r} cannot run here: it is a Celery task; run it with `celery worker`"
    )


class Adoption:
    """Adopt the tasks of one app."""

    def __init__(
        self, app: Any, adopt: bool | Sequence[str], settings: Settings | None, outbox: Any | None = None
    ) -> None:
        self.app = app
        self.outbox = outbox
        self._settings = settings
        self._patterns = ("*",) if adopt is True else tuple(adopt or ())
        if isinstance(adopt, str) or not all(isinstance(pattern, str) and pattern for pattern in self._patterns):
            raise ConfigurationError(
                f"install(adopt=…) takes True or a list of task names, in which * matches anything, not {adopt!r}; "
                f"write, for example, install(app, adopt=['proj.billing.*'])"
            )

    def covers(self, name: str) -> bool:
        """Return whether a Celery task is adopted.

        A task with its own Strategy is not adopted, because a Strategy handles messages from the broker.
        """
        known = known_task(self.app, name)
        return self._matches(name) and (known is None or not has_own_strategy(known))

    def _matches(self, name: str) -> bool:
        if name in NEVER_ADOPTED:
            return False
        return name.startswith("relier.") or any(fnmatchcase(name, pattern) for pattern in self._patterns)

    @KeptValue
    def client(self) -> Client:
        return default_client() if self._settings is None else Client(self._settings)

    @property
    def durability(self) -> Durability:
        return Durability(self.client.settings.durability)

    # --- sending -------------------------------------------------------------------------------------------------

    def send(self, message: Message, queue: str, priority: int | None, *, failure_awaited: bool, call: Any) -> None:
        """Submit a message to the ledger, to the outbox, or as a follow-up of the attempt that is ending.

        `call` is (args, kwargs).
        """
        task, admission = self._submission_and_limits(
            message, queue, priority, failure_awaited=failure_awaited, call=call
        )
        collector = current_collector()
        if collector is not None and collector.captures(message, task):
            return
        transaction = None if self.outbox is None else self.outbox.current()
        if transaction is None or self.outbox is None:
            self.submit(task, admission)
        else:
            self.outbox.write(transaction, [new_row(task, admission)])

    def submission(
        self, message: Message, queue: str, priority: int | None, *, failure_awaited: bool = False
    ) -> Submission:
        """Return the submission of a message.

        `failure_awaited`: a chord or error callbacks need to know if the task fails.
        """
        return self._submission_and_limits(message, queue, priority, failure_awaited=failure_awaited)[0]

    def _submission_and_limits(
        self, message: Message, queue: str, priority: int | None, *, failure_awaited: bool, call: Any = None
    ) -> tuple[Submission, Admission | None]:
        """Return the submission of a message, and the limits that it must pass: none if `call` is None."""
        client = self.client
        registered = registry.find(message.task)
        if registered is not None and not isinstance(registered, AdoptedTask):
            return self._submission_of_rl_task(registered, message, queue)
        options = options_of(message.task, known_task(self.app, message.task))
        internal = message.task.startswith("relier.")
        limit = options.max_resurrections(client.settings, failure_awaited=failure_awaited)
        max_resurrections = REPORTED_BY_WORKER if internal else limit
        task = submission_of(
            message,
            queue,
            self._ledger_priority(priority or 0),
            self.durability,
            client.settings,
            client.keyring,
            max_resurrections,
        )
        check_submission(task, client.settings.max_payload_bytes)  # here, so that the sender gets the error
        return task, None if call is None else options.admission(client.settings, call, task)

    def _submission_of_rl_task(
        self, task: RlTask[Any, Any], message: Message, queue: str
    ) -> tuple[Submission, Admission | None]:
        """Return the submission of an `@rl_task` that Celery sends by name, as the task's own `push` would make it."""
        accept = prepare_accept_content(self.app.conf.accept_content)
        args, kwargs, embed = loads(message.body, message.content_type, message.content_encoding, accept=accept)
        linked = [name for name, value in (embed or {}).items() if value]
        if linked:
            raise ConfigurationError(
                f"{task.name} was not sent: it is an rl_task and cannot have Celery's {', '.join(linked)}; push the "
                f"next tasks in its body"
            )
        settings, call = self.client.settings, (tuple(args), dict(kwargs))
        durability = task.options.durability or self.durability
        options = PushOptions(task_id=message.record_id, queue=queue)
        pushed = submission_of_push(task, *call, options, durability, settings, self.client.keyring)
        held = bytes_held(pushed) if settings.admission_max_bytes else 0
        admission = task.guards.admission(settings, task.guards.load(settings, [call], held))
        return replace(pushed, eta_ms=message.eta_ms, expires_at_ms=message.expires_ms), admission

    def accept_from_broker(self, received: Any, payload: Any) -> None:
        """Submit a message that came from the broker as a record."""
        message = message_from_broker(received, payload, self.app.conf.task_serializer)
        route = {"exchange": message.exchange, "routing_key": message.routing_key}
        queue = queue_of(self.app, route) or self.app.conf.task_default_queue
        priority = message.properties.get("priority")
        self.submit(self.submission(message, queue, priority, failure_awaited=_is_failure_awaited(received, payload)))

    def submit(self, task: Submission, admission: Admission | None = None) -> None:
        """Submit a task to the ledger. A task whose id exists is not submitted again."""
        with as_operational_errors():
            (answer,) = self.client.submit([task], admission, task.durability)
        if answer.status == "corrupt":
            raise CorruptRecordError(
                f"{task.name} {task.id} was not accepted: its key in the store holds something that is not a task; "
                f"inspect that key"
            )
        if answer.status != "new":
            log.info("task not sent again, its id exists: task=%s id=%s state=%s", task.name, task.id, answer.state)

    def _ledger_priority(self, priority: int) -> int:
        """Return the priority in the ledger.

        The ledger's priority grows with urgency, as in RabbitMQ. With a Redis broker, Celery's 0 comes first.
        """
        return -priority if self.is_zero_most_urgent else priority

    @cached_property
    def is_zero_most_urgent(self) -> bool:
        return broker_scheme(self.app) in ("redis", "rediss", "sentinel", "valkey", "valkeys")

    # --- in a worker ---------------------------------------------------------------------------------------------

    def adopt_tasks(self) -> None:
        """Adopt the tasks of the app before a worker starts. A second call adopts only tasks that are new."""
        for name, task in list(self.app.tasks.items()):
            if self._matches(name) and task.Strategy != LEDGER_STRATEGY:
                self._adopt(task)
        for known in list(registry.known_tasks()):
            if not isinstance(known, AdoptedTask) and known.name not in self.app.tasks:
                self.app.register_task(self._placeholder_for(known.name))

    @staticmethod
    def _adopt(task: Any) -> None:
        if is_coroutine_task(task):
            task.request_stack = ContextStack()
            wrap_original_run(task, running_coroutines)
            task.run = running_coroutines(task.run)
        if has_own_strategy(task):
            log.warning("task not adopted, it has its own Strategy and stays on the broker: task=%s", task.name)
        task.original_strategy, task.Strategy = task.Strategy, LEDGER_STRATEGY
        task.run = collect_after(task.run)
        task.replace = collect_during(task.replace)
        task.add_to_chord = mark_added(task.add_to_chord)
        registry.register(AdoptedTask(task.name))
        options_of(task.name, task)  # raises for wrong options, so that the worker does not start

    def _placeholder_for(self, name: str) -> Any:
        """Return a Celery task for an `@rl_task`, so that a Celery worker can run it."""

        def run(*_: Any, **__: Any) -> None:
            raise ConfigurationError(
                f"{name} cannot run as a Celery task: it is an rl_task; push it with {name.rpartition('.')[2]}.push(…)"
            )

        fields = {"name": name, "run": staticmethod(run), "Strategy": LEDGER_STRATEGY, "ignore_result": True}
        return type("Placeholder", (self.app.Task,), {**fields, "__module__": __name__})()


def has_own_strategy(task: Any) -> bool:
    """Return whether the task's class has its own Strategy for its messages (celery-batches has)."""
    return getattr(task, "original_strategy", task.Strategy) not in (CELERY_STRATEGY, LEDGER_STRATEGY)


def _is_failure_awaited(received: Any, payload: Any) -> bool:
    """Return whether something waits for the task's failure, decoding the message if Celery has not."""
    try:
        return is_failure_awaited(received.decode() if payload is None else payload)
    except Exception:  # noqa: BLE001 - a serializer may raise anything; an unreadable message fails in the pool
        return False


_adoptions: WeakKeyDictionary[Any, Adoption] = WeakKeyDictionary()


def app_named(where: str) -> Any:
    """Return the app that `celery -A` would use."""
    try:
        return find_app(where)
    except (ImportError, AttributeError) as error:
        before = error.__context__  # for `module:name`, Celery last tries to import a module of that whole name
        why = before if ":" in where and isinstance(before, AttributeError) else error
        raise ConfigurationError(
            f"there is no Celery app {where!r} to import from this folder: {why}; name the app as for `celery -A`"
        ) from error


def adoption_of(app: Any) -> Adoption:
    """Return the adoption of an app. Raise if Relier is not installed in it."""
    found = _adoptions.get(app)
    if found is None:
        raise ConfigurationError(f"Relier is not installed in {app!r}; call relier.celery.install(app)")
    return found


def find_adoption(app: Any) -> Adoption | None:
    """Return the adoption of an app, or None."""
    return _adoptions.get(app)


def all_adoptions() -> list[Adoption]:
    """Return the adoptions of all apps in this process."""
    return list(_adoptions.values())


def remember_adoption(adoption: Adoption) -> None:
    _adoptions[adoption.app] = adoption
