"""A worker in a thread of this process, for tests that check its signals and logs."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

from relier import Client, Settings
from relier.engines.worker import Worker, WorkerOptions

PATIENCE_S = 20.0


class WorkerThread:
    """Runs tasks until the end of the block, or of the process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._worker.drain)
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        client = Client(self._settings)
        self._worker = Worker(client, WorkerOptions(recycles=False, on_ready=self._ready.set))
        await self._worker.run()
        await client.aclose()
