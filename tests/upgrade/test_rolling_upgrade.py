"""The previous release and this one work on one namespace at the same time, and processes of both are killed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, Member, wait_until
from tests.upgrade.previous import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
KILLS = 10
PER_ROUND = 60  # tasks that must be accepted between two kills


class Releases:
    """Workers and producers of both releases on one fleet's namespace."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.env: dict[str, Mapping[str, str]] = {"previous": environment(), "this": {}}
        self.accepted: Path = fleet.folder / "accepted"
        self.accepted.touch()

    def worker(self, release: str) -> Member:
        arguments = ("--concurrency", "20")
        return self.fleet.worker(*arguments, modules=("tests.upgrade.shop",), **self.env[release])

    def producer(self, release: str) -> Member:
        limits = {"RELIER_ADMISSION_LIMIT": "1000000"}
        return self.fleet.python("-m", "tests.upgrade.produce", str(self.accepted), **{**limits, **self.env[release]})

    def tasks(self) -> dict[str, int]:
        """Return the id of each accepted task, and what it has to return."""
        return {task: int(n) for task, n in map(str.split, self.accepted.read_text().splitlines())}

    def wait_more(self) -> None:
        goal = len(self.tasks()) + PER_ROUND
        wait_until(lambda: len(self.tasks()) >= goal, 60, "further accepted tasks")

    def run_with_kills(self, seed: int) -> None:
        """Keep a worker and a producer of each release going. Kill one process after another, and start it again."""
        rng = random.Random(seed)
        kinds = [(start, release) for start in (self.worker, self.producer) for release in self.env]
        running = [(start, release, start(release)) for start, release in kinds]
        for _ in range(KILLS):
            self.wait_more()
            start, release, member = running.pop(rng.randrange(len(running)))
            member.kill_all()
            running.append((start, release, start(release)))
        for *_, member in running:
            member.kill_all()


@pytest.mark.parametrize("last", ["this", "previous"], ids=["upgrade", "rollback"])
def test_both_releases_work_on_one_namespace_under_kills_without_loss(fleet: Fleet, last: str) -> None:
    """Whatever either release accepted is done in the end, also if only one of them is left to do it."""
    releases = Releases(fleet)
    releases.run_with_kills(seed=22)
    releases.worker(last)
    accepted = releases.tasks()
    assert len(accepted) >= KILLS * PER_ROUND
    tasks = fleet.wait_done(accepted, 60)
    assert [task.result for task in tasks] == [str(n).encode() for n in accepted.values()]
