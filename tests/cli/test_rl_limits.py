"""rl limits: list limits of running tasks, and change them at run time. rl why: which limit a task waits for."""

from __future__ import annotations

import pytest

from relier.ledger.limit_overview import read_limits, set_limit
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.limits import Limit, rate_text
from tests.support.cli_desk import Desk, Run, RunJson

MINUTE = 60_000_000


def per(tenant: int, numbers: LimitNumbers | None = None) -> tuple[RunLimit, ...]:
    return (RunLimit("tenant:{tenant_id}", f"tenant:{tenant}", numbers or LimitNumbers(1)),)


def rated(per_minute: int = 100) -> tuple[RunLimit, ...]:
    return (RunLimit("task:shop.call", "task:shop.call", Limit(rate=f"{per_minute}/min").numbers()),)


def claim(desk: Desk, want: int = 100) -> list[str]:
    return [one.record.id for one in desk.run(desk.ledger.claim(desk.boot, next(desk._seq), ["default"], want)).tasks]


# --- list --------------------------------------------------------------------------------------------------------


def test_limits_are_listed_with_their_running_and_waiting_tasks(desk: Desk, run: Run, run_json: RunJson) -> None:
    for tenant in (1, 1, 1, 2):
        desk.push(limits=per(tenant))
    desk.push(limits=rated())
    claim(desk)
    rows = {row["key"]: row for row in run_json("limits")["limits"]}
    assert [*rows] == ["tenant:1", "task:shop.call", "tenant:2"]
    assert (rows["tenant:1"]["running"], rows["tenant:1"]["waiting"]) == (1, 2)
    assert (rows["tenant:1"]["concurrency"], rows["tenant:1"]["rate"]) == (1, None)
    assert (rows["task:shop.call"]["concurrency"], rows["task:shop.call"]["rate"]) == (None, "100/min")
    assert rows["tenant:1"]["name"] == "tenant:{tenant_id}"
    lines = run("limits").stdout.splitlines()
    assert lines[0].split() == ["LIMIT", "RUNNING", "WAITING", "AT", "ONCE", "RATE", "BURST", "SET", "BY"]
    assert lines[1].split() == ["tenant:1", "1", "2", "1", "any", "code"]
    assert max(map(len, lines)) <= 80


def test_a_limit_with_nothing_running_shows_the_numbers_of_a_waiting_task(desk: Desk, run_json: RunJson) -> None:
    desk.push(limits=per(1, LimitNumbers(7)))
    (row,) = run_json("limits")["limits"]
    assert (row["running"], row["waiting"], row["concurrency"], row["known"]) == (0, 1, 7, True)


def test_a_scheduled_task_does_not_show_its_numbers(desk: Desk, run: Run, run_json: RunJson) -> None:
    desk.push(limits=per(1), delay_ms=60_000)
    (row,) = run_json("limits")["limits"]
    assert (row["waiting"], row["known"], row["concurrency"]) == (1, False, None)
    assert run("limits").stdout.splitlines()[1].split() == ["tenant:1", "0", "1"]


def test_long_lists_are_cut_and_filtered(desk: Desk, run: Run, run_json: RunJson) -> None:
    for tenant in range(5):
        desk.push(limits=per(tenant))
    assert len(run_json("limits", "--limit", "2")["limits"]) == 2
    assert "3 more keys" in run("limits", "--limit", "2").stdout
    assert [row["key"] for row in run_json("limits", "--name", "tenant:3")["limits"]] == ["tenant:3"]


def test_a_namespace_without_limits_is_reported(run: Run) -> None:
    assert run("limits").stdout.startswith("No limits in ")


# --- set and clear -----------------------------------------------------------------------------------------------


def test_a_raised_limit_lets_waiting_tasks_go(desk: Desk, run: Run, run_json: RunJson) -> None:
    for _ in range(4):
        desk.push(limits=per(1))
    assert len(claim(desk)) == 1
    said = run("limits", "set", "tenant:{tenant_id}", "--concurrency", "3").stdout
    assert said == "Limit 'tenant:{tenant_id}' now allows 3 tasks at once.\n"
    assert len(claim(desk)) == 2
    (row,) = run_json("limits")["limits"]
    assert (row["concurrency"], row["set_by_operator"]) == (3, "tenant:{tenant_id}")
    assert "operator" in run("limits").stdout
    assert "already allowed" in run("limits", "set", "tenant:{tenant_id}", "--concurrency", "3").stdout
    assert "the numbers in the code apply" in run("limits", "clear", "tenant:{tenant_id}").stdout
    assert run_json("limits")["set"] == {}


def test_many_lanes_are_woken_page_by_page(desk: Desk) -> None:
    for tenant in range(600):
        desk.push(limits=(*per(tenant), RunLimit("namespace", "namespace", LimitNumbers(1))))
    assert len(claim(desk)) == 1
    assert set_limit(desk.run, desk.ledger, "namespace", LimitNumbers(1000)).verdict == "ok"
    assert sum(len(claim(desk, 1000)) for _ in range(20)) == 599


def test_any_number_of_limits_can_be_set_and_changed(desk: Desk) -> None:
    names = [f"tenant:{n}" for n in range(3000)]
    desk.command("HSET", desk.key("limits"), *(word for name in names for word in (name, "1 0 0 4")))
    assert read_limits(desk.run, desk.ledger).set.keys() == set(names)
    for name in (names[0], names[1500], names[-1]):
        assert set_limit(desk.run, desk.ledger, name, LimitNumbers(2)).version == 5


