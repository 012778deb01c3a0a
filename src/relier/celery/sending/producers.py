"""Producers for an app whose tasks need no broker.

LazyProducer    is made, or taken from the app's pool, when it is first needed
StandIn         stands in for one while one task message is sent
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from kombu import Producer

from relier.celery.compat import beat_producer

HEADERS = 4  # which argument of kombu's `Producer._publish` they are


class LazyProducer:
    """A producer that is made, or taken from the app's pool, when it is first needed. Adopted tasks never need one, so
    that they do not wait for one while a frozen broker holds all of the pool, nor for a connection.

    `take` gives a context manager, which is left when this one is."""

    def __init__(self, app: Any, take: Callable[[], Any]) -> None:
        self._app = app
        self._take = take
        self._context: Any = None
        self._taken: Any = None

    def __enter__(self) -> LazyProducer:
        return self

    def __exit__(self, *error: object) -> None:
        context, self._context, self._taken = self._context, None, None
        if context is not None:
            context.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        if self._taken is None:
            self._context = self._take()
            self._taken = self._context.__enter__()
        return getattr(self._taken, name)

    @property
    def connection(self) -> Any:
        """Before it is needed: the one that the pool copies, which knows the transport and its errors."""
        if self._taken is not None:
            return self._taken.connection
        return self._app.producer_pool.connections.connection


def take_producers_lazily(app: Any) -> None:
    """Celery takes a producer for every message before it is known who sends it."""
    take = app.producer_or_acquire

    def producer_or_acquire(producer: Any = None) -> Any:
        return LazyProducer(app, take) if producer is None else take(producer)

    app.producer_or_acquire = app.default_producer = producer_or_acquire


def connect_lazily(scheduler: Any) -> None:
    """Beat's scheduler connects to the broker, and waits until it has, before its first task is due."""

    def take() -> Any:
        return nullcontext(beat_producer(scheduler))

    scheduler.producer = LazyProducer(scheduler.app, take)


class StandIn(Producer):
    """Stands in for kombu's producer while one task message is sent. What it does not do itself is the real one's.

    It calls kombu's own `publish`, because tools that trace messages patch that: Sentry's `queue.publish` spans."""

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
        if not is_task(body, options) or not self._takes(options):
            return self._producer.publish(body, **options)
        self._sent = body, options
        return super().publish(body, **options | {"retry": False})

    def _prepare(self, body: Any, *_: Any) -> tuple[Any, None, None]:
        return body, None, None  # that is `message_of`'s

    def _publish(self, *prepared: Any, **_: Any) -> Any:
        body, options = self._sent
        return self._send(body, options | {"headers": prepared[HEADERS]})  # a tracing tool may have added some

    def _takes(self, options: dict[str, Any]) -> bool:  # noqa: ARG002 - for subclasses
        return True

    def _send(self, body: Any, options: dict[str, Any]) -> None:
        raise NotImplementedError


def is_task(body: Any, options: dict[str, Any]) -> bool:
    """Whether a message is a task's, of either protocol."""
    return "task" in options.get("headers", ()) or (isinstance(body, dict) and "task" in body)
