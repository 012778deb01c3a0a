"""Warnings of a worker at its start, about things that would keep tasks waiting unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fleet import Fleet

CODE = """
from relier import rl_task

@rl_task
def here(): ...

@rl_task(queue="mail")
def send_mail(): ...

@rl_task(queue="mail")
def send_letter(): ...
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    file = tmp_path / "code" / "office.py"
    file.parent.mkdir()
    file.write_text(CODE)
    return file.parent


def said_at_start(fleet: Fleet, code: Path, *options: str, **env: str) -> str:
    """Return the log of a worker from its start to its end."""
    member = fleet.start("worker", "office", *options, cwd=code, **env)
    member.wait_said(" started: queues=")
    assert member.terminate(20) == 0
    return member.said()


def test_an_unserved_queue_of_a_known_task_is_warned_about(patient: Fleet, code: Path) -> None:
    warning = (
        "WARNING relier.worker neither this worker nor any other live worker serves queue 'mail': tasks pushed to "
        "it wait (office.send_mail, office.send_letter); start this worker with `--queues default,mail`, "
        "or another one with `--queues mail`"
    )
    assert warning in said_at_start(patient, code)
    assert "serves queue" not in said_at_start(patient, code, "--queues", "default,mail")
    other = patient.start("worker", "office", "--queues", "mail", cwd=code)
    other.wait_said("serves queue 'default': tasks pushed to it wait (office.here)")
    assert "serves queue" not in said_at_start(patient, code)
    assert other.terminate(20) == 0


def test_a_variable_that_no_setting_reads_is_warned_about(patient: Fleet, code: Path) -> None:
    said = said_at_start(patient, code, RELIER_CONCURENCY="5", RELIER_ZZZ="1")
    told = "is set, but there is no such setting: it has no effect"
    assert f"WARNING relier.worker RELIER_CONCURENCY {told}; did you mean RELIER_CONCURRENCY?" in said
    assert f"WARNING relier.worker RELIER_ZZZ {told}; remove it, or correct its name" in said
    assert said.count(told) == 2
    assert told not in said_at_start(patient, code, "--processes", "1", RELIER_CONCURRENCY="5")


def test_a_paused_queue_is_warned_about(patient: Fleet, code: Path) -> None:
    patient.store.run(patient.ledger.pause("default", 0))
    warning = (
        "WARNING relier.worker queue 'default' is paused (by `rl queues pause` or `rl celery drain`): its "
        "tasks wait; resume it with `rl queues resume default`"
    )
    assert warning in said_at_start(patient, code)
    assert "is paused" not in said_at_start(patient, code, "--queues", "mail")
