"""Schedules of the store layer: the real Core, the real retries of a running task and the real pace of heartbeats, over
a server that flaps, forgets its scripts and answers "not now" (network.py).

A caller waits until the deadline of its call, and no longer; a step repeats its record until it is answered; heartbeats
are sent. The name of a violation says what must hold. A mutant replaces one name of the code while a schedule runs.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from proof.checker.ghost import Violation
from proof.simulator.schedules import say
from proof.store.network import DOWN, FROZEN, NOT_NOW, Server, SimulatedWire, Spell, VirtualLoop, run_virtually
from relier.errors import RelierError, StoreUnavailableError
from relier.ledger.ledger import load_scripts
from relier.run.channel import arun_until_answered
from relier.settings import Settings
from relier.store import core as core_module
from relier.store.batch import request_of
from relier.store.call import Call
from relier.store.connect import heartbeat
from relier.store.connect.address import target_of
from relier.store.connect.resolvers import resolver_of
from relier.store.master_lookup import MasterLookup

HORIZON_S = 40.0
LEASE_S = 2.4  # twice as long as a flapping store is down: the ledger's clock counts that in full
SETTINGS = Settings(redis_url="redis://127.0.0.1:1", namespace="proof", heartbeat_ttl=LEASE_S)
ENDED_S = 2.2  # a call must not fail because of an outage that ended this long before its deadline
QUIET = ("relier.run", "relier.store")
SCRIPTS = load_scripts()


@dataclass(frozen=True, slots=True)
class Weather:
    """The faults of a schedule."""

    spells: list[Spell]
    noise: float  # the chance that a reply is lost
    forgets: float  # the chance that scripts are flushed before a command
    retries: int  # after a lost answer


def weather_of(rng: random.Random, *, flapping: bool) -> Weather:
    spells, at = list[Spell](), rng.uniform(0.5, 3)
    while at < HORIZON_S:
        what = rng.choice((DOWN, DOWN, *NOT_NOW) if flapping else (DOWN, FROZEN, *NOT_NOW))
        lasts = rng.uniform(0.2, 1.2) if flapping else rng.choice((0.3, 1.0, 4.0, 8.0)) * rng.uniform(0.5, 1)
        spells.append(Spell(at, at + lasts, what))
        at += lasts + (rng.uniform(0.4, 1.5) if flapping else rng.choice((0.3, 1.5, 6.0)) * rng.uniform(0.5, 1))
    noise = 0.0 if flapping else rng.choice((0.0, 0.05))
    return Weather(spells, noise, rng.choice((0.0, 0.05, 0.5)), rng.choice((0, 1, 5)))


class Actor:
    """One process, with its own connections and its own breaker."""

    def __init__(
        self, name: str, loop: VirtualLoop, rng: random.Random, server: Server, noise: float, settings: Settings
    ) -> None:
        self.name = name
        self.loop = loop
        self.rng = rng
        self.server = server
        self.settings = settings
        self.wire = SimulatedWire(loop, rng, server, noise)
        target = target_of(settings)
        lookup = MasterLookup(resolver_of(target, settings, loop.time), loop.time)
        self.core = core_module.Core(settings, target, lookup, self.wire, loop.time)
        self._calls = 0
        self._lost: Counter[bytes] = Counter()  # answers that were lost, by call

    def call(self) -> Call[bytes]:
        self._calls += 1
        script = self.rng.choice(("step", "lock", "beat"))
        return Call(script, "rl:{proof}:", (f"{self.name}.{self._calls}",), bytes)

    async def run(self, *calls: Call[bytes]) -> list[bytes | RelierError]:
        """Send the calls together, and return the result of each. The rules for every call are checked here."""
        began, lost = self.loop.now, self.wire.lost
        requests = [request_of(call, SCRIPTS) for call in calls]
        await self.core.run_batch(self.core.batch(requests))
        lost = self.wire.lost - lost
        for request in requests:
            self._check(str(request.call and request.call.args[-1]).encode(), request.answer, began, lost)
        return [request.answer for request in requests]

    def _check(self, name: bytes, answer: Any, began: float, lost: int) -> None:
        took, deadline = self.loop.now - began, self.settings.redis_deadline
        if took > deadline + 0.01:
            raise Violation("within-the-deadline", f"a call took {took:.3f} s")
        self._lost[name] += lost
        if answer == name:
            if not 1 <= self.server.ran[name] <= 1 + self._lost[name]:
                raise Violation(
                    "runs-once-per-answer", f"{self.server.ran[name]} runs, {self._lost[name]} lost answers"
                )
            return
        if "NOSCRIPT" in str(answer):
            raise Violation("noscript-reaches-nobody", repr(answer))
        if not isinstance(answer, StoreUnavailableError):
            raise Violation("an-outage-is-an-outage", repr(answer))
        if lost > self.settings.redis_retries or "nothing was sent" in str(answer):
            return
        if took < deadline - 0.1:
            raise Violation("tries-until-the-deadline", f"gave up after {took:.3f} s: {answer}")
        if self.server.calm(began + deadline - ENDED_S, began + deadline):
            raise Violation("an-outage-that-ended-is-over", f"{answer}")

    async def call_now_and_then(self) -> None:
        while self.loop.now < HORIZON_S:
            await self.run(*(self.call() for _ in range(self.rng.choice((1, 1, 4)))))
            await self.wire.sleep(self.rng.expovariate(2))

    async def record_steps(self) -> None:
        """Record steps: whatever happens, a step that was done is recorded, and the task does not fail."""

        async def run(call: Call[bytes]) -> bytes:
            (answer,) = await self.run(call)
            if isinstance(answer, RelierError):
                raise answer
            return answer

        while self.loop.now < HORIZON_S:
            try:
                await arun_until_answered(run, self.call(), lambda: False, "a step")
            except RelierError as error:
                raise Violation("steps-wait-through-outages", repr(error)) from error
            await self.wire.sleep(self.rng.expovariate(1))

    async def beat(self) -> None:
        """Send heartbeats at the pace of engines/heartbeat.py. No lease may run out between two heartbeats that ran."""
        beaten = self.loop.now
        while self.loop.now < HORIZON_S:
            call, sent = self.call(), self.loop.now
            (answer,) = await self.run(call)
            ran = self.server.ran_at.get(str(call.args[-1]).encode(), [])
            if ran and ran[0] - beaten > LEASE_S:
                raise Violation("healthy-survives-flapping", f"{ran[0] - beaten:.2f} s between two beats")
            beaten = ran[-1] if ran else beaten
            failed = isinstance(answer, RelierError)
            await self.wire.sleep(
                heartbeat.retry_pause(LEASE_S) if failed else max(0.0, sent + LEASE_S / 4 - self.loop.now)
            )
        if self.loop.now - beaten > LEASE_S:
            raise Violation("healthy-survives-flapping", f"no beat for {self.loop.now - beaten:.2f} s")


def run_store_schedule(seed: int) -> Violation | None:
    """Return what was violated, if anything. In half of the schedules the store flaps, and no lease may be lost."""
    rng, flapping = random.Random(f"store {seed}"), seed % 2 == 0
    weather = weather_of(rng, flapping=flapping)

    async def main(loop: VirtualLoop) -> None:
        server = Server(loop, rng, weather.spells, weather.forgets)
        settings = SETTINGS.replace(redis_retries=weather.retries)
        actors = [Actor(name, loop, rng, server, weather.noise, settings) for name in ("caller", "step")]
        beating = heartbeat.heartbeat_settings(settings, LEASE_S)
        heart = Actor("heart", loop, rng, server, weather.noise, beating)
        async with asyncio.TaskGroup() as group:
            group.create_task(actors[0].call_now_and_then())
            group.create_task(actors[1].record_steps())
            if flapping:
                group.create_task(heart.beat())

    with _quiet(seed):
        try:
            run_virtually(main)
        except BaseExceptionGroup as group:
            found = group.subgroup(Violation)
            if found is None:
                raise
            violation: Any = found
            while isinstance(violation, BaseExceptionGroup):
                violation = violation.exceptions[0]
            return cast(Violation, violation)
    return None


@contextmanager
def _quiet(seed: int) -> Iterator[None]:
    """Silence thousands of log lines, and let the store draw its pauses from a seeded generator."""
    state, levels = random.getstate(), {name: logging.getLogger(name).level for name in QUIET}
    random.seed(seed)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        random.setstate(state)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def main(seeds: int, start: int = 0) -> int:
    """Run schedules, print the figures and the first violations, and return how many there were."""
    bad = [(seed, found) for seed in range(start, start + seeds) if (found := run_store_schedule(seed)) is not None]
    for seed, violation in bad[:3]:
        say(f"store seed {seed}: {violation}")
    say(f"store: {seeds:,} schedules of the store layer from seed {start}: {len(bad)} violations")
    return len(bad)
