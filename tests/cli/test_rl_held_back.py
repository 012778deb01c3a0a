"""Tasks that limits hold back count as queued: every list, count and selection includes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relier.cli.namespace_reads import IndexEntry, IndexReader, Place, merge_newest_first
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.pages import read_lanes, waiting_places
from relier.states import State
from tests.support.cli_desk import Desk, Run, RunJson


def per(tenant: int, concurrency: int = 1) -> tuple[RunLimit, ...]:
    return (RunLimit("tenant:{t}", f"tenant:{tenant}", LimitNumbers(concurrency)),)


def hold_back(desk: Desk, *, tenants: int = 3, each: int = 4) -> list[str]:
    """Push tasks of several tenants, in turns, to two queues."""
    return [desk.push(limits=per(n % tenants), queue=("default", "mail")[n % 2]) for n in range(tenants * each)]


def test_all_waiting_tasks_are_listed_newest_first(desk: Desk, run_json: RunJson) -> None:
    ids = hold_back(desk)
    plain = desk.push()
    listed = [task["id"] for task in run_json("tasks", "--state", "queued")["tasks"]]
    assert listed == [plain, *reversed(ids)]
    in_mail = [task["id"] for task in run_json("tasks", "--state", "queued", "--queue", "mail")["tasks"]]
    assert in_mail == [task for task in reversed(ids) if desk.get(task).record.queue == "mail"]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_pages_hold_every_waiting_task_once(desk: Desk, run_json: RunJson, limit: int) -> None:
    ids = hold_back(desk)
    found: list[str] = []
    cursor: list[str] = []
    while True:
        page = run_json("tasks", "--state", "queued", "--limit", str(limit), *cursor)
        found += [task["id"] for task in page["tasks"]]
        if not page["cursor"]:
            break
        cursor = ["--cursor", page["cursor"]]
    assert found == ids[::-1]


def test_lanes_are_read_when_their_turn_comes() -> None:
    read: list[int] = []

    def lane(n: int) -> IndexReader:
        def entries() -> Iterator[IndexEntry]:
            read.append(n)
            yield from (IndexEntry(Place(float(n - i), f"t{n}{i}"), "", None) for i in range(3))

        return IndexReader(entries(), float(n))

    merged = merge_newest_first([lane(n) for n in range(0, 1000, 10)])
    assert [next(merged).place.score for _ in range(4)] == [990, 989, 988, 980]
    assert read == [990, 980]
    assert len(list(merged)) == 300 - 4


def test_waiting_tasks_count_as_queued(desk: Desk, run: Run, run_json: RunJson) -> None:
    hold_back(desk)
    answer = run_json("queues")["queues"]
    assert {queue["queue"]: queue["ready"] + queue["held_back"] for queue in answer} == {"default": 6, "mail": 6}
    header, *_ = run("queues").stdout.splitlines()
    assert "LIMITED" in header
    assert run("queues", "pause", "mail").stdout.endswith("6 tasks wait in it.\n")
    assert desk.run(desk.ledger.stats()).by_state()[State.QUEUED] == 12


def test_waiting_tasks_can_be_selected_and_cancelled(desk: Desk, run_json: RunJson) -> None:
    ids = hold_back(desk)
    run_json("tasks", "cancel", "--name", "shop.charge", "--yes")
    assert {desk.get(task).record.state.value for task in ids} == {"cancelled"}
    assert list(read_lanes(desk.run, desk.ledger)) == []


def test_a_reader_of_all_places_misses_no_task(desk: Desk) -> None:
    ids = hold_back(desk)
    places = waiting_places(desk.run, desk.ledger, ["default", "mail"])
    found = [record.id for index, of in places for record in desk.run(desk.ledger.list(index, of)).records]
    assert sorted(found) == sorted(ids)
    assert {index for index, _ in places} == {"lane", "ready", "due"}


def test_the_doctor_counts_waiting_tasks(desk: Desk, run: Run) -> None:
    hold_back(desk)
    assert "6 tasks wait in queue 'mail', and no worker serves it." in run("doctor").stdout
    desk.join(host="web2", queues=["mail"], concurrency=1)
    assert "held back by limits" in run("doctor").stdout
