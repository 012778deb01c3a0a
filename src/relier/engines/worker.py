"""Run the native worker: an asyncio process that claims tasks for its free slots, runs them and commits in batches.

_pump       claims and starts tasks while slots are free and the queues have work; otherwise waits for the doorbell
_live       runs one attempt: arms its timeouts, executes it, settles it
Heart       sends heartbeats from its own thread, reports a blocked loop, buries tasks that will not end
Phoenix     sweeps, as every worker does
drain       stops claiming, lets tasks finish, hands back the rest
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from relier import background
from relier.engines.claimed_steps import whole
from relier.engines.heartbeat import Heard, HeartbeatThread, Liveness, Lost, News, Overdue
from relier.engines.orphaned_claims import OrphanedClaims
from relier.engines.settler import Settler
from relier.engines.shutdown import ShutdownBudget
from relier.errors import ConfigurationError, RelierError, StoreError, WorkerInitializationError
from relier.ledger.ledger import CLAIM_BYTES
from relier.ledger.records import Claim, Claimed, ClaimStatus
from relier.redact import check_hook
from relier.rescue.phoenix import Phoenix
from relier.run.attempt import Attempt, open_attempt
from relier.run.channel import LedgerChannel
from relier.run.checkpoint_files import folder_for
from relier.run.execute import HardTimeout, execute, run_soft_hook, stop
from relier.run.isolated.processes import IsolatedProcesses
from relier.run.origin import Origin
from relier.run.outcome import Crowded, Failed, Gone, HandBack, Outcome, PutBack
from relier.run.threads import Threads
from relier.submit.client import Client, place_of
from relier.version import __version__

log = logging.getLogger("relier.worker")

CLAIM_AT_ONCE = 100
BELL_S = 1.0
FIRST_PAUSE_S = 0.05
TURN_S = 0.25  # how often the loop records that it is still running
STOP_GRACE_S = 1.0  # how long a stopped task has to clean up when its worker shuts down
CONFIRM_S = 5.0  # how long a worker that shuts down waits for a claim in flight, and for results to be confirmed
RETIRE_S = 1.0  # how long a worker that shuts down reserves for retiring, and then for its last sweep

EXIT_CLEAN, EXIT_FORCED, EXIT_RECYCLE = 0, 3, 4


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Hold the options of one worker. `modules` are the modules that isolated processes import."""

    queues: tuple[str, ...] = ("default",)
    concurrency: int = 100
    modules: tuple[str, ...] = ()
    max_tasks: int | None = None
    max_rss_mb: float | None = None
    isolated: int = 4
    sweep: bool = True
    origin: Origin = field(default_factory=Origin.here, compare=False)
    on_beat: Callable[[Liveness], None] | None = field(default=None, compare=False)
    give_up: Callable[[], None] = field(default=lambda: os._exit(EXIT_RECYCLE), compare=False)
    leave_by: Callable[[], float] = field(default=lambda: math.inf, compare=False)  # the deadline a signal set


