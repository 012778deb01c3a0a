"""Faults between a store and its server: a proxy that loses, delays or replaces bytes, and a server with scripted
answers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Self

import hiredis

CHUNK = 1 << 20


class Listener:
    """Accepts connections on a loopback port. Each connection is served by its own thread."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.connections = 0
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.drop_all()
        for thread in self._threads:
            thread.join(5)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    def drop_all(self) -> None:
        """Cut every open connection."""
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._open.clear()

    def _spawn(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(client)
            self._spawn(lambda client=client: self._serve(client))  # type: ignore[misc]

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.serve(client)
        client.close()


class Proxy(Listener):
    """A proxy in front of a real server. `disturb` gets each request, and returns what to do with it:

    None    forward it, and return the reply       "silent"  neither forward nor answer it
    "lose"  forward it, then close the connection  bytes     answer with these bytes instead
    int     forward it, return that many bytes of the reply, then close the connection
    """

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self._target = target
        self._tls = tls
        self.requests: list[bytes] = []
        self.disturb: Callable[[bytes], str | bytes | int | None] = lambda _: None
        self.released = threading.Event()

    def serve(self, client: socket.socket) -> None:
        if self._tls is not None:
            client = self._tls.wrap_socket(client, server_side=True)
            self._open.append(client)
        with socket.create_connection(("127.0.0.1", self._target)) as server, client:
            self._open.append(server)
            while data := _whole_request(client):
                self.requests.append(data)
                what = self.disturb(data)
                if isinstance(what, bytes):
                    client.sendall(what)
                elif what != "silent" and not self._pass(client, server, data, what):
                    return

    def _pass(self, client: socket.socket, server: socket.socket, data: bytes, what: str | int | None) -> bool:
        server.sendall(data)
        replies = _whole_replies(server, data)
        if what is None:
            client.sendall(replies)
        elif isinstance(what, int):
            client.sendall(replies[:what])
        return what is None


def _whole_request(client: socket.socket) -> bytes:
    """Return what the client sent, up to the end of a command."""
    reader = hiredis.Reader(notEnoughData=Ellipsis)
    data = b""
    while not data or reader.has_data() or not _is_whole(data):
        more = client.recv(CHUNK)
        if not more:
            return b""
        data += more
        reader.feed(more)
        while reader.gets() is not Ellipsis:
            pass
    return data


def _is_whole(data: bytes) -> bool:
    """Return whether the data ends with a whole command, not between two arguments, where a reader has nothing left."""
    reader = hiredis.Reader(notEnoughData=Ellipsis)
    reader.feed(data + b"+END\r\n")
    last = None
    with contextlib.suppress(hiredis.ProtocolError):
        while (found := reader.gets()) is not Ellipsis:
            last = found
    return last == b"END"


def _whole_replies(server: socket.socket, request: bytes) -> bytes:
    """Return the bytes of as many replies as the request has commands."""
    asked = hiredis.Reader()
    asked.feed(request)
    commands = 0
    while asked.gets() is not False:
        commands += 1
    answered = hiredis.Reader(notEnoughData=Ellipsis)
    data = b""
    while commands:
        more = server.recv(CHUNK)
        if not more:
            raise OSError("the server hung up")
        data += more
        answered.feed(more)
        while commands and answered.gets() is not Ellipsis:
            commands -= 1
    return data


class Puppet(Listener):
    """A server that answers each command with the bytes that `answer` returns, or never, if that is None."""

    def __init__(self, answer: Callable[[list[bytes]], bytes | None]) -> None:
        super().__init__()
        self.answer = answer

    def serve(self, client: socket.socket) -> None:
        reader = hiredis.Reader()
        while data := client.recv(CHUNK):
            reader.feed(data)
            while (command := reader.gets()) is not False:
                reply = self.answer(command)
                if reply is not None:
                    client.sendall(reply)


def resp(value: object) -> bytes:
    """Return a value as RESP2."""
    if isinstance(value, list):
        return b"*%d\r\n%b" % (len(value), b"".join(map(resp, value)))
    if isinstance(value, int):
        return b":%d\r\n" % value
    text = str(value).encode()
    return b"$%d\r\n%b\r\n" % (len(text), text)
