"""rl why: the history of one task, in words."""

from __future__ import annotations

import json
import re

import pytest

from relier.cli.task_timeline import replay_position, time_of_id
from relier.ledger.records import HistoryEntry, Record, Task, new_task_id
from relier.ledger.replies import read_spec
from relier.states import BY_WORD
from tests.support.cli_desk import Desk, Run, RunJson, failure


def story(run: Run, task: str) -> list[str]:
    result = run("why", task)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def has(lines: list[str], *parts: str) -> str:
    """Return the only line that contains all the parts."""
    found = [line for line in lines if all(part in line for part in parts)]
    assert len(found) == 1, (parts, lines)
    return found[0]


def test_a_waiting_task_is_explained(desk: Desk, run: Run) -> None:
    desk.push()
    desk.push()
    lines = story(run, desk.push(priority=-2))
    assert lines[0].startswith("Accepted ")
    assert _timeless(lines[0]).endswith("(then) as shop.charge in queue default, priority -2, durability memory.")
    has(lines, "It waits: 2 tasks are ahead of it in its queue.")
    has(lines, "1 worker serves the queue.")


def test_the_next_in_line_of_a_paused_queue_is_explained(desk: Desk, run: Run) -> None:
    task = desk.push()
    run("queues", "pause", "default")
    lines = story(run, task)
    has(lines, "It waits: it is next in its queue, and the queue is paused.")
    has(lines, "rl queues resume default")


def test_a_queue_without_workers_is_named(desk: Desk, run: Run) -> None:
    lines = story(run, desk.push(queue="mail"))
    has(lines, "No worker serves this queue: 1 is alive, for default. Start a worker for queue mail.")
    desk.run(desk.ledger.register("quiet", 600_000, "{}"))
    has(story(run, desk.push(queue="mail")), "unknown whether a worker serves the queue: not all")


def test_a_fleet_without_live_workers_is_named(desk: Desk, run: Run) -> None:
    task = desk.push()
    desk.run(desk.ledger.retire(desk.boot))
    has(story(run, task), "No worker is alive. Start one with `rl worker`.")


def test_workers_without_a_free_slot_are_counted(desk: Desk, run: Run) -> None:
    for _ in range(4):
        desk.start()
    has(story(run, desk.push()), "1 worker serves the queue, and all 4 slots are busy.")


def test_a_scheduled_task_is_explained(desk: Desk, run: Run) -> None:
    lines = story(run, desk.push(delay_ms=3_660_000, expires_in_ms=7_260_000, key="order-1", key_ttl_ms=1))
    has(lines, "It is scheduled, due at ", "(in 1 h)")
    has(lines, "It is cancelled if it has not started by ", "(in 2 h)")
    has(lines, "It holds idempotency key 'order-1'.")


def test_a_running_task_is_explained(desk: Desk, run: Run) -> None:
    task = desk.start().task_id
    lines = story(run, task)
    has(lines, "Attempt 1 started ", f"on worker {desk.boot} (host web1, process 4242) and is running.")
    has(lines, "The worker is alive: its last heartbeat was ")
    run("tasks", "cancel", task)
    has(story(run, task), "Cancellation was requested")


def test_a_task_of_an_unregistered_worker_is_explained(desk: Desk, run: Run) -> None:
    task = desk.start().task_id
    desk.command("ZREM", desk.key("boots"), desk.boot)
    has(story(run, task), "That worker is no longer registered: run `rl audit`.")


def test_a_done_task_is_explained(desk: Desk, run: Run) -> None:
    lines = story(run, desk.done(b"12345", result_ttl_ms=3_599_000))
    has(lines, "It was done at ", f"attempt 1 on worker {desk.boot}, with a result of 5 bytes.")
    has(lines, "Its record is kept until ", "(in 59 min)")
    has(story(run, desk.done(None)), "with no result.")


