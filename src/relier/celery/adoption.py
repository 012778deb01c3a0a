"""Which tasks of an app are ours, and their way into the ledger. One `Adoption` per app, made by `install`."""

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
from relier.celery.messages import Message, is_awaited, message_from_broker, submission_of
from relier.celery.operational import as_operational_errors
from relier.celery.options import TELLS_ITSELF, options_of
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
from relier.submit.client import Client, default_client
from relier.submit.push import bytes_held
from relier.submit.push import submission_of as push_of
from relier.task import RlTask

log = logging.getLogger("relier.celery")

STRATEGY = "relier.celery.working.strategy:strategy"
CELERYS = "celery.worker.strategy:default"
NEVER = ("celery.chord_unlock",)  # joins are the ledger's


class AdoptedTask(RlTask[Any, Any]):
    """A task of Celery's in our registry. Its one argument is the message."""

    def __init__(self, name: str) -> None:
        super().__init__(celery_message, TaskOptions(name=name))


def celery_message(message: dict[str, Any]) -> Any:
    """What the payload of an adopted task is a call of. It is never called: Celery runs the message."""
    raise ConfigurationError(f"the Celery task {message['headers']['task']!r} runs in Celery workers only")


class Adoption:
    """Of one app."""

    def __init__(
        self, app: Any, adopt: bool | Sequence[str], settings: Settings | None, outbox: Any | None = None
    ) -> None:
        self.app = app
        self.outbox = outbox
        self._settings = settings
        self._patterns = ("*",) if adopt is True else tuple(adopt or ())
        if isinstance(adopt, str) or not all(isinstance(pattern, str) and pattern for pattern in self._patterns):
            raise ConfigurationError(
                f"adopt is True, or a list of task names, * for anything: ['proj.billing.*']; not {adopt!r}"
            )

    def covers(self, name: str) -> bool:
        """Whether a Celery task is ours. One with a Strategy is not: that is made for messages of the broker."""
        known = known_task(self.app, name)
        return self._names(name) and (known is None or not has_own_strategy(known))

    def _names(self, name: str) -> bool:
        if name in NEVER:
            return False
        return name.startswith("relier.") or any(fnmatchcase(name, pattern) for pattern in self._patterns)

    @cached_property
    def client(self) -> Client:
        return default_client() if self._settings is None else Client(self._settings)

    @property
    def level(self) -> Durability:
        return Durability(self.client.settings.durability)

    # --- the way out ---------------------------------------------------------------------------------------------

    def send(self, message: Message, queue: str, priority: int | None, *, awaited: bool, call: Any) -> None:
        """Submit a message to the ledger, or as a follow-up of the attempt that is ending. `call`: (args, kwargs)."""
        task, admission = self._admitted(message, queue, priority, awaited=awaited, call=call)
        collector = current_collector()
        if collector is not None and collector.captures(message, task):
            return
        where = None if self.outbox is None else self.outbox.current()
        if where is None or self.outbox is None:
            self.submit(task, admission)
        else:
            self.outbox.write(where, [new_row(task, admission)])

    def submission(self, message: Message, queue: str, priority: int | None, *, awaited: bool = False) -> Submission:
        """`awaited`: somebody has to be told if it fails."""
        return self._admitted(message, queue, priority, awaited=awaited)[0]

    def _admitted(
        self, message: Message, queue: str, priority: int | None, *, awaited: bool, call: Any = None
    ) -> tuple[Submission, Admission | None]:
        """With the limits that it must pass where it is sent. `call`: None where it passes none."""
        client = self.client
        ours = registry.find(message.task)
        if ours is not None and not isinstance(ours, AdoptedTask):
            return self._push_of(ours, message, queue)
        options = options_of(message.task, known_task(self.app, message.task))
        internal = message.task.startswith("relier.")
        most = TELLS_ITSELF if internal else options.max_resurrections(client.settings, awaited=awaited)
        order = self._order(priority or 0)
        task = submission_of(message, queue, order, self.level, client.settings, client.keyring, most)
        check_submission(task, client.settings.max_payload_bytes)  # here, where its sender hears of it
        return task, None if call is None else options.admission(client.settings, call, task)

    def _push_of(self, task: RlTask[Any, Any], message: Message, queue: str) -> tuple[Submission, Admission | None]:
        """An `@rl_task` that was sent by its name, as Celery sends: pushed as its own `push` would."""
        accept = prepare_accept_content(self.app.conf.accept_content)
        args, kwargs, embed = loads(message.body, message.content_type, message.content_encoding, accept=accept)
        linked = [name for name, value in (embed or {}).items() if value]
        if linked:
            raise ConfigurationError(
                f"{task.name} is an rl_task and cannot have Celery's {', '.join(linked)}; push what follows in its body"
            )
        settings, call = self.client.settings, (tuple(args), dict(kwargs))
        level = task.options.durability or self.level
        options = PushOptions(task_id=message.record_id, queue=queue)
        pushed = push_of(task, *call, options, level, settings, self.client.keyring)
        held = bytes_held(pushed) if settings.admission_max_bytes else 0
        admission = task.guards.admission(settings, task.guards.load(settings, [call], held))
        return replace(pushed, eta_ms=message.eta_ms, expires_at_ms=message.expires_ms), admission

    def accept_from_broker(self, received: Any, payload: Any) -> None:
        """A message that came by the broker becomes a record."""
        message = message_from_broker(received, payload, self.app.conf.task_serializer)
        where = {"exchange": message.exchange, "routing_key": message.routing_key}
        queue = queue_of(self.app, where) or self.app.conf.task_default_queue
        priority = message.properties.get("priority")
        self.submit(self.submission(message, queue, priority, awaited=_is_awaited(received, payload)))

    def submit(self, task: Submission, admission: Admission | None = None) -> None:
        with as_operational_errors():
            (answer,) = self.client.submit([task], admission, task.durability)
        if answer.status == "corrupt":
            raise CorruptRecordError(
                f"{task.name} {task.id} was not accepted: something that is no task holds its key; look at it"
            )
        if answer.status != "new":
            log.info("%s %s was sent before, and is one task: it is %s", task.name, task.id, answer.state)

    def _order(self, priority: int) -> int:
        """Our priority grows with urgency, as RabbitMQ's does; on Redis Celery's 0 comes first."""
        return -priority if self.low_is_first else priority

    @cached_property
    def low_is_first(self) -> bool:
        return broker_scheme(self.app) in ("redis", "rediss", "sentinel", "valkey", "valkeys")

    # --- the way in ----------------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Before a worker starts: the tasks of the app go our way. Again: only those that are new."""
        for name, task in list(self.app.tasks.items()):
            if self._names(name) and task.Strategy != STRATEGY:
                self._take_over(task)
        for ours in list(registry.known_tasks()):
            if not isinstance(ours, AdoptedTask) and ours.name not in self.app.tasks:
                self.app.register_task(self._carrier(ours.name))

    @staticmethod
    def _take_over(task: Any) -> None:
        if is_coroutine_task(task):
            task.request_stack = ContextStack()
            wrap_original_run(task, running_coroutines)
            task.run = running_coroutines(task.run)
        if has_own_strategy(task):
            log.warning("%s has a Strategy of its own: it stays on the broker, unprotected", task.name)
        task.celerys_strategy, task.Strategy = task.Strategy, STRATEGY
        task.run = collect_after(task.run)
        task.replace = collect_during(task.replace)
        task.add_to_chord = mark_added(task.add_to_chord)
        registry.register(AdoptedTask(task.name))
        options_of(task.name, task)  # a worker whose tasks have wrong options does not start

    def _carrier(self, name: str) -> Any:
        """A task of Celery's for one of ours, so that its worker can carry it."""

        def run(*_: Any, **__: Any) -> None:
            raise ConfigurationError(f"{name} is an rl_task: push it with {name.rpartition('.')[2]}.push(…)")

        fields = {"name": name, "run": staticmethod(run), "Strategy": STRATEGY, "ignore_result": True}
        return type("Carrier", (self.app.Task,), {**fields, "__module__": __name__})()


