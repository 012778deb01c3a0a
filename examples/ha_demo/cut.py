"""A network cable that can be cut: a proxy in front of the primary.

While it is cut, nothing passes between the primary and its replicas and Sentinels. Clients still reach it, as in a
network that has split between the two: this is the case in which an old primary keeps acknowledging writes. Connections
stay open, as they do in a real partition, and bytes wait.

A connection is a client's if it begins with ROLE or EVAL, as Relier's do. Replicas and Sentinels begin otherwise.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

CLIENTS = (b"*1\r\n$4\r\nROLE", b"EVAL")
CHUNK = 65536


class Cable:
    """Listen on `port`, and forward to `to`. Close it at the end."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._whole = threading.Event()
        self._whole.set()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self._closed = True
        self._whole.set()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with suppress(OSError), near:
            first = near.recv(CHUNK)
            client = any(word in first[:64] for word in CLIENTS)
            self._pass(client)
            with socket.create_connection(("127.0.0.1", self._to)) as far:
                far.sendall(first)
                back = threading.Thread(target=self._pump, args=(far, near, client), daemon=True)
                back.start()
                self._pump(near, far, client)
                back.join()

    def _pump(self, source: socket.socket, sink: socket.socket, client: bool) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                self._pass(client)
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _pass(self, client: bool) -> None:
        """Let bytes of clients pass at once, and those of replicas and Sentinels only while the cable is not cut."""
        if not client:
            self._whole.wait()
        if self._closed:
            raise OSError("the demo has ended")
