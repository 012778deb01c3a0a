"""Celery and the outbox: what is sent inside a transaction waits in its database, and goes out if it commits.

Adopted tasks (`install(app, adopt=…, outbox=…)`) become rows for the ledger, as their records will be: effectively
once. Without the ledger, `send_through(app, outbox)` keeps Celery's message itself, as it would have been sent; a relay
with `--celery-app` gives it to the broker, at least once: a relay that dies between the broker's answer and its own
last write sends it again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any, Protocol

import msgspec
from celery import signals
from kombu.exceptions import OperationalError
from kombu.pools import ProducerPool
from kombu.serialization import loads
from kombu.utils.imports import symbol_by_name

from relier.arguments import call_in
from relier.celery.adoption import app_named
from relier.celery.messages import Message, read_message
from relier.celery.sending.pipeline import pipelining
from relier.celery.sending.producers import ProducerProxy
from relier.celery.sending.publish import message_of, publish_message
from relier.celery.working.broker import connection_with_timeout
from relier.codec import decode
from relier.errors import PayloadIntegrityError
from relier.outbox.publish.target import HELD, SENT, OrderGuard, Outage, Outcome, SendFailed
from relier.outbox.push import Writer
from relier.outbox.row import CELERY, NewRow, Row

log = logging.getLogger("relier.celery")

REDIS_PARCEL = 100  # messages in one pipeline
POOL_LIMIT = 100  # so many threads may publish at once; each connection is made when it is needed

_ending: ContextVar[bool] = ContextVar("relier_celery_ending", default=False)


class Ambient(Writer, Protocol):
    """An outbox that knows the transaction its caller is in: SQLAlchemy's by `with outbox.using(session)`, Django's by
    `atomic`."""

    def current(self) -> Any: ...


class Parcel(msgspec.Struct):
    """A message, and the queues that Celery would have declared before it is sent."""

    message: dict[str, Any]  # the fields of a Message: its body, text or bytes, has no type that msgspec could check
    declare: tuple[str, ...] = ()


def send_through(app: Any, outbox: Ambient) -> Any:
    """For an app without the ledger: inside a transaction of `outbox`, its task messages are rows. Returns the app.

    Not those of `self.retry()` and `self.replace()`, which are the worker's business: both end by raising, so that the
    transaction they are called in is rolled back, and the next run with it.
    """
    base = symbol_by_name(app.amqp_cls)

    class OutboxAMQP(base):  # type: ignore[valid-type, misc]
        def _create_task_sender(self) -> Callable[..., Any]:
            send = super()._create_task_sender()

            def send_task_message(producer: Any, name: str, message: Any, **options: Any) -> Any:
                where = None if _ending.get() else outbox.current()
                if where is not None:
                    producer = OutboxProducer(producer, outbox, where)
                return send(producer, name, message, **options)

            return send_task_message

    app.amqp_cls = OutboxAMQP
    app.__dict__.pop("amqp", None)  # the next use makes ours
    signals.task_prerun.connect(_send_ends_at_once, weak=False)
    return app


def _send_ends_at_once(task: Any = None, **_: Any) -> None:
    """Before a worker runs a task: the first moment at which it is known for certain, whatever class it has."""
    for name in ("retry", "replace"):
        if name not in vars(task):
            setattr(task, name, _at_once(getattr(task, name)))


def _at_once(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        token = _ending.set(True)
        try:
            return method(*args, **kwargs)
        finally:
            _ending.reset(token)

    return run


class OutboxProducer(ProducerProxy):
    """Inside a transaction task messages become rows."""

    def __init__(self, producer: Any, outbox: Ambient, where: Any) -> None:
        super().__init__(producer)
        self._outbox = outbox
        self._where = where

    def _send(self, body: Any, options: dict[str, Any]) -> None:
        declared = tuple(queue.name for queue in options.get("declare") or () if getattr(queue, "name", ""))
        message = message_of(body, options)
        row = NewRow(
            str(message.headers["id"])[:64],
            CELERY,
            message.task,
            message.routing_key or (declared[0] if declared else ""),
            "",
            msgspec.msgpack.encode(Parcel(msgspec.structs.asdict(message), declared)),
        )
        self._outbox.write(self._where, [row])


class BrokerTarget:
    """The app's broker: at least once. By connections of its own: those of the app may be there before, with other
    options, and a pool keeps the options it was made with."""

    kind = CELERY

    def __init__(self, app: Any, send_timeout: float) -> None:
        self._app = app
        self._timeout = send_timeout
        # With `confirm_publish`, a message counts as sent only when the broker has it.
        self._connection = connection_with_timeout(app, send_timeout, confirm_publish=True)
        self._pipelines = self._connection.transport.driver_type == "redis"  # Sentinel, too
        self.chunk_size = REDIS_PARCEL if self._pipelines else 1
        connections = self._connection.Pool(limit=POOL_LIMIT)
        self._producers = ProducerPool(connections, limit=POOL_LIMIT, Producer=app.amqp.Producer)

    @property
    def limit(self) -> float:
        """How long a relay waits for one publish: kombu's own timeouts are for each of the calls it makes for it."""
        return self._timeout

    def publish(self, rows: Sequence[Row]) -> list[Outcome]:
        until = time.monotonic() + self._timeout
        if self._pipelines and len(rows) > 1 and not any(row.order_key for row in rows):
            try:
                return self._publish_together(rows, until)
            except Exception as error:  # noqa: BLE001 - whatever a transport raises is an outcome
                if self._is_away(error, until):
                    return [Outage(error)] * len(rows)
        order = OrderGuard()
        return [order.record(row, self._publish(row, until)) if order.may_go(row) else HELD for row in rows]

    def _publish_together(self, rows: Sequence[Row], until: float) -> list[Outcome]:
        """By one pipeline, of which some may be there when others fail: not for rows whose order counts. What breaks
        all of it, the caller tells apart by sending them one by one."""
        outcomes: list[Outcome] = []
        commands: list[set[int]] = []  # of each row
        declared: set[str] = set()
        with (
            self._producers.acquire(block=True, timeout=self._timeout) as producer,
            pipelining(producer.channel) as pipelined,
        ):
            for row in rows:
                outcomes.append(self._send(producer, row, until, declared, retry=False))
                commands.append(pipelined.take_used())
            answers = pipelined.send()
        errors = {i: self._judged(answer, until) for i, answer in enumerate(answers) if isinstance(answer, Exception)}
        return [
            next((errors[i] for i in used if i in errors), outcome)
            for outcome, used in zip(outcomes, commands, strict=True)
        ]

    def _judged(self, error: Exception, until: float) -> Outcome:
        return Outage(error) if self._is_away(error, until) else SendFailed(error)

    def _publish(self, row: Row, until: float) -> Outcome:
        if time.monotonic() >= until:  # the relay goes on without what is left of this parcel
            return Outage(TimeoutError(f"no answer within {self._timeout:g} s (--send-timeout)"))
        try:
            with self._producers.acquire(block=True, timeout=self._timeout) as producer:
                return self._send(producer, row, until, set())
        except Exception as error:  # noqa: BLE001 - whatever a transport raises is an outcome
            return self._judged(error, until)

    def _send(self, producer: Any, row: Row, until: float, declared: set[str], *, retry: bool = True) -> Outcome:
        """`declared`: queues that need not be declared any more."""
        try:
            parcel = msgspec.msgpack.decode(row.body, type=Parcel)
            message = aged(read_message(parcel.message), row.age_ms)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            return SendFailed(PayloadIntegrityError(f"row {row.id} holds no Celery message: {error}"), final=True)
        declare = [self._app.amqp.queues[name] for name in parcel.declare if name not in declared]
        publish_message(producer, message, declare, self._timeout, until, retry=retry)
        declared.update(parcel.declare)
        return SENT

    def _is_away(self, error: Exception, until: float) -> bool:
        """A connection that broke may be the row's fault, if the broker answers others."""
        connection = self._connection.clone()
        if not isinstance(error, (OperationalError, OSError, *connection.connection_errors)):
            return False
        if time.monotonic() >= until:
            return True
        try:
            with connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=self._timeout)
        except Exception:  # noqa: BLE001
            return True
        return False

    def close(self) -> None:
        self._producers.connections.force_close_all()


def aged(message: Message, age_ms: int) -> Message:
    """The broker counts a message's time to live from when it gets it; it counts from the push."""
    lives = message.properties.get("expiration")
    if lives is not None:
        message.properties["expiration"] = str(max(1, int(lives) - age_ms))
    return message


def broker_target(app: str, send_timeout: float) -> BrokerTarget:
    """The target of `--celery-app`."""
    return BrokerTarget(app_named(app), send_timeout)


# --- for tests -------------------------------------------------------------------------------------------------------


def sent_in(body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a message in a row."""
    return _arguments(read_message(msgspec.msgpack.decode(body, type=Parcel).message))


def adopted_in(body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an adopted task, from the body of its envelope."""
    (given,), _ = call_in(decode(body, "the payload"))
    return _arguments(read_message(given))


def _arguments(message: Message) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A test's own messages: whatever serializer they have is one it accepts."""
    args, kwargs, _ = loads(message.body, message.content_type, message.content_encoding, force=True)
    return tuple(args), dict(kwargs)
