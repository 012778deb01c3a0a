"""Run attempts in the worker's own process: on its event loop, in its threads, or in its isolated processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from relier import background
from relier.engines.task_events import TaskEvents
from relier.errors import WorkerInitializationError
from relier.ledger.records import Beat
from relier.run.application.lifespan import RunningLifespan
from relier.run.attempt import Attempt
from relier.run.channel import LedgerChannel
from relier.run.execute import arm_timeouts, execute, run_soft_hook
from relier.run.isolated.origin import Origin
from relier.run.isolated.processes import IsolatedProcesses
from relier.run.outcome import Crowded, Outcome, PutBack
from relier.run.threads import Threads
from relier.settings import Settings

log = logging.getLogger("relier.worker")


class LocalRunner:
    """Run up to `concurrency` attempts at once. `modules` are the modules that isolated processes import.

    `threads` is the pool in which the bodies of `def` tasks run.
    """

    def __init__(
        self,
        settings: Settings,
        concurrency: int,
        modules: tuple[str, ...],
        isolated: int,
        origin: Origin,
        threads: Threads | None = None,
    ) -> None:
        self._concurrency = concurrency
        self._threads = threads or Threads()
        self._lifespan = RunningLifespan()
        self._isolated = IsolatedProcesses(modules, isolated, settings, origin)

    async def start(self, channel: LedgerChannel, trusted_until: Callable[[], float], events: TaskEvents) -> None:
        self._channel = channel
        self._events = events
        self._trusted_until = trusted_until
        self._loop = asyncio.get_running_loop()
        channel.state = await self._lifespan.enter(channel.settings)

    def room(self, running: int) -> int:
        return self._concurrency - running

    def refusal(self, attempt: Attempt) -> Outcome | None:
        if attempt.isolated and not self._isolated.admit():
            return Crowded(self._isolated.backoff.most_ms)
        return None

    async def run(self, attempt: Attempt) -> Outcome:
        if attempt.isolated:
            return await self._run_isolated(attempt)
        self._begin(attempt)
        return await execute(attempt, self._threads, self._channel)

    def _begin(self, attempt: Attempt) -> None:
        arm_timeouts(attempt, self._loop, self._pass_soft_timeout)
        if self._events.wants_started or attempt.task.options.on_start is not None:
            self._events.started(attempt)

    async def _run_isolated(self, attempt: Attempt) -> Outcome:
        if attempt.asyncio_task is not None:
            attempt.stopper = attempt.asyncio_task.cancel  # while the attempt waits for a process
        try:
            async with self._isolated.process_for(attempt) as process:
                self._begin(attempt)
                return await process.run(attempt, self._trusted_until())
        except (WorkerInitializationError, OSError) as error:
            return PutBack(error)
        except asyncio.CancelledError:
            if attempt.stop is None:
                raise
            return attempt.stop

    def _pass_soft_timeout(self, attempt: Attempt) -> None:
        log.info("task %s passed its soft timeout", attempt.ctx.task_id)
        attempt.timers.append(background.start(self._loop, self.warn(attempt)))

    async def warn(self, attempt: Attempt) -> None:
        if attempt.isolated:
            await self._isolated.warn(attempt)
        else:
            await run_soft_hook(attempt, self._channel)

    def on_beat(self, beat: Beat) -> None:  # noqa: ARG002 - the contract of a runner
        self._isolated.trust(self._trusted_until())

    def on_tick(self) -> None:
        """Do nothing: threads and processes report by themselves."""

    def drain(self) -> None:
        """Do nothing: an attempt begins as soon as it is accepted."""

    def abandon(self, attempt: Attempt) -> None:
        """Do nothing: the worker starts again in a fresh process."""

    async def close(self) -> None:
        await self._isolated.close()
        await self._lifespan.leave()
        self._threads.close()
