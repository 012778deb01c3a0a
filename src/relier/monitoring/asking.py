"""Ask the endpoint of another process on this host. Plain sockets: `rl health` must start fast."""

from __future__ import annotations

import json
import socket
import time

from relier.monitoring.health import Health

MOST_BYTES = 16 * 1024 * 1024
HEALTH_PAGE = "/healthz"  # all of a process's health in one answer, for its supervisor and for `rl health`


def fetch(host: str, port: int, path: str, seconds: float) -> tuple[int, bytes]:
    """Return the status and the body of a page. Raise OSError if there is no answer in time."""
    until = time.monotonic() + seconds
    with socket.create_connection((host, port), seconds) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        answer = bytearray()
        while len(answer) < MOST_BYTES:
            connection.settimeout(max(0.001, until - time.monotonic()))
            part = connection.recv(65536)
            if not part:
                break
            answer += part
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise ConnectionError(f"port {port} answered, but not with HTTP")
    return int(words[1]), body


def health_page(health: Health) -> bytes:
    document = {"role": health.role, "started": health.started, "stuck": health.stuck, "unready": health.unready}
    return json.dumps(document).encode() + b"\n"


def fetch_health(host: str, port: int, seconds: float) -> Health:
    """Return the health of the process that serves a port. Raise OSError if there is no such answer in time."""
    status, body = fetch(host, port, HEALTH_PAGE, seconds)
    try:
        found = json.loads(body)
        return Health(found["role"], found["started"], tuple(found["stuck"]), tuple(found["unready"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ConnectionError(f"port {port} answered with status {status}, but not with a health page") from error
