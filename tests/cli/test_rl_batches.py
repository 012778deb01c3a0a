"""rl batches: list, show and cancel workflows; what `rl why` and `rl audit` report about them."""

from __future__ import annotations

import pytest

from relier.cli.audit import audit, auditor
from relier.ledger.batches.membership import BatchHeader, Member, packed_plan
from relier.ledger.records import Submission, new_task_id
from tests.support.cli_desk import Desk, Run, RunJson


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "PAUSE", 0.0)


def new(member: Member | None = None) -> Submission:
    return Submission(id=new_task_id(), name="shop.charge", payload=b"1", member=member)


def push(desk: Desk, size: int = 3, batch_id: str = "g") -> list[str]:
    plans = (("on_complete", packed_plan([], [new()])),)
    header = BatchHeader(id=batch_id, name="nightly", plans=plans)
    first = Member(batch=batch_id, place=0, how="opens", opens=(header,))
    tasks = [new(first), *(new(Member(batch=batch_id, place=n, how="with")) for n in range(1, size))]
    return [answer.id for answer in desk.run(desk.ledger.submit(tasks))]


def kinds(desk: Desk) -> set[str]:
    return {finding.kind for finding in audit(desk.store, desk.ledger, sleep=lambda _: None).findings}


def test_batches_are_listed_with_their_progress(desk: Desk, run: Run, run_json: RunJson) -> None:
    assert "No batches" in run("batches").output
    push(desk)
    (row,) = run_json("batches")["batches"]
    assert (row["id"], row["name"], row["state"]) == ("g", "nightly", "running")
    assert row["tasks"] == {"total": 3, "done": 0, "failed": 0, "cancelled": 0}
    assert "0 of 3" in run("batches", "list").output
    assert "No batches with failures" in run("batches", "--failed").output


def test_one_batch_is_shown_with_its_members(desk: Desk, run: Run, run_json: RunJson) -> None:
    task, *_ = push(desk)
    shown = run("batches", "show", "g")
    assert task in shown.output
    assert all(len(line) <= 80 for line in shown.output.splitlines())
    assert run_json("batches", "show", "g")["live"][0]["id"] == task
    assert run("batches", "show", "nothing").exit_code == 1


def test_a_long_list_of_members_says_how_many_are_left_out(desk: Desk, run: Run) -> None:
    push(desk, 25)
    shown = run("batches", "show", "g").stdout
    assert shown.count("not ended    task ") == 20
    assert "  not ended    and 5 more\n" in shown
    assert "  members      0 of 25 ended\n" in shown


def test_a_batch_is_found_by_the_beginning_of_its_id(desk: Desk, run: Run, run_json: RunJson) -> None:
    first, second = "01a1ddd643527871a4736346a795673b", "01a1ddff43527871b4736346a795673b"
    for batch_id in (first, second):
        push(desk, batch_id=batch_id)
    assert run_json("batches", "show", first[:8])["id"] == first
    told = run("batches", "show", "01a1")
    assert told.exit_code == 1
    assert told.stderr.splitlines()[0] == "rl: 2 batches begin with '01a1'; give more of the id:"
    assert [line.split() for line in told.stderr.splitlines()[1:]] == [
        [first[:18], "nightly"],
        [second[:18], "nightly"],
    ]
    assert run("batches", "cancel", second[:8]).stdout == f"Cancelled batch {second}.\n"
    assert run_json("batches", "show", first)["state"] == "running"


def test_a_batch_is_cancelled(desk: Desk, run: Run, run_json: RunJson) -> None:
    push(desk)
    assert "Would cancel batch g: 3 members have not ended." in run("batches", "cancel", "g", "--dry-run").output
    assert run_json("batches", "cancel", "g")["tasks"]["cancelled"] == 3
    assert "had already ended" in run("batches", "cancel", "g").output
    assert run_json("batches", "--failed")["batches"][0]["state"] == "cancelled"


def test_why_names_the_batch_of_a_member(desk: Desk, run: Run) -> None:
    task, *_ = push(desk)
    assert "It belongs to batch g" in run("why", task).output


def test_the_audit_accepts_sound_batches(desk: Desk) -> None:
    push(desk)
    assert kinds(desk) == set()
    prefix = desk.ledger.prefix
    desk.store.command("HINCRBY", f"{prefix}g:g", "done", 1)
    assert kinds(desk) == {"batch_counts"}
    desk.store.command("HINCRBY", f"{prefix}g:g", "done", -1)
    desk.store.command("ZREM", f"{prefix}batches", "g")
    assert kinds(desk) == {"batch_in_no_index"}
    desk.store.command("DEL", f"{prefix}g:g")
    assert kinds(desk) == {"side_without_batch", "member_without_batch"}
