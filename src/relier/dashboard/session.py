"""Connect the dashboard to one namespace: the store for reads in threads, the client for the live feed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

from relier.cli.pipelined.stats import stats_reading
from relier.cli.pipelined.steps import Reading, read_all
from relier.cli.session import Session
from relier.dashboard.figures.depths import DepthHistory
from relier.dashboard.figures.outcomes import OutcomeMemory
from relier.dashboard.figures.rates import CountHistory
from relier.errors import ShardsError
from relier.ledger.stats import Stats
from relier.settings import Settings
from relier.slo import objectives_of
from relier.submit.client import Client, absolute


class DashboardSession(Session):
    """One session for all requests of a process. Its store serves any number of threads."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        if settings.is_sharded:
            raise ShardsError(
                f"the dashboard shows one namespace, but RELIER_SHARDS is {settings.shards}; serve one for each shard, "
                f"on a port or a path of its own: `rl --shard 0 dashboard`, or app(settings=Settings().of_shard(0))"
            )
        vars(self)["settings"] = absolute(settings)
        self.counts = CountHistory()
        self.depths = DepthHistory()
        self.kept: dict[str, tuple[float, Any]] = {}  # what is read rarely: name -> (until, value)
        self.feeds = 0  # live pages that are open now
        self._opening = threading.Lock()

    @cached_property
    def client(self) -> Client:
        """The client of the live feed, which runs on an event loop."""
        return Client(self.settings)

    @cached_property
    def outcomes(self) -> OutcomeMemory:
        """The outcomes that this process has read."""
        return OutcomeMemory(objectives_of(self.settings))

    async def aclose(self) -> None:
        """Close what was opened. A mounted application, whose host does not call this, is closed with its process."""
        if "client" in vars(self):
            await self.client.aclose()
        if self._open is not None:
            self._open.close()

    def reach(self) -> None:
        """Open the store once, however many requests come first."""
        if "store" not in vars(self):
            with self._opening:
                self.store  # noqa: B018 - opened by reading it

    def read(self, *readings: Reading[Any]) -> list[Any]:
        """Run readings together: they share their round trips. Every page reads the store with this."""
        return read_all(self.store, self.ledger, *readings)

    def stats(self) -> Stats:
        """Read all queues and nodes, and the counters."""
        found: Stats = self.read(stats_reading(self.ledger))[0]
        return found

    def remembered(self, name: str, until: float, now: float, read: Callable[[], Any]) -> Any:
        """Return a value that may be some seconds old, or read it."""
        kept = self.kept.get(name)
        if kept is None or kept[0] <= now:
            kept = self.kept[name] = (until, read())
        return kept[1]
