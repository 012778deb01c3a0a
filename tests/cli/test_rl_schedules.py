"""rl schedules: what it shows, changes and refuses. rl scheduler fires without the application's code."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relier import Client, Schedules
from relier.ledger.records import Submission, new_task_id
from relier.schedules.definition import intended_time_of, run_id
from relier.settings import Settings
from tests.support.cli_desk import Desk, Run, RunJson
from tests.support.jobs.common import quick
from tests.support.terminals import in_terminal, unstyled

TASK = quick.name


@pytest.fixture
def book(settings: Settings, desk: Desk) -> Any:
    client = Client(settings)
    yield Schedules(client)
    client.close()


def names(answer: dict[str, Any]) -> list[str]:
    return [row["name"] for row in answer["schedules"]]


def test_an_empty_list_says_where_it_looked(settings: Settings, run: Run, run_json: RunJson) -> None:
    assert run("schedules").stdout.startswith(f"No schedules in namespace {settings.namespace!r}")
    assert run_json("schedules")["schedules"] == []


def test_reading_writes_nothing(settings: Settings, run: Run, desk: Desk) -> None:
    desk.command("DEL", desk.key("meta"))
    run("schedules")
    assert desk.command("EXISTS", desk.key("meta")) == 0


def test_a_schedule_is_added_listed_and_removed(run: Run, run_json: RunJson, desk: Desk) -> None:
    told = run("schedules", "add", "nightly", TASK, "--cron", "0 3 * * *", "--tz", "Europe/Paris")
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith(f"Schedule 'nightly' runs {TASK} (0 3 * * * Europe/Paris). Next: in ")
    listed = run("schedules").stdout
    assert listed.splitlines()[0].split() == ["NAME", "STATE", "SCHEDULE", "TASK", "NEXT", "LAST", "GROUP", "ORIGIN"]
    assert "0 3 * * * Europe/Paris" in listed
    (row,) = run_json("schedules")["schedules"]
    assert (row["name"], row["state"], row["task"], row["next_ms"] % 1000) == ("nightly", "active", TASK, 0)
    assert run("schedules", "remove", "nightly", "--dry-run").stdout == "Schedule 'nightly' would be removed.\n"
    assert names(run_json("schedules")) == ["nightly"]
    assert run("schedules", "remove", "nightly").stdout == "Schedule 'nightly' was removed.\n"
    assert names(run_json("schedules")) == []


def test_next_shows_the_time_of_the_schedules_zone_and_utc(run: Run, run_json: RunJson, book: Schedules) -> None:
    book.create("s", quick, cron="0 3 * * *", tz="Europe/Paris")
    headers, *lines = run("schedules", "next", "s", "-n", "3").stdout.splitlines()
    assert headers.split() == ["TIME", "UTC", "DUE"]
    for line, at in zip(lines, book.next_times("s", 3), strict=True):
        assert line.startswith(f"{at:%a %Y-%m-%d} 03:00:00 CE")
        assert f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}  in " in line
    assert [datetime.fromisoformat(at) for at in run_json("schedules", "next", "s", "-n", "3")["times"]] == list(
        book.next_times("s", 3)
    )
    book.pause("s")
    assert run("schedules", "next", "s").stdout.startswith(
        "Schedule 's' is paused; if it were active, it would be due:"
    )
    book.create("utc", quick, cron="0 3 * * *")
    headers, first, *_ = run("schedules", "next", "utc").stdout.splitlines()
    assert headers.split() == ["TIME", "DUE"]
    assert " 03:00:00 UTC  in " in first


def test_a_schedule_is_paused_and_resumed(run: Run, run_json: RunJson, book: Schedules) -> None:
    book.create("s", quick, every=60)
    assert run("schedules", "pause", "s", "--dry-run").stdout == "Schedule 's' would be paused.\n"
    assert book.get("s").state == "active"
    assert run("schedules", "pause", "s").stdout == "Schedule 's' is now paused.\n"
    assert run("schedules", "pause", "s").stdout == "Schedule 's' is already paused.\n"
    assert run_json("schedules", "pause", "s") == {"name": "s", "state": "paused", "changed": False}
    assert run_json("schedules", "resume", "s", "--dry-run")["would_change"] is True
    assert run("schedules", "resume", "s").stdout.startswith("Schedule 's' is now active. Next: ")


def test_run_pushes_the_task_once(run: Run, run_json: RunJson, book: Schedules, desk: Desk) -> None:
    book.create("s", quick, every=60, queue="mail")
    task_id = run_json("schedules", "run", "s")["id"]
    assert desk.get(task_id).record.queue == "mail"
    assert "was pushed to queue 'mail' as" in run("schedules", "run", "s").stdout


def test_history_shows_the_last_occurrences(run: Run, run_json: RunJson, book: Schedules, desk: Desk) -> None:
    book.create("s", quick, every=60)
    assert run("schedules", "history", "s").stdout == "Schedule 's' has not fired yet.\n"
    stored = desk.run(desk.ledger.schedules("s")).schedules[0]
    now = desk.run(desk.ledger.schedules("s")).now_ms
    desk.command("ZADD", desk.key("schedules", "native"), now - 90_000, "s")
    fire = desk.ledger.fire("s", stored.version, now - 90_000, now + 60_000, [], missed=2)
    assert desk.run(fire).verdict == "ok"
    assert "missed 2" in run("schedules", "history", "s").stdout
    (entry,) = run_json("schedules", "history", "s")["history"]
    assert (entry["outcome"], entry["skipped"]) == ("missed", 2)


def test_a_skipped_occurrence_names_the_run_that_has_not_ended(run: Run, book: Schedules, desk: Desk) -> None:
    book.create("s", quick, every=60)
    stored = desk.run(desk.ledger.schedules("s")).schedules[0]
    first, version = new_task_id(), stored.version
    for task_id in (first, new_task_id()):
        now = desk.run(desk.ledger.schedules("s")).now_ms
        desk.command("ZADD", desk.key("schedules", "native"), now - 1000, "s")
        task = Submission(id=task_id, name=TASK, payload=b"1")
        fire = desk.ledger.fire("s", version, now - 1000, now + 60_000, [(now - 1000, task)], overlap="skip")
        answer = desk.run(fire)
        assert answer.verdict == "ok"
        version = answer.version
    _, newest, oldest = run("schedules", "history", "s").stdout.splitlines()
    assert "  skipped: previous run not ended  " in newest
    assert newest.endswith(first)
    assert oldest.endswith(first)
    assert "  skipped " in run("schedules").stdout


def test_the_id_of_a_run_has_its_time() -> None:
    assert intended_time_of(run_id("ns", "nightly", "1", 1_794_720_833_000)) == 1_794_720_833_000
    assert intended_time_of(new_task_id()) is None
    assert intended_time_of("nightly-report-of-the-whole-shop") is None


def test_an_overdue_schedule_is_shown_as_such(run: Run, book: Schedules, desk: Desk) -> None:
    book.create("s", quick, every=3600)
    now = desk.run(desk.ledger.schedules("s")).now_ms
    desk.command("ZADD", desk.key("schedules", "native"), now - 600_000, "s")
    assert "overdue, 10 min ago" in run("schedules").stdout
    desk.command("ZADD", desk.key("schedules", "native"), now, "s")
    assert "  now" in run("schedules").stdout.splitlines()[1]


def test_why_names_the_schedule_that_pushed_a_task(run: Run, book: Schedules, desk: Desk, settings: Settings) -> None:
    for name in ("another", "nightly"):
        book.create(name, quick, every=60)
    stored = desk.run(desk.ledger.schedules("nightly")).schedules[0]
    due = desk.run(desk.ledger.schedules("nightly")).now_ms - 1000
    desk.command("ZADD", desk.key("schedules", "native"), due, "nightly")
    task_id = run_id(settings.namespace, "nightly", stored.version, due)
    fire = desk.ledger.fire(
        "nightly", stored.version, due, due + 60_000, [(due, Submission(id=task_id, name=TASK, payload=b"1"))]
    )
    assert desk.run(fire).verdict == "ok"
    assert "Schedule 'nightly' pushed it, for " in run("why", task_id).stdout
    assert "Schedule" not in run("why", desk.push()).stdout
    book.remove("nightly")
    assert "Schedule" not in run("why", task_id).stdout


def test_doctor_reports_a_schedule_that_nobody_fires(run_json: RunJson, book: Schedules, desk: Desk) -> None:
    assert "schedules" not in {check["check"] for check in run_json("doctor")["checks"]}
    book.create("nightly", quick, every=60)
    (sound,) = [check for check in run_json("doctor")["checks"] if check["check"] == "schedules"]
    assert (sound["level"], sound["says"]) == ("ok", "1 schedule, none late.")
    now = desk.run(desk.ledger.schedules("nightly")).now_ms
    desk.command("ZADD", desk.key("schedules", "native"), now - 90_000, "nightly")
    (late,) = [check for check in run_json("doctor", code=1)["checks"] if check["check"] == "schedules"]
    assert late["says"].startswith("Schedule 'nightly' was due ")
    assert late["says"].endswith(" ago: nobody fires it.")
    assert late["advice"] == "Start `rl worker` or `rl scheduler`."


@pytest.mark.parametrize("act", ["next", "history", "pause", "resume", "run", "remove"])
def test_an_unknown_name_is_answered_with_the_closest(run: Run, book: Schedules, act: str) -> None:
    book.create("nightly", quick, every=60)
    result = run("schedules", act, "nigthly")
    assert result.exit_code == 1
    assert "there is no schedule 'nigthly'; did you mean 'nightly'?" in result.output
    assert "`rl schedules` lists them" in run("schedules", act, "zzz").output


def test_an_unknown_command_is_answered_with_the_closest(run: Run) -> None:
    assert "did you mean `rl schedules resume`?" in run("schedules", "resum", "x").output


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no time": ((TASK,), "exactly one of cron, every, at or when"),
    "a bad expression": ((TASK, "--cron", "x"), "cron expression 'x' is invalid"),
    "an unknown zone": ((TASK, "--cron", "* * * * *", "--tz", "Mars"), "no time zone 'Mars'"),
    "a time without a zone": ((TASK, "--at", "2030-01-01T00:00"), "with a time zone"),
    "no time at all": ((TASK, "--at", "soon"), "--at 'soon' is not a time"),
    "arguments that are no JSON": ((TASK, "--every", "5", "--args", "{x"), "--args is not JSON"),
    "arguments of another kind": ((TASK, "--every", "5", "--args", "5"), "a JSON list or object"),
    "an unknown argument": ((TASK, "--every", "5", "--args", '{"nope": 1}'), "do not fit the task"),
    "an unknown task": (
        ("tests.support.jobs.common.quik", "--every", "5"),
        "did you mean tests.support.jobs.common.quick",
    ),
    "an unknown module": (("no.such.task", "--every", "5"), "cannot be imported"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_refused(run: Run, run_json: RunJson, desk: Desk, case: str) -> None:
    words, why = WRONG[case]
    result = run("schedules", "add", "s", *words)
    assert result.exit_code == (1 if case == "an unknown module" else 2), result.output
    assert why in result.output
    assert names(run_json("schedules")) == []


def test_at_is_one_time(run: Run, desk: Desk) -> None:
    at = datetime.now(UTC) + timedelta(days=2)
    result = run("schedules", "add", "s", TASK, "--at", at.isoformat(), "--args", "[]", "--catch-up", "skip")
    assert "Next: in 1 d" in result.stdout or "Next: in 2 d" in result.stdout


def test_a_list_fits_a_terminal(settings: Settings, book: Schedules) -> None:
    where = ["--url", settings.redis_url, "--namespace", settings.namespace]
    for n in range(3):
        book.create(f"a schedule with a long name {n}", quick, cron="*/5 9-17 * * MON-FRI", tz="America/New_York")
    for width in (80, 120):
        shown = unstyled(in_terminal(["schedules", *where], width))
        assert max(len(line) for line in shown.splitlines()) <= width
        assert "a schedule with" in shown
        assert shown.count("*/5 9-17 * * MON-FRI") == shown.count("America/New_York") == 3