def _timeless(line: str) -> str:
    """Return the sentence without its age, because two commands may run in different seconds."""
    return re.sub(r"\((just now|\d+ s ago)\)", "(then)", line)


def test_every_kind_of_history_entry_is_explained(desk: Desk, run: Run, run_json: RunJson) -> None:
    lease = desk.start()
    desk.run(desk.ledger.retry(lease, 0, failure("first"), putback=True))
    desk.run(desk.ledger.retry(desk.claim().lease, 0, failure("second")))
    desk.run(desk.ledger.forfeit(desk.claim().lease, "killed by signal 9"))
    desk.run(desk.ledger.bury(desk.claim().lease, "ValueError", failure("third")))
    desk.replay(lease.task_id)
    desk.run(desk.ledger.bury(desk.claim().lease, "KeyError", "plain words"))
    lines = story(run, lease.task_id)
    order = [
        has(lines, "Accepted "),
        has(lines, "Attempt 1 started ", "it was put back, which does not count as an attempt: ValueError: first."),
        has(lines, "Attempt 1 started ", "it failed with ValueError: second, and will be retried."),
        has(lines, "Attempt 2 started ", "its worker was lost: killed by signal 9. It was revived at "),
        has(lines, "Attempt 3 started ", "it failed permanently with ValueError: third."),
        has(lines, "It was replayed "),
        has(lines, "Attempt 1 started ", "it failed permanently with plain words."),
        has(lines, "It died at ", ": KeyError: plain words"),
    ]
    assert [line for line in lines if line in order] == order
    has(lines, f"`rl dlq show {lease.task_id}`; replay it with `rl dlq replay {lease.task_id}`.")

    answer = run_json("why", lease.task_id)
    assert answer["found"] is True
    assert answer["task"]["id"] == lease.task_id
    assert [_timeless(line["says"]) for line in answer["story"]] == [_timeless(line) for line in lines]
    times = [line["at_ms"] for line in answer["story"] if line["at_ms"] is not None]
    assert times == sorted(times)


def test_a_revived_task_that_was_not_to_run_again_is_explained(desk: Desk, run: Run) -> None:
    lease = desk.start(on_lost="bury")
    desk.run(desk.ledger.revive(worker_id=desk.boot, cause="killed"))
    lines = story(run, lease.task_id)
    has(lines, "its worker was lost: killed. It was not run again.")
    has(lines, "It died at ", ": lost")


@pytest.mark.parametrize(
    ("fields", "says"),
    [({}, "It was cancelled on request, "), ({"expires_at_ms": 1}, "It expired before a worker started it")],
)
def test_a_cancelled_task_is_explained(desk: Desk, run: Run, fields: dict[str, int], says: str) -> None:
    task = desk.push(**fields)
    if fields:
        desk.run(desk.ledger.claim(desk.boot, 1, ["default"], 1))
    else:
        run("tasks", "cancel", task)
    has(story(run, task), says)


def test_a_cancel_by_code_is_explained(desk: Desk, run: Run) -> None:
    """`receipt.cancel()` makes the same move as `rl tasks cancel`, so it is unknown whether a person cancelled the
    task."""
    told = "\n".join(story(run, desk.cancelled()))
    assert "It was cancelled on request, " in told
    assert "person" not in told


def test_a_replaced_task_is_explained(desk: Desk, run: Run) -> None:
    task = desk.push(key="k", key_ttl_ms=1)
    desk.push(key="k", key_ttl_ms=1, on_conflict="replace")
    has(story(run, task), "A later push with the same idempotency key replaced it")


def test_a_suspect_is_explained(desk: Desk, run: Run) -> None:
    lease = desk.start()
    for n in range(2):
        boot = desk.join(queues=["default"])
        if n:
            desk.claim(boot=boot)
            desk.push()
            desk.claim(boot=boot)
            desk.run(desk.ledger.revive(worker_id=boot, cause="host down"))
        else:
            desk.start()
            desk.run(desk.ledger.revive(worker_id=desk.boot, cause="host down"))
            desk.boot = boot
    has(story(run, lease.task_id), "it now runs alone in an isolated process")


