"""Run attempts inside a child process: an isolated process of a worker, or a process of Celery's pool.

The child opens the task itself, because arguments and context do not travel between processes. It runs one attempt at a
time. The parent alone talks to the ledger about the attempt's lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from relier import background
from relier.ledger.records import Claimed
from relier.run.attempt import Attempt, open_attempt
from relier.run.channel import LedgerChannel
from relier.run.execute import execute, run_soft_hook, stop
from relier.run.outcome import HandBack, Outcome, PutBack
from relier.run.threads import Threads

log = logging.getLogger("relier.worker")

HOOK_S = 1.0  # how long a soft-timeout hook may still run after its task has ended


class ChildRunner:
    """Run the attempts of one child process on one event loop."""

    def __init__(self, channel: LedgerChannel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._threads = Threads()
        self._attempt: Attempt | None = None
        self._hook: asyncio.Task[None] | None = None

    def open(self, claimed: Claimed, trusted_until: Callable[[], float]) -> Attempt | Outcome:
        """Open the attempt. From here on, `warn` and `stop` refer to it."""
        opened = open_attempt(claimed, self._channel, trusted_until)
        if isinstance(opened, Attempt):
            self._attempt = opened
        return opened

    async def run(self, attempt: Attempt) -> Outcome:
        """Run the attempt. An error in Relier itself becomes an outcome too, because every attempt must be reported.

        When this returns, `warn` and `stop` no longer refer to the attempt. Its hook may still run: call `end_hook`.
        """
        try:
            return await execute(attempt, self._threads, self._channel)
        except Exception as error:
            log.exception("task %s could not be run here", attempt.ctx.task_id)
            return PutBack(error)
        finally:
            attempt.cancel_timers()
            self._attempt = None

    def warn(self) -> None:
        """Call the soft-timeout hook of the attempt that runs, if any."""
        if self._attempt is not None and self._hook is None:
            self._hook = background.start(self._loop, run_soft_hook(self._attempt, self._channel))

    def stop(self, *, lost: bool) -> None:
        """Stop the attempt that runs, if any. `lost`: its lease is lost."""
        if self._attempt is not None:
            if lost:
                self._attempt.ctx.lose()
            stop(self._attempt, HandBack())

    async def end_hook(self) -> None:
        """Give a soft-timeout hook that still runs a moment to end, then cancel it."""
        hook, self._hook = self._hook, None
        if hook is not None:
            await asyncio.wait([hook], timeout=HOOK_S)
            hook.cancel()
