"""rl tasks, rl queues, rl workers."""

from __future__ import annotations

import io
import json
from typing import Any

import click
import pytest

from relier.cli import output, table
from relier.cli.node_view import WorkerView
from relier.ledger.nodes import NodeStats
from relier.ledger.stats import Stats
from relier.states import State
from tests.support.cli_desk import Desk, Run, RunJson

FIELDS = {
    "id", "name", "queue", "state", "priority", "attempt", "owner", "reason", "version", "accepted_ms", "changed_ms",
    "expires_ms", "durability", "key", "asked_to_cancel", "retries", "deaths", "resurrections", "due_ms",
}  # fmt: skip


def ids_of(answer: dict[str, list[dict[str, str]]]) -> list[str]:
    return [task["id"] for task in answer["tasks"]]


# --- rl tasks ----------------------------------------------------------------------------------------------------


def test_tasks_are_listed_in_every_state(desk: Desk, run: Run, run_json: RunJson) -> None:
    ids = desk.one_of_each()
    answer = run_json("tasks")
    assert {task["state"]: task["id"] for task in answer["tasks"]} == ids
    assert answer.keys() == {"namespace", "tasks", "corrupt", "cursor", "totals"}
    assert all(task.keys() == FIELDS for task in answer["tasks"])
    shown = run("tasks").stdout
    assert all(task in shown for task in ids.values())
    assert "ValueError" in shown


@pytest.mark.parametrize("state", [state.value for state in State])
def test_tasks_are_listed_by_state(desk: Desk, run_json: RunJson, state: str) -> None:
    ids = desk.one_of_each()
    assert ids_of(run_json("tasks", "--state", state)) == [ids[state]]


def test_tasks_are_listed_by_queue_and_name(desk: Desk, run: Run, run_json: RunJson) -> None:
    mine = [desk.push(queue="mail", name="shop.mail"), desk.push(queue="mail", name="shop.mail", delay_ms=9999)]
    desk.push(queue="mail")
    desk.push(name="shop.mail")
    assert sorted(ids_of(run_json("tasks", "--queue", "mail", "--name", "shop.mail"))) == sorted(mine)
    assert run("tasks", "--queue", "none").stdout.startswith("No tasks in queue 'none' in ")


@pytest.mark.parametrize(
    "how", [[], ["--queue", "default"], ["--name", "odd"], ["--queue", "default", "--name", "odd"]]
)
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_pages_together_list_every_task(desk: Desk, run_json: RunJson, how: list[str], limit: int) -> None:
    for n in range(11):
        desk.push(name="odd" if n % 2 else "even", queue="default" if n % 3 else "other", delay_ms=1000 * (n % 4))
    desk.dead(name="odd", queue="third")
    whole = ids_of(run_json("tasks", *how))
    found: list[str] = []
    cursor: list[str] = []
    while True:
        page = run_json("tasks", *how, "--limit", str(limit), *cursor)
        assert len(page["tasks"]) <= limit
        found += ids_of(page)
        if page["cursor"] is None:
            break
        cursor = ["--cursor", page["cursor"]]
    assert found == whole
    assert len(whole) == len(set(whole))


def test_a_list_ends_with_the_cursor_of_the_next_page(desk: Desk, run: Run) -> None:
    for _ in range(3):
        desk.push()
    told = run("tasks", "--limit", "2").stdout.splitlines()[-1]
    assert told.startswith("For more, repeat the command with --cursor ")
    assert len(run("tasks", "--limit", "2", "--cursor", told.split()[-1]).stdout.splitlines()) == 2


@pytest.mark.parametrize("cursor", ["x", "!!", "e30", "WzEsMiwzXQ"])
def test_an_invalid_cursor_is_refused(desk: Desk, run: Run, cursor: str) -> None:
    result = run("tasks", "--cursor", cursor)
    assert result.exit_code == 2
    assert "is not a cursor" in result.stderr


def test_a_broken_record_is_listed_as_such(desk: Desk, run: Run, run_json: RunJson) -> None:
    task = desk.push()
    desk.command("SET", desk.key("task", task), "garbage")
    assert run_json("tasks")["corrupt"] == [task]
    assert f"The record of {task} cannot be read; see `rl why {task}`" in run("tasks").stdout


# --- rl tasks cancel ---------------------------------------------------------------------------------------------


def test_tasks_are_cancelled_by_id(desk: Desk, run: Run) -> None:
    waiting, running = desk.push(delay_ms=9999), desk.start().task_id
    result = run("tasks", "cancel", waiting, running)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{waiting} cancelled.",
        f"{running} is running: its worker was asked to stop it.",
    ]
    assert desk.get(waiting).record.state is State.CANCELLED
    again = run("tasks", "cancel", waiting, running).stdout
    assert f"{waiting} was already cancelled." in again
    assert f"{running} is running: its worker was already asked to stop it." in again