def entry(move: str, attempt: int) -> HistoryEntry:
    return HistoryEntry(move, 5, attempt, "b", "1", "x", 5)


@pytest.mark.parametrize(
    ("history", "state", "attempt", "place"),
    [
        ([("bury", 1)], "queued", 0, 1),
        ([("bury", 2)], "running", 1, 1),
        ([("bury", 1)], "done", 1, 1),
        ([("bury", 1), ("bury", 1)], "dead", 1, 1),
        ([("bury", 1), ("retry", 1)], "scheduled", 1, 1),
        ([("bury", 1), ("retry", 1), ("bury", 2), ("retry", 1)], "running", 2, 3),
        ([("revive", 1)], "queued", 0, 1),  # died of its first attempt, and was replayed
        ([("revive", 1)], "running", 1, 1),
        ([("revive", 1), ("revive", 2), ("revive", 1)], "queued", 1, 2),
        ([("revive", 6), ("retry", 1)], "running", 2, 1),
        ([("corrupt", 0)], "queued", 0, 1),
        ([], "queued", 0, 0),
    ],
)
def test_a_replay_has_its_place_in_the_history(
    history: list[tuple[str, int]], state: str, attempt: int, place: int
) -> None:
    """All entries fall into the same millisecond."""
    spec = read_spec(b"5 - - 0 - - - - - - -")
    record = Record("id", BY_WORD[state], 1, "1", "b", attempt, "", 5, spec, "q", "n", {"replayed": "x"})
    task = Task(record, None, None, None, {}, tuple(entry(*line) for line in history))
    assert replay_position(task) == place


# --- no story ----------------------------------------------------------------------------------------------------


def test_an_unknown_task_is_reported(desk: Desk, run: Run, run_json: RunJson) -> None:
    result = run("why", "nothing")
    assert result.exit_code == 1
    assert result.stdout.startswith("There is no task nothing: it never existed, or its record has expired.\nSearched ")
    answer = run_json("why", "nothing", code=1)
    assert (answer["found"], answer["corrupt"], answer["task"]) == (False, False, None)


def test_a_tombstone_is_explained(desk: Desk, run: Run) -> None:
    task = desk.cancelled(tomb_ttl_ms=60_000)
    desk.run(desk.ledger.discard(task, desk.version(task)))
    result = run("why", task)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"Task {task} ended as cancelled and its record has expired.")


@pytest.mark.parametrize(("command", "kind"), [(("SET", "garbage"), "string"), (("LPUSH", "x"), "list")])
def test_a_corrupt_record_is_reported(
    desk: Desk, run: Run, run_json: RunJson, command: tuple[str, str], kind: str
) -> None:
    key = desk.key("task", "broken")
    desk.command(command[0], key, command[1])
    result = run("why", "broken")
    assert result.exit_code == 1
    assert f"Its key is {key}, a value of type {kind}." in result.stdout
    assert run_json("why", "broken", code=1)["corrupt"] is True


@pytest.mark.parametrize("line", ["{}", "[1]", "no JSON", json.dumps(["bury", "1", "1", "b", "1", '{"type": 5}', "0"])])
def test_a_history_that_cannot_be_read_is_reported(desk: Desk, run: Run, line: str) -> None:
    task = desk.dead()
    desk.command("RPUSH", desk.key("history", task), line)
    for command in (("why", task), ("dlq",), ("dlq", "show", task)):
        assert run(*command).exit_code == 0


def test_the_time_in_an_id_is_read() -> None:
    before = time_of_id(new_task_id())
    assert before is not None
    assert abs(before - (time_of_id(new_task_id()) or 0)) < 60_000
    for other in ("n1", "", "f" * 32, new_task_id().upper()):
        assert time_of_id(other) is None
