"""Sweep without running tasks, until a signal: what `rl resurrector` and `rl scheduler` do.

With shards, one process sweeps all of them, each in its own asyncio task: an unreachable shard holds up no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from relier.engines.monitoring.task_metrics import TaskMetrics
from relier.engines.startup import until_reachable
from relier.engines.task_events import TaskCounter, TaskEvents
from relier.ledger.nodes import Role
from relier.monitoring.meter import Meter
from relier.nodes.health import HelperHealth
from relier.nodes.membership import NodeMembership
from relier.rescue.phoenix import Phoenix
from relier.settings import Settings
from relier.stop_signals import stop_signals
from relier.submit.client import Client, place_of

LAST_EVENTS_S = 1.0  # how long a resurrector that stops may still report the tasks that it revived


class NamespaceSweep:
    """The sweep of one namespace, and its membership there. Create it on the event loop that runs it."""

    def __init__(self, client: Client, role: Role, observe: TaskCounter | None, stop: Callable[[], None]) -> None:
        settings, self._client, self._role = client.settings, client, role
        self._events = TaskEvents(client.store, client.ledger, settings.redact, observe=observe)
        self.membership = NodeMembership(
            settings,
            client.scripts,
            role,
            settings.heartbeat_ttl,
            report=lambda: {"revived": self.phoenix.revived},
            on_stop=stop,
        )
        suspended = lambda: self.membership.orders.draining  # noqa: E731 - read before each sweep
        self.phoenix = Phoenix(settings, client.store, client.ledger, self._events.swept, client.keyring, suspended)

    async def run(self, stopped: asyncio.Event) -> None:
        """Sweep until stopped. Raise if the store refuses this process at the start."""
        settings = self._client.settings
        if not await until_reachable(self._client.aopen, stopped):
            return
        every, where = settings.resurrection_check_interval, place_of(settings)
        await asyncio.to_thread(self.membership.begin)
        logging.getLogger("relier.phoenix").info("%s started: interval=%gs store=%s", self._role, every, where)
        await self.phoenix.run()
        await asyncio.to_thread(self.membership.end, LAST_EVENTS_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_EVENTS_S):
                await self._events.finish()


async def sweep_until_stopped(settings: Settings, role: Role) -> int:
    """Sweep as a node of this role, until a signal or an operator stops it."""
    client = Client(settings)
    meter = Meter() if settings.metrics_port else None
    observe = None if meter is None else TaskMetrics(meter)
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        stopped.set()
        for sweep in sweeps:
            sweep.phoenix.end()

    def stop_soon() -> None:
        loop.call_soon_threadsafe(stop)

    sweeps = [NamespaceSweep(shard, role, observe, stop_soon) for shard in client.shards]
    for number in stop_signals():
        loop.add_signal_handler(number, stop)
    health = HelperHealth(role, [sweep.membership for sweep in sweeps], stopped.is_set, meter)
    with health.served(settings, client.shards[0].store):
        await asyncio.gather(*(sweep.run(stopped) for sweep in sweeps))
    await client.aclose()
    return 0