class Worker:
    """Run tasks in one process, on one event loop, under one worker id (boot) at a time."""

    engine = "native"

    def __init__(self, client: Client, options: WorkerOptions) -> None:
        self._client = client
        self._settings = client.settings
        self._store = client.store
        self._ledger = client.ledger
        self._options = options
        self._attempts: dict[tuple[str, str], Attempt] = {}
        self._pulse = Liveness(attempts=self._attempts)
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._leave_now = asyncio.Event()
        self._emptied = asyncio.Event()
        self._recycling = False
        self.budget = ShutdownBudget(self._settings.graceful_shutdown_timeout)
        self._seq = 0
        self._started = 0

    # --- public control ------------------------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        return self._stop.is_set()

    @property
    def recycling(self) -> bool:
        """Return whether the worker is shutting down in order to start again. A later `drain` makes this false."""
        return self._recycling

    def drain(self) -> None:
        """Stop claiming, let tasks finish, then shut down for good, even if the worker was about to start again.

        Calling this twice changes nothing.
        """
        self._recycling = False
        self._finish()

    def _finish(self) -> None:
        self.budget.begin()
        self._stop.set()
        self._wake.set()

    def leave_now(self) -> None:
        """Shut down without waiting for running tasks; they are still handed back."""
        self.drain()
        self.budget.end_grace()
        self._leave_now.set()

    @property
    def boot(self) -> str:
        return self._pulse.boot

    async def run(self) -> int:
        """Work until told to stop. Return the exit code: clean, forced (tasks were handed back), or recycle."""
        loop = self._loop = asyncio.get_running_loop()
        background.runs_bodies(loop)
        self._pulse.loop_thread = threading.get_ident()
        check_hook(self._settings)
        self._check_memory()
        folder_for(self._settings)  # an unusable checkpoint folder fails here, not when a task needs it
        await self._client.aopen()
        self._settler = Settler(self._store, self._ledger, self._settings.redact)
        self._strangers = OrphanedClaims(self._store, self._ledger, self._settler, self._attempts)
        self._threads = Threads()
        self._channel = LedgerChannel(self._client)
        options = self._options
        self._isolates = IsolatedProcesses(options.modules, options.isolated, self._settings, options.origin)
        self._heart = HeartbeatThread(
            self._settings,
            self._client.scripts,
            self._pulse,
            self._about(),
            partial(self._post, loop),
            self._options.give_up,
            self._options.on_beat,
            self._options.leave_by,
            self._client.birth,
        )
        await asyncio.to_thread(self._heart.join_namespace)
        self._turn()
        phoenix = Phoenix(self._settings, self._store, self._ledger, self._mourn)
        sweep = background.start(loop, phoenix.run()) if self._options.sweep else None
        queues, where = ", ".join(self._queues()), place_of(self._settings)
        log.info("worker %s takes %s, %d at once, of %s", self.boot, queues, self._options.concurrency, where)
        try:
            await self._pump_until_stopped()
            return await self._leave()
        finally:
            phoenix.end()
            if sweep is not None:
                await self.budget.spend(sweep, RETIRE_S)
            self._heart.end()
            await self._isolates.close()
            self._threads.close()

    # --- claim ---------------------------------------------------------------------------------------------------

    async def _pump_until_stopped(self) -> None:
        """Claim tasks until told to stop, then give a claim in flight a few seconds to be answered.

        Tasks of such a late answer are handed back. If no answer arrives, they come back when the lease runs out.
        """
        pump = background.start(self._loop, self._pump())
        stopping = background.start(self._loop, self._stop.wait())
        await asyncio.wait({pump, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not self._attempts:
            self.budget.end_grace()
        await self.budget.spend(pump, CONFIRM_S)

    async def _pump(self) -> None:
        rung = False
        while not self._stop.is_set():
            want = min(self._room(), CLAIM_AT_ONCE)
            if want <= 0 or self._pulse.suspect:
                await self._nap(BELL_S if want > 0 else None)
                continue
            claim = await self._claim(want, rung)
            rung = False
            async for claimed in whole(claim.tasks, self._store, self._ledger, self._settler.release):
                self._start(claimed, claim.now_ms)
            if len(claim.tasks) < want and sum(len(task.payload) for task in claim.tasks) < CLAIM_BYTES // 2:
                rung = await self._bell()

    def _room(self) -> int:
        """Return how many more attempts this worker can take now."""
        return self._options.concurrency - len(self._attempts)

    def _queues(self) -> Sequence[str]:
        """Return the queues to claim from, in this order."""
        return self._options.queues

    async def _claim(self, want: int, rung: bool) -> Claim:
        """Send one claim, and repeat it under the same number until the store answers: a lost answer loses no task."""
        boot, self._seq = self._pulse.boot, self._seq + 1
        call = self._ledger.claim(boot, self._seq, self._queues(), want, rung=rung)
        pause = FIRST_PAUSE_S
        while True:
            self._pulse.polled_ms = time.time_ns() // 1_000_000
            try:
                claim = await self._store.run(call)
                break
            except StoreError as error:
                if pause == FIRST_PAUSE_S:  # log once per outage, however long it lasts
                    log.warning("no tasks can be claimed: %s", error)
                await asyncio.sleep(pause)
                pause = min(BELL_S, 2 * pause)
        self._strangers.answered += 1
        if claim.status is ClaimStatus.GONE and boot == self._pulse.boot:
            self._heart.poke()
            await self._nap(BELL_S)
        return claim

    async def _bell(self) -> bool:
        """Wait until a queue's doorbell rings, a second has passed, or the worker is told to stop.

        Return whether a doorbell rang.
        """
        keys = [self._ledger.bell(queue) for queue in self._queues()]
        bell = background.start(self._loop, self._store.wait_for_bell(keys, BELL_S))
        stopping = background.start(self._loop, self._stop.wait())
        try:
            await asyncio.wait({bell, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return bell.done() and not bell.cancelled() and bell.result() is not None
        except RelierError:
            await self._nap(BELL_S / 4)
            return False
        finally:
            bell.cancel()
            stopping.cancel()

    async def _nap(self, seconds: float | None) -> None:
        """Wait until something changes or the time is up."""
        self._wake.clear()
        if self._stop.is_set():
            return
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    # --- one attempt ---------------------------------------------------------------------------------------------

    def _start(self, claimed: Claimed, now_ms: int) -> None:
        if self._stop.is_set():  # the answer to a claim that was in flight when the worker was told to stop
            self._settler.release([claimed.lease])
            return
        if claimed.lease.owner != self._pulse.boot:  # lost while the answer was in flight: another worker has it
            return
        attempt = open_attempt(claimed, self._channel, partial(self._trusted_until, claimed.lease.owner))
        if not isinstance(attempt, Attempt):
            self._settler.settle(claimed, attempt, None, now_ms)
            return
        if self._isolates_it(attempt) and not self._isolates.admit():
            self._settler.settle(claimed, Crowded(self._isolates.crowd.most_ms), None, now_ms)
            return
        if claimed.alone:
            log.warning("task %s (%s) is a suspect and runs alone", claimed.record.id, claimed.record.name)
        self._attempts[attempt.key] = attempt
        self._started += 1
        attempt.asyncio_task = background.start_body(self._loop, self._live(attempt))

    def _isolates_it(self, attempt: Attempt) -> bool:
        """Return whether this worker must run the attempt in an isolated process."""
        return attempt.isolated

    def _trusted_until(self, owner: str) -> float:
        return self._pulse.trusted_until if self._pulse.boot == owner else 0.0

    async def _live(self, attempt: Attempt) -> None:
        """Run one attempt from start to end: arm its timeouts, execute it, settle it."""
        try:
            outcome = await (self._run_isolated(attempt) if self._isolates_it(attempt) else self._run_here(attempt))
        except Exception as error:  # our error, not the task's: the attempt must be settled all the same
            log.exception("task %s could not be run here", attempt.ctx.task_id)
            outcome = PutBack(error)
        attempt.stopper = None
        for timer in attempt.timers:
            timer.cancel()
        if self._attempts.pop(attempt.key, None) is None:
            return  # the attempt has already been buried or handed back
        self._settle(attempt, outcome)
        self._wake.set()
        if not self._attempts:
            self._emptied.set()
        if self._options.max_tasks is not None and self._started >= self._options.max_tasks:
            self.recycle(f"{self._started} tasks were run")

    def _settle(self, attempt: Attempt, outcome: Outcome) -> None:
        try:
            self._settler.settle(attempt.claimed, outcome, attempt.task.options.retries)
        except Exception as error:
            log.exception("what came of task %s could not be told; it is buried", attempt.ctx.task_id)
            self._settler.settle(attempt.claimed, Failed(error, final=True))

    async def _run_here(self, attempt: Attempt) -> Outcome:
        if attempt.task.is_async and attempt.asyncio_task is not None:
            attempt.stopper = attempt.asyncio_task.cancel
        self._arm(attempt)
        return await execute(attempt, self._threads, self._channel)

    async def _run_isolated(self, attempt: Attempt) -> Outcome:
        if attempt.asyncio_task is not None:
            attempt.stopper = attempt.asyncio_task.cancel  # while the attempt waits for a process
        try:
            async with self._isolates.process_for(attempt) as process:
                self._arm(attempt)
                return await process.run(attempt, self._pulse.trusted_until)
        except (WorkerInitializationError, OSError) as error:
            return PutBack(error)
        except asyncio.CancelledError:
            if attempt.stop is None:
                raise
            return attempt.stop

    def _arm(self, attempt: Attempt) -> None:
        options, attempt.began = attempt.task.options, time.monotonic()
        if options.soft_timeout is not None:
            attempt.timers.append(self._loop.call_later(options.soft_timeout, self._soft, attempt))
        if options.hard_timeout is not None:
            attempt.timers.append(HardTimeout(self._loop, attempt, options.hard_timeout))

    def _soft(self, attempt: Attempt) -> None:
        log.info("task %s passed its soft timeout", attempt.ctx.task_id)
        attempt.timers.append(background.start(self._loop, self._warn(attempt)))

    async def _warn(self, attempt: Attempt) -> None:
        if attempt.isolated:
            await self._isolates.warn(attempt)
        else:
            await run_soft_hook(attempt)

    # --- messages from the heartbeat thread ----------------------------------------------------------------------

    def _post(self, loop: asyncio.AbstractEventLoop, news: News) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self._hear, news)

    def _hear(self, news: News) -> None:
        match news:
            case Heard(boot, beat):
                self._isolates.trust(self._pulse.trusted_until)
                for key in beat.asked:
                    if key in self._attempts and self._attempts[key].stop is None:
                        log.info("task %s is cancelled: a person asked for it", key[0])
                        stop(self._attempts[key], HandBack())
                if boot == self._pulse.boot:
                    self._strangers.compare(boot, beat.owned)
            case Lost(boot, _, emptied):
                self._wake.set()
                for attempt in list(self._attempts.values()):
                    if attempt.lease.owner == boot:
                        attempt.ctx.lose()
                        stop(attempt, Gone(emptied))
            case Overdue(attempt):
                attempt.ctx.lose()
                self._attempts.pop(attempt.key, None)
                if not self._attempts:
                    self._emptied.set()
                self.recycle(f"task {attempt.ctx.task_id} would not end")

    def _mourn(self, ids: Sequence[str]) -> None:
        """Do nothing. Called with the ids of tasks that the sweep has buried; engines that need them override this."""

    def _turn(self) -> None:
        self._pulse.turned = time.monotonic()
        self._loop.call_later(TURN_S, self._turn)
        limit = self._options.max_rss_mb
        if limit is not None and resident_mb() > limit:
            self.recycle(f"its memory grew over {limit:g} MB")

    def _check_memory(self) -> None:
        limit, now = self._options.max_rss_mb, resident_mb()
        if limit is not None and now > limit:
            raise WorkerInitializationError(
                f"--max-rss-mb {limit:g} is less than this worker holds before its first task ({now:.0f} MB): it would "
                f"start over for ever; allow it more"
            )

    def recycle(self, why: str) -> None:
        """Drain the worker, then start again in a fresh process."""
        if not self._stop.is_set():
            log.info("worker %s is recycled: %s", self.boot, why)
            self._recycling = True
            self._finish()

    # --- shutdown ------------------------------------------------------------------------------------------------

    async def _leave(self) -> int:
        """Let tasks finish, warn and stop the rest, hand them back, and retire the worker. Return the exit code.

        Everything after the grace period shares one time budget (engines/shutdown.py).
        """
        budget, grace, n = self.budget, self._settings.graceful_shutdown_timeout, len(self._attempts)
        if n and not self._leave_now.is_set():
            again = "Ctrl-C again hands them back"
            log.info("worker %s stops claiming; it waits up to %g s for what runs (%d); %s", self.boot, grace, n, again)
        await self._wait_until_empty(budget.grace_left(), self._leave_now)
        budget.end_grace()
        rest = list(self._attempts.values())
        if rest:
            log.warning("what did not finish in time is handed back (%d)", len(rest))
            warnings = [background.start(self._loop, self._warn(attempt)) for attempt in rest]
            await asyncio.wait(warnings, timeout=STOP_GRACE_S)
            for attempt in rest:
                stop(attempt, HandBack())
            await self._wait_until_empty(STOP_GRACE_S)
            for attempt in list(self._attempts.values()):
                attempt.ctx.lose()
                del self._attempts[attempt.key]
                self._settler.settle(attempt.claimed, HandBack())
        while self._recycling and not await self._settler.finish(BELL_S):  # `drain` ends this wait
            pass
        if not await self._settler.finish(max(0.0, budget.left(CONFIRM_S + RETIRE_S) - RETIRE_S)):
            log.warning("the store did not confirm everything; what is open comes back when the lease runs out")
        if not await budget.spend(self._retire(), RETIRE_S):
            log.warning("worker %s could not retire in time, its lease will run out", self.boot)
        if self._recycling:
            return EXIT_RECYCLE
        return EXIT_FORCED if rest else EXIT_CLEAN

    async def _wait_until_empty(self, seconds: float, unless: asyncio.Event | None = None) -> None:
        self._emptied.clear()
        if not self._attempts or (unless is not None and unless.is_set()):
            return
        waits = [background.start(self._loop, event.wait()) for event in (self._emptied, unless) if event is not None]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _retire(self) -> None:
        self._heart.end()
        try:
            held = await self._store.run(self._ledger.retire(self.boot))
        except RelierError as error:
            log.warning("worker %s could not retire, its lease will run out: %s", self.boot, error)
            return
        log.info("worker %s leaves%s", self.boot, f"; it still holds some tasks ({held})" if held else "")

    def _about(self) -> str:
        about: dict[str, Any] = {
            "host": platform.node(),
            "pid": os.getpid(),
            "engine": self.engine,
            "queues": tuple(self._queues()),
            "concurrency": self._options.concurrency,
            "version": __version__,
        }
        return json.dumps(about)


def resident_mb() -> float:
    """Return this process's resident memory in MB (Linux), or 0 on other systems."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return 0.0


def every_queue(lists: Sequence[str], exact: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the queue names in order, without duplicates: `lists` such as `a,b` are split, `exact` names are not."""
    taken = [[name.strip() for name in text.split(",") if name.strip()] for text in lists]
    if not all([*taken, *exact]):
        raise ConfigurationError("a queue was given without a name; name it, or leave the option out for `default`")
    return tuple(dict.fromkeys([*(name for names in taken for name in names), *exact])) or ("default",)
