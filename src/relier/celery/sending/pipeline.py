"""Send many messages to a Redis broker in one pipeline. kombu sends each message alone and waits for its reply."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any


class PipelinedClient:
    """Stand in for the Redis client of a kombu channel, and queue the commands that publish messages.

    All messages for one list become one command. Every other command runs at once.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._commands: list[list[Any]] = []
        self._lists: dict[str, int] = {}  # the number of the command for each list
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

    def take_used(self) -> set[int]:
        """Return the numbers of the commands that were extended since the last call of this method."""
        used, self._used = self._used, set()
        return used

    def send(self) -> list[Any]:
        """Send the queued commands. Return a reply or an error for each command."""
        pipe = self._client.pipeline(transaction=False)
        for command in self._commands:
            pipe.execute_command(*command)
        answers: list[Any] = pipe.execute(raise_on_error=False) if self._commands else []
        return answers


@contextmanager
def pipelining(channel: Any) -> Iterator[PipelinedClient]:
    """Queue the messages that are published inside the block through a channel of kombu's Redis transport."""
    with channel.conn_or_acquire() as client:
        pipelined = PipelinedClient(client)
        channel.conn_or_acquire = lambda client=None: nullcontext(client or pipelined)
        try:
            yield pipelined
        finally:
            del channel.conn_or_acquire
