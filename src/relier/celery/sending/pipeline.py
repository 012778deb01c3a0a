"""Messages for a Redis broker, many in one go: kombu sends each by itself, and waits for its answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any


class Pipelined:
    """Stands in for the Redis client of a kombu channel. What messages push is gathered, and all messages for one list
    are one command; all else is done at once."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._commands: list[list[Any]] = []
        self._lists: dict[str, int] = {}  # the command of each
        self._used: set[int] = set()

    def lpush(self, key: str, *messages: Any) -> None:
        number = self._lists.setdefault(key, len(self._commands))
        if number == len(self._commands):
            self._commands.append(["LPUSH", key])
        self._commands[number] += messages
        self._used.add(number)

    def publish(self, *args: Any) -> None:
        self._used.add(len(self._commands))
        self._commands.append(["PUBLISH", *args])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def used(self) -> set[int]:
        """The numbers of the commands that took part since the last time this was asked."""
        used, self._used = self._used, set()
        return used

    def send(self) -> list[Any]:
        """Send what was gathered. Returns an answer for each command, or the error that it met."""
        pipe = self._client.pipeline(transaction=False)
        for command in self._commands:
            pipe.execute_command(*command)
        answers: list[Any] = pipe.execute(raise_on_error=False) if self._commands else []
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