def test_cancel_continues_after_tasks_that_cannot_be_cancelled(desk: Desk, run: Run, run_json: RunJson) -> None:
    dead, waiting = desk.dead(), desk.push()
    answer = run_json("tasks", "cancel", dead, "nothing", waiting, code=1)
    assert [(row["id"], row["outcome"], row["state"]) for row in answer["tasks"]] == [
        (dead, "refused", None),
        ("nothing", "refused", None),
        (waiting, "ok", "cancelled"),
    ]
    result = run("tasks", "cancel", "nothing")
    assert (result.exit_code, result.stdout) == (1, "")
    where = f"namespace '{desk.settings.namespace}' at {desk.settings.redis_url}"
    missing = "rl: there is no task nothing: it never existed, or its record has expired; searched "
    assert result.stderr == f"{missing}{where}\n"
    assert run("dlq", "show", "nothing").stderr == run("dlq", "replay", "nothing").stderr == result.stderr


# --- rl queues ---------------------------------------------------------------------------------------------------


def test_forget_deletes_what_is_done_and_nothing_else(desk: Desk, run: Run, run_json: RunJson) -> None:
    ids = desk.one_of_each()
    assert run("tasks", "forget", ids["done"]).stdout == "1 task forgotten.\n"
    assert ids_of(run_json("tasks", "--state", "done")) == []
    refused = run("tasks", "forget", ids["dead"], ids["running"])
    assert refused.exit_code == 1
    assert f"task {ids['dead']} is dead, not done or cancelled; it was left unchanged" in refused.stderr
    assert len(run_json("tasks")["tasks"]) == len(ids) - 1


def test_forget_by_name_asks_first(desk: Desk, run: Run) -> None:
    desk.one_of_each()
    assert "stdin is not a terminal; add --yes" in run("tasks", "forget", "--all").stderr
    assert run("tasks", "forget", "--all", "--yes").stdout == "2 tasks forgotten.\n"


def test_queues_are_listed(desk: Desk, run: Run, run_json: RunJson) -> None:
    desk.push()
    desk.push(queue="mail")
    assert run("queues", "pause", "mail").stdout == "Queue 'mail' is now paused. 1 task waits in it.\n"
    answer = run_json("queues")
    assert [(q["queue"], q["ready"], q["revived"], q["paused"], q["workers"]) for q in answer["queues"]] == [
        ("default", 1, 0, False, 1),
        ("mail", 1, 0, True, 0),
    ]
    assert all(0 <= answer["now_ms"] - queue["oldest_ms"] < 60_000 for queue in answer["queues"])
    assert "paused" in run("queues").stdout


def test_a_queue_is_paused_and_resumed(desk: Desk, run: Run, run_json: RunJson) -> None:
    desk.push()
    assert run_json("queues", "pause", "default") == {
        "queue": "default",
        "paused": True,
        "changed": True,
        "known": True,
    }
    assert run_json("queues", "pause", "default")["changed"] is False
    assert run("queues", "resume", "default").stdout.startswith("Queue 'default' is now running.")
    assert run("queues", "resume", "default").stdout.startswith("Queue 'default' was already running.")
    assert run_json("queues")["queues"][0]["paused"] is False


def test_pausing_an_unknown_queue_is_reported(desk: Desk, run: Run) -> None:
    result = run("queues", "pause", "defualt")
    assert result.exit_code == 0
    assert "none was pushed to it recently. Check the name." in result.stdout


# --- rl workers --------------------------------------------------------------------------------------------------


def test_workers_are_listed(desk: Desk, run: Run, run_json: RunJson) -> None:
    desk.start()
    silent = desk.join()
    desk.run(desk.ledger.register("odd", 1000, "no JSON"))
    answer = run_json("workers")
    workers = {worker["boot"]: worker for worker in answer["workers"]}
    first = workers[desk.boot]
    assert (first["host"], first["pid"], first["queues"], first["concurrency"]) == ("web1", 4242, ["default"], 4)
    assert (first["owned"], first["health"], first["version"]) == (1, "alive", "0.1.0")
    assert first["lease_left_ms"] > 0
    assert (workers[silent]["queues"], workers["odd"]["host"]) == (None, None)
    shown = run("workers").stdout
    assert desk.boot in shown
    assert "1/4" in shown


def stats_of(*workers: NodeStats) -> Stats:
    return Stats(now_ms=1_000_000, counts={}, queues=(), scheduled=0, nodes=workers, ended={})


