"""Events go to the broker off the path of tasks.

Celery publishes an event where it happens: heartbeats and `task-received` in the worker's main thread, `task-sent` in
`.delay()`. A broker that does not answer stops both. Here events wait in a bounded queue, which one thread per process
sends over a connection of its own. Best effort: when the queue is full, the oldest event is dropped.
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

from relier.celery.working.broker import connection_within, cut

log = logging.getLogger("relier.celery")

MOST_WAITING = 10_000
SEND_S = 5.0  # a broker that takes longer for one event is away
PAUSE_S = 1.0  # between two attempts while it is
FLUSH_S = 1.0  # a process that ends waits this long, at most, for its last events to be sent


def events_class(base: type[Any]) -> type[Any]:
    """The app's own Events class, whose dispatchers never wait for the broker."""

    class LedgerEvents(base):
        @cached_property
        def Dispatcher(self) -> type[Any]:  # noqa: N802 - Celery's name
            return dispatcher_class(self.app.subclass_with_self(self.dispatcher_cls, reverse="events.Dispatcher"))

        @contextmanager
        def default_dispatcher(
            self, hostname: str | None = None, enabled: bool = True, buffer_while_offline: bool = False
        ) -> Iterator[Any]:
            """Needs no connection of the app's pool, as the sender has its own."""
            options = {"enabled": enabled, "buffer_while_offline": buffer_while_offline}
            with self.Dispatcher(hostname=hostname, **options) as dispatcher:
                yield dispatcher

    return LedgerEvents


def dispatcher_class(base: type[Any]) -> type[Any]:
    """A dispatcher that hands its events to the sender of this process."""

    class LedgerDispatcher(base):
        def _publish(self, event: Any, producer: Any, routing_key: str, *_: Any, **__: Any) -> None:
            if producer is not None:  # None: it was closed
                options = {"serializer": self.serializer, "headers": self.headers, "delivery_mode": self.delivery_mode}
                kept = event.copy() if isinstance(event, list) else event  # before 5.7 Celery empties a batch once sent
                sender_of(self.app).send(Outgoing(kept, routing_key, self.exchange, options))

    return LedgerDispatcher


@dataclass(frozen=True)
class Outgoing:
    """An event, or a batch of events, with everything its message needs."""

    event: Any
    routing_key: str
    exchange: Any
    options: dict[str, Any]


class EventSender:
    """Sends the events of one app in this process. `send` may be called from any thread and never waits."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._reset()

    def _reset(self) -> None:
        """Also in a process that was forked: the parent sends what it had waiting, over its own connection."""
        self._pid = os.getpid()
        self._waiting: deque[Outgoing] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._connection: Any = None
        self._producer: Any = None
        self._busy = False
        self._away = False
        self._dropped = 0

    def send(self, outgoing: Outgoing) -> None:
        if self._pid != os.getpid():
            self._reset()
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                self._waiting.popleft()
                self._dropped += 1
            self._waiting.append(outgoing)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="relier-events", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float) -> None:
        """Wait until everything is sent; not longer than this, and not at all for a broker that is known to be away."""
        until = time.monotonic() + seconds
        with self._changed:
            while self._pid == os.getpid() and (self._waiting or self._busy) and not self._away:
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
            self._connection = connection_within(self._app, SEND_S)
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
        if self._away:
            log.info("the broker takes events again; %d were dropped meanwhile", self._dropped)
        self._away, self._dropped = False, 0

    def _failed(self, outgoing: Outgoing, error: Exception) -> None:
        connection, self._producer, self._connection = self._connection, None, None
        if not is_connection_trouble(connection, error):  # an event that cannot be serialized never will be
            log.warning("event %s was dropped, as it cannot be sent: %r", outgoing.routing_key, error)
        else:
            if not self._away:
                log.warning("the broker does not take events, which wait for it: %r", error)
            with self._changed:
                self._away = True
                if len(self._waiting) < MOST_WAITING:
                    self._waiting.appendleft(outgoing)
                self._changed.notify_all()
            threading.Event().wait(PAUSE_S)
        with suppress(Exception):
            cut(connection)  # so that closing it does not wait for an answer
            connection.release()


def is_connection_trouble(connection: Any, error: Exception) -> bool:
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
@signals.worker_process_shutdown.connect(weak=False)  # the pool's processes run no exit functions
def flush_events(**_: Any) -> None:
    """Send the last events before the process ends."""
    for sender in list(_senders.values()):
        sender.flush(FLUSH_S)
