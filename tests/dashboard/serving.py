"""Serve the dashboard in a thread of the test, by uvicorn on a free port."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from tests.support.servers import wait_until


@contextmanager
def served(application: Starlette) -> Iterator[str]:
    """Yield the address at which an application is served."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(application, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started, 30, "the dashboard listens")
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
