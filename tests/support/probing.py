"""Ask the metrics port of a process."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from relier.monitoring.asking import fetch
from tests.support.servers import wait_until

SECONDS = 10.0


def ask(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """Return the status and the document of a probe."""
    status, body = fetch("127.0.0.1", port, path, SECONDS)
    return status, msgspec.json.decode(body)


def reasons(port: int, path: str = "/readyz") -> list[str] | None:
    """Return why a probe fails, an empty list if it succeeds, and None if nobody answers."""
    with contextlib.suppress(OSError):
        status, answer = ask(port, path)
        assert (status == 200) is answer["ok"] is not bool(answer["reasons"])
        return list(answer["reasons"])
    return None


def wait_for(port: int, path: str, *texts: str, seconds: float = 30.0) -> list[str]:
    """Wait until a probe fails for reasons that contain these texts, or succeeds if there are none. Return them."""
    found: list[list[str] | None] = []

    def holds() -> bool:
        found.append(reasons(port, path))
        last = found[-1]
        return last is not None and bool(last) is bool(texts) and all(any(t in one for one in last) for t in texts)

    try:
        wait_until(holds, seconds, f"{path} to report {texts or 'ok'}")
    except AssertionError as error:
        raise AssertionError(f"{error}; the last answer: {found[-1]}") from None
    return found[-1] or []


def metrics_of(port: int) -> str:
    """Return the page of metrics."""
    status, body = fetch("127.0.0.1", port, "/metrics", SECONDS)
    assert status == 200, body
    return body.decode()
