"""The names of commands, options before and after them, orders, counts and dry runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from relier.cli.commands.tasks.inflight import EventPrinter, running, watch
from relier.cli.main import rl
from relier.cli.session import Session
from relier.cli.task_list import TaskFilter
from relier.envelope import open_envelope
from relier.settings import Settings
from relier.states import State
from tests.support.cli_desk import Desk, Run, RunJson, failure

PUBLIC = [
    "tasks list", "tasks inspect", "tasks inflight", "tasks cancel", "tasks top", "dlq list", "dlq show", "dlq replay",
    "dlq edit", "dlq discard", "workers status", "workers drain", "admission status", "admission reset", "config show",
    "config validate", "queues list", "queues pause", "queues resume", "schedules list", "schedules next",
    "schedules history", "schedules pause", "schedules resume", "schedules run", "schedules remove", "schedules add",
]  # fmt: skip


def ids_of(answer: dict[str, Any]) -> list[str]:
    return [task["id"] for task in answer["tasks"]]


# --- names and options -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLIC)
def test_the_names_of_public_documents_work(name: str) -> None:
    told = CliRunner().invoke(rl, [*name.split(), "--help"])
    assert told.exit_code == 0
    assert all(option in told.output for option in ("--json", "--url", "--namespace"))
    changes = name.split()[1] in ("cancel", "replay", "edit", "discard", "drain", "reset", "pause", "resume", "remove")
    assert ("--dry-run" in told.output) == changes


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("tasks", "tasks list"),
        ("tasks ls", "tasks list"),
        ("tasks --state dead", "tasks list --state dead"),
        ("dlq", "dlq list"),
        ("dlq --reason KeyError", "dlq list --reason KeyError"),
        ("workers list", "workers status"),
        ("queues", "queues list"),
        ("schedules", "schedules list"),
        ("schedules ls", "schedules list"),
        ("admission", "admission status"),
        ("config", "config show"),
    ],
)
def test_a_group_without_a_command_has_a_usual_one(desk: Desk, run_json: RunJson, short: str, whole: str) -> None:
    desk.dead()
    answers = [run_json(*words.split()) for words in (short, whole)]
    for answer in answers:
        answer.pop("now_ms", None)
        for worker in answer.get("workers", []):
            worker.pop("lease_left_ms")
    assert answers[0] == answers[1]


def test_options_may_stand_before_and_after_every_name(settings: Settings) -> None:
    where = ["--url", settings.redis_url, "--namespace", settings.namespace, "--json"]
    for words in (["tasks", "list"], ["dlq", "list"], ["workers", "status"], ["admission", "status"]):
        for at in range(len(words) + 1):
            told = CliRunner().invoke(rl, [*words[:at], *where, *words[at:]])
            assert told.exit_code == 0, told.output
            assert json.loads(told.stdout)["namespace"] == settings.namespace
    told = CliRunner().invoke(rl, ["tasks", f"--url={settings.redis_url}", "--json", "--state", "dead"])
    assert json.loads(told.stdout)["namespace"] == "default"


def test_a_misspelt_command_of_a_group_gets_a_suggestion(run: Run) -> None:
    result = run("dlq", "repaly")
    assert result.exit_code == 2
    assert "did you mean `rl dlq replay`?" in result.stderr


# --- order and counts --------------------------------------------------------------------------------------------


def test_the_newest_come_first_and_scheduled_tasks_by_when_they_are_due(desk: Desk, run_json: RunJson) -> None:
    dead = [desk.dead() for _ in range(2)]
    running = [desk.start().task_id for _ in range(2)]
    for n, task in enumerate(running):  # they may have started in the same millisecond
        desk.command("ZADD", desk.key("owned", desk.boot), 1000 + n, task)
    for n, task in enumerate(dead):
        desk.command("ZADD", desk.key("ended", "dead"), 10**15 + n, task)
    queued = [desk.push(queue=queue) for queue in ("b", "a", "b")]
    later, soon = desk.push(delay_ms=9_000_000), desk.push(delay_ms=60_000)
    answer = run_json("tasks")
    assert ids_of(answer) == [*reversed(running), *reversed(queued), soon, later, *reversed(dead)]
    due = {task["id"]: task["due_ms"] for task in answer["tasks"]}
    assert due[later] - due[soon] > 8_000_000
    assert due[queued[0]] is None


def test_running_tasks_of_all_workers_are_in_one_order(desk: Desk, run_json: RunJson) -> None:
    other = desk.join(queues=["default"])
    ids = []
    for boot in (desk.boot, other, desk.boot):
        ids.append(desk.push())
        desk.claim(boot=boot)
        desk.command("ZADD", desk.key("owned", boot), 1000 * len(ids), ids[-1])
    assert ids_of(run_json("tasks")) == ids[::-1]
    first = run_json("tasks", "--limit", "2")
    assert ids_of(first) + ids_of(run_json("tasks", "--cursor", first["cursor"])) == ids[::-1]


def test_retries_deaths_and_resurrections_are_counted(desk: Desk, run_json: RunJson) -> None:
    lease = desk.start()
    desk.run(desk.ledger.retry(lease, 0, failure()))
    desk.run(desk.ledger.forfeit(desk.claim().lease, "killed"))
    (task,) = run_json("tasks")["tasks"]
    assert (task["retries"], task["deaths"], task["resurrections"]) == (1, 1, 1)
    desk.run(desk.ledger.bury(desk.claim().lease, "ValueError", failure()))
    answer = run_json("dlq")
    assert answer["totals"] == {"retries": 1, "resurrections": 1, "dead_letters": 1}
    assert (answer["tasks"][0]["retries"], answer["tasks"][0]["deaths"]) == (1, 1)
    assert run_json("tasks", "inspect", lease.task_id)["resurrections"] == 1


def test_a_lost_worker_counts_as_a_death_of_its_task(desk: Desk, run_json: RunJson) -> None:
    lost = desk.start(on_lost="bury").task_id
    desk.run(desk.ledger.revive(worker_id=desk.boot, cause="killed"))
    task = run_json("tasks", "inspect", lost)
    assert (task["deaths"], task["resurrections"]) == (1, 0)


# --- inspect, top, inflight --------------------------------------------------------------------------------------


def test_inspect_shows_everything_about_a_task(desk: Desk, run: Run, run_json: RunJson) -> None:
    lease = desk.start(key="order-1", key_ttl_ms=1000)
    desk.run(desk.ledger.step(lease, "pay", b"1"))
    answer = run_json("tasks", "inspect", lease.task_id)
    assert (answer["state"], answer["key"], answer["steps"]) == ("running", "order-1", ["pay"])
    assert answer["payload"]["body"] == [["cus_1", 5000], {}]
    assert answer["story"][-1]["says"].startswith("Checkpoints and steps")
    told = run("tasks", "inspect", lease.task_id).stdout
    for part in ("State:    running", "Key:      order-1", "Saved:    steps pay", '"cus_1"', "Attempt 1 started"):
        assert part in told
    assert run("tasks", "inspect", "nothing").exit_code == 1


def test_top_counts_tasks_by_name_and_state(desk: Desk, run: Run, run_json: RunJson) -> None:
    desk.start(name="shop.busy")
    for queue in ("a", "b"):
        desk.push(name="shop.full", queue=queue)
    desk.dead(name="shop.full", queue="c")
    answer = run_json("tasks", "top")
    counts = {row["name"]: (row["running"], row["queued"], row["dead"]) for row in answer["names"]}
    assert list(counts.items()) == [("shop.busy", (1, 0, 0)), ("shop.full", (0, 2, 1))]
    assert (answer["read"], answer["complete"]) == (4, True)
    assert run_json("tasks", "top", "--queue", "a")["names"][0]["queued"] == 1
    assert run_json("tasks", "top", "--sample", "1")["complete"] is False
    assert "! Only the newest 1 tasks of each state were read" in run("tasks", "top", "--sample", "1").stdout
    assert run("tasks", "top").stdout.splitlines()[-1] == "2 of 2 names, 4 tasks read."


def test_inflight_lists_running_tasks(desk: Desk, run: Run, run_json: RunJson) -> None:
    assert run("tasks", "inflight").stdout.startswith("No task is running in ")
    mine = desk.start(name="shop.render")
    desk.run(desk.ledger.progress(mine, "40 of 100"))
    desk.push()
    answer = run_json("tasks", "inflight")
    assert [(task["id"], task["progress"]) for task in answer["tasks"]] == [(mine.task_id, "40 of 100")]
    assert "40 of 100" in run("tasks", "inflight").stdout
    assert ids_of(run_json("tasks", "inflight", "--worker", desk.boot[:8])) == [mine.task_id]
    assert ids_of(run_json("tasks", "inflight", "--worker", "other")) == []
    other = desk.join(queues=["mail"])
    desk.push(queue="mail")
    desk.claim("mail", other)
    assert ids_of(run_json("tasks", "inflight", "--worker", desk.boot, "--limit", "1")) == [mine.task_id]
    assert ids_of(run_json("tasks", "inflight", "--name", "render")) == [mine.task_id]


@pytest.mark.parametrize("as_json", [False, True])
def test_following_prints_what_starts_and_ends(
    desk: Desk, settings: Settings, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    first = desk.start()
    turns: list[Any] = [
        lambda: desk.start(),
        lambda: desk.run(desk.ledger.commit([(first, b"1", ())])),
    ]

    def wait() -> bool:
        if turns:
            turns.pop(0)()
            return True
        return False

    with Session(settings.redis_url, settings.namespace, as_json=as_json) as session:
        watch(lambda: running(session, TaskFilter([State.RUNNING]), "", 50), EventPrinter(session), wait)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    if as_json:
        assert [json.loads(line)["event"] for line in lines] == ["started", "started", "done"]
        assert json.loads(lines[2])["task"]["id"] == first.task_id
    else:
        assert [line.split()[1] for line in lines] == ["started", "started", "done"]
        assert first.task_id in lines[2]


# --- cancel, dry runs, edit --------------------------------------------------------------------------------------


def test_cancel_takes_a_filter(desk: Desk, run: Run, run_json: RunJson) -> None:
    waiting = [desk.push(name="shop.mail", queue="mail") for _ in range(2)]
    started = desk.start(name="shop.mail").task_id
    other = desk.push()
    assert "add --yes" in run("tasks", "cancel", "--name", "mail").stderr
    dry = run_json("tasks", "cancel", "--name", "mail", "--dry-run")
    assert (dry["cancelled"], {row["id"] for row in dry["tasks"]}) == (0, {*waiting, started})
    assert run("tasks", "cancel", "--name", "mail", "--dry-run").stdout == (
        "3 tasks would be cancelled.\n  3 × shop.mail\n"
    )
    assert desk.get(waiting[0]).record.state is State.QUEUED
    result = run("tasks", "cancel", "--name", "mail", "--yes")
    assert result.stdout == "2 tasks cancelled, and 1 running one asked to stop, of 3 selected.\n"
    assert desk.get(other).record.state is State.QUEUED


def test_dry_runs_change_nothing(desk: Desk, run: Run, run_json: RunJson) -> None:
    dead, done = desk.dead(), desk.done()
    for verb in ("replay", "discard"):
        answer = run_json("dlq", verb, dead, done, "--dry-run", code=1)
        assert [row["outcome"] for row in answer["tasks"]] == [f"would be {verb}ed", "refused"]
        assert run("dlq", verb, "--all", "--dry-run").stdout == (
            f"1 task would be {verb}ed.\n  1 × ValueError in shop.charge\n"
        )
        assert desk.get(dead).record.state is State.DEAD
    waiting = desk.push(queue="mail")
    assert run("tasks", "cancel", waiting, "--dry-run").stdout.startswith("1 task would be cancelled.")
    assert desk.get(waiting).record.state is State.QUEUED
    assert run("queues", "pause", "mail", "--dry-run").stdout.startswith("Queue 'mail' would be paused. 1 task waits")
    assert run("queues", "resume", "mail", "--dry-run").stdout.startswith("Queue 'mail' is already running.")
    assert run_json("queues", "pause", "mail", "--dry-run")["would_change"] is True
    assert not any(queue["paused"] for queue in run_json("queues")["queues"])


def editor_that(tmp_path: Path, code: str) -> dict[str, str]:
    """Return the environment of an editor that changes the text of a file with Python code."""
    script = tmp_path / "edit.py"
    script.write_text(f"import sys\nfile = open(sys.argv[1], 'r+')\ntext = file.read()\n{code}\n")
    return {"VISUAL": f"{sys.executable} {script}"}


REPLACE = "file.seek(0); file.truncate(); file.write(text.replace('cus_1', 'cus_2')); file.close()"


def test_edit_replays_with_other_arguments(desk: Desk, run: Run, tmp_path: Path) -> None:
    task = desk.dead()
    env = editor_that(tmp_path, REPLACE)
    dry = run("dlq", "edit", task[:16], "--dry-run", env=env)
    assert "cus_2" in dry.stdout
    assert desk.get(task).record.state is State.DEAD
    result = run("dlq", "edit", task[:16], env=env)
    assert (result.exit_code, result.stdout) == (0, "1 task replayed.\n")
    assert json.loads(open_envelope(desk.claim().payload).body) == [["cus_2", 5000], {}]


def test_edit_without_a_change_does_nothing(desk: Desk, run: Run, tmp_path: Path) -> None:
    task = desk.dead()
    result = run("dlq", "edit", task, env=editor_that(tmp_path, "pass"))
    assert result.exit_code == 1
    assert result.stderr == "Nothing was changed, and the task was not replayed.\n"
    assert desk.get(task).record.state is State.DEAD


def test_payloads_that_cannot_be_edited_are_refused(desk: Desk, run: Run, tmp_path: Path) -> None:
    env = editor_that(tmp_path, REPLACE)
    assert "is queued, not dead" in run("dlq", "edit", desk.push(queue="a"), env=env).stderr
    assert "use `rl dlq replay --payload`" in run("dlq", "edit", desk.dead(payload=b"raw"), env=env).stderr
    hidden = {**env, "RELIER_REDACT": "tests.support.cli_desk:hide_all"}
    assert "hides part of it" in run("dlq", "edit", desk.dead(), env=hidden).stderr


# --- completion --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell: str) -> None:
    told = CliRunner().invoke(rl, ["completion", shell])
    assert told.exit_code == 0
    assert f"_RL_COMPLETE={shell}_complete" in told.stdout


@pytest.mark.parametrize(
    ("typed", "offers"),
    [
        (["rl", "ta"], {"tasks"}),
        (["rl", "tasks", ""], {"list", "inspect", "inflight", "top", "cancel", "forget"}),
        (["rl", "dlq", "re"], {"replay"}),
        (["rl", "tasks", "list", "--sta"], {"--state"}),
        (["rl", "tasks", "list", "--state", "de"], {"dead"}),
        (["rl", "tasks", "--state", "de"], {"dead"}),
        (["rl", "tasks", "--json", "l"], {"list"}),
    ],
)
def test_completion_offers_commands_and_options(typed: list[str], offers: set[str]) -> None:
    env = os.environ | {
        "_RL_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(typed),
        "COMP_CWORD": str(len(typed) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "relier.cli"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert {line.partition(",")[2] for line in done.stdout.split()} == offers, done.stderr
