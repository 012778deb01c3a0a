"""rl dlq: list, show, replay, discard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relier.cli import task_selection
from relier.cli.session import Session
from relier.cli.task_selection import SelectedTask, apply_move
from relier.envelope import open_envelope
from relier.errors import RedisConnectionError
from relier.settings import Settings
from relier.states import State
from tests.support.cli_desk import Desk, Run, RunJson, body, failure

# --- list and show -----------------------------------------------------------------------------------------------


def test_the_list_shows_dead_letters_and_their_total(desk: Desk, run: Run, run_json: RunJson) -> None:
    first = desk.dead()
    second = desk.dead("UnknownTaskError", "no task of that name", name="shop.old", queue="mail")
    for n, task in enumerate((first, second)):  # they may have died in the same millisecond
        desk.command("ZADD", desk.key("ended", "dead"), 10**15 + n, task)
    desk.push()
    answer = run_json("dlq")
    assert answer["total"] == 2
    told = [(task["id"], task["name"], task["reason"], task["message"], task["attempt"]) for task in answer["tasks"]]
    assert told == [
        (second, "shop.old", "UnknownTaskError", "no task of that name", 1),
        (first, "shop.charge", "ValueError", "no such customer", 1),
    ]
    assert run("dlq").stdout.splitlines()[-1] == "2 of 2 dead letters."
    for how in (["--reason", "UnknownTaskError"], ["--name", "shop.old"], ["--queue", "mail"]):
        assert [task["id"] for task in run_json("dlq", *how)["tasks"]] == [second]
    assert run("dlq", "--reason", "Nothing").stdout.startswith("No dead letters with reason 'Nothing' in ")


def test_show_prints_a_dead_letter_and_its_attempts(desk: Desk, run: Run, run_json: RunJson) -> None:
    lease = desk.start(payload=body("cus_9", 5000, note="été"))
    desk.run(desk.ledger.retry(lease, 0, failure("first")))
    desk.run(desk.ledger.forfeit(desk.claim().lease, "killed by signal 9"))
    last = desk.claim().lease
    desk.run(desk.ledger.checkpoint(last, 1, b"123"))
    desk.run(desk.ledger.step(last, "pay", b"1"))
    desk.run(desk.ledger.bury(last, "ValueError", failure("last")))

    answer = run_json("dlq", "show", lease.task_id)
    assert (answer["reason"], answer["message"]) == ("ValueError", "last")
    assert answer["traceback"].startswith("Traceback (most recent call last)")
    assert answer["payload"]["body"] == [["cus_9", 5000], {"note": "été"}]
    assert (answer["payload"]["kind"], answer["payload"]["schema_version"]) == ("envelope", 2)
    assert (answer["checkpoint_bytes"], answer["steps"]) == (3, ["pay"])
    attempts = answer["attempts"]
    assert [(a["attempt"], a["ended_by"], a["message"]) for a in attempts] == [
        (1, "retry", "first"),
        (2, "revive", "killed by signal 9"),
        (3, "bury", "last"),
    ]
    assert {a["worker"] for a in attempts} == {desk.boot}
    assert all(a["began_ms"] <= a["ended_ms"] for a in attempts)

    text = run("dlq", "show", lease.task_id).stdout
    for part in (
        "Reason: ValueError: last",
        "Traceback",
        "killed by signal 9",
        '"note": "été"',
        "unless you add --fresh",
    ):
        assert part in text


@pytest.mark.parametrize("payload", [b'["raw", 1]', b"\xff\x1b[2J", b""])
def test_show_prints_a_payload_that_is_not_an_envelope(desk: Desk, run: Run, run_json: RunJson, payload: bytes) -> None:
    task = desk.dead(payload=payload)
    assert "not an envelope" in run_json("dlq", "show", task)["payload"]["problem"]
    text = run("dlq", "show", task)
    assert text.exit_code == 0
    assert "\x1b" not in text.stdout


def test_show_refuses_a_task_that_is_not_dead(desk: Desk, run: Run) -> None:
    task = desk.push()
    result = run("dlq", "show", task)
    assert result.exit_code == 1
    assert result.stderr == f"rl: task {task} is queued, not dead; see `rl why {task}`\n"
    assert run("dlq", "show", "nothing").exit_code == 1


# --- which ones --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [["--queue", "default", "--name", ""], ["--reason", "", "--name", "x"], [""]])
def test_an_empty_id_or_filter_selects_nothing(desk: Desk, run: Run, run_json: RunJson, given: list[str]) -> None:
    """Such as a variable of the shell that is not set."""
    task = desk.dead()
    result = run("dlq", "discard", *given, "--yes")
    assert result.exit_code == 2
    assert "it is empty" in result.stderr
    assert run_json("dlq", "show", task)["id"] == task


def test_a_task_is_replayed_by_its_id(desk: Desk, run: Run) -> None:
    task, other = desk.dead(), desk.dead()
    result = run("dlq", "replay", task)
    assert (result.exit_code, result.stdout) == (0, "1 task replayed.\n")
    assert desk.get(task).record.state is State.QUEUED
    assert desk.get(other).record.state is State.DEAD


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (["--all"], {"a", "b", "c"}),
        (["--reason", "ValueError"], {"a", "b"}),
        (["--name", "shop.b"], {"b", "c"}),
        (["--queue", "mail"], {"c"}),
        (["--reason", "ValueError", "--name", "shop.b"], {"b"}),
    ],
)
@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_tasks_are_replayed_and_discarded_by_filter(
    desk: Desk, run_json: RunJson, verb: str, how: list[str], expected: set[str]
) -> None:
    ids = {
        "a": desk.dead(),
        "b": desk.dead(name="shop.b"),
        "c": desk.dead("KeyError", name="shop.b", queue="mail"),
    }
    answer = run_json("dlq", verb, *how, "--yes")
    assert answer[f"{verb}ed"] == len(expected)
    assert {task["id"] for task in answer["tasks"]} == {ids[name] for name in expected}
    assert desk.run(desk.ledger.stats()).ended["dead"] == 3 - len(expected)


@pytest.mark.parametrize("verb", ["replay", "discard"])
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ([], "no tasks selected"),
        (["id", "--all"], "cannot be combined"),
        (["id", "--reason", "x"], "cannot be combined"),
    ],
)
def test_a_selection_is_required(desk: Desk, run: Run, verb: str, how: list[str], says: str) -> None:
    result = run("dlq", verb, *how, "--yes")
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_many_tasks_are_not_changed_without_confirmation(desk: Desk, run: Run, verb: str) -> None:
    desk.dead()
    desk.dead("KeyError")
    result = run("dlq", verb, "--all")
    assert result.exit_code == 2
    assert "1 × KeyError in shop.charge" in result.stderr
    assert "add --yes" in result.stderr
    assert desk.run(desk.ledger.stats()).ended["dead"] == 2


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 0), ("n\n", 1, 2), ("\n", 1, 2)])
def test_a_terminal_asks_for_confirmation(
    desk: Desk, run: Run, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, left: int
) -> None:
    monkeypatch.setattr(task_selection, "is_interactive", lambda: True)
    desk.dead()
    desk.dead()
    result = run("dlq", "discard", "--all", input=answer)
    assert result.exit_code == code
    assert "Permanently delete 2 dead tasks in namespace" in result.stderr
    assert desk.run(desk.ledger.stats()).ended["dead"] == left


def test_a_filter_that_matches_nothing_changes_nothing(desk: Desk, run: Run) -> None:
    result = run("dlq", "replay", "--reason", "Nothing")
    assert (result.exit_code, result.stdout) == (0, "0 tasks replayed.\n")


def test_tasks_that_cannot_be_replayed_are_reported_one_by_one(desk: Desk, run: Run, run_json: RunJson) -> None:
    dead, queued = desk.dead(), desk.push()
    answer = run_json("dlq", "replay", "nothing", queued, dead, code=1)
    assert [row["outcome"] for row in answer["tasks"]] == ["refused", "refused", "replayed"]
    assert "is queued, not dead" in answer["tasks"][1]["error"]


def test_only_dead_tasks_are_discarded(desk: Desk, run: Run) -> None:
    for task in (desk.done(), desk.cancelled(), desk.push()):
        result = run("dlq", "discard", task)
        assert (result.exit_code, result.stdout) == (1, "0 tasks discarded of 1.\n")
        assert result.stderr.startswith(f"rl: task {task} is ")
        assert desk.get(task).record.id == task


def test_a_replay_whose_idempotency_key_is_taken_is_refused(desk: Desk, run: Run) -> None:
    dead = desk.dead(key="order-1", key_ttl_ms=1000)
    desk.push(key="order-1", key_ttl_ms=1000)
    result = run("dlq", "replay", dead)
    assert result.exit_code == 1
    assert "another task holds the idempotency key now" in result.stderr


# --- with another payload ----------------------------------------------------------------------------------------


def test_a_task_is_replayed_with_another_payload(desk: Desk, run: Run, tmp_path: Path) -> None:
    task = desk.dead(payload=body("cus_9", 5000))
    file = tmp_path / "payload.json"
    file.write_text('[ ["cus_1", 5000],\n {"note": "été", "big": 12345678901234567890} ]')
    assert run("dlq", "replay", task, "--payload", str(file)).exit_code == 0
    claimed = desk.claim()
    envelope = open_envelope(claimed.payload)
    assert json.loads(envelope.body) == [["cus_1", 5000], {"note": "été", "big": 12345678901234567890}]
    assert (envelope.schema_version, envelope.pushed_ms, envelope.trace) == (2, 1_700_000_000_000, "00-a-b-01")
    assert claimed.revision == 1


def test_a_payload_from_stdin_and_what_show_printed_fits(desk: Desk, run: Run, run_json: RunJson) -> None:
    task = desk.dead()
    shown = json.dumps(run_json("dlq", "show", task)["payload"]["body"])
    assert run("dlq", "replay", task, "--payload", "-", input=shown).exit_code == 0
    assert json.loads(open_envelope(desk.claim().payload).body) == [["cus_1", 5000], {}]


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"a": 1}', "[[], {}, 3]", "[[NaN], {}]", '[{"a": 1}, []]'])
def test_an_invalid_payload_is_refused(desk: Desk, run: Run, text: str) -> None:
    task = desk.dead()
    result = run("dlq", "replay", task, "--payload", "-", input=text)
    assert result.exit_code == 2
    assert "--payload" in result.stderr
    assert desk.get(task).record.state is State.DEAD


def test_an_edited_payload_needs_exactly_one_id(desk: Desk, run: Run) -> None:
    for how in (["--all", "--yes"], [desk.dead(), desk.dead()]):
        result = run("dlq", "replay", *how, "--payload", "-", input="[[], {}]")
        assert result.exit_code == 2
        assert "exactly one ID" in result.stderr
    assert run("dlq", "replay", "x", "--schema-version", "2").exit_code == 2


def test_a_damaged_payload_needs_a_schema_version(desk: Desk, run: Run) -> None:
    task = desk.dead("PayloadIntegrityError", payload=body("cus_1").replace(b"cus_1", b"cus_2"))
    result = run("dlq", "replay", task, "--payload", "-", input="[[1], {}]")
    assert result.exit_code == 2
    assert "pass --schema-version" in result.stderr
    assert run("dlq", "replay", task, "--payload", "-", "--schema-version", "3", input="[[1], {}]").exit_code == 0
    assert open_envelope(desk.claim().payload).schema_version == 3


def test_fresh_forgets_what_earlier_attempts_saved(desk: Desk, run: Run) -> None:
    for how, kept in (([], b"123"), (["--fresh"], None)):
        lease = desk.start()
        desk.run(desk.ledger.checkpoint(lease, 1, b"123"))
        desk.run(desk.ledger.bury(lease, "ValueError", "x"))
        assert run("dlq", "replay", lease.task_id, *how).exit_code == 0
        assert desk.claim().checkpoint == kept


# --- at a rate ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0", "-1", "fast", "5/d", "nan", "inf"])
def test_invalid_rates_are_refused(desk: Desk, run: Run, text: str) -> None:
    result = run("dlq", "replay", "x", "--rate", text)
    assert result.exit_code == 2
    assert "is not a rate; write 50, 50/s or 300/m" in result.stderr


@pytest.mark.parametrize(("rate", "steps"), [(None, 1), (1000.0, 1), (100.0, 3), (10.0, 25), (0.5, 25)])
def test_a_replay_keeps_to_the_given_rate(desk: Desk, settings: Settings, rate: float | None, steps: int) -> None:
    chosen = [SelectedTask(desk.dead(), 3) for _ in range(25)]
    clock = [100.0]
    done: list[float] = []

    def move(task: SelectedTask) -> Any:
        done.append(clock[0] - 100.0)
        return desk.ledger.replay(task.id, task.version, "nonce")

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    with Session(settings.redis_url, settings.namespace) as session:
        outcomes = apply_move(session, chosen, move, rate=rate, sleep=sleep, clock=lambda: clock[0])
    assert [outcome.error for outcome in outcomes] == [None] * 25
    assert len(set(done)) == steps
    if rate is not None:
        assert all(n + 1 <= rate * at + max(1, rate / 10) + 1e-6 for n, at in enumerate(done))


def test_an_outage_midway_stops_the_command_and_is_reported_once(
    desk: Desk, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(250):
        desk.dead()
    real = Session.run_many
    calls: list[int] = []

    def failing(self: Session, batch: Any) -> Any:
        batch = list(batch)
        calls.append(len(batch))
        return real(self, batch) if len(calls) < 2 else [RedisConnectionError("the store is down") for _ in batch]

    monkeypatch.setattr(Session, "run_many", failing)
    result = run("dlq", "replay", "--all", "--yes")
    assert result.exit_code == 3
    assert calls == [100, 100]
    assert result.stderr == "rl: the store is down\n"
    assert result.stdout == "100 tasks replayed of 250.\n"
