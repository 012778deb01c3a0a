"""Messages for a Redis broker, many in one go: kombu sends each by itself, and waits for its answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any


class Pipelined:
    """Stands in for the Redis client of a kombu channel. What messages push is gathered; all else is done at once."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._pipe = client.pipeline(transaction=False)
        self.gathered = 0

    def lpush(self, *args: Any) -> None:
        self._pipe.lpush(*args)
        self.gathered += 1

    def publish(self, *args: Any) -> None:
        self._pipe.publish(*args)
        self.gathered += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def send(self) -> list[Any]:
        """Send what was gathered. Returns an answer for each command, or the error that it met."""
        if not self.gathered:
            return []
        self.gathered = 0
        answers: list[Any] = self._pipe.execute(raise_on_error=False)
        return answers


@contextmanager
def gathering(channel: Any) -> Iterator[Pipelined]:
    """Inside, what is published through a channel of kombu's Redis transport is gathered."""
    with channel.conn_or_acquire() as client:
        pipelined = Pipelined(client)
        channel.conn_or_acquire = lambda client=None: nullcontext(client or pipelined)
        try:
            yield pipelined
        finally:
            del channel.conn_or_acquire
