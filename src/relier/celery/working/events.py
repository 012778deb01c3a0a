"""Send events to the broker in a separate thread, so that they cannot delay tasks.

Celery publishes an event where it happens: heartbeats and `task-received` in the worker's main thread, `task-sent` in
`.delay()`. A broker that does not answer stops both. Here events wait in a bounded queue, which one thread per process
sends over its own connection. This is best effort: when the queue is full, the oldest event is dropped.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from celery import signals
from kombu import Producer
from kombu.exceptions import OperationalError
from kombu.utils.objects import cached_property

from relier.celery.working.broker import connection_with_timeout, cut

log = logging.getLogger("relier.celery")

MAX_WAITING = 10_000
SEND_S = 5.0  # a broker that takes longer for one event counts as unreachable
PAUSE_S = 1.0  # between two attempts while the broker is unreachable
FLUSH_S = 1.0  # a process that ends waits this long, at most, for its last events to be sent


def events_class(base: type[Any]) -> type[Any]:
    """Return a subclass of the app's Events class whose dispatchers never wait for the broker."""

    class LedgerEvents(base):
        @cached_property
        def Dispatcher(self) -> type[Any]:  # noqa: N802 - Celery's name
            return dispatcher_class(self.app.subclass_with_self(self.dispatcher_cls, reverse="events.Dispatcher"))

        @contextmanager
        def default_dispatcher(
            self, hostname: str | None = None, enabled: bool = True, buffer_while_offline: bool = False
        ) -> Iterator[Any]:
            """Yield a dispatcher without taking a connection from the app's pool: the event sender has its own."""
            options = {"enabled": enabled, "buffer_while_offline": buffer_while_offline}
            with self.Dispatcher(hostname=hostname, **options) as dispatcher:
                yield dispatcher

    return LedgerEvents


def dispatcher_class(base: type[Any]) -> type[Any]:
    """Return a dispatcher class that passes its events to the event sender of this process."""

    class LedgerDispatcher(base):
        def _publish(self, event: Any, producer: Any, routing_key: str, *_: Any, **__: Any) -> None:
            if producer is not None:  # None after the dispatcher was closed
                options = {"serializer": self.serializer, "headers": self.headers, "delivery_mode": self.delivery_mode}
                kept = event.copy() if isinstance(event, list) else event  # before 5.7 Celery empties a batch once sent
                sender_of(self.app).send(Outgoing(kept, routing_key, self.exchange, options))

    return LedgerDispatcher


@dataclass(frozen=True)
class Outgoing:
    """Hold an event, or a batch of events, with everything its message needs."""

    event: Any
    routing_key: str
    exchange: Any
    options: dict[str, Any]


class EventSender:
    """Send the events of one app in this process. `send` may be called from any thread and never waits."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._reset()

    def _reset(self) -> None:
        """Start empty, also in a forked process: the parent sends the events it had queued, over its own connection."""
        self._pid = os.getpid()
        self._waiting: deque[Outgoing] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._connection: Any = None
        self._producer: Any = None
        self._busy = False
        self._broker_away = False
        self._dropped = 0

    def send(self, outgoing: Outgoing) -> None:
        if self._pid != os.getpid():
            self._reset()
        with self._changed:
            if len(self._waiting) >= MAX_WAITING:
                self._waiting.popleft()
                self._dropped += 1
            self._waiting.append(outgoing)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="relier-events", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float) -> None:
        """Wait up to `seconds` until all events are sent. Do not wait for a broker that is known to be unreachable."""
        until = time.monotonic() + seconds
        with self._changed:
            while self._pid == os.getpid() and (self._waiting or self._busy) and not self._broker_away:
                left = until - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return

    def _run(self) -> None:
        while True:
            outgoing = self._next()
            try:
                self._publish(outgoing)
            except Exception as error:  # noqa: BLE001 - whatever a transport raises: events are best effort
                self._failed(outgoing, error)
            else:
                self._succeeded()

    def _next(self) -> Outgoing:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            while not self._waiting:
                self._changed.wait()
            self._busy = True
            return self._waiting.popleft()

    def _publish(self, outgoing: Outgoing) -> None:
        if self._producer is None:
            self._connection = connection_with_timeout(self._app, SEND_S)
            self._producer = Producer(self._connection, auto_declare=False)
        exchange = outgoing.exchange
        self._producer.publish(
            outgoing.event,
            routing_key=outgoing.routing_key,
            exchange=exchange.name,
            declare=[exchange],
            retry=False,
            timeout=SEND_S,
            **outgoing.options,
        )

    def _succeeded(self) -> None:
        if self._broker_away:
            log.info("broker accepts events again: dropped=%d", self._dropped)
        self._broker_away, self._dropped = False, 0

    def _failed(self, outgoing: Outgoing, error: Exception) -> None:
        connection, self._producer, self._connection = self._connection, None, None
        if not is_connection_error(connection, error):  # retrying an event that cannot be serialized would fail again
            log.warning("event dropped, cannot be sent: event=%s error=%r", outgoing.routing_key, error)
        else:
            if not self._broker_away:
                log.warning("broker does not accept events, they are queued: error=%r", error)
            with self._changed:
                self._broker_away = True
                if len(self._waiting) < MAX_WAITING:
                    self._waiting.appendleft(outgoing)
                self._changed.notify_all()
            threading.Event().wait(PAUSE_S)
        with suppress(Exception):
            cut(connection)  # so that closing it does not wait for an answer
            connection.release()


def is_connection_error(connection: Any, error: Exception) -> bool:
    kinds: tuple[type[BaseException], ...] = (OSError, OperationalError)
    if connection is not None:
        kinds += (*connection.connection_errors, *connection.channel_errors)
    return isinstance(error, kinds)


_senders: WeakKeyDictionary[Any, EventSender] = WeakKeyDictionary()


def sender_of(app: Any) -> EventSender:
    sender = _senders.get(app)
    if sender is None:
        sender = _senders.setdefault(app, EventSender(app))
    return sender


@atexit.register
@signals.worker_process_shutdown.connect(weak=False)  # pool processes run no atexit functions
def flush_events(**_: Any) -> None:
    """Send the last events before the process ends."""
    for sender in list(_senders.values()):
        sender.flush(FLUSH_S)
