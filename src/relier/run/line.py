"""How a running task reaches the ledger: awaited on the loop, blocking from a thread, or without waiting at all."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, TypeVar

from relier.errors import RelierError
from relier.keyring import Keyring
from relier.ledger.ledger import Ledger
from relier.settings import Settings
from relier.store.call import Call
from relier.submit.client import Client

T = TypeVar("T")
log = logging.getLogger("relier.run")


class Line:
    """One engine's line to the ledger, shared by all its attempts. Made on the loop that runs them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._posts: set[asyncio.Task[None]] = set()

    @property
    def settings(self) -> Settings:
        return self._client.settings

    @property
    def keyring(self) -> Keyring:
        return self._client.keyring

    @property
    def ledger(self) -> Ledger:
        return self._client.ledger

    async def arun(self, call: Call[T]) -> T:
        return await self._client.arun(call)

    def run(self, call: Call[T]) -> T:
        return self._client.run(call)

    def post(self, call: Call[Any]) -> None:
        """Send it from any thread, and do not wait: for what is only told to people."""
        self._loop.call_soon_threadsafe(self._post, call)

    def _post(self, call: Call[Any]) -> None:
        task = self._loop.create_task(self._send(call))
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)

    async def _send(self, call: Call[Any]) -> None:
        try:
            await self._client.arun(call)
        except RelierError as error:
            log.info("%s was not told: %s", call.script, error)
