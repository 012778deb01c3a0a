"""`rl scheduler` fires without the application's code. A worker declares the schedules in its code, and disables those
that were removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from relier import Schedules
from tests.support.fleet import Fleet, wait_until
from tests.support.jobs.common import quick

CODE = """
from relier import rl_task, schedule

@rl_task
def tick(): ...

schedule("often", tick, every=1)
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    file = tmp_path / "code" / "clockwork.py"
    file.parent.mkdir()
    file.write_text(CODE + 'schedule("dropped", tick, every=3600)\n')
    return file


def test_the_scheduler_fires_without_the_application(patient: Fleet) -> None:
    Schedules().create("often", quick, every=1, queue="unserved")
    schedulers = [patient.start("scheduler") for _ in range(2)]
    wait_until(lambda: patient.stats().counts.get("submitted", 0) >= 2, what="two runs")
    for each in schedulers:
        assert "scheduler started: " in each.said()
        assert each.terminate(10) == 0
    Schedules().pause("often")
    ids = [record.id for record in patient.store.run(patient.ledger.list("ready", "unserved")).records]
    times = [int(task_id[:12], 16) for task_id in ids]
    assert times == sorted(set(times)), "each second once"


def test_a_deploy_disables_what_the_code_no_longer_declares(patient: Fleet, code: Path) -> None:
    first = patient.start("worker", "clockwork", cwd=code.parent)
    first.wait_said("schedule dropped declared: every 1 h, task clockwork.tick")
    wait_until(lambda: patient.stats().counts.get("done", 0) >= 1, what="the first run")
    assert first.terminate(20) == 0
    code.write_text(CODE)
    second = patient.start("worker", "clockwork", cwd=code.parent)
    second.wait_said("disabled schedules that the code of clockwork no longer declares: dropped;")
    assert {info.name: info.state for info in Schedules().list()} == {"often": "active", "dropped": "disabled"}
    assert second.terminate(20) == 0
    Schedules().pause("often")


def test_a_worker_refuses_a_schedule_that_does_not_fit_its_task(patient: Fleet, code: Path) -> None:
    code.write_text("from relier import rl_task\n\n@rl_task(schedule='0 3 * * *')\ndef needs(day): ...\n")
    worker = patient.start("worker", "clockwork", cwd=code.parent)
    assert worker.wait(20) == 2
    assert "schedule 'clockwork.needs' is not valid: its arguments do not fit the task clockwork.needs" in worker.said()
