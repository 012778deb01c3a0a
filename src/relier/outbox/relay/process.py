"""Run relays until SIGTERM or SIGINT. The process ends in time, whatever hangs.

Each relay has its own thread. The main thread waits on a pipe, and logs which databases do not answer. Python's C
handler writes every signal into that pipe, even if the system delivers the signal to a thread that hangs. Shutdown
takes at most --shutdown-timeout plus one second.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from relier.outbox.relay.relay import Relay
from relier.stop_signals import stop_signals

log = logging.getLogger("relier.outbox")

LEAVING_S = 0.8  # for the last writes, after publishes in progress had --shutdown-timeout
WATCH_S = 5.0  # how often the main thread looks for databases that do not answer
ENDED = b"\0"  # not the number of any signal


class RelayThread(threading.Thread):
    """Runs `work` in a thread. `error`: the exception that ended it."""

    def __init__(self, work: Callable[[], None], pipe: socket.socket) -> None:
        super().__init__(name="relier-relay", daemon=True)
        self._work = work
        self.error: BaseException | None = None
        self.ended = False
        self._pipe = pipe

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised by run_relays after the others have ended
            log.error("relay failed: error=%s", error)  # noqa: TRY400 - the raise shows the traceback
            self.error = error
        self.ended = True
        with suppress(OSError):  # the pipe is full, so the main thread wakes anyway
            self._pipe.send(ENDED)


def run_relays(relays: Sequence[Relay], close: Callable[[], None] = lambda: None) -> None:
    """Run relays until all have ended, then call `close`. A relay that fails does not stop the others; its error is
    raised at the end."""
    with _pipe() as (reading, writing):
        running = [RelayThread(relay.run, writing) for relay in relays]
        closing = RelayThread(close, writing)
        for one in running:
            one.start()
        ends_at: float | None = None
        while not closing.ended:
            left = WATCH_S if ends_at is None else max(0.0, ends_at - time.monotonic())
            ends_at = ends_at or _deadline_of_order(relays)
            if not select.select([reading], [], [], left)[0]:
                if ends_at is not None:
                    _cut([relay for relay, one in zip(relays, running, strict=True) if not one.ended])
                for relay in relays:
                    relay.health.watch()
                continue
            received = reading.recv(4096)
            if ends_at is None and set(received) & set(stop_signals()):
                ends_at = _deadline(relays)
                for relay in relays:
                    relay.stop()
            if all(one.ended for one in running) and closing.ident is None:
                closing.start()
    errors = [one.error for one in (*running, closing) if one.error is not None]
    if errors:
        raise errors[0]


def _deadline(relays: Sequence[Relay]) -> float:
    return time.monotonic() + max(relay.options.shutdown_timeout for relay in relays) + LEAVING_S


def _deadline_of_order(relays: Sequence[Relay]) -> float | None:
    """Return when the relays must have ended, if an operator ordered all of them to stop."""
    return _deadline(relays) if all(relay.is_stopping for relay in relays) else None


@contextmanager
def _pipe() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Open the pipe that reports signals and ended threads. Only the main thread can handle signals."""
    reading, writing = socket.socketpair()
    with reading, writing:
        for end in (reading, writing):
            end.setblocking(False)
        if threading.current_thread() is not threading.main_thread():
            yield reading, writing
            return
        before = {one: signal.signal(one, lambda *_: None) for one in stop_signals()}
        other = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        try:
            yield reading, writing
        finally:
            signal.set_wakeup_fd(other)
            for one, handler in before.items():
                signal.signal(one, handler)


def _cut(relays: Sequence[Relay]) -> None:
    """End the process while relays hang. Their threads cannot be ended in any other way."""
    left = all(relay.has_left.is_set() for relay in relays)
    for relay in relays:
        if not relay.has_left.is_set():
            log.error(
                "relay did not end in time: relay=%s timeout=%gs; its database or its target does not answer; its rows "
                "stay leased until other relays claim them",
                relay.relay_id,
                relay.options.shutdown_timeout,
            )
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(0 if left else 1)
