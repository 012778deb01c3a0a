"""Both stores behind one awaitable interface, so that each behaviour is tested once for both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from relier.errors import RelierError
from relier.store import AsyncStore, Call, Capabilities, SyncStore
from relier.store.core import Core


class Either:
    """An AsyncStore, or a SyncStore in threads."""

    def __init__(self, store: AsyncStore | SyncStore) -> None:
        self.store = store

    async def run(self, call: Call[Any]) -> Any:
        return await self._do("run", call)

    async def run_many(self, calls: Iterable[Call[Any]]) -> list[Any | RelierError]:
        answers: list[Any | RelierError] = await self._do("run_many", list(calls))
        return answers

    async def command(self, *args: Any, retry: bool = False) -> Any:
        return await self._do("command", *args, retry=retry)

    async def wait_for_bell(self, keys: list[str], seconds: float) -> bytes | None:
        rung: bytes | None = await self._do("wait_for_bell", keys, seconds)
        return rung

    async def probe(self) -> Capabilities:
        found: Capabilities = await self._do("probe")
        return found

    async def core(self) -> Core:
        return (await self.store._client()).core if isinstance(self.store, AsyncStore) else self.store._core()

    async def close(self) -> None:
        await (self.store.aclose() if isinstance(self.store, AsyncStore) else asyncio.to_thread(self.store.close))

    async def _do(self, name: str, *args: Any, **options: Any) -> Any:
        method = getattr(self.store, name)
        if isinstance(self.store, AsyncStore):
            return await method(*args, **options)
        return await asyncio.to_thread(method, *args, **options)


OpenStore = Callable[..., Either]
