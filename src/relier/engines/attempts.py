"""The life of an attempt, the same for every engine: claim → open → execute → settle.

claim     Claims asks the ledger for as many tasks as the runner has room for
open      open_attempt finds the function and decodes the payload, or says why the task cannot run here
execute   the Runner runs the body, wherever it does so, and returns the outcome
settle    Settler turns the outcome into one move, and repeats that until the store answers
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from relier import background
from relier.engines.claims import Claims
from relier.engines.heartbeat import Liveness
from relier.engines.runner import Runner
from relier.engines.settler import Settler
from relier.errors import LedgerError, PayloadIntegrityError
from relier.ledger.records import Claimed
from relier.run.attempt import Attempt, open_attempt
from relier.run.channel import LedgerChannel
from relier.run.outcome import Failed, HandBack, Outcome, PutBack
from relier.workflows.inputs import takes_input, with_inputs

log = logging.getLogger("relier.worker")


class Attempts:
    """Run the attempts of one worker. `running` holds those that have begun and are not settled, by task id and fence.

    `on_end` is called when an attempt has ended.
    """

    def __init__(
        self,
        running: dict[tuple[str, str], Attempt],
        claims: Claims,
        channel: LedgerChannel,
        runner: Runner,
        settler: Settler,
        liveness: Liveness,
        on_end: Callable[[], None],
    ) -> None:
        self.running = running
        self.started = 0
        self._claims = claims
        self._channel = channel
        self._runner = runner
        self._settler = settler
        self._liveness = liveness
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._emptied = asyncio.Event()

    async def work(self) -> None:
        """Claim tasks and start them until the claims are stopped."""
        while not self._claims.stopping:
            room = self._runner.room(len(self.running))
            claim = await self._claims.take(room)
            if claim is None:
                continue
            takers: list[Claimed] = []
            async for claimed in self._claims.complete(claim.tasks):
                if takes_input(claimed):
                    takers.append(claimed)
                else:
                    self._start(claimed, claim.now_ms)
            if takers:
                await self._start_with_inputs(takers, claim.now_ms)
            await self._claims.wait_for_more(claim, room)

    async def _start_with_inputs(self, tasks: list[Claimed], now_ms: int) -> None:
        """Start tasks that take a previous result, after reading that result."""
        channel = self._channel
        opened = await with_inputs(tasks, channel.arun, channel.ledger, channel.keyring)
        for claimed, found in zip(tasks, opened, strict=True):
            if isinstance(found, Claimed):
                self._start(found, now_ms)
            elif isinstance(found, LedgerError | PayloadIntegrityError):  # reading it again would not help
                self._settler.settle(claimed, Failed(found, final=True), None, now_ms)
            else:
                log.warning("task %s is handed back: its input cannot be read: %s", claimed.record.id, found)
                self._settler.release([claimed.lease])

    def _start(self, claimed: Claimed, now_ms: int) -> None:
        lease = claimed.lease
        if self._claims.stopping:  # the answer to a claim that was in flight when the worker was asked to stop
            self._settler.release([lease])
            return
        if lease.worker_id != self._liveness.worker_id:  # lost while the answer was in flight: another worker has it
            return
        opened = open_attempt(claimed, self._channel, partial(self._liveness.trusted_by, lease.worker_id))
        outcome = self._runner.refusal(opened) if isinstance(opened, Attempt) else opened
        if outcome is not None:
            self._settler.settle(claimed, outcome, None, now_ms)
        elif isinstance(opened, Attempt):
            if claimed.alone:
                log.warning("task %s (%s) is a suspect and runs alone", lease.task_id, claimed.record.name)
            self.running[opened.key] = opened
            self.started += 1
            opened.asyncio_task = background.start_attempt(self._loop, self._run(opened))

    async def _run(self, attempt: Attempt) -> None:
        try:
            outcome = await self._runner.run(attempt)
        except Exception as error:  # our error, not the task's: the attempt must be settled all the same
            log.exception("task %s could not be run here", attempt.ctx.task_id)
            outcome = PutBack(error)
        attempt.stopper = None
        attempt.cancel_timers()
        if self.forget(attempt):
            self._settle(attempt, outcome)
            self._on_end()

    def _settle(self, attempt: Attempt, outcome: Outcome) -> None:
        try:
            self._settler.settle(attempt.claimed, outcome, attempt)
        except Exception as error:
            log.exception("the outcome of task %s cannot be reported; the task is buried", attempt.ctx.task_id)
            self._settler.settle(attempt.claimed, Failed(error, final=True), attempt)

    def forget(self, attempt: Attempt) -> bool:
        """Remove an attempt from those that run. Return False if it was already buried or handed back."""
        was_running = self.running.pop(attempt.key, None) is not None
        if not self.running:
            self._emptied.set()
        return was_running

    def hand_back_rest(self) -> None:
        """Hand back the attempts that did not end when they were asked to stop."""
        for attempt in list(self.running.values()):
            attempt.ctx.lose()
            self.forget(attempt)
            self._settler.settle(attempt.claimed, HandBack(), attempt)

    async def wait_until_empty(self, seconds: float, unless: asyncio.Event | None = None) -> None:
        """Wait until no attempt runs, at most `seconds`, or until `unless` is set."""
        self._emptied.clear()
        if not self.running or (unless is not None and unless.is_set()):
            return
        waits = [background.start(self._loop, event.wait()) for event in (self._emptied, unless) if event is not None]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