def test_omitted_options_keep_their_values(desk: Desk, run: Run, run_json: RunJson) -> None:
    desk.push(limits=rated())
    assert run("limits", "set", "task:shop.call", "--concurrency", "5").stdout.endswith(
        "5 tasks at once and 100/min.\n"
    )
    said = run("limits", "set", "task:shop.call", "--rate", "10/s", "--burst", "4").stdout
    assert said.endswith("5 tasks at once and 10/s in bursts of 4.\n")
    assert run("limits", "set", "task:shop.call", "--burst", "2").stdout.endswith("10/s in bursts of 2.\n")
    answer = run_json("limits", "set", "task:shop.call", "--rate", "none")
    assert (answer["changed"], answer["concurrency"], answer["rate"]) == (True, 5, None)
    assert "any number of tasks at any rate" in run("limits", "set", "task:shop.call", "--concurrency", "none").stdout


def test_a_dry_run_changes_nothing(desk: Desk, run: Run, run_json: RunJson) -> None:
    desk.push(limits=per(1))
    assert "would allow 3 tasks at once" in run("limits", "set", "tenant:1", "--concurrency", "3", "--dry-run").stdout
    assert run_json("limits", "set", "tenant:1", "--concurrency", "3", "--dry-run")["would_change"] is True
    assert run_json("limits")["set"] == {}
    set_limit(desk.run, desk.ledger, "tenant:1", LimitNumbers(2))
    assert "would be cleared" in run("limits", "clear", "tenant:1", "--dry-run").stdout
    assert read_limits(desk.run, desk.ledger).set == {"tenant:1": (LimitNumbers(2), 1)}


def test_unknown_limits_are_refused_with_a_suggestion(desk: Desk, run: Run, run_json: RunJson) -> None:
    desk.push(limits=per(1))
    claim(desk)
    result = run("limits", "set", "tenant:{tenantid}", "--concurrency", "3")
    assert result.exit_code == 1
    assert "no live task has limit 'tenant:{tenantid}'; did you mean 'tenant:{tenant_id}'?" in result.stderr
    assert run("limits", "set", "later", "--concurrency", "3", "--force").exit_code == 0
    assert "later" in run("limits").stdout
    result = run("limits", "clear", "latr")
    assert (result.exit_code, "did you mean 'later'?" in result.stderr) == (1, True)
    assert "nothing to clear" in run("limits", "clear", "tenant:1").stdout
    assert "error" in run_json("limits", "clear", "nothing", code=1)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "give --concurrency, --rate or --burst"),
        (("--concurrency", "0"), "rl queues pause"),
        (("--concurrency", "many"), "whole number"),
        (("--rate", "fast"), "such as"),
        (("--burst", "3"), "--burst needs a rate"),
    ],
)
def test_bad_numbers_are_refused(desk: Desk, run: Run, args: tuple[str, ...], says: str) -> None:
    desk.push(limits=per(1))
    result = run("limits", "set", "tenant:1", *args)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_name_with_spaces_is_found_as_it_is_written_in_code(desk: Desk, run: Run) -> None:
    desk.push(limits=(RunLimit("big%20shop", "big%20shop", LimitNumbers(1)),))
    assert run("limits", "set", "big shop", "--concurrency", "2").exit_code == 0


@pytest.mark.parametrize("rate", ["10/s", "100/min", "7/min", "1000/h", "5/day", "1/7s", "1000/s"])
def test_rates_are_shown_as_they_are_written(rate: str) -> None:
    assert rate_text(Limit(rate=rate).numbers().interval_us) == rate


# --- rl why ------------------------------------------------------------------------------------------------------


def why(run: Run, task: str) -> str:
    return run("why", task).stdout


def test_why_explains_a_wait_for_a_slot(desk: Desk, run: Run) -> None:
    _, second, third = (desk.push(limits=per(1)) for _ in range(3))
    claim(desk)
    assert "It waits for limit 'tenant:1', which allows 1 task at once: 1 task is running." in why(run, second)
    assert "1 task with the same limits is ahead of it." in why(run, third)
    assert "1 worker serves the queue." in why(run, third)


def test_why_explains_a_wait_behind_the_head_of_a_lane(desk: Desk, run: Run) -> None:
    first, second, third = (desk.push(limits=per(1)) for _ in range(3))
    assert "It waits: it is next in its queue." in why(run, first)
    assert f"It waits in queue default behind task {first}." in why(run, second)
    assert f"behind task {first}, and 1 task with the same limits is ahead of it." in why(run, third)


def test_why_explains_a_wait_for_a_rate(desk: Desk, run: Run) -> None:
    _, second, third = (desk.push(limits=rated(1)) for _ in range(3))
    claim(desk)
    assert "It waits for the rate of limit 'task:shop.call', 1/min. It may start at " in why(run, second)
    said = why(run, third)
    assert f"which allows 1/min: 1 task is running, and task {second} waits for the rate." in said


def test_why_explains_a_wait_for_other_lanes(desk: Desk, run: Run) -> None:
    both = [(*per(n), RunLimit("namespace", "namespace", LimitNumbers(1))) for n in range(3)]
    *_, last = [desk.push(limits=limits) for limits in both]
    claim(desk)
    claim(desk)
    said = why(run, last)
    assert "It waits for limit 'namespace', which allows 1 task at once: 1 task is running." in said
    assert "Tasks of 1 other key come first." in said
