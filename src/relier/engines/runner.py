"""Define the contract of a runner, which runs the code of attempts.

LocalRunner   the worker's own event loop, its threads and its isolated processes (engines/local_runner.py)
PoolRunner    Celery's pool (celery/working/runner.py)

The worker claims, opens and settles attempts in the same way for every runner (engines/attempts.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from relier.engines.task_events import TaskEvents
from relier.ledger.records import Beat
from relier.run.attempt import Attempt
from relier.run.channel import LedgerChannel
from relier.run.outcome import Outcome


class Runner(Protocol):
    """Run attempts. All methods are called on the worker's event loop."""

    async def start(self, channel: LedgerChannel, trusted_until: Callable[[], float], events: TaskEvents) -> None:
        """Prepare to run attempts, and enter the lifespan if their code runs here. Called once, before the first claim.

        `trusted_until` returns the time up to which the worker may trust its lease (monotonic). The runner reports to
        `events` when an attempt starts.
        """

    def room(self, running: int) -> int:
        """Return how many more attempts can start now, while `running` attempts run."""

    def refusal(self, attempt: Attempt) -> Outcome | None:
        """Return None to accept the attempt, or the outcome that says why it cannot run here now."""

    async def run(self, attempt: Attempt) -> Outcome:
        """Run the attempt to its end and return its outcome. Set `attempt.stopper` to something that interrupts it."""

    async def warn(self, attempt: Attempt) -> None:
        """Have the soft-timeout hook called, once, wherever the attempt runs."""

    def on_beat(self, beat: Beat) -> None:
        """Take note that the store answered a heartbeat."""

    def on_tick(self) -> None:
        """Do the runner's own maintenance. Called a few times per second."""

    def drain(self) -> None:
        """Prepare to shut down: hand back attempts that have not begun. May be called more than once."""

    def abandon(self, attempt: Attempt) -> None:
        """End whatever still runs the attempt: its task was buried, because it did not end after its hard timeout."""

    async def close(self) -> None:
        """End everything that still runs, and leave the lifespan. The worker has handed back its attempts."""
