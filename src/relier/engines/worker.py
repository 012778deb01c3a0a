"""Run a worker: claim tasks, run them, commit results, and shut down without losing any of them.

Worker          starts and stops the parts below, in one process, on one event loop
Attempts        the life of every attempt: claim, open, execute, settle (engines/attempts.py)
Runner          runs the bodies (engines/runner.py)
HeartbeatThread keeps the lease, reports a blocked loop, buries tasks that will not end (engines/heartbeat.py)
Phoenix         sweeps, as every worker does (rescue/phoenix.py)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from relier import background
from relier.engines.attempts import Attempts
from relier.engines.claims import BELL_S, Claims
from relier.engines.heartbeat import (
    AttemptOverdue,
    BeatAnswered,
    HeartbeatEvent,
    HeartbeatThread,
    Liveness,
    WorkerLost,
)
from relier.engines.local_runner import LocalRunner
from relier.engines.orphaned_claims import OrphanedClaims
from relier.engines.runner import Runner
from relier.engines.settler import Settler
from relier.engines.shutdown import ShutdownBudget
from relier.engines.startup import at_start, check_memory, until_reachable
from relier.engines.task_events import Audience, TaskCounter, TaskEvents
from relier.errors import RelierError
from relier.ledger.nodes import Role
from relier.nodes.orders import OrderFollower
from relier.nodes.process import process_about, resident_mb
from relier.redact import check_hook
from relier.rescue.phoenix import Phoenix
from relier.run.attempt import Attempt
from relier.run.channel import LedgerChannel
from relier.run.checkpoint_files import folder_for
from relier.run.current import install_log_fields
from relier.run.execute import stop
from relier.run.isolated.origin import Origin
from relier.run.outcome import Gone, HandBack
from relier.states import State
from relier.submit.client import Client, place_of

log = logging.getLogger("relier.worker")

TICK_S = 0.25  # how often the loop records that it is still running
STOP_GRACE_S = 1.0  # how long a stopped task has to clean up when its worker shuts down
CONFIRM_S = 5.0  # how long a worker that shuts down waits for a claim in flight, and for results to be confirmed
HOOKS_S = 1.0  # how long a worker that shuts down waits for hooks
RETIRE_S = 1.0  # how long a worker that shuts down reserves for retiring, and then for its last sweep

EXIT_CLEAN, EXIT_FORCED, EXIT_RECYCLE = 0, 3, 4


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Hold the options of one worker. The first group comes from the command line, the second from the engine.

    modules         the modules that isolated processes import
    queues_now      the queues to claim from, if that changes while the worker runs
    stop_requested  whether the process was asked to stop in a way that does not call `drain`
    recycles        whether something restarts the worker when it ends to be recycled
    leave_by        the shutdown deadline that a signal set (monotonic)
    audience        decides by the name of a task where its events go
    observe         counts the events of tasks, for metrics
    supervisor      process id of a parent that starts the worker again whenever it ends; 0: there is none
    shard           the number of the shard to work for; 0 without shards
    on_stop_order   stops the process when an operator orders it to stop, if draining the worker is not enough
    """

    queues: tuple[str, ...] = ("default",)
    concurrency: int = 100
    modules: tuple[str, ...] = ()
    max_tasks: int | None = None
    max_rss_mb: float | None = None
    isolated: int = 4
    sweep: bool = True
    origin: Origin = field(default_factory=Origin.here, compare=False)

    engine: str = "native"
    queues_now: Callable[[], Sequence[str]] | None = field(default=None, compare=False)
    recycles: bool = True
    stop_requested: Callable[[], bool] = field(default=lambda: False, compare=False)
    on_ready: Callable[[], None] = field(default=lambda: None, compare=False)
    on_buried: Callable[[Sequence[str]], None] = field(default=lambda _: None, compare=False)
    audience: Callable[[str], Audience] | None = field(default=None, compare=False)
    observe: TaskCounter | None = field(default=None, compare=False)
    on_beat: Callable[[Liveness], None] | None = field(default=None, compare=False)
    give_up: Callable[[], None] = field(default=lambda: os._exit(EXIT_RECYCLE), compare=False)
    leave_by: Callable[[], float] = field(default=lambda: math.inf, compare=False)
    supervisor: int = 0
    shard: int = 0
    on_stop_order: Callable[[], None] = field(default=lambda: None, compare=False)


