"""Keep the broker from delaying tasks: set timeouts on its connections, and cut them when Celery's main thread hangs.

Celery's main thread makes blocking calls to its broker: it looks for unacknowledged messages, checks the health of its
connections and closes them. A broker that does not answer blocks that thread, and so the pool, which gets its tasks
from the thread. If tasks wait while the main thread hangs in such a call, Relier shuts down the thread's broker
connections. The call then fails at once, Celery reconnects in another thread (bootsteps.py), and the pool keeps
working.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType
from typing import Any
from weakref import WeakSet

from relier.celery.compat import amqp_socket, open_channels, open_sockets

log = logging.getLogger("relier.celery")

BLOCKED_S = 0.5  # how long the main thread may take for a call to the broker while tasks wait for it
WAITING_MODULES = ("redis", "amqp", "kombu", "socket", "ssl")  # a call to the broker waits in one of these packages
TRANSPORT_MODULES = ("kombu.transport", "amqp")


def connection_with_timeout(app: Any, seconds: float, **options: Any) -> Any:
    """Return a connection to the app's broker that gives up after this long. `options` are transport options."""
    connection = app.connection_for_write(connect_timeout=seconds, transport_options=options)
    if connection.transport.driver_type == "redis":  # also Sentinel; there kombu's publish ignores its timeout
        limits = connection.transport_options
        for name in ("socket_timeout", "socket_connect_timeout"):
            limits[name] = min(seconds, limits.get(name) or seconds)
    return connection


class BrokerCalls:
    """Watch the calls of Celery's main thread to its broker. The ledger thread calls `check`."""

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._connections: WeakSet[Any] = WeakSet()
        self._channels: WeakSet[Any] = WeakSet()  # a connection that closes forgets its channels first
        self._cutting = False

    def watch(self, connection: Any) -> Any:
        """Remember a connection that the main thread uses from now on."""
        self._main = threading.get_ident()
        self._connections.add(connection)
        return connection

    def check(self, *, blocked: bool) -> None:
        """Cut the main thread's connections if it hangs in a broker call.

        `blocked`: the main thread has taken no jobs for too long.
        """
        if not blocked or not waits_for_broker(sys._current_frames().get(self._main or 0)):  # noqa: SLF001
            self._cutting = False
            return
        if not self._cutting:
            log.warning("broker connections cut: Celery's main thread hangs in a call to the broker")
        self._cutting = True
        for connection in list(self._connections):
            self._channels.update(open_channels(connection))
            cut(connection)
        for channel in list(self._channels):
            shut_down(open_sockets(channel))


def waits_for_broker(frame: FrameType | None) -> bool:
    """Return whether a thread is inside a broker call of Celery's own, not one that a task's code makes."""
    stack = []
    while frame is not None:
        stack.append(str(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    if not stack or stack[0].partition(".")[0] not in WAITING_MODULES or "celery.app.trace" in stack:
        return False
    return any(name.startswith(TRANSPORT_MODULES) for name in stack)


def cut(connection: Any) -> None:
    """Shut down a connection. Any call that waits for it fails, as if the server had gone."""
    shut_down([amqp_socket(connection)])
    for channel in open_channels(connection):
        shut_down(open_sockets(channel))


def shut_down(sockets: Iterable[Any]) -> None:
    for sock in filter(None, sockets):
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
