"""The producer: pushes in its own thread until it is told to stop, whatever happens to the workers."""

from __future__ import annotations

import asyncio
import itertools
import threading

from relier import Client

from .tasks import charge, report, resize

PAUSE_S = 0.1


class Producer:
    """`ids`: every task that was accepted. `error`: what ended it early."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.ids: list[str] = []
        self.error: Exception | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._push())
        except Exception as error:  # noqa: BLE001 - told by the demo, which fails
            self.error = error

    async def _push(self) -> None:
        try:
            for number in itertools.takewhile(lambda _: not self._ending.is_set(), itertools.count()):
                receipts = [await report.apush(month) for month in (2 * number, 2 * number + 1)]
                receipts += await charge.apush_many((f"cus_{number}", cents) for cents in range(100, 109))
                receipts += await resize.apush_many({"picture": number, "width": width} for width in range(640, 650))
                self.ids += [receipt.id for receipt in receipts]
                await asyncio.sleep(PAUSE_S)
        finally:
            await self._client.store.aclose()