@pytest.mark.parametrize(
    ("left_ms", "quiet_ms", "health"),
    [
        (4_000, 1_000, "alive"),
        (3_000, 11_000, "alive"),  # late, but not much: its lease may be long
        (50_000, 15_000, "alive"),
        (2_500, 3_600_000, "silent"),  # all died together: the ledger's clock stands still
        (-1, 6_000, "lost"),
        (-1_000_000, 9, "lost"),
    ],
)
def test_a_worker_is_judged_by_its_lease_and_its_last_heartbeat(left_ms: int, quiet_ms: int, health: str) -> None:
    boot = NodeStats("b", left_ms, 0, "{}", 1_000_000 - quiet_ms, "", 1)
    assert WorkerView(stats_of(boot), 5.0).all[0].health == health


def test_the_workers_of_a_queue_are_listed() -> None:
    def boot(about: object) -> NodeStats:
        return NodeStats("b", 4000, 0, json.dumps(about), 999_000, "", 1)

    mail = boot({"queues": ["mail"]})
    assert WorkerView(stats_of(), 5.0).unattended("default")
    assert WorkerView(stats_of(mail), 5.0).unattended("default")
    assert not WorkerView(stats_of(mail), 5.0).unattended("mail")
    abouts: tuple[Any, ...] = ({}, {"queues": "mail"}, [], None, 5)
    for about in abouts:
        assert not WorkerView(stats_of(mail, boot(about)), 5.0).unattended("default"), about


# --- tables and times --------------------------------------------------------------------------------------------

ID = "01a1ddd643527871a4736346a795673b"


@pytest.mark.parametrize("width", [42, 66, 86, 200])
def test_a_table_fits_the_terminal(width: int) -> None:
    """Names and states are never cut. Other texts are cut, columns are left out, and only then is a name folded."""
    screen = io.StringIO()
    row = (ID, "shop.charge_the_customer", "dead", "06:31:25", "something long " * 9)
    headers = ("ID", "NAME", "STATE", "WHEN", "MESSAGE")
    table.terminal_table(headers, [row], optional=("WHEN",), width=width, file=screen)
    lines = [click.unstyle(line) for line in screen.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    assert lines[1].startswith(f"{ID[:18]} ")
    assert " dead" in lines[1]
    assert ("WHEN" in lines[0], "some" in lines[1]) == (width >= 86, width >= 66)
    if width >= 66:
        assert row[1] in lines[1]
    else:  # there is no room for it in one line
        start, end = lines[0].index("NAME"), lines[0].index("STATE")
        assert "".join(line[start:end].strip() for line in lines[1:]) == row[1]


def test_ids_are_shortened_as_far_as_they_differ() -> None:
    other = ID[:20] + "0" * 12
    assert table.short_ids([ID]) == [ID[:18]]
    assert table.short_ids([ID, other]) == [ID[:23], other[:23]]
    assert table.short_ids(["order-1", "order-1:again"]) == ["order-1", "order-1:again"]
    assert table.short_ids(["3f2a9c1d-8b4e-4c55-9a0b-1234567890ab"]) == ["3f2a9c1d-8b4e"]
    assert table.short_ids(["web1.42.0f9d1c", "web1.42.0f9d2c"]) == ["web1.42.0f9d1c", "web1.42.0f9d2c"]
    assert table.short_ids(["web1.42.0f9d1c77", "web2.7.aa"]) == ["web1.42.0f", "web2.7.aa"]


def test_a_long_message_does_not_widen_other_rows_in_a_pipe() -> None:
    long, short = table.plain_table(("ID", "MESSAGE", "DIED"), [(ID, "x" * 3000, "now"), (ID, "y", "now")])[1:]
    assert "x" * 3000 in long
    assert ID in long
    assert len(short) < 200


def test_names_cannot_control_the_terminal(desk: Desk, run: Run) -> None:
    desk.push(name="\x1b[2Jevil[red]")
    shown = run("tasks").stdout
    assert "\x1b" not in shown
    assert "\\x1b[2Jevil[red]" in shown


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (2_100, "2.1 s"),
        (59_400, "59 s"),
        (60_000, "1 min"),
        (205_000, "3 min 25 s"),
        (3_600_000, "1 h"),
        (86_399_000, "23 h 59 min"),
        (90_000_000, "1 d 1 h"),
        (8_640_000_000, "100 d"),
    ],
)
def test_spans_have_at_most_two_units(ms: int, text: str) -> None:
    assert output.span(ms) == text


def test_ages_have_one_unit() -> None:
    assert output.ago(1_000_000, 1_000_500) == "just now"
    assert output.ago(1_000_000, 1_205_000) == "3 min ago"
    assert output.ago(1_205_000, 1_000_000) == "in 3 min"
    assert output.when(0, 5) == ""
