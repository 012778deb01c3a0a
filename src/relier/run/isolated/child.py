"""Run attempts inside an isolated process: `python -m relier.run.isolated.child <fd> <log level> <module> …`."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from typing import Any

from relier import background, registry
from relier.failure import failure_of, message_of
from relier.ledger.records import Claimed
from relier.run.attempt import Attempt, open_attempt
from relier.run.channel import LedgerChannel
from relier.run.execute import execute, run_soft_hook, stop
from relier.run.forks import let_forks_be_ended
from relier.run.isolated.processes import ChildError, Order, Ready, Report, Run, Stop, Trust, Waited, Warn, pack, unpack
from relier.run.outcome import Done, Failed, HandBack, Outcome, PutBack
from relier.run.threads import Threads
from relier.stop_signals import stop_signals
from relier.submit.client import default_client

log = logging.getLogger("relier.worker")

PR_SET_PDEATHSIG = 1
LOOK_S = 0.1  # how often the child reports changes of the attempt's waits for the store


class Inside:
    """Carry out the parent's orders: run one attempt at a time."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._threads = Threads()
        self._channel = LedgerChannel(default_client())
        self._attempt: Attempt | None = None
        self._trusted_until = 0.0
        self._running: set[asyncio.Task[None]] = set()

    def obey(self, order: Order) -> None:
        match order:
            case Run(claimed, trusted_until):
                self._trusted_until = trusted_until
                self._begin(claimed)
            case Trust(until):
                self._trusted_until = until
            case Warn() if self._attempt is not None:
                self._keep(run_soft_hook(self._attempt))
            case Stop(lost) if self._attempt is not None:
                if lost:
                    self._attempt.ctx.lose()
                stop(self._attempt, HandBack())

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = background.start(asyncio.get_running_loop(), work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _begin(self, claimed: Claimed) -> None:
        """Open the attempt at once, because the next order may already refer to it."""
        attempt = open_attempt(claimed, self._channel, lambda: self._trusted_until)
        if isinstance(attempt, Attempt):
            self._attempt = attempt
            self._keep(self._run(attempt))
        else:
            self._writer.write(packed(attempt))

    async def _run(self, attempt: Attempt) -> None:
        if attempt.task.is_async:
            current = asyncio.current_task()
            attempt.stopper = current.cancel if current is not None else None
        telling = background.start(asyncio.get_running_loop(), self._tell_waits(attempt))
        try:
            outcome = await execute(attempt, self._threads, self._channel)
        except Exception as error:  # our error, not the task's: the attempt must be reported all the same
            log.exception("task %s could not be run here", attempt.ctx.task_id)
            outcome = PutBack(error)
        finally:
            telling.cancel()
        self._attempt = None
        self._writer.write(packed(outcome))
        await self._writer.drain()

    async def _tell_waits(self, attempt: Attempt) -> None:
        """Report the attempt's waits to the parent, which enforces the hard timeout."""
        told = (0.0, 0.0)
        while True:
            await asyncio.sleep(LOOK_S)
            state = attempt.ctx.waits.state
            if state != told:
                told = state
                self._writer.write(pack(Waited(*state)))


def packed(outcome: Outcome) -> bytes:
    """Return the packed report, or one saying that it cannot be packed: without one the parent would wait for ever."""
    try:
        return pack(report_of(outcome))
    except BaseException as error:  # a user's exception may raise anything when it is inspected
        log.exception("what came of a task cannot be told")
        why = f"{type(error).__name__}: {message_of(error)}"
        return pack(report_of(Failed(ChildError(f"what came of it cannot be told: {why}; its worker's log says more"))))


def report_of(outcome: Outcome) -> Report:
    match outcome:
        case Done(result):
            return Report(result)
        case Failed(error, final):
            return Report(failure=failure_of(error), final=final, retryable=outcome.retryable)
        case PutBack(error):
            return Report(failure=failure_of(error), putback=True)
        case _:
            return Report(failure=failure_of(asyncio.CancelledError("it was told to stop")), handback=True)


async def serve(fd: int) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=fd))
    inside = Inside(writer)
    writer.write(pack(Ready()))
    while (order := await unpack(reader, Run | Warn | Stop | Trust)) is not None:
        inside.obey(order)
    os._exit(0)  # the parent is gone


def main() -> None:
    if sys.platform == "linux":  # a busy child would not notice that its parent has ended
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for ignored in stop_signals():  # the parent decides. Not SIG_IGN, which a task's own processes would inherit
        signal.signal(ignored, lambda *_: None)
    let_forks_be_ended()
    logging.basicConfig(level=int(sys.argv[2]), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    registry.load(sys.argv[3:])
    background.run(serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
