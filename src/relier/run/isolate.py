"""Attempts in processes of their own: those that ask for it, and suspects, whose company has died around them twice.

Each process runs one attempt at a time, so its death convicts exactly that one, and the death of a worker that had
several convicts none; between attempts it is kept for the next. The parent alone speaks to the ledger. Parent and child
exchange messages over a socket: a length, then msgpack.
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

import msgspec

from relier import background
from relier.errors import RelierError, WorkerInitializationError
from relier.failure import Failure, how_it_ended
from relier.ledger.records import Claimed
from relier.run.attempt import Attempt
from relier.run.origin import Origin
from relier.run.outcome import CROWDED_MS, Died, Done, Failed, HandBack, Outcome, PutBack
from relier.settings import Settings, environment

log = logging.getLogger("relier.worker")

KILL_AFTER_S = 2.0  # a stopped child has this long to clean up
START_S = 120.0  # a process that has not imported its modules by then hangs
CROWDED_MOST_MS, GROW_S = 30_000, 1.0  # how long a refused task stays away at the most; how often that grows
LAST_WORDS_S = 0.5  # how long the end of a child and that of its connection may lie apart


class Order(msgspec.Struct, tag_field="do", tag=str.lower):
    """What the parent says."""


class Run(Order):
    claimed: Claimed
    trusted_until: float  # monotonic: one clock for all processes of a machine


class Trust(Order):
    """The worker's beat was answered."""

    until: float


class Warn(Order):
    """Call the soft-timeout hook."""


class Stop(Order):
    """Cancel what runs. `lost`: because another attempt has the task."""

    lost: bool = False


class Word(msgspec.Struct, tag_field="say", tag=str.lower):
    """What the child says of an attempt."""


class Waited(Word):
    """How long the store kept the attempt waiting, and since when it does so now (0: it does not)."""

    past: float
    since: float


class Report(Word):
    """What came of the attempt: its result, or its failure. `final`: trying again cannot help; `retryable`:
    whether its task's retries cover it; `putback`: it does not know the task; `handback`: it stopped without an
    outcome."""

    result: bytes | None = None
    failure: Failure | None = None
    final: bool = False
    retryable: bool | None = None
    putback: bool = False
    handback: bool = False


class Ready(msgspec.Struct):
    """The first thing a child says: its modules are imported."""


class ChildError(RelierError):
    """A failure inside an isolated process whose class is not known here."""


def pack(message: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "big") + body


