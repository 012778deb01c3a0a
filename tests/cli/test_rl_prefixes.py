"""Short ids and names: the beginning of an id, the last part of a name."""

from __future__ import annotations

import pytest

from relier.cli.find import task_ids
from relier.states import State
from tests.support.cli_desk import Desk, Run, RunJson

A = "01a1ddd643527871a4736346a795673b"
B = "01a1ddd643527871b4736346a795673b"
C = "01a1ddff43527871b4736346a795673b"


def test_every_command_that_takes_an_id_takes_its_beginning(desk: Desk, run: Run, run_json: RunJson) -> None:
    desk.push(id=A, queue="a")
    desk.dead(id=C, queue="c")
    assert run_json("why", A[:8])["id"] == A
    assert run_json("tasks", "inspect", A[:8])["id"] == A
    assert run("tasks", "cancel", A[:8]).stdout == f"{A} cancelled.\n"
    assert run_json("dlq", "show", C[:8])["id"] == C
    assert run_json("dlq", "replay", C[:8], "--dry-run")["tasks"][0]["id"] == C
    assert run_json("dlq", "discard", C[:8])["tasks"] == [{"id": C, "outcome": "discarded", "error": None}]


def test_an_ambiguous_beginning_lists_the_candidates(desk: Desk, run: Run, run_json: RunJson) -> None:
    desk.push(id=A)
    desk.push(id=B, name="mail.send")
    result = run("why", A[:8])
    assert (result.exit_code, result.stdout) == (1, "")
    first, *candidates = result.stderr.splitlines()
    assert first == f"rl: 2 tasks begin with {A[:8]!r}; give more characters of the id:"
    assert [line.split() for line in candidates] == [
        [A[:19], "queued", "shop.charge"],
        [B[:19], "queued", "mail.send"],
    ]
    assert len(run_json("why", A[:8], code=1)["details"]) == 2
    assert run_json("why", A[:17])["id"] == A
    assert run("tasks", "cancel", A[:8]).exit_code == 1
    assert desk.get(A).record.state is State.QUEUED


def test_dead_letters_are_searched_among_the_dead_first(desk: Desk, run_json: RunJson) -> None:
    desk.push(id=A)
    desk.dead(id=B, queue="b")
    assert run_json("dlq", "show", A[:8])["id"] == B
    assert "2 tasks begin with" in run_json("why", A[:8], code=1)["error"]


def test_an_id_that_is_the_beginning_of_another_is_itself(desk: Desk, run_json: RunJson) -> None:
    desk.push(id="order-1")
    desk.push(id="order-12")
    assert run_json("why", "order-1")["id"] == "order-1"
    assert run_json("why", "order-12")["id"] == "order-12"
    assert "2 tasks begin with" in run_json("why", "order", code=1)["error"]


@pytest.mark.parametrize("given", ["01a", "*", "????", "01a1dde0", A])
def test_a_text_that_begins_no_id_is_reported_as_typed(desk: Desk, run: Run, given: str) -> None:
    desk.push(id=B)
    result = run("why", given)
    assert result.exit_code == 1
    assert f"There is no task {given}: " in result.stdout


def test_a_search_has_an_end(desk: Desk, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_ids, "MOST_KEYS", 1)
    desk.push(id=A)
    result = run("why", A[:8])
    assert result.exit_code == 1
    assert "too many to search for" in result.stderr
    assert run("why", A).exit_code == 0


def test_several_beginnings_need_one_search(desk: Desk, run_json: RunJson) -> None:
    for task_id in (A, C):
        desk.push(id=task_id)
    rows = run_json("tasks", "cancel", A[:8], C[:8], "nothing", code=1)["tasks"]
    assert [(row["id"], row["outcome"]) for row in rows] == [(A, "ok"), (C, "ok"), ("nothing", "refused")]


# --- names -------------------------------------------------------------------------------------------------------


def test_a_short_name_stands_for_the_whole_one(desk: Desk, run_json: RunJson) -> None:
    mine = desk.push(name="shop.mail.send_email")
    desk.push(name="shop.mail.resend_email")
    for name in ("send_email", "mail.send_email", "shop.mail.send_email"):
        assert [task["id"] for task in run_json("tasks", "--name", name)["tasks"]] == [mine]


@pytest.mark.parametrize("command", [["tasks"], ["dlq"]])
def test_a_misspelt_name_gets_a_suggestion(desk: Desk, run: Run, command: list[str]) -> None:
    desk.dead(name="shop.mail.send_email")
    assert run(*command, "--name", "send_emial").stdout.endswith(". Did you mean shop.mail.send_email?\n")
    assert run(*command, "--name", "shop.mial.send_email").stdout.endswith(" Did you mean shop.mail.send_email?\n")
    assert "Did you mean" not in run(*command, "--name", "xyzzy").stdout
    result = run("dlq", "discard", "--name", "send_emial")
    assert result.stdout == "0 tasks discarded.\n"
    assert result.stderr == "rl: no task is named 'send_emial'. Did you mean shop.mail.send_email?\n"


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_a_short_name_for_two_tasks_changes_neither(desk: Desk, run: Run, verb: str) -> None:
    desk.dead(name="shop.send", queue="a")
    desk.dead(name="mail.send", queue="b")
    result = run("dlq", verb, "--name", "send", "--yes")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "rl: --name send matches 2 tasks; nothing was changed; give the whole name:",
        "  mail.send",
        "  shop.send",
    ]
    assert run("dlq", verb, "--name", "mail.send", "--yes").stdout == f"1 task {verb}ed.\n"
