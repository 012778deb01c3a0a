"""Run everything that waits in a store, as a worker would, without waiting: `run_pending`.

The parts are those of a real worker: claims, attempts, settler, runner and sweep. Only the driver differs. It lets the
loop run until nothing moves, then advances the virtual clock to the next moment at which something can happen: a task
is due, a timer of a running attempt fires, or the lease of a killed worker runs out.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from relier import background
from relier.engines.attempts import Attempts
from relier.engines.claims import Claims
from relier.engines.heartbeat import Liveness
from relier.engines.local_runner import LocalRunner
from relier.engines.orphaned_claims import OrphanedClaims
from relier.engines.task_events import TaskEvents
from relier.errors import ConfigurationError, RelierError
from relier.ledger.pages import read_stats
from relier.ledger.records import new_worker_id
from relier.rescue.phoenix import Phoenix
from relier.run.attempt import Attempt
from relier.run.current import install_log_fields
from relier.run.execute import stop
from relier.run.isolated.origin import Origin
from relier.run.outcome import HandBack
from relier.run.threads import Threads
from relier.testing.virtual.client import ImmediateStore, SimulatedClient
from relier.testing.virtual.faults import Fault, never_fired
from relier.testing.virtual.ran import RanAttempt, ran_attempt
from relier.testing.virtual.runner import RecordingSettler, SameThreadChannel, SimulatedRunner
from relier.testing.virtual.store_clock import SECOND_US, StoreClock
from relier.testing.virtual.timers import VirtualTimers

MOST_ATTEMPTS = 1_000
NO_SCHEDULES = 10**9  # as the number to skip: more schedules than any namespace has
MOST_MOMENTS = 20_000  # steps of the clock without an attempt that ends
REAL_WAIT_S = 0.001
HOOKS_S = 5.0


@dataclass(frozen=True)
class PendingOptions:
    """Hold the options: until when to run (s of virtual time), from which queues (None: all), how many at once."""

    until: float
    queues: Sequence[str] | None
    concurrency: int


class PendingRun:
    """Drive one `run_pending`. Create it on the event loop that runs the attempts. `threads` run `def` tasks."""

    def __init__(
        self,
        client: SimulatedClient,
        clock: StoreClock,
        faults: tuple[Fault, ...],
        options: PendingOptions,
        threads: Threads | None = None,
    ) -> None:
        self._client = client
        self._ledger = client.ledger
        self._clock = clock
        self._faults = faults
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._timers = VirtualTimers(self._loop, clock.now_us / SECOND_US)
        self._lease_ms = round(1000 * client.settings.heartbeat_ttl)
        self._running: dict[tuple[str, str], Attempt] = {}
        self._stop, self._changed = asyncio.Event(), asyncio.Event()
        self._dead: set[str] = set()  # worker ids whose leases run out
        self._served: Sequence[str] = ["default"]
        self._moments = 0
        self.ran: list[RanAttempt] = []
        self._assemble(threads)

    def _assemble(self, threads: Threads | None) -> None:
        client, ledger = self._client, self._ledger
        self._store = ImmediateStore(client, client.observed)
        settings = client.settings
        self._liveness = Liveness(trusted_until=math.inf, attempts=self._running)
        self._events = TaskEvents(self._store, ledger, settings.redact)
        self._settler = RecordingSettler(self._store, ledger, settings.redact, self._events, lambda: self._timers.now)
        local = LocalRunner(settings, self._options.concurrency, (), 1, Origin.here(), threads)
        self._runner = SimulatedRunner(local, self._timers, self._faults, self._die, self._lose)
        self._channel = channel = SameThreadChannel(client, lambda: self._timers.now)
        orphans = OrphanedClaims(self._store, ledger, self._settler, self._running)
        claims = Claims(
            self._store,
            ledger,
            self._settler,
            self._liveness,
            orphans,
            lambda: self._served,
            self._rejoin,
            self._stop,
            self._changed,
        )
        self._attempts = Attempts(
            self._running, claims, channel, self._runner, self._settler, self._liveness, self._changed.set
        )
        self._phoenix = Phoenix(settings, self._store, ledger, self._events.swept, client.keyring)

    # --- the driver ----------------------------------------------------------------------------------------------

    async def run(self) -> list[RanAttempt]:
        """Run until nothing is left to do, or the time is up. Return every attempt that ended, in order."""
        observed = self._client.observed
        if observed.before is not None:
            raise ConfigurationError(
                "run_pending is already running on this store; a task under test must not call it, and two calls must "
                "not overlap"
            )
        observed.before, observed.after = self._runner.before, self._runner.after
        self._timers.install()
        try:
            await self._client.aopen()
            install_log_fields()
            await self._runner.start(self._channel, lambda: math.inf, self._events)
            try:
                await self._work()
            finally:
                await self._runner.close()
                self._events.close()
        finally:
            self._timers.remove()
            observed.before = observed.after = None
        if problem := never_fired(self._faults, self.ran):
            raise AssertionError(problem)
        return self.ran

    async def _work(self) -> None:
        self._register()
        await self._phoenix.sweep_once()
        work = background.start(self._loop, self._attempts.work())
        try:
            await self._drive()
        finally:
            await self._leave(work)

    async def _drive(self) -> None:
        waited = 0.0  # in real time, for threads and sockets
        while True:
            await self._claim_until_quiet()
            at = self._next_moment()
            if self._waits_for_more_than_time():
                waited += await self._timers.wait_really(REAL_WAIT_S)
                if at is None or at - self._timers.now > waited:
                    continue
            waited = 0.0
            if at is None:
                return
            self._count_moment()
            await self._follow(min(at, self._options.until))
            if at > self._options.until:
                return

    async def _claim_until_quiet(self) -> None:
        """Claim the queued tasks and run them, until every attempt waits for something."""
        before = -1
        while before != len(self._settler.settlements) + self._attempts.started:
            before = len(self._settler.settlements) + self._attempts.started
            self._served = self._queues()
            self._store.ring()
            await self._timers.until_quiet()
            self._note_ends()

    def _waits_for_more_than_time(self) -> bool:
        """Return whether a thread or a socket may wake a running attempt. Such a wait takes real time."""
        tasks = [each.asyncio_task for each in self._running.values() if each.asyncio_task is not None]
        return self._runner.in_threads > 0 or (bool(tasks) and not self._timers.only_time_can_wake(tasks))

    def _next_moment(self) -> float | None:
        """Return the virtual time at which something happens next, or None if nothing does."""
        times = [self._next_due(skip_schedules=NO_SCHEDULES), self._timers.next_due()]
        if self._dead:
            times.append(self._timers.now + self._client.settings.resurrection_check_interval)
        if self._options.until < math.inf or any(each is not None for each in times):
            times.append(self._next_due())  # schedules never end, so alone they do not make time pass
        known = [each for each in times if each is not None]
        if known:
            return max(min(known), math.nextafter(self._timers.now, math.inf))
        if self._running and not self._waits_for_more_than_time():
            raise AssertionError(
                f"{_listed(self._running)} waits for something that never happens: no timer is set, no socket is open, "
                f"and nothing else runs; check what the task awaits"
            )
        return None

    def _next_due(self, *, skip_schedules: int = 0) -> float | None:
        """Return when the next task is due or expires, or the next schedule after those that are skipped is due."""
        due: int | None = self._client.run(self._ledger.promote(1, skip_schedules=skip_schedules)).next_due_ms
        return None if due is None else due / 1000

    def _count_moment(self) -> None:
        self._moments += 1
        if self._moments > MOST_MOMENTS:
            raise AssertionError(
                f"run_pending gave up: the clock moved {MOST_MOMENTS:,} times, but no attempt ended; "
                f"{_listed(self._running) or 'a task'} may poll forever; if it waits for another task, pass "
                f"concurrency=2"
            )

    async def _follow(self, now: float) -> None:
        """Move all clocks to this time, and do what a worker does at that time: send heartbeats, sweep, fire timers."""
        self._clock.set(math.ceil(now * SECOND_US))
        self._client.run(self._ledger.beat(self._liveness.worker_id, self._lease_ms))
        await self._phoenix.sweep_once()
        self._dead = {each for each in self._dead if self._client.run(self._ledger.owned(each, 0))}
        self._timers.advance(now)

    def _queues(self) -> Sequence[str]:
        if self._options.queues is not None:
            return self._options.queues
        found = [each.queue for each in read_stats(self._client.run, self._ledger).queues if not each.paused]
        return sorted(found) or ["default"]

    def _note_ends(self) -> None:
        for each in self._settler.settlements[len(self.ran) :]:
            attempt = self._runner.attempts.get((each.claimed.lease.task_id, each.claimed.lease.fence))
            killed = attempt is not None and attempt.key in self._runner.killed
            at = timedelta(milliseconds=round(1000 * each.at - self._clock.began_us / 1000))
            self.ran.append(ran_attempt(self._client, each, attempt, at, killed=killed))
            self._moments = 0
        if len(self.ran) > MOST_ATTEMPTS:
            raise AssertionError(
                f"run_pending gave up after {MOST_ATTEMPTS:,} attempts; the last was {self.ran[-1]}; a task that "
                f"pushes itself again needs a limit, such as run_pending(within=60)"
            )

    # --- workers that come and go --------------------------------------------------------------------------------

    def _register(self) -> None:
        self._client.run(self._ledger.register(self._liveness.worker_id, self._lease_ms))

    def _rejoin(self) -> None:
        """Continue as another worker, because the worker id is lost."""
        self._liveness.worker_id = new_worker_id()
        self._register()
        self._loop.call_soon(self._changed.set)

    def _die(self, attempt: Attempt) -> None:
        """Kill the worker of this attempt, with everything that it runs. Another worker takes its place."""
        lost = attempt.lease.worker_id
        for each in self._running.values():
            if each.lease.worker_id == lost:
                self._runner.kill(each)
        self._dead.add(lost)
        if lost == self._liveness.worker_id:
            self._rejoin()

    def _lose(self, attempt: Attempt) -> None:
        """Let the other workers declare the worker of this attempt lost. The attempt does not notice."""
        lost = attempt.lease.worker_id
        self._client.run(self._ledger.revive(worker_id=lost, cause="lost its lease, by a fault of this test"))
        self._dead.add(lost)
        if lost == self._liveness.worker_id:
            self._loop.call_soon_threadsafe(self._rejoin)

    async def _leave(self, work: asyncio.Task[None]) -> None:
        """Hand back the tasks that still run, as a worker that shuts down does."""
        self._stop.set()
        self._changed.set()
        self._store.ring()
        for attempt in list(self._running.values()):
            stop(attempt, HandBack())
        await self._attempts.wait_until_empty(1.0)
        self._attempts.hand_back_rest()
        await work
        await self._settler.finish(1.0)
        self._note_ends()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HOOKS_S):
                await self._events.finish()
        with contextlib.suppress(RelierError):
            self._client.run(self._ledger.retire(self._liveness.worker_id))


def _listed(running: dict[Any, Attempt]) -> str:
    return ", ".join(f"{each.ctx.task_name} {each.ctx.task_id}" for each in running.values())
