"""Turn the message of an adopted task into a record instead of sending it to the broker.

Everything Celery sends (`.delay()`, `apply_async`, canvas, `self.retry()`, beat) goes through
`app.amqp.send_task_message`. Relier replaces the producer there: after routing and signals, the replacement's `publish`
submits the message to the ledger. The broker is not involved, so a push succeeds while the broker cannot be reached.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kombu import Exchange

from relier.celery.compat import serialize
from relier.celery.messages import Message, is_failure_awaited
from relier.celery.sending.collect import current_collector
from relier.celery.sending.producers import ProducerProxy
from relier.errors import ConfigurationError

if TYPE_CHECKING:
    from relier.celery.adoption import Adoption

log = logging.getLogger("relier.celery")

# Options that only concern the delivery by a broker and mean nothing to a worker.
_DELIVERY_OPTIONS = frozenset(
    {"declare", "retry", "retry_policy", "timeout", "confirm_timeout", "mandatory", "immediate"}
)
DELAYED_EXCHANGE = "celery_delayed_27"
DELAY_BITS = 28


def amqp_class(base: type[Any], adoption: Adoption) -> type[Any]:
    """Return a subclass of the app's AMQP class that sends adopted tasks to the ledger."""

    class LedgerAMQP(base):
        @cached_property
        def create_task_message(self) -> Callable[..., Any]:
            """Create messages of adopted tasks in protocol 2.

            The setting `task_protocol` concerns only messages that go through a broker.
            """
            create = super().create_task_message

            def create_task_message(task_id: str, name: str, *args: Any, **options: Any) -> Any:
                return (self.as_task_v2 if adoption.covers(name) else create)(task_id, name, *args, **options)

            return create_task_message

        def _create_task_sender(self) -> Callable[..., Any]:
            send = super()._create_task_sender()

            def send_task_message(producer: Any, name: str, message: Any, **options: Any) -> Any:
                if adoption.covers(name):
                    producer = LedgerProducer(producer, adoption)
                return send(producer, name, message, **options)

            return send_task_message

    return LedgerAMQP


class LedgerProducer(ProducerProxy):
    """Submit task messages to the ledger as records."""

    def __init__(self, producer: Any, adoption: Adoption) -> None:
        super().__init__(producer)
        self._adoption = adoption

    def _handles(self, options: dict[str, Any]) -> bool:
        if queue_of(self._adoption.app, options) is not None:
            return True
        log.warning(
            "task sent to the broker, unprotected, as no single queue matches: task=%s exchange=%r",
            options["headers"].get("task"),
            exchange_name(options.get("exchange")),
        )
        return False

    def _send(self, body: Any, options: dict[str, Any]) -> None:
        queue = queue_of(self._adoption.app, options) or ""
        body = with_stored_argument(body)
        failure_awaited, priority = is_failure_awaited(body), options.get("priority")
        message = message_of(body, options)
        message.properties["priority"] = message.properties.get("priority") or 0  # as kombu sets it
        self._adoption.send(message, queue, priority, failure_awaited=failure_awaited, call=body[:2])


def with_stored_argument(body: Any) -> Any:
    """Put the reference of a large argument back into the message of a retry. The next run reads the backend again."""
    collector = current_collector()
    if collector is None or collector.stored_argument is None or not isinstance(body, tuple) or not body[0]:
        return body
    args, *rest = body
    value, reference = collector.stored_argument
    return ([reference, *args[1:]], *rest) if args[0] == value else body


def message_of(body: Any, options: dict[str, Any]) -> Message:
    """Return the message that `producer.publish(body, **options)` would send."""
    headers = dict(options.pop("headers"))
    if "task" not in headers:
        raise ConfigurationError(
            "the message is not stored: it has task_protocol 1, and the outbox supports only 2, Celery's default; "
            "remove the setting task_protocol"
        )
    exchange, routing_key = exchange_name(options.pop("exchange", "")), options.pop("routing_key", "") or ""
    serializer, compression = options.pop("serializer", None), options.pop("compression", None)
    body, content_type, encoding = serialize(body, serializer, compression, headers)
    properties = {name: value for name, value in options.items() if name not in _DELIVERY_OPTIONS}
    if properties.get("expiration") is not None:  # in milliseconds, as kombu's publish writes it
        properties["expiration"] = str(int(properties["expiration"] * 1000))
    return Message(headers, properties, content_type, encoding, body, exchange, routing_key)


