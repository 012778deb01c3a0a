"""Send Celery tasks through the outbox: tasks sent inside a transaction wait in its database and go out if it commits.

With `install(app, adopt=…, outbox=…)`, each adopted task becomes a row, from which a relay makes its record in the
ledger. That is effectively once.

Without the ledger, `send_through(app, outbox)` stores Celery's own message. A relay with `--celery-app` publishes it to
the broker. That is at least once: a relay that dies between the broker's confirmation and its own last write sends the
message again.
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

REDIS_CHUNK_SIZE = 100  # how many messages one pipeline holds
POOL_LIMIT = 100  # the most threads that publish at once; each connects when it first publishes

_bypasses_outbox: ContextVar[bool] = ContextVar("relier_celery_ending", default=False)


class TransactionalOutbox(Writer, Protocol):
    """Describe an outbox that knows the transaction of its caller.

    With SQLAlchemy, `with outbox.using(session)` sets the transaction. With Django, `atomic` does.
    """

    def current(self) -> Any: ...


class BrokerMessage(msgspec.Struct):
    """Hold a message, and the queues that Celery would have declared before sending it."""

    message: dict[str, Any]  # the fields of a Message, whose body (text or bytes) msgspec cannot check
    declare: tuple[str, ...] = ()


def send_through(app: Any, outbox: TransactionalOutbox) -> Any:
    """Store the task messages of an app without the ledger as rows of `outbox`, inside a transaction. Return the app.

    Messages of `self.retry()` and `self.replace()` are the exception. Both methods end by raising, so the transaction
    they are called in is rolled back, and a row for the next run would be lost with it.
    """
    base = symbol_by_name(app.amqp_cls)

    class OutboxAMQP(base):  # type: ignore[valid-type, misc]
        def _create_task_sender(self) -> Callable[..., Any]:
            send = super()._create_task_sender()

            def send_task_message(producer: Any, name: str, message: Any, **options: Any) -> Any:
                transaction = None if _bypasses_outbox.get() else outbox.current()
                if transaction is not None:
                    producer = OutboxProducer(producer, outbox, transaction)
                return send(producer, name, message, **options)

            return send_task_message

    app.amqp_cls = OutboxAMQP
    app.__dict__.pop("amqp", None)  # the next use makes an instance of the new class
    signals.task_prerun.connect(_let_endings_bypass_outbox, weak=False)
    return app


def _let_endings_bypass_outbox(task: Any = None, **_: Any) -> None:
    """Wrap `retry` and `replace` of a task just before a worker runs it.

    Only at that point is it certain which object runs, whatever its class.
    """
    for name in ("retry", "replace"):
        if name not in vars(task):
            setattr(task, name, _bypassing_outbox(getattr(task, name)))


def _bypassing_outbox(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        token = _bypasses_outbox.set(True)
        try:
            return method(*args, **kwargs)
        finally:
            _bypasses_outbox.reset(token)

    return run


class OutboxProducer(ProducerProxy):
    """Write task messages as rows of a transaction."""

    def __init__(self, producer: Any, outbox: TransactionalOutbox, transaction: Any) -> None:
        super().__init__(producer)
        self._outbox = outbox
        self._transaction = transaction

    def _send(self, body: Any, options: dict[str, Any]) -> None:
        declared = tuple(queue.name for queue in options.get("declare") or () if getattr(queue, "name", ""))
        message = message_of(body, options)
        row = NewRow(
            str(message.headers["id"])[:64],
            CELERY,
            message.task,
            message.routing_key or (declared[0] if declared else ""),
            "",
            msgspec.msgpack.encode(BrokerMessage(msgspec.structs.asdict(message), declared)),
        )
        self._outbox.write(self._transaction, [row])


class BrokerTarget:
    """Publish rows to the app's broker, at least once.

    The target has its own connections. The app's connections may exist already, with other options, and a pool keeps
    the options it was made with.
    """

    kind = CELERY

    def __init__(self, app: Any, send_timeout: float) -> None:
        self._app = app
        self._timeout = send_timeout
        # With `confirm_publish`, a message counts as sent only when the broker has it.
        self._connection = connection_with_timeout(app, send_timeout, confirm_publish=True)
        self._pipelines = self._connection.transport.driver_type == "redis"  # also with Sentinel
        self.chunk_size = REDIS_CHUNK_SIZE if self._pipelines else 1
        connections = self._connection.Pool(limit=POOL_LIMIT)
        self._producers = ProducerPool(connections, limit=POOL_LIMIT, Producer=app.amqp.Producer)

    @property
    def limit(self) -> float:
        """Return how long a relay waits for one publish.

        kombu's own timeouts apply to each call that a publish makes.
        """
        return self._timeout

    def publish(self, rows: Sequence[Row]) -> list[Outcome]:
        until = time.monotonic() + self._timeout
        if self._pipelines and len(rows) > 1 and not any(row.order_key for row in rows):
            try:
                return self._publish_together(rows, until)
            except Exception as error:  # noqa: BLE001 - any error of a transport is an outcome
                if self._is_unreachable(error, until):
                    return [Outage(error)] * len(rows)
        order = OrderGuard()
        return [order.record(row, self._publish(row, until)) if order.may_go(row) else HELD for row in rows]

    def _publish_together(self, rows: Sequence[Row], until: float) -> list[Outcome]:
        """Publish the rows in one pipeline.

        Some rows may be sent when others fail, so this is not for rows whose order matters. If the whole pipeline
        fails, the caller sends the rows one by one to find the row at fault.
        """
        outcomes: list[Outcome] = []
        commands: list[set[int]] = []  # the commands of each row
        declared: set[str] = set()
        with (
            self._producers.acquire(block=True, timeout=self._timeout) as producer,
            pipelining(producer.channel) as pipelined,
        ):
            for row in rows:
                outcomes.append(self._send(producer, row, until, declared, retry=False))
                commands.append(pipelined.take_used())
            answers = pipelined.send()
        errors = {
            i: self._outcome_of(answer, until) for i, answer in enumerate(answers) if isinstance(answer, Exception)
        }
        return [
            next((errors[i] for i in used if i in errors), outcome)
            for outcome, used in zip(outcomes, commands, strict=True)
        ]

    def _outcome_of(self, error: Exception, until: float) -> Outcome:
        return Outage(error) if self._is_unreachable(error, until) else SendFailed(error)

    def _publish(self, row: Row, until: float) -> Outcome:
        if time.monotonic() >= until:  # the relay has given up on the rest of this chunk
            return Outage(TimeoutError(f"no answer within {self._timeout:g} s (--send-timeout)"))
        try:
            with self._producers.acquire(block=True, timeout=self._timeout) as producer:
                return self._send(producer, row, until, set())
        except Exception as error:  # noqa: BLE001 - any error of a transport is an outcome
            return self._outcome_of(error, until)

    def _send(self, producer: Any, row: Row, until: float, declared: set[str], *, retry: bool = True) -> Outcome:
        """Send one row. `declared` holds the queues that need no declaration any more."""
        try:
            stored = msgspec.msgpack.decode(row.body, type=BrokerMessage)
            message = shorten_expiration(read_message(stored.message), row.age_ms)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            return SendFailed(
                PayloadIntegrityError(f"row {row.id} does not hold a Celery message: {error}"), final=True
            )
        declare = [self._app.amqp.queues[name] for name in stored.declare if name not in declared]
        publish_message(producer, message, declare, self._timeout, until, retry=retry)
        declared.update(stored.declare)
        return SENT

    def _is_unreachable(self, error: Exception, until: float) -> bool:
        """Return whether the broker is unreachable.

        If the broker still answers on other connections, the row may have broken this one.
        """
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


def shorten_expiration(message: Message, age_ms: int) -> Message:
    """Subtract the row's age from the message's time to live.

    The time to live counts from the push, but the broker counts from the publish.
    """
    ttl_ms = message.properties.get("expiration")
    if ttl_ms is not None:
        message.properties["expiration"] = str(max(1, int(ttl_ms) - age_ms))
    return message


def broker_target(app: str, send_timeout: float) -> BrokerTarget:
    """Return the target that publishes rows to the broker of a Celery app (`--celery-app`)."""
    return BrokerTarget(app_named(app), send_timeout)


# --- for tests -------------------------------------------------------------------------------------------------------


def sent_in(body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the message in a row."""
    return _arguments(read_message(msgspec.msgpack.decode(body, type=BrokerMessage).message))


def adopted_in(body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of an adopted task, from the body of its envelope."""
    (given,), _ = call_in(decode(body, "the payload"))
    return _arguments(read_message(given))


def _arguments(message: Message) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a test's own message. Any serializer is accepted."""
    args, kwargs, _ = loads(message.body, message.content_type, message.content_encoding, force=True)
    return tuple(args), dict(kwargs)
