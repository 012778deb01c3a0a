"""The HTTP server of a process, in threads of its own: one for new connections, one for each request.

It shares nothing with the work of the process, so it also answers while the store is unreachable or the event loop is
blocked.
A process whose GIL is held answers nothing, which a prober counts as a failure.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import weakref
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, NamedTuple

from relier.errors import ConfigurationError

log = logging.getLogger("relier.monitoring")

NOT_FOUND, FAILED = 404, 500


class HttpPage(NamedTuple):
    """One answer."""

    status: int
    body: bytes
    kind: str = "application/json"


Pages = Mapping[str, Callable[[], HttpPage]]


class PageHandler(BaseHTTPRequestHandler):
    """Answers GET and HEAD with a page of the server."""

    timeout = 5.0  # for a client that connects and sends nothing
    server: Endpoint

    def do_GET(self) -> None:  # http.server calls this name
        page = self.server.page(self.path.partition("?")[0])
        self.send_response(page.status)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(page.body)

    do_HEAD = do_GET  # noqa: N815 - http.server calls this name

    def log_message(self, *_: Any) -> None:
        """Log nothing: probes come every few seconds."""


class Endpoint(ThreadingMixIn, TCPServer):
    """Serves pages on an address, or on a socket that already listens."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, pages: Pages, host: str = "", port: int = 0, listening: socket.socket | None = None) -> None:
        self._pages = pages
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), PageHandler, bind_and_activate=listening is None)
        except (OSError, OverflowError) as error:
            self.socket.close()
            said = getattr(error, "strerror", None) or error
            raise ConfigurationError(
                f"metrics cannot be served on port {port}: {said}; free the port, or choose another"
            ) from error
        if listening is not None:
            self.socket.close()
            self.socket = listening
        _open.add(self)

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.1,), name="relier-monitoring", daemon=True).start()

    def close(self) -> None:
        _open.discard(self)
        self.shutdown()
        self.server_close()

    def page(self, path: str) -> HttpPage:
        """Return the page of a path. An error in a page is an answer too."""
        found = self._pages.get(path)
        if found is None:
            return HttpPage(NOT_FOUND, f"not found; there are {', '.join(self._pages)}\n".encode(), "text/plain")
        try:
            return found()
        except Exception as error:  # an error in monitoring must not harm the process
            log.exception("monitoring page failed: path=%s", path)
            return HttpPage(FAILED, f"{type(error).__name__}: {error}\n".encode(), "text/plain")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect before they have read the answer."""


_open: weakref.WeakSet[Endpoint] = weakref.WeakSet()


def _close_copies() -> None:
    """Close a forked process's copies of the sockets, so that the port is free when its parent ends."""
    for endpoint in list(_open):
        with contextlib.suppress(OSError):
            endpoint.socket.close()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_close_copies)