class Worker:
    """Run tasks in one process, on one event loop, under one worker id at a time."""

    def __init__(self, client: Client, options: WorkerOptions, runner: Runner | None = None) -> None:
        self._client = client
        self._settings = client.settings
        self._options = options
        self._runner = runner or LocalRunner(
            client.settings, options.concurrency, options.modules, options.isolated, options.origin
        )
        self.running: dict[tuple[str, str], Attempt] = {}
        self._liveness = Liveness(attempts=self.running)
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()  # ends a pause of the claims
        self._leave_now = asyncio.Event()
        self._recycling = False
        self.ready = False  # whether it has started to claim
        self._follower = OrderFollower(self._suspend_claims, self._stop_by_order)
        self.budget = ShutdownBudget(self._settings.graceful_shutdown_timeout)

    # --- public control ------------------------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        return self._stop.is_set()

    @property
    def recycling(self) -> bool:
        """Return whether the worker is shutting down in order to start again. A later `drain` makes this false."""
        return self._recycling

    @property
    def worker_id(self) -> str:
        return self._liveness.worker_id

    @property
    def liveness(self) -> Liveness:
        return self._liveness

    @property
    def suspended(self) -> bool:
        """Return whether an operator ordered the worker to claim nothing for now."""
        return self._follower.orders.draining

    def drain(self) -> None:
        """Stop claiming, let tasks finish, then shut down for good, even if the worker was about to start again.

        Calling this twice changes nothing.
        """
        self._recycling = False
        self._finish()
        self._runner.drain()

    def leave_now(self) -> None:
        """Shut down without waiting for running tasks; they are still handed back."""
        self.drain()
        self.budget.end_grace()
        self._leave_now.set()

    def recycle(self, why: str) -> None:
        """Drain the worker, then start again in a fresh process."""
        if self._options.recycles and not self._stop.is_set():
            log.info("worker %s is recycled: %s", self.worker_id, why)
            self._recycling = True
            self._finish()

    def _finish(self) -> None:
        self.budget.begin()
        self._stop.set()
        self._changed.set()

    # --- work ----------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Work until told to stop. Return the exit code: clean, forced (tasks were handed back), or recycle."""
        self._loop = asyncio.get_running_loop()
        background.run_attempts_on(self._loop)
        self._liveness.loop_thread = threading.get_ident()
        install_log_fields()
        check_hook(self._settings)
        check_memory(self._options.max_rss_mb)
        folder_for(self._settings)  # an unusable checkpoint folder fails here, not when a task needs it
        if not await until_reachable(self._client.aopen, self._stop):
            return EXIT_CLEAN
        channel = LedgerChannel(self._client)
        store, ledger, options = self._client.store, self._client.ledger, self._options
        self.events = TaskEvents(store, ledger, self._settings.redact, options.audience, options.observe)
        await self._runner.start(channel, lambda: self._liveness.trusted_until, self.events)
        self._assemble(channel)
        self._tick()  # before the first heartbeat, whose thread watches the ticks
        if not await until_reachable(partial(asyncio.to_thread, self._heartbeats.join_namespace), self._stop):
            await self._runner.close()
            self.events.close()
            return EXIT_CLEAN
        phoenix = Phoenix(self._settings, store, ledger, self.on_swept, self._client.keyring)
        sweep = background.start(self._loop, phoenix.run()) if self._options.sweep else None
        queues, place = ",".join(self._queues()), place_of(self._settings)
        log.info("worker %s started: queues=%s concurrency=%d, %s", self.worker_id, queues, options.concurrency, place)
        named = options.modules or (options.engine,)
        beginning = background.start(self._loop, at_start(self._client, self._queues(), named, self._stop))
        self.ready = True
        self._options.on_ready()
        try:
            await self._work_until_stopped()
            return await self._leave()
        finally:
            beginning.cancel()
            phoenix.end()
            await self._runner.close()
            if sweep is not None:
                await self.budget.spend(sweep, RETIRE_S)
            self._heartbeats.end()
            self.events.close()

    def _assemble(self, channel: LedgerChannel) -> None:
        """Create the parts that need the event loop and the store."""
        client, options = self._client, self._options
        self.settler = Settler(client.store, client.ledger, self._settings.redact, self.events)
        self.orphans = OrphanedClaims(client.store, client.ledger, self.settler, self.running)
        self._heartbeats = HeartbeatThread(
            self._settings,
            client.scripts,
            self._liveness,
            self._about(),
            self._post,
            options.give_up,
            options.on_beat,
            options.leave_by,
            client.birth,
            self._report,
        )
        self.claims = Claims(
            client.store,
            client.ledger,
            self.settler,
            self._liveness,
            self.orphans,
            self._queues,
            self._heartbeats.poke,
            self._stop,
            self._changed,
        )
        self._attempts = Attempts(
            self.running, self.claims, channel, self._runner, self.settler, self._liveness, self._on_end
        )

    async def _work_until_stopped(self) -> None:
        """Claim and start tasks until told to stop, then wait a few seconds for the answer to a claim in flight.

        Tasks in such a late answer are handed back. If no answer arrives, they come back when the lease runs out.
        """
        work = background.start(self._loop, self._attempts.work())
        stopping = background.start(self._loop, self._stop.wait())
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not self.running:
            self.budget.end_grace()
        await self.budget.spend(work, CONFIRM_S)

    def _queues(self) -> Sequence[str]:
        """Return the queues to claim from, in this order."""
        return self._options.queues if self._options.queues_now is None else self._options.queues_now()

    def on_swept(self, outcomes: Sequence[tuple[str, str]]) -> None:
        """Report tasks of dead workers that a sweep, or a supervisor, has returned or ended: (id, new state)."""
        self.events.swept(outcomes)
        if dead := [task_id for task_id, state in outcomes if state == State.DEAD]:
            self._options.on_buried(dead)

    def _on_end(self) -> None:
        """Trigger a claim for the freed slot, or recycle the worker if it has run its maximum number of tasks."""
        self._changed.set()
        most, started = self._options.max_tasks, self._attempts.started
        if most is not None and started >= most:
            self.recycle(f"{started} tasks were run")

    # --- events of the heartbeat thread --------------------------------------------------------------------------

    def _post(self, event: HeartbeatEvent) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._on_event, event)

    def _on_event(self, event: HeartbeatEvent) -> None:
        match event:
            case BeatAnswered(worker_id, beat):
                self._runner.on_beat(beat)
                self._follower.conform(beat.orders)
                self.events.refresh()  # the log level may have changed
                for key in beat.asked:
                    if key in self.running and self.running[key].stop is None:
                        log.info("stopping task %s: its cancellation was requested", key[0])
                        stop(self.running[key], HandBack())
                if worker_id == self.worker_id:
                    self.orphans.compare(worker_id, beat.owned)
            case WorkerLost(worker_id, _, emptied):
                self._changed.set()
                for attempt in list(self.running.values()):
                    if attempt.lease.worker_id == worker_id:
                        attempt.ctx.lose()
                        stop(attempt, Gone(emptied))
            case AttemptOverdue(attempt, dead):
                attempt.ctx.lose()
                if dead is not None:
                    self.events.notify(dead)
                self._attempts.forget(attempt)
                self.recycle(f"task {attempt.ctx.task_id} did not end")
                self._runner.abandon(attempt)

    def _suspend_claims(self, suspended: bool) -> None:
        log.warning("worker %s: claims %s by an operator", self.worker_id, "suspended" if suspended else "resumed")
        self.claims.suspended = suspended
        self._changed.set()

    def _stop_by_order(self) -> None:
        log.warning("worker %s is stopping: an operator ordered it", self.worker_id)
        self.drain()
        self._options.on_stop_order()

    def _tick(self) -> None:
        self._liveness.turned = time.monotonic()
        self._loop.call_later(TICK_S, self._tick)
        if not self.draining and self._options.stop_requested():
            self.drain()
        self._runner.on_tick()
        self.events.refresh()
        self._changed.set()
        limit = self._options.max_rss_mb
        if limit is not None and resident_mb() > limit:
            self.recycle(f"its memory grew over {limit:g} MB")

    # --- shutdown ------------------------------------------------------------------------------------------------

    async def _leave(self) -> int:
        """Let tasks finish, stop and hand back the rest, and retire the worker. Return the exit code.

        Everything after the grace period shares one time budget (engines/shutdown.py).
        """
        budget, grace, n = self.budget, self._settings.graceful_shutdown_timeout, len(self.running)
        if n and not self._leave_now.is_set():
            log.info(
                "worker %s stops claiming and waits up to %g s for %d running tasks; Ctrl-C again hands them back",
                self.worker_id,
                grace,
                n,
            )
        await self._attempts.wait_until_empty(budget.grace_left(), self._leave_now)
        budget.end_grace()
        forced = bool(self.running)
        if forced:
            await self._hand_back()
        while self._recycling and not await self.settler.finish(BELL_S):  # `drain` ends this wait
            pass
        if not await self.settler.finish(max(0.0, budget.left(CONFIRM_S + RETIRE_S) - RETIRE_S)):
            log.warning("the store did not confirm all results; unconfirmed tasks return when the lease runs out")
        await budget.spend(self.events.finish(), HOOKS_S)
        if not await budget.spend(self._retire(), RETIRE_S):
            log.warning("worker %s could not retire in time, its lease will run out", self.worker_id)
        if self._recycling:
            return EXIT_RECYCLE
        return EXIT_FORCED if forced else EXIT_CLEAN

    async def _hand_back(self) -> None:
        """Warn the tasks that did not finish in time, stop them, and hand them back."""
        rest = list(self.running.values())
        log.warning("%d tasks did not finish in time and are handed back", len(rest))
        warnings = [background.start(self._loop, self._runner.warn(attempt)) for attempt in rest]
        await asyncio.wait(warnings, timeout=STOP_GRACE_S)
        for attempt in rest:
            stop(attempt, HandBack())
        await self._attempts.wait_until_empty(STOP_GRACE_S)
        self._attempts.hand_back_rest()

    async def _retire(self) -> None:
        self._heartbeats.end()
        try:
            held = await self._client.store.run(self._client.ledger.retire(self.worker_id))
        except RelierError as error:
            log.warning("worker %s could not retire, its lease will run out: %s", self.worker_id, error)
            return
        log.info("worker %s stopped%s", self.worker_id, f"; it still holds {held} tasks" if held else "")

    def _about(self) -> str:
        options, about = self._options, process_about(Role.WORKER, self._options.engine)
        more = {"queues": [*self._queues()], "concurrency": options.concurrency, "supervisor": options.supervisor}
        return json.dumps(about | more)

    def _report(self) -> str:
        """Return the worker's current figures for its next heartbeat. Called in the heartbeat thread."""
        age_ms, draining = 1000 * (time.monotonic() - self._liveness.turned), self.claims.suspended or self.draining
        now = {"running": len(self.running), "started": self._attempts.started, **self.settler.counts}
        return json.dumps(now | {"rss_mb": round(resident_mb()), "loop_age_ms": round(age_ms), "draining": draining})