def publish_message(
    producer: Any,
    message: Message,
    declare: Sequence[Any],
    timeout: float | None = None,
    until: float = math.inf,
    *,
    retry: bool = True,
) -> None:
    """Send a message to the broker as Celery would have sent it.

    `timeout` applies to each call to the broker. `retry`: try once more after a lost connection, but not after `until`
    (`time.monotonic()`).
    """

    def before_retry(error: Exception, _: float) -> None:
        if time.monotonic() >= until:
            raise error

    properties = dict(message.properties)
    if properties.get("expiration") is not None:  # kombu takes seconds
        properties["expiration"] = int(properties["expiration"]) / 1000
    producer.publish(
        message.body,
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        headers=dict(message.headers),
        exchange=message.exchange,
        routing_key=message.routing_key,
        declare=list(declare),
        retry=retry,
        retry_policy={"max_retries": 1, "interval_start": 0, "interval_step": 0, "errback": before_retry},
        timeout=timeout,
        **properties,
    )


def exchange_name(exchange: Any) -> str:
    return exchange.name if isinstance(exchange, Exchange) else str(exchange or "")


def broker_scheme(app: Any) -> str:
    """Return the URL scheme of the app's broker. Of several URLs, in a list or separated by `;`, the first counts."""
    url = app.conf.broker_url or app.conf.broker_write_url or ""
    first = url[0] if isinstance(url, list | tuple) else url
    return str(first).partition("://")[0].partition("+")[0]


def queue_of(app: Any, options: dict[str, Any]) -> str | None:
    """Return the one queue that a message would reach, or None if it would reach no queue, several, or a broadcast."""
    exchange, key = exchange_name(options.get("exchange")), options.get("routing_key") or ""
    if not exchange:
        return key or None
    if is_fanout(app, exchange):
        return None
    if exchange == DELAYED_EXCHANGE:  # the key is the delay as bits, then the original key
        key = ".".join(key.split(".")[DELAY_BITS:])
        return key if key in app.amqp.queues else None
    declared = list(options.get("declare") or ())
    if len(declared) == 1 and getattr(declared[0], "name", None):
        return str(declared[0].name)
    bound = [q.name for q in app.amqp.queues.values() if is_bound(q, exchange, key)]
    return bound[0] if len(bound) == 1 else None


def is_fanout(app: Any, exchange: str) -> bool:
    """Return whether an exchange sends each message to every consumer, as kombu's `Broadcast` does.

    With such an exchange, each worker has its own queue, whose name no other process knows.
    """
    bound = [queue.exchange for queue in app.amqp.queues.values() if queue.exchange is not None]
    return any(each.name == exchange and each.type == "fanout" for each in bound)


def is_bound(queue: Any, exchange: str, key: str) -> bool:
    """Return whether a message to that exchange with that key reaches this queue."""
    if queue.exchange is None or queue.exchange.name != exchange:
        return False
    return topic_matches(queue.routing_key or "", key) if queue.exchange.type == "topic" else queue.routing_key == key


def topic_matches(pattern: str, key: str) -> bool:
    """Return whether an AMQP topic pattern matches a key: `*` is one word, `#` any number of words."""

    def match(ps: list[str], ks: list[str]) -> bool:
        if not ps:
            return not ks
        if ps[0] == "#":
            return any(match(ps[1:], ks[i:]) for i in range(len(ks) + 1))
        return bool(ks) and ps[0] in ("*", ks[0]) and match(ps[1:], ks[1:])

    return match(pattern.split("."), key.split("."))
