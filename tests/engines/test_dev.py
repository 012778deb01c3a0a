"""`rl dev`: an embedded store, and a worker that restarts when the code changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from relier import rl_task
from tests.support.fleet import Fleet

TASK = """
from relier import rl_task

@rl_task
def answer():
    return {value}
"""


@rl_task(name="dev_tasks.answer")
def answer() -> int:
    """Stand for the task in the producer, which does not have its code."""
    raise NotImplementedError


def test_the_worker_restarts_when_a_file_changes(patient: Fleet, tmp_path: Path) -> None:
    code = tmp_path / "code" / "dev_tasks.py"
    code.parent.mkdir()
    code.write_text(TASK.format(value=1))
    member = patient.start("dev", "dev_tasks", cwd=code.parent)
    member.wait_said(" started: queues=")
    assert answer.push().result(20) == 1
    code.write_text(TASK.format(value=22))
    member.wait_said("code changed: restarting the worker")
    member.wait_said(" started: queues=", 2)
    assert answer.push().result(20) == 22
    assert member.terminate(10) == 0


def test_the_worker_uses_and_logs_the_store_and_namespace_given_to_rl(patient: Fleet, tmp_path: Path) -> None:
    """Options before the command apply to the worker that it starts. Passwords are hidden."""
    code = tmp_path / "code" / "dev_tasks.py"
    code.parent.mkdir()
    code.write_text(TASK.format(value=1))
    settings = patient.settings
    where = ("--url", settings.redis_url, "--namespace", settings.namespace)
    member = patient.start(*where, "dev", "dev_tasks", cwd=code.parent, RELIER_NAMESPACE="elsewhere")
    place = f"namespace '{settings.namespace}' at {settings.redis_url}"
    said = member.wait_said(f"concurrency=100, {place}")
    assert f"rl dev: running dev_tasks on {place}. " in said
    assert answer.push().result(20) == 1
    assert member.terminate(10) == 0
    masked = patient.start("dev", "dev_tasks", RELIER_REDIS_URL="redis://user:secret@127.0.0.1:1")
    said = masked.wait_said("rl dev: ")
    assert "at redis://***@127.0.0.1:1. " in said
    assert "secret" not in said


@pytest.mark.parametrize("before", ["this is no Python", "import no_such_module", "x = 1"])
def test_the_worker_waits_for_a_change_after_a_failed_import(patient: Fleet, tmp_path: Path, before: str) -> None:
    """`rl dev` neither exits nor repeats the error: the next change starts the worker."""
    code = tmp_path / "code" / "dev_tasks.py"
    code.parent.mkdir()
    code.write_text(before)
    member = patient.start("dev", "dev_tasks", cwd=code.parent)
    waits = "the worker cannot start with this code; correct it; saving the file restarts the worker"
    member.wait_said(waits)
    patient.let_pass(1)  # to check that the same code is not started again
    assert len(member.started()) == 1
    code.write_text("this is (no Python either")
    assert "SyntaxError" in member.wait_said(waits, 2)
    code.write_text(TASK.format(value=1))
    member.wait_said(" started: queues=", 1)
    assert answer.push().result(20) == 1
    code.write_text("broken again")
    member.wait_said(waits, 3)
    assert member.terminate(10) == 0
    assert len(member.started()) == 4
