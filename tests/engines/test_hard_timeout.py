"""A task that still runs ten seconds after its hard timeout is buried, and its process is recycled. Other tasks
continue."""

from __future__ import annotations

from typing import Any

import pytest

from relier.errors import HardTimeoutError
from relier.states import State
from tests.engines.conftest import NewFleet
from tests.support.fleet import Fleet
from tests.support.jobs import common as jobs
from tests.support.jobs import trouble

TROUBLE = ("tests.support.jobs.common", "tests.support.jobs.trouble")
CULPRITS = (trouble.swallow, trouble.block_overdue, trouble.block_thread_overdue)


class Scene:
    """One task that does not end, next to five others on their own worker. The lease is a minute, so nothing here waits
    for it."""

    def __init__(self, fleet: Fleet, culprit: Any, processes: tuple[str, ...]) -> None:
        self.fleet = fleet
        self.name = f"{culprit.name} {' '.join(processes)}"
        self.member = fleet.worker(*processes, modules=TROUBLE, RELIER_GRACEFUL_SHUTDOWN_TIMEOUT="2")
        self.neighbours = [jobs.hold.push("go").id for _ in range(5)]
        fleet.wait_diary("begin", 5)
        self.receipt = culprit.push()

    def play(self) -> None:
        fleet, member = self.fleet, self.member
        (dead,) = fleet.wait_ended([self.receipt.id], 25)
        assert (dead.record.state, dead.record.reason) == (State.DEAD, "TimeoutError"), self.name
        (entry,) = dead.history
        assert 10_500 <= entry.at_ms - entry.since_ms < 16_000, self.name
        with pytest.raises(HardTimeoutError, match="still ran 10 s later"):
            self.receipt.result(1)
        said = member.wait_said(" started: queues=", 2, 30)
        about = f"task dead: name={dead.record.name} id={self.receipt.id} attempt=1 queue=default took=1"
        assert said.count(about) == 1, f"{self.name}: it is logged, even if the loop is blocked"
        fleet.open_gate("go")
        tasks = fleet.wait_done(self.neighbours, 30)
        assert not any(task.history for task in tasks), f"{self.name}: neighbours are handed back, not lost"
        assert member.terminate() == 0, self.name


@pytest.mark.slow
def test_a_task_that_does_not_end_is_buried_and_its_process_recycled(fleets: NewFleet) -> None:
    """The task swallows the cancellation, blocks the loop or blocks its thread; with and without a supervisor. All six
    cases run at once."""
    cast = [(culprit, processes) for culprit in CULPRITS for processes in ((), ("--processes", "1"))]
    scenes = [Scene(fleets(60), culprit, processes) for culprit, processes in cast]
    for scene in scenes:
        scene.play()
