"""Run attempts in isolated processes: tasks that ask for it, and suspects, whose workers have died twice.

Each process runs one attempt at a time, so its death can only be the fault of that attempt. The death of a worker that
ran several attempts proves nothing about any of them. Between attempts a process is kept for the next one. The parent
alone reports outcomes to the ledger. Parent and child exchange messages over a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from relier import background
from relier.errors import WorkerInitializationError
from relier.failure import how_it_ended
from relier.run.application.lifespan import LEAVE_S
from relier.run.attempt import Attempt
from relier.run.isolated.messages import (
    ChildReport,
    ParentMessage,
    Ready,
    Run,
    Stop,
    Trust,
    Waited,
    Warn,
    outcome_of,
    pack,
    unpack,
)
from relier.run.isolated.origin import Origin
from relier.run.outcome import CROWDED_MS, Died, Outcome
from relier.settings import Settings, environment

log = logging.getLogger("relier.worker")

KILL_AFTER_S = 2.0  # how long a stopped child has to clean up
START_S = 120.0  # a process that needs longer to import its modules is considered hung
CROWDED_MOST_MS, GROW_S = 30_000, 1.0  # the longest delay of a refused task; how often the delay grows
LAST_WORDS_S = 0.5  # the most time between the end of a child and the end of its connection


class IsolatedProcess:
    """Control one isolated process."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._ended = background.start(asyncio.get_running_loop(), process.wait())
        self._reader = reader
        self._writer = writer
        self._killer: asyncio.TimerHandle | None = None
        self._has_lifespan = False

    @classmethod
    async def start(cls, modules: tuple[str, ...], settings: Settings, origin: Origin | None = None) -> IsolatedProcess:
        """Start a process. Return once the process has imported the tasks and can be given its first attempt."""
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        with theirs:
            level = logging.getLogger().level  # whoever set it: --log-level, the application or Celery
            program = [sys.executable, "-m", "relier.run.isolated.child", str(theirs.fileno())]
            command = [*program, str(level), settings.log_format, str(settings.shard or 0), *modules]
            origin = origin or Origin.here()
            env = {**origin.environment, **environment(settings)}
            try:
                process = await asyncio.create_subprocess_exec(
                    *command, pass_fds=[theirs.fileno()], cwd=origin.folder, env=env
                )
            except BaseException:
                writer.close()
                raise
        child = cls(process, reader, writer)
        try:
            await child._become_ready()
        except BaseException:
            await child.end()
            raise
        return child

    async def _become_ready(self) -> None:
        try:
            async with asyncio.timeout(START_S):
                ready = await self._next_message(Ready)
        except TimeoutError:
            raise WorkerInitializationError(
                f"an isolated process did not import its modules within {START_S:g} s; a module may be waiting for an "
                f"unreachable service; connect when the service is used, not on import"
            ) from None
        if ready is None:
            raise WorkerInitializationError(
                f"a process for isolated tasks ended before it was ready: {await self._cause()}; see its output above, "
                f"and try to import the worker's modules by hand"
            )
        self._has_lifespan = ready.has_lifespan

    @property
    def usable(self) -> bool:
        return self._process.returncode is None and self._killer is None

    async def run(self, attempt: Attempt, trusted_until: float) -> Outcome:
        if attempt.stop is not None:
            return attempt.stop
        attempt.stopper = partial(self.stop, attempt)
        self.send(Run(attempt.claimed, trusted_until))
        report: ChildReport | None = await self._report(attempt)
        attempt.stopper = None
        if report is None:
            cause = await self._cause()
            return attempt.stop if attempt.stop is not None else Died(cause)
        if self._killer is not None:
            self._process.kill()
        return outcome_of(attempt, report)

    async def _report(self, attempt: Attempt) -> Any:
        while isinstance(message := await self._next_message(ChildReport | Waited), Waited):
            attempt.ctx.waits.mirror(message.past, message.since)
        return message

    async def _next_message(self, kind: Any) -> Any:
        """Return the child's next message, or None if there will be no more.

        Messages end when the child process exits, even if the connection stays open: processes that a task started may
        hold it open forever.
        """
        reading = background.start(asyncio.get_running_loop(), unpack(self._reader, kind))
        try:
            await asyncio.wait({reading, self._ended}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({reading}, timeout=LAST_WORDS_S)
            return reading.result() if reading.done() else None
        finally:
            reading.cancel()

    async def _cause(self) -> str:
        """Return how the child ended. Kill a child that closed its connection but still runs: it is useless."""
        await asyncio.wait({self._ended}, timeout=LAST_WORDS_S)
        self._kill()
        await asyncio.wait({self._ended})
        return how_it_ended(self._ended.result())

    def send(self, order: ParentMessage) -> None:
        with contextlib.suppress(ConnectionError):
            self._writer.write(pack(order))

    def stop(self, attempt: Attempt) -> None:
        """Cancel the child's attempt. A child that does not react in time is killed."""
        if self._killer is None and self._process.returncode is None:
            self.send(Stop(attempt.ctx.lost))
            self._killer = asyncio.get_running_loop().call_later(KILL_AFTER_S, self._kill)

    async def end(self, *, idle: bool = False) -> None:
        """End the process. An idle one with a lifespan gets the time to leave it."""
        if self._killer is not None:
            self._killer.cancel()
        self._writer.close()
        if idle and self._has_lifespan:
            await asyncio.wait({self._ended}, timeout=LEAVE_S)
        if self._process.returncode is None:
            self._kill()
        await asyncio.wait({self._ended})

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


class IsolationBackoff:
    """Compute the delay of tasks that found no free process.

    If a large backlog came back every few seconds, workers would claim it and put it back over and over, at the expense
    of all other tasks. So the delay grows while no process becomes idle.
    """

    def __init__(self) -> None:
        self.idle()

    def idle(self) -> None:
        """Reset the delay, because a process is idle and waits for work."""
        self.most_ms = CROWDED_MS[1]
        self._grows_at = time.monotonic() + GROW_S

    def refused(self) -> None:
        if time.monotonic() >= self._grows_at:
            self.most_ms = min(CROWDED_MOST_MS, round(1.5 * self.most_ms))
            self._grows_at = time.monotonic() + GROW_S


class IsolatedProcesses:
    """Manage the isolated processes of one worker: a limited number, each reused while it is usable."""

    def __init__(self, modules: tuple[str, ...], most: int, settings: Settings, origin: Origin | None = None) -> None:
        self._modules = modules
        self._settings = settings
        self._origin = origin or Origin.here()
        self._most = most
        self._slots = asyncio.Semaphore(most)
        self._admitted = 0
        self.backoff = IsolationBackoff()
        self._idle: list[IsolatedProcess] = []
        self._busy: dict[tuple[str, str], IsolatedProcess] = {}

    def admit(self) -> bool:
        """Admit one more attempt. Return False if the number of waiting attempts has reached the number of processes.

        Another worker can run a refused task sooner.
        """
        if self._admitted >= 2 * self._most:
            if len(self._busy) == self._most:  # all processes are running
                self.backoff.refused()
            return False
        self._admitted += 1
        return True

    @contextlib.asynccontextmanager
    async def process_for(self, attempt: Attempt) -> AsyncIterator[IsolatedProcess]:
        """Provide a ready process for an admitted attempt. The wait for it does not count towards the hard timeout."""
        try:
            await self._slots.acquire()
        except BaseException:
            self._admitted -= 1
            raise
        child = None
        try:
            child = self._busy[attempt.key] = self._take() or await self._start()
            attempt.stopper = None  # up to here the engine could cancel the asyncio task
            yield child
        finally:
            self._slots.release()
            self._admitted -= 1
            if self._admitted < self._most:
                self.backoff.idle()
            self._busy.pop(attempt.key, None)
            if child is not None and child.usable:
                self._idle.append(child)
            elif child is not None:
                await child.end()

    def trust(self, until: float) -> None:
        """Inform the children that the store answered a heartbeat, for `ctx.guard()`."""
        for child in self._busy.values():
            child.send(Trust(until))

    async def warn(self, attempt: Attempt) -> None:
        """Ask the attempt's child to call the soft-timeout hook, once."""
        child = self._busy.get(attempt.key)
        if child is not None and not attempt.warned:
            attempt.warned = True
            child.send(Warn())

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        ends = [*(child.end(idle=True) for child in idle), *(child.end() for child in self._busy.values())]
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(background.start(loop, end) for end in ends))

    async def _start(self) -> IsolatedProcess:
        return await IsolatedProcess.start(self._modules, self._settings, self._origin)

    def _take(self) -> IsolatedProcess | None:
        while self._idle:
            child = self._idle.pop()
            if child.usable:
                return child
        return None
