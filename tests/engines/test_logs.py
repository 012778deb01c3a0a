"""The log of `rl worker`: format, level, the application's own configuration, and the task on every line."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.support.fleet import Fleet, Member, wait_until
from tests.support.jobs import logging_app as app

MODULE = "tests.support.jobs.logging_app"


def objects(member: Member) -> list[dict[str, Any]]:
    """Return the lines of a log. Each must be a JSON object, except for lines that hooks print."""
    return [json.loads(line) for line in member.said().splitlines() if not line.startswith("HOOK ")]


def test_every_line_is_one_json_object_with_stable_keys(patient: Fleet) -> None:
    member = patient.worker(modules=[MODULE], RELIER_LOG_FORMAT="json")
    sent, alone, failed = app.send.push(), app.send_alone.push(), app.charge.push()
    patient.wait_done([sent.id, alone.id])
    patient.wait_ended([failed.id])
    member.wait_said("task dead: ")
    assert member.terminate() == 0
    lines = objects(member)
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    assert all(line["time"].endswith("+00:00") for line in lines)
    (worker_id,) = [line["message"].split()[1] for line in lines if " started: queues=" in line["message"]]
    task = {"task_id": sent.id, "task_name": app.send.name, "attempt": 1, "queue": "default", "worker_id": worker_id}
    body = [line for line in lines if line["logger"] == "shop.mail" and line["task_id"] == sent.id]
    assert [line["message"] for line in body] == [
        "sending mail",
        "not sent",
        "from a thread of asyncio's",
        "from a thread with the context",
    ]
    assert all(line | task == line for line in body)
    assert body[1]["address"] == "ann@example.com"
    assert body[1]["exception"].endswith("ValueError: invalid literal for int() with base 10: 'no\\nnumber'")
    (isolated,) = [line for line in lines if line["message"] == "sending alone"]
    assert (isolated["task_id"], isolated["worker_id"]) == (alone.id, worker_id)
    (done,) = [line for line in lines if line.get("task_event") == "succeeded" and line["task_id"] == sent.id]
    assert done | task == done
    assert done["run_s"] >= 0
    (dead,) = [line for line in lines if line.get("task_event") == "dead"]
    assert (dead["level"], dead["reason"], dead["error"]) == ("ERROR", "ValueError", "card 4711 was refused")
    assert dead["exception"].endswith("ValueError: card 4711 was refused")
    (retried,) = [line for line in lines if line.get("task_event") == "retried"]
    assert (retried["level"], retried["delay_s"], retried["attempt"]) == ("WARNING", 0.0, 1)


def test_on_a_console_the_task_follows_what_it_logs(patient: Fleet) -> None:
    member = patient.worker(modules=[MODULE])
    sent = app.send.push()
    patient.wait_done([sent.id])
    said = member.wait_said("task succeeded: ")
    where = f"[task={app.send.name} id={sent.id[:12]} attempt=1]"
    assert f"INFO shop.mail sending mail {where}\n" in said
    assert f"ERROR shop.mail not sent {where}\nTraceback (most recent call last):\n" in said
    (line,) = [line for line in said.splitlines() if "task succeeded: " in line]
    assert f"INFO relier.task task succeeded: name={app.send.name} id={sent.id} attempt=1 queue=default took=" in line
    assert where not in line, "its message already names the task"


def test_the_configuration_of_the_application_wins(patient: Fleet) -> None:
    """The application configures logging on import, in the worker and in isolated processes. Relier changes nothing
    about it."""
    member = patient.start("worker", MODULE, LOGGING_APP="basic", RELIER_LOG_FORMAT="json", RELIER_LOG_LEVEL="error")
    ids = [app.send.push().id, app.send_alone.push().id]
    patient.wait_done(ids)
    said = member.wait_said("task succeeded: ", 2)
    assert said.count("MINE INFO sending mail\n") == 1
    assert said.count("MINE INFO sending alone\n") == 1
    assert said.count("sending alone") == 1
    assert said.count("MINE INFO task started: ") == 2
    ours = [line for line in said.splitlines() if "sending" in line or "task " in line or "worker " in line]
    assert all(line.startswith("MINE ") for line in ours)


@pytest.mark.parametrize(
    ("options", "env", "levels"),
    [
        ([], {"RELIER_LOG_LEVEL": "WARNING"}, {"WARNING", "ERROR"}),
        (["--log-level", "error"], {"RELIER_LOG_LEVEL": "debug"}, {"ERROR"}),
        (["--processes", "1"], {"RELIER_LOG_LEVEL": "error"}, {"ERROR"}),
    ],
    ids=["setting", "option", "supervised"],
)
def test_the_level_is_that_of_the_option_or_else_of_the_setting(
    patient: Fleet, options: list[str], env: dict[str, str], levels: set[str]
) -> None:
    member = patient.start("worker", MODULE, *options, RELIER_LOG_FORMAT="json", **env)
    patient.wait_done([app.send.push().id, app.send_alone.push().id])
    patient.wait_ended([app.charge.push().id])
    member.wait_said("task dead: ")
    member.terminate()
    lines = objects(member)
    assert {line["level"] for line in lines} == levels
    assert "sending alone" not in {line["message"] for line in lines}, "isolated processes have the worker's level"


def test_debug_reaches_isolated_processes(patient: Fleet) -> None:
    member = patient.worker("--log-level", "debug", modules=[MODULE])
    patient.wait_done([app.send_alone.push().id])
    member.wait_said("DEBUG shop.mail in detail")


def test_events_show_only_what_the_redaction_hook_lets_through(patient: Fleet) -> None:
    member = patient.worker(modules=[MODULE], RELIER_REDACT=f"{MODULE}:redact")
    patient.wait_ended([app.charge.push().id])
    member.wait_said("HOOK dead card #### was refused")
    member.wait_said("HOOK retried card #### was refused")
    member.wait_said("error='card #### was refused'", 2)
    assert "4711" not in member.said()


def test_a_supervised_sibling_reports_the_tasks_of_a_dead_process(patient: Fleet) -> None:
    """The supervisor revives the tasks at once, but does not know the hooks."""
    member = patient.worker("--processes", "2", modules=[MODULE])
    receipt = app.hold.push("go")
    (begun,) = patient.wait_diary("begin", 1)
    member.signal(signal.SIGKILL, begun.pid)
    said = member.wait_said("HOOK revived its process was killed by signal 9")
    (line,) = [line for line in said.splitlines() if "task revived: " in line]
    assert f"WARNING relier.task task revived: name={app.hold.name} id={receipt.id} attempt=1 queue=default" in line
    patient.open_gate("go")
    patient.wait_done([receipt.id])


def test_a_replaced_process_reports_its_own_predecessor(patient: Fleet) -> None:
    member = patient.worker("--processes", "1", modules=[MODULE])
    receipt = app.hold.push("go")
    (begun,) = patient.wait_diary("begin", 1)
    member.signal(signal.SIGKILL, begun.pid)
    member.wait_said("HOOK revived its process was killed by signal 9")
    patient.open_gate("go")
    patient.wait_done([receipt.id])


def test_a_resurrector_names_the_tasks_that_it_revives(fleet: Fleet) -> None:
    worker = fleet.worker("--no-sweep", modules=[MODULE])
    receipt = app.hold.push("go")
    fleet.wait_diary("begin", 1)
    worker.kill_all()
    sweeper = fleet.start("resurrector", RELIER_LOG_FORMAT="json")
    sweeper.wait_said("task revived: ")
    (line,) = [line for line in objects(sweeper) if line.get("task_event") == "revived"]
    assert (line["task_id"], line["task_name"], line["level"]) == (receipt.id, app.hold.name, "WARNING")
    wait_until(lambda: fleet.stats().counts.get("revived") == 1, what="it was revived")


def test_structlog_gets_the_task_through_context_variables(patient: Fleet) -> None:
    from tests.support.jobs import structlog_app as other  # here: only this test needs structlog

    member = patient.worker(modules=["tests.support.jobs.structlog_app"])
    receipts = {task.push().id: task for task in (other.log_async, other.log_def, other.log_isolated)}
    patient.wait_done(receipts)
    said = member.wait_said('"from the body"', 3)
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert {line["task_id"] for line in lines} == set(receipts)
    for line in lines:
        assert line["task_name"] == receipts[line["task_id"]].name
        assert (line["attempt"], line["queue"], bool(line["worker_id"])) == (1, "default", True)
