"""Send messages of tasks that need no broker without a broker connection.

LazyProducer    acquires kombu's producer when it is first used
ProducerProxy   stands in for kombu's producer while one task message is sent
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from kombu import Producer

from relier.celery.compat import beat_producer

HEADERS = 4  # the position of the headers in the arguments of kombu's `Producer._publish`


class LazyProducer:
    """Acquire a producer when it is first used.

    Adopted tasks never use one. So they wait neither for a connection nor for the app's pool, whose producers may all
    be stuck in calls to a frozen broker.

    `acquire` returns a context manager, which is exited together with this one.
    """

    def __init__(self, app: Any, acquire: Callable[[], Any]) -> None:
        self._app = app
        self._acquire = acquire
        self._context: Any = None
        self._acquired: Any = None

    def __enter__(self) -> LazyProducer:
        return self

    def __exit__(self, *error: object) -> None:
        context, self._context, self._acquired = self._context, None, None
        if context is not None:
            context.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        if self._acquired is None:
            self._context = self._acquire()
            self._acquired = self._context.__enter__()
        return getattr(self._acquired, name)

    @property
    def connection(self) -> Any:
        """Return the producer's connection.

        Before the producer has one, return the connection that the pool copies: it knows the transport and its errors.
        """
        if self._acquired is not None:
            return self._acquired.connection
        return self._app.producer_pool.connections.connection


def acquire_producers_lazily(app: Any) -> None:
    """Replace `app.producer_or_acquire`. Celery calls it before it is known whether the message needs a broker."""
    acquire = app.producer_or_acquire

    def producer_or_acquire(producer: Any = None) -> Any:
        return LazyProducer(app, acquire) if producer is None else acquire(producer)

    app.producer_or_acquire = app.default_producer = producer_or_acquire


def connect_lazily(scheduler: Any) -> None:
    """Connect beat's scheduler to the broker on first use.

    By default, beat connects at its start and blocks until the broker answers.
    """

    def acquire() -> Any:
        return nullcontext(beat_producer(scheduler))

    scheduler.producer = LazyProducer(scheduler.app, acquire)


class ProducerProxy(Producer):
    """Stand in for kombu's producer while one task message is sent, and pass everything else to that producer.

    The proxy calls kombu's own `publish`, because tracing tools patch that method: Sentry's `queue.publish` spans.
    """

    def __init__(self, producer: Any) -> None:
        super().__init__(None, auto_declare=False)
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    @property
    def connection(self) -> Any:
        return self._producer.connection

    @property
    def channel(self) -> Any:
        return self._producer.channel

    def revive(self, channel: Any) -> None:
        self._producer.revive(channel)

    def publish(self, body: Any, **options: Any) -> Any:
        if not is_task(body, options) or not self._handles(options):
            return self._producer.publish(body, **options)
        self._sent = body, options
        return super().publish(body, **options | {"retry": False})

    def _prepare(self, body: Any, *_: Any) -> tuple[Any, None, None]:
        return body, None, None  # `message_of` serializes

    def _publish(self, *prepared: Any, **_: Any) -> Any:
        body, options = self._sent
        return self._send(body, options | {"headers": prepared[HEADERS]})  # a tracing tool may have added headers

    def _handles(self, options: dict[str, Any]) -> bool:  # noqa: ARG002 - for subclasses
        return True

    def _send(self, body: Any, options: dict[str, Any]) -> None:
        raise NotImplementedError


def is_task(body: Any, options: dict[str, Any]) -> bool:
    """Return whether a message is a task message, of either protocol."""
    return "task" in options.get("headers", ()) or (isinstance(body, dict) and "task" in body)
