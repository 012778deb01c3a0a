"""Run attempts for `run_pending`: in this process, in virtual time, with the faults that the test asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from relier.engines.local_runner import LocalRunner
from relier.engines.settler import Settler
from relier.engines.task_events import TaskEvents
from relier.ledger.ledger import Ledger
from relier.ledger.records import Beat, Claimed
from relier.run.attempt import Attempt
from relier.run.channel import LedgerChannel
from relier.run.current import current_context
from relier.run.execute import stop
from relier.run.outcome import Done, Gone, Outcome
from relier.store import AsyncStore, Call
from relier.submit.client import Client
from relier.testing.virtual.faults import Fault, FaultPlace, SimulatedKill
from relier.testing.virtual.timers import VirtualTimers

T = TypeVar("T")
Key = tuple[str, str]
CALLS_OF_TASKS = frozenset({"step", "checkpoint", "progress", "submit", "lock", "renew", "unlock", "conclude"})


@dataclass
class Settlement:
    """Hold an outcome that was reported to the ledger, and when (s of virtual time)."""

    claimed: Claimed
    outcome: Outcome
    at: float


class RecordingSettler(Settler):
    """Settle attempts, and keep a list of the settled ones."""

    def __init__(
        self, store: AsyncStore, ledger: Ledger, redact: str, events: TaskEvents, clock: Callable[[], float]
    ) -> None:
        super().__init__(store, ledger, redact, events)
        self.settlements: list[Settlement] = []
        self._clock = clock

    def settle(self, claimed: Claimed, outcome: Outcome, attempt: Attempt | None = None, now_ms: int = 0) -> None:
        self.settlements.append(Settlement(claimed, outcome, self._clock()))
        super().settle(claimed, outcome, attempt, now_ms)


class SameThreadChannel(LedgerChannel):
    """Do blocking work at once, in this thread: waiting for a thread would take real time, not virtual time."""

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        super().__init__(client)
        self.clock = clock

    async def in_own_thread(self, work: Callable[..., T], *args: Any) -> T:
        return work(*args)


@dataclass
class SimulatedRunner:
    """Wrap the runner of a real worker.

    on_kill   called on the loop when the process of an attempt dies, according to a fault
    on_loss   called when another worker takes over, according to a fault
    """

    inner: LocalRunner
    timers: VirtualTimers
    faults: tuple[Fault, ...]
    on_kill: Callable[[Attempt], None]
    on_loss: Callable[[Attempt], None]
    attempts: dict[Key, Attempt] = field(default_factory=dict)  # every attempt that has begun
    contexts: dict[int, Attempt] = field(default_factory=dict)  # the same, by the identity of its context
    killed: set[Key] = field(default_factory=set)
    in_threads: int = 0

    async def start(self, channel: LedgerChannel, trusted_until: Callable[[], float], events: TaskEvents) -> None:
        self._loop = asyncio.get_running_loop()
        await self.inner.start(channel, trusted_until, events)

    def room(self, running: int) -> int:
        return self.inner.room(running)

    def refusal(self, attempt: Attempt) -> Outcome | None:
        attempt.isolated = False  # everything runs in this process
        return self.inner.refusal(attempt)

    async def run(self, attempt: Attempt) -> Outcome:
        self.timers.enter()
        self.attempts[attempt.key] = self.contexts[id(attempt.ctx)] = attempt
        self._reach(attempt, FaultPlace.START)
        self.in_threads += not attempt.task.is_async
        try:
            outcome = await self.inner.run(attempt)
        finally:
            self.in_threads -= not attempt.task.is_async
        if isinstance(outcome, Done) and attempt.key not in self.killed:
            self._reach(attempt, FaultPlace.END)
        return Gone(emptied=True) if attempt.key in self.killed else outcome

    def kill(self, attempt: Attempt) -> None:
        """End an attempt whose process was killed."""
        self.killed.add(attempt.key)
        attempt.ctx.lose()
        stop(attempt, Gone(emptied=True))

    # --- the calls of attempts to the store ----------------------------------------------------------------------

    def before(self, call: Call[Any]) -> None:
        """Refuse the calls of killed attempts."""
        attempt = self._current() if call.script in CALLS_OF_TASKS else None
        if attempt is not None and attempt.key in self.killed:
            raise SimulatedKill(f"the process of {attempt.ctx!r} was killed by a fault of this test")

    def after(self, call: Call[Any]) -> None:
        """Apply the faults that are due after a step."""
        attempt = self._current() if call.script == "step" else None
        if attempt is not None:
            self._reach(attempt, FaultPlace.STEP, str(call.args[3]))
            self.before(call)

    def _current(self) -> Attempt | None:
        return self.contexts.get(id(current_context()))

    def _reach(self, attempt: Attempt, place: FaultPlace, step: str = "") -> None:
        for fault in self.faults:
            if fault.fires(place, attempt.task.name, step):
                if fault.kills:
                    self.killed.add(attempt.key)
                    self._loop.call_soon_threadsafe(self.on_kill, attempt)  # a `def` comes here in its thread
                else:
                    self.on_loss(attempt)

    # --- the rest of a runner ------------------------------------------------------------------------------------

    async def warn(self, attempt: Attempt) -> None:
        await self.inner.warn(attempt)

    def on_beat(self, beat: Beat) -> None:
        self.inner.on_beat(beat)

    def on_tick(self) -> None:
        self.inner.on_tick()

    def drain(self) -> None:
        self.inner.drain()

    def abandon(self, attempt: Attempt) -> None:
        self.inner.abandon(attempt)

    async def close(self) -> None:
        await self.inner.close()