async def unpack(reader: asyncio.StreamReader, kind: Any) -> Any:
    """The next message; None at the end of the connection."""
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        return msgspec.msgpack.decode(await reader.readexactly(size), type=kind)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class Child:
    """One isolated process."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._ended = background.start(asyncio.get_running_loop(), process.wait())
        self._reader = reader
        self._writer = writer
        self._killer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, modules: tuple[str, ...], settings: Settings, origin: Origin | None = None) -> Child:
        """A process that has imported the tasks and waits for its first order."""
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        with theirs:
            level = logging.getLogger().level  # of --log-level
            command = [sys.executable, "-m", "relier.run.isolated", str(theirs.fileno()), str(level), *modules]
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
                ready = await self._hear(Ready)
        except TimeoutError:
            raise WorkerInitializationError(
                f"an isolated process did not import its modules within {START_S:g} s; does one of them wait for "
                f"something that is away? Connect where it is used, not where it is imported"
            ) from None
        if ready is None:
            raise WorkerInitializationError(f"an isolated process could not start: {await self._cause()}")

    @property
    def usable(self) -> bool:
        return self._process.returncode is None and self._killer is None

    async def run(self, attempt: Attempt, trusted_until: float) -> Outcome:
        if attempt.stop is not None:
            return attempt.stop
        attempt.stopper = partial(self.stop, attempt)
        self.say(Run(attempt.claimed, trusted_until))
        report: Report | None = await self._report(attempt)
        attempt.stopper = None
        if report is None:
            cause = await self._cause()
            return attempt.stop if attempt.stop is not None else Died(cause)
        if self._killer is not None:
            self._process.kill()
        return outcome_of(attempt, report)

    async def _report(self, attempt: Attempt) -> Any:
        while isinstance(word := await self._hear(Report | Waited), Waited):
            attempt.ctx.waits.mirror(word.past, word.since)
        return word

    async def _hear(self, kind: Any) -> Any:
        """What it says next; None: nothing more. Its end counts too: processes a task started may hold the connection
        open for as long as they like."""
        hearing = background.start(asyncio.get_running_loop(), unpack(self._reader, kind))
        try:
            await asyncio.wait({hearing, self._ended}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({hearing}, timeout=LAST_WORDS_S)
            return hearing.result() if hearing.done() else None
        finally:
            hearing.cancel()

    async def _cause(self) -> str:
        """How it ended. One that has hung up and lives on is of no use to anybody."""
        await asyncio.wait({self._ended}, timeout=LAST_WORDS_S)
        self._kill()
        await asyncio.wait({self._ended})
        return how_it_ended(self._ended.result())

    def say(self, order: Order) -> None:
        with contextlib.suppress(ConnectionError):
            self._writer.write(pack(order))

    def stop(self, attempt: Attempt) -> None:
        """Cancel what it runs; a child that does not listen is killed."""
        if self._killer is None and self._process.returncode is None:
            self.say(Stop(attempt.ctx.lost))
            self._killer = asyncio.get_running_loop().call_later(KILL_AFTER_S, self._kill)

    async def end(self) -> None:
        if self._killer is not None:
            self._killer.cancel()
        self._writer.close()
        if self._process.returncode is None:
            self._kill()
        await asyncio.wait({self._ended})

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


class Crowd:
    """How long those stay away that found no room. A backlog that came back every few seconds would be claimed and put
    back in circles, at the cost of everybody else. So while no process is ever idle they come back later and later."""

    def __init__(self) -> None:
        self.idle()

    def idle(self) -> None:
        """A process waits for work: what is away would only be missed."""
        self.most_ms = CROWDED_MS[1]
        self._grows_at = time.monotonic() + GROW_S

    def refused(self) -> None:
        if time.monotonic() >= self._grows_at:
            self.most_ms = min(CROWDED_MOST_MS, round(1.5 * self.most_ms))
            self._grows_at = time.monotonic() + GROW_S


class Isolates:
    """The isolated processes of one worker: a few at a time, each used again while it is sound."""

    def __init__(self, modules: tuple[str, ...], most: int, settings: Settings, origin: Origin | None = None) -> None:
        self._modules = modules
        self._settings = settings
        self._origin = origin or Origin.here()
        self._most = most
        self._slots = asyncio.Semaphore(most)
        self._admitted = 0
        self.crowd = Crowd()
        self._idle: list[Child] = []
        self._busy: dict[tuple[str, str], Child] = {}

    def admit(self) -> bool:
        """Take one more in. False: as many wait for a process as run in one; it is better off with another worker."""
        if self._admitted >= 2 * self._most:
            if len(self._busy) == self._most:  # all have started
                self.crowd.refused()
            return False
        self._admitted += 1
        return True

    @contextlib.asynccontextmanager
    async def process_for(self, attempt: Attempt) -> AsyncIterator[Child]:
        """A process that is ready, for one that was admitted. Waiting for it is no part of the attempt's time."""
        try:
            await self._slots.acquire()
        except BaseException:
            self._admitted -= 1
            raise
        child = None
        try:
            child = self._busy[attempt.key] = self._take() or await self._start()
            attempt.stopper = None  # until here its engine could cancel it
            yield child
        finally:
            self._slots.release()
            self._admitted -= 1
            if self._admitted < self._most:
                self.crowd.idle()
            self._busy.pop(attempt.key, None)
            if child is not None and child.usable:
                self._idle.append(child)
            elif child is not None:
                await child.end()

    def trust(self, until: float) -> None:
        """Tell the children of an answered beat, for their `ctx.guard()`."""
        for child in self._busy.values():
            child.say(Trust(until))

    async def warn(self, attempt: Attempt) -> None:
        """Let the child call the soft-timeout hook, once."""
        child = self._busy.get(attempt.key)
        if child is not None and not attempt.warned:
            attempt.warned = True
            child.say(Warn())

    async def close(self) -> None:
        children = [*self._idle, *self._busy.values()]
        self._idle = []
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(background.start(loop, child.end()) for child in children))

    async def _start(self) -> Child:
        return await Child.start(self._modules, self._settings, self._origin)

    def _take(self) -> Child | None:
        while self._idle:
            child = self._idle.pop()
            if child.usable:
                return child
        return None


def outcome_of(attempt: Attempt, report: Report) -> Outcome:
    if report.failure is None:
        return attempt.stop if isinstance(attempt.stop, Failed) else Done(report.result)
    if attempt.stop is not None:
        return attempt.stop
    if report.handback:
        return HandBack()
    error = report.failure.rebuild() or ChildError(f"{report.failure.name}: {report.failure.message}")
    if report.putback:
        return PutBack(error)
    return Failed(error, report.final, report.failure, retryable=report.retryable)
