"""A simulated server and network on virtual time. The store layer that runs on top is the real one.

Server    runs scripts by their SHA1, and forgets them when it restarts or somebody flushes them. Its spells say when
          it is down (connections are refused, and open ones are lost), frozen (requests run when it continues), or
          answers "not now" without having run anything
Wire      the store's contract with the outside world (store/wire.py). It loses replies, and counts how often

Waiting takes no real time: the loop's clock jumps to the next timer. The same seed gives the same history.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import hiredis

from relier.store.connect.address import Address
from relier.store.policy import AttemptError
from relier.store.wire import connect_error

T = TypeVar("T")
LATENCY_S = 0.001
DOWN, FROZEN = "down", "frozen"
NOT_NOW = (
    "NOREPLICAS Not enough good replicas to write.",
    "LOADING Redis is loading the dataset in memory",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "READONLY You can't write against a read only replica.",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "CLUSTERDOWN The cluster is down",
    "TRYAGAIN Multiple keys request during rehashing of slot",
)


class _Selector(selectors.SelectSelector):
    """A selector that never waits: it advances the clock by the time it should wait."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("everybody waits forever")
            self.loop.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while everything waits."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self.now


def run_virtually(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end on virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()


@dataclass(frozen=True, slots=True)
class Spell:
    """One fault: when it begins and ends, and its kind (down, frozen, or an error reply to every call)."""

    begins: float
    ends: float
    what: str


class Server:
    """One server. `forgets`: the chance that somebody flushes its scripts before a command."""

    def __init__(self, loop: VirtualLoop, rng: random.Random, weather: list[Spell], forgets: float) -> None:
        self._loop = loop
        self._rng = rng
        self.weather = weather
        self._forgets = forgets
        self._scripts: set[bytes] = set()
        self._life = 0
        self.ran: Counter[bytes] = Counter()  # by a call's last argument
        self.ran_at: dict[bytes, list[float]] = {}

    def spell(self) -> Spell | None:
        now = self._loop.now
        return next((spell for spell in self.weather if spell.begins <= now < spell.ends), None)

    def calm(self, begins: float, ends: float) -> bool:
        """Return whether the store was healthy throughout that time."""
        return not any(spell.begins < ends and begins < spell.ends for spell in self.weather)

    @property
    def life(self) -> int:
        """Return the number of restarts so far: connections and scripts of an earlier life are gone."""
        life = sum(spell.what == DOWN and spell.begins <= self._loop.now for spell in self.weather)
        if life != self._life:
            self._life, self._scripts = life, set()
        return life

    def run(self, request: bytes) -> list[Any]:
        """Run the commands of a request, one after the other."""
        _ = self.life
        reader = hiredis.Reader()
        reader.feed(request)
        replies = []
        while (command := reader.gets()) is not False:
            replies.append(self._run(command))
        return replies

    def _run(self, command: list[bytes]) -> Any:
        spell = self.spell()
        if spell is not None and spell.what not in {DOWN, FROZEN}:
            return hiredis.ReplyError(spell.what)
        if self._rng.random() < self._forgets:
            self._scripts.clear()
        match command:
            case [b"SCRIPT", b"LOAD", text]:
                return self._load(text)
            case [b"EVALSHA", sha, b"1", *_, name]:
                return self._ran(name) if sha in self._scripts else hiredis.ReplyError("NOSCRIPT No matching script.")
            case [b"EVAL", text, b"1", *_, name]:
                self._load(text)
                return self._ran(name)
            case [b"EVAL", *_]:
                return 1
            case [b"ROLE"]:
                return [b"master"]
        return hiredis.ReplyError("ERR unknown command")

    def _load(self, text: bytes) -> bytes:
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        self._scripts.add(sha)
        return sha

    def _ran(self, name: bytes) -> bytes:
        self.ran[name] += 1
        self.ran_at.setdefault(name, []).append(self._loop.now)
        return name


class SimulatedConnection:
    """One connection to one life of the server."""

    def __init__(self, wire: SimulatedWire) -> None:
        self.generation = 0
        self.idle_since = 0.0
        self.is_open = True
        self._wire = wire
        self._life = wire.server.life

    def usable(self) -> bool:
        return self.is_open and self._life == self._wire.server.life

    async def exchange(self, request: bytes, replies: int, seconds: float) -> list[Any]:
        wire, server = self._wire, self._wire.server
        await asyncio.sleep(LATENCY_S)
        spell = server.spell()
        if not self.usable() or (spell is not None and spell.what == DOWN):
            raise self._lose("the connection was lost")
        if spell is not None and spell.what == FROZEN:
            thaws = spell.ends - wire.loop.now
            if thaws > seconds:
                wire.loop.call_later(thaws, server.run, request)
                await asyncio.sleep(seconds)
                raise self._lose("timed out waiting for the reply")
            await asyncio.sleep(thaws)
        answers = server.run(request)
        if wire.rng.random() < wire.noise:
            raise self._lose("the connection was lost")
        if len(answers) != replies:
            raise AssertionError(f"{len(answers)} answers to {replies} commands")
        return answers

    def close(self) -> None:
        self.is_open = False

    def _lose(self, why: str) -> AttemptError:
        self.close()
        self._wire.lost += 1
        return AttemptError(why)


class SimulatedSlots:
    """Allow any number of connections."""

    def __init__(self, size: int) -> None:
        del size

    async def acquire(self, seconds: float) -> bool:
        del seconds
        return True

    def acquire_nowait(self) -> bool:
        return True

    def release(self) -> None:
        """Do nothing: no slot is held."""


class SimulatedWire:
    """One client's connection to the server. `lost` counts requests that may have run without an answer."""

    slots = SimulatedSlots

    def __init__(self, loop: VirtualLoop, rng: random.Random, server: Server, noise: float) -> None:
        self.loop = loop
        self.rng = rng
        self.server = server
        self.noise = noise
        self.lost = 0

    async def connect(self, address: Address, seconds: float) -> SimulatedConnection:
        del seconds
        await asyncio.sleep(LATENCY_S)
        spell = self.server.spell()
        if spell is not None and spell.what == DOWN:
            raise connect_error(address, ConnectionRefusedError("refused"))
        return SimulatedConnection(self)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def blocking(self, work: Callable[[], T], seconds: float) -> T:
        del seconds
        return work()
