"""A namespace for one test: clients with their own settings, workers in this process, and a clock to set."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from relier import Client, Settings, use_client
from relier.cli.audit import audit
from relier.engines.worker import Worker, WorkerOptions
from relier.ledger.ledger import Ledger, load_scripts
from relier.ledger.pages import read_stats
from relier.ledger.records import Claimed, Lease, Task, new_worker_id
from relier.ledger.stats import Stats
from relier.run.attempt import Attempt, open_attempt
from relier.run.channel import LedgerChannel
from relier.run.execute import execute
from relier.run.outcome import Outcome, plan_of
from relier.run.threads import Threads
from relier.testing.virtual.store_clock import StoreClock, clocked_scripts
from tests.support import PYTHONPATH

# Quick for tests: a sweep every 50 ms, a heartbeat every 0.75 s. The lease is long enough for a busy machine.
QUICK: dict[str, Any] = {"heartbeat_ttl": 3.0, "resurrection_check_interval": 0.05, "graceful_shutdown_timeout": 0.0}
LEASE_MS = 600_000
SCRIPTS = load_scripts()


class Crew:
    """Clients of one namespace. Tasks are pushed through the first one, until another one is created."""

    def __init__(self, settings: Settings, *, clocked: bool = False) -> None:
        self._settings = settings
        self._scripts = clocked_scripts() if clocked else SCRIPTS
        self._clients: list[Client] = []
        self._seq = 0
        self._threads = Threads()
        self.sound = not clocked  # False: the test damaged records or the clock on purpose, so the audit may fail
        self.client = self.with_settings()
        if clocked:
            self.clock = StoreClock(self.command, self.ledger.prefix)

    def with_settings(self, **changed: Any) -> Client:
        """Create a client with other settings. From now on, tasks are pushed through it."""
        self.client = self.another(**changed)
        use_client(self.client)
        return self.client

    def another(self, **changed: Any) -> Client:
        """Create a client with other settings, which is used only where a test says so."""
        client = Client(self._settings.replace(**changed))
        client.__dict__["scripts"] = self._scripts
        self._clients.append(client)
        return client

    @property
    def ledger(self) -> Ledger:
        return self.client.ledger

    def run(self, call: Any) -> Any:
        return self.client.run(call)

    def command(self, *args: Any) -> Any:
        return self.client.sync_store.command(*args)

    # --- the clock -----------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # --- what is in the ledger -----------------------------------------------------------------------------------

    def stats(self) -> Stats:
        found: Stats = read_stats(self.run, self.ledger)
        return found

    def count(self, what: str) -> int:
        return self.stats().counts.get(what, 0)

    def get(self, task_id: str) -> Task:
        found: Task = self.run(self.ledger.get(task_id))
        return found

    # --- a worker by hand ----------------------------------------------------------------------------------------

    def join(self) -> str:
        boot = new_worker_id()
        assert self.run(self.ledger.register(boot, LEASE_MS))
        return boot

    def claim(self, boot: str, queue: str = "default") -> Claimed:
        self._seq += 1
        (task,) = self.run(self.ledger.claim(boot, self._seq, [queue], 1)).tasks
        assert isinstance(task, Claimed)
        return task

    def start(self, boot: str = "") -> Lease:
        """Claim the waiting tasks for a worker that does nothing with them."""
        return self.claim(boot or self.join()).lease

    def commit(self, lease: Lease, result: bytes | None = b"1") -> str:
        (settled,) = self.run(self.ledger.commit([(lease, result, ())]))
        return str(settled.verdict)

    def lose(self, boot: str) -> None:
        """Declare the worker's process dead."""
        self.run(self.ledger.revive(worker_id=boot, cause="killed"))

    def begin(self, boot: str = "", through: Client | None = None, **ready: Any) -> Attempt:
        """Claim the waiting tasks, and open them as a worker would. `through`: the client of the attempt, if it is not
        that of the crew."""
        self.channel = LedgerChannel(through or self.client)
        attempt = open_attempt(self.claim(boot or self.join()), self.channel, **ready)
        assert isinstance(attempt, Attempt)
        return attempt

    async def run_only(self, attempt: Attempt) -> Outcome:
        """Run the attempt as a worker would, but report nothing to the ledger, as if the process had died then."""
        return await execute(attempt, self._threads, self.channel)

    async def execute(self, attempt: Attempt) -> Outcome:
        """Run the attempt as a worker would, and report its outcome to the ledger."""
        outcome = await self.run_only(attempt)
        plan = plan_of(self.ledger, attempt.claimed, outcome, attempt.task.options.retries, self.stats().now_ms)
        if plan.call is not None:
            self.run(plan.call)
        return outcome

    # --- a worker in this process --------------------------------------------------------------------------------

    @asynccontextmanager
    async def working(self, **options: Any) -> AsyncIterator[Worker]:
        """Run a native worker on this loop. At the end it hands back the tasks that it still runs."""
        worker = Worker(self.client, WorkerOptions(**{"give_up": _never} | options))
        running = asyncio.get_running_loop().create_task(worker.run())
        try:
            yield worker
        finally:
            worker.leave_now()
            await running

    async def aclose(self) -> None:
        try:
            if self.sound:
                report = audit(self.client.sync_store, self.ledger)
                assert report.ok, [finding.problem for finding in report.findings]
        finally:
            use_client(None)
            self._threads.close()
            for client in self._clients:
                await client.aclose()


def _never() -> None:
    raise AssertionError("the worker gave up this process")


async def until(predicate: Callable[[], Any], seconds: float = 20.0, what: str = "the condition") -> Any:
    """Poll until the condition holds."""
    end = asyncio.get_running_loop().time() + seconds
    while not (value := predicate()):
        assert asyncio.get_running_loop().time() < end, f"{what} did not come about within {seconds} s"
        await asyncio.sleep(0.005)
    return value


def environment(settings: Settings, **more: str) -> dict[str, str]:
    """Return the environment of a process that works on this namespace, with this source."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RELIER_")}
    given = {
        "RELIER_REDIS_URL": settings.redis_url,
        "RELIER_NAMESPACE": settings.namespace,
        "RELIER_HEARTBEAT_TTL": str(settings.heartbeat_ttl),
        "PYTHONPATH": PYTHONPATH,
    }
    return kept | given | more


@pytest.fixture
async def crew(settings: Settings) -> AsyncIterator[Crew]:
    """A crew in its own namespace, which is audited at the end."""
    one = Crew(settings.replace(**QUICK))
    yield one
    await one.aclose()


@pytest.fixture
async def clocked(settings: Settings) -> AsyncIterator[Crew]:
    """A crew on a time that the test sets, so that nothing happens between two lines of the test."""
    one = Crew(settings.replace(**QUICK), clocked=True)
    yield one
    await one.aclose()