def has_own_strategy(task: Any) -> bool:
    """Whether a class of the app's says how its messages are handled (celery-batches does)."""
    return getattr(task, "celerys_strategy", task.Strategy) not in (CELERYS, STRATEGY)


def _is_awaited(received: Any, payload: Any) -> bool:
    """Celery decodes messages of protocol 2 in its pool only."""
    try:
        return is_awaited(received.decode() if payload is None else payload)
    except Exception:  # noqa: BLE001 - a serializer may raise anything; what cannot be read fails in the pool
        return False


_adoptions: WeakKeyDictionary[Any, Adoption] = WeakKeyDictionary()


def app_named(where: str) -> Any:
    """The app that `celery -A` would take."""
    try:
        return find_app(where)
    except (ImportError, AttributeError) as error:
        before = error.__context__  # of `module:name`, Celery's last attempt is a module of that whole name
        why = before if ":" in where and isinstance(before, AttributeError) else error
        raise ConfigurationError(
            f"there is no Celery app {where!r} to import from here: {why}; name it as `celery -A` takes it"
        ) from error


def adoption_of(app: Any) -> Adoption:
    """The app's, if Relier was installed into it."""
    found = _adoptions.get(app)
    if found is None:
        raise ConfigurationError(f"Relier is not installed into {app!r}; call relier.celery.install(app)")
    return found


def adopted(app: Any) -> Adoption | None:
    return _adoptions.get(app)


def all_adoptions() -> list[Adoption]:
    """Of every app in this process."""
    return list(_adoptions.values())


def keep(adoption: Adoption) -> None:
    _adoptions[adoption.app] = adoption
