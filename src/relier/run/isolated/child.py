"""Be an isolated process: `python -m relier.run.isolated.child <fd> <log level> <log format> <module> …`."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys

from relier import background, registry
from relier.failure import message_of
from relier.ledger.records import Claimed
from relier.logs.setup import start_logging
from relier.run.application.lifespan import RunningLifespan
from relier.run.attempt import Attempt
from relier.run.channel import LedgerChannel
from relier.run.current import install_log_fields
from relier.run.forks import let_forks_be_ended
from relier.run.isolated.child_runner import ChildRunner
from relier.run.isolated.messages import (
    ChildError,
    ParentMessage,
    Ready,
    Run,
    Stop,
    Trust,
    Waited,
    Warn,
    pack,
    report_of,
    unpack,
)
from relier.run.outcome import Failed, Outcome
from relier.stop_signals import stop_signals
from relier.submit.client import default_client

log = logging.getLogger("relier.worker")

PR_SET_PDEATHSIG = 1
LOOK_S = 0.1  # how often the child reports changes of the attempt's waits for the store


class ParentConnection:
    """Carry out the parent's orders and report to it. The parent enforces the timeouts."""

    def __init__(self, writer: asyncio.StreamWriter, channel: LedgerChannel) -> None:
        self._writer = writer
        self._runner = ChildRunner(channel)
        self._trusted_until = 0.0
        self._running: asyncio.Task[None] | None = None

    def carry_out(self, order: ParentMessage) -> None:
        match order:
            case Run(claimed, trusted_until):
                self._trusted_until = trusted_until
                self._begin(claimed)
            case Trust(until):
                self._trusted_until = until
            case Warn():
                self._runner.warn()
            case Stop(lost):
                self._runner.stop(lost=lost)

    def _begin(self, claimed: Claimed) -> None:
        """Open the attempt at once, because the next order may already refer to it."""
        attempt = self._runner.open(claimed, lambda: self._trusted_until)
        if isinstance(attempt, Attempt):
            self._running = background.start(asyncio.get_running_loop(), self._run(attempt))
        else:
            self._writer.write(packed(attempt))

    async def _run(self, attempt: Attempt) -> None:
        waits = background.start(asyncio.get_running_loop(), self._report_waits(attempt))
        try:
            outcome = await self._runner.run(attempt)
        finally:
            waits.cancel()
        self._writer.write(packed(outcome))  # first: a hook that still runs must not cost a finished task its result
        await self._runner.end_hook()
        await self._writer.drain()

    async def _report_waits(self, attempt: Attempt) -> None:
        """Report the attempt's waits for the store to the parent, whose hard timeout does not include them."""
        reported = (0.0, 0.0)
        while True:
            await asyncio.sleep(LOOK_S)
            state = attempt.ctx.waits.state
            if state != reported:
                reported = state
                self._writer.write(pack(Waited(*state)))


def packed(outcome: Outcome) -> bytes:
    """Return the packed report, or one saying that it cannot be packed: without one the parent would wait forever."""
    try:
        return pack(report_of(outcome))
    except BaseException as error:  # a user's exception may raise anything when it is inspected
        log.exception("the outcome of a task cannot be reported")
        why = f"{type(error).__name__}: {message_of(error)}"
        return pack(report_of(Failed(ChildError(f"the outcome cannot be reported: {why}; see its worker's log"))))


async def serve(fd: int, shard: int) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=fd))
    channel, shared = LedgerChannel(default_client().shards[shard]), RunningLifespan()
    channel.state = await shared.enter(channel.settings)
    parent = ParentConnection(writer, channel)
    writer.write(pack(Ready(shared.entered)))
    while (order := await unpack(reader, Run | Warn | Stop | Trust)) is not None:
        parent.carry_out(order)
    await shared.leave()  # the parent closed the connection, or is gone
    os._exit(0)


def main() -> None:
    if sys.platform == "linux":  # a busy child would not notice that its parent has ended
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for ignored in stop_signals():  # the parent decides. Not SIG_IGN, which a task's own processes would inherit
        signal.signal(ignored, lambda *_: None)
    let_forks_be_ended()
    registry.load(sys.argv[5:])
    start_logging(int(sys.argv[2]), sys.argv[3])
    install_log_fields()
    background.run(serve(int(sys.argv[1]), int(sys.argv[4])))


if __name__ == "__main__":
    main()
