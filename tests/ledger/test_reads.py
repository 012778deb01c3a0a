"""The reads for people and tools: get, list, owned, stats."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relier.errors import InvalidSubmissionError, TaskNotFoundError
from relier.ledger.defaults import LIST_PAGE
from relier.ledger.records import Page
from relier.states import State
from tests.support.ledger_world import World


def pages(world: World, index: str, of: str = "", most: int = 2, **how: Any) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page: Page = world.run(world.ledger.list(index, of, cursor=cursor, most=most, **how))
        found += [record.id for record in page.records]
        cursor = page.cursor
        if cursor is None:
            return found


def test_get_of_a_missing_task_raises(clocked: World) -> None:
    with pytest.raises(TaskNotFoundError, match="there is no task nothing"):
        clocked.get("nothing")


def test_get_of_a_tombstone_says_how_it_ended(clocked: World) -> None:
    lease = clocked.start(tomb_ttl_ms=1000)
    clocked.commit(lease)
    clocked.run(clocked.ledger.discard(lease.task_id, clocked.version(lease.task_id)))
    with pytest.raises(TaskNotFoundError, match="ended as done"):
        clocked.get(lease.task_id)


def test_reads_change_nothing(clocked: World) -> None:
    lease = clocked.start(key="k")
    clocked.push(delay_ms=5)
    clocked.run(clocked.ledger.step(lease, "pay", b"1"))
    with clocked.unchanged():
        clocked.get(lease.task_id)
        clocked.run(clocked.ledger.stats())
        clocked.run(clocked.ledger.owned("boot"))
        for index, of in (("due", ""), ("ready", "default"), ("owned", "boot"), ("ended", "done")):
            clocked.run(clocked.ledger.list(index, of))


def test_every_index_can_be_listed(clocked: World) -> None:
    due = [clocked.push(delay_ms=ms) for ms in (10, 20, 30)]
    ready = [clocked.push(queue="other") for _ in range(4)]
    running = [clocked.start().task_id for _ in range(5)]
    done = []
    for _ in range(3):
        lease = clocked.start(queue="x")
        clocked.commit(lease)
        done.append(lease.task_id)
    assert pages(clocked, "due") == due
    assert pages(clocked, "ready", "other") == ready
    assert pages(clocked, "owned", "boot") == running
    assert pages(clocked, "ended", "done") == done
    assert pages(clocked, "ended", "dead") == pages(clocked, "ready", "nowhere") == []


def test_a_list_has_reasons_and_no_payloads(clocked: World) -> None:
    lease = clocked.start(payload=b"x" * 5000)
    clocked.bury(lease, "unknown_task")
    (record,) = clocked.run(clocked.ledger.list("ended", "dead")).records
    assert (record.id, record.state, record.reason) == (lease.task_id, State.DEAD, "unknown_task")
    assert record == clocked.get(lease.task_id).record


def test_a_list_can_be_filtered_by_name(clocked: World) -> None:
    tasks = [clocked.push(name=f"app.{n % 3}") for n in range(12)]
    assert pages(clocked, "ready", "default", name="app.1") == tasks[1::3]
    assert pages(clocked, "ready", "default", name="app.9") == []


def test_a_page_size_is_bounded(clocked: World) -> None:
    for most in (0, 1001):
        with pytest.raises(InvalidSubmissionError, match="most"):
            clocked.ledger.list("due", most=most)
    with pytest.raises(InvalidSubmissionError, match="use one of due, ready, lane, owned, ended"):
        clocked.ledger.list("tasks")


IDS = st.sampled_from([f"{prefix}{n}" for prefix in ("a", "B", "ä", "_", "0") for n in range(6)])
CHANGES = st.lists(st.tuples(st.sampled_from(["add", "remove"]), IDS, st.integers(0, 2)), max_size=8)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    begin=st.dictionaries(IDS, st.integers(0, 2), max_size=20),
    between=st.lists(CHANGES, max_size=12),
    most=st.integers(1, 5),
)
def test_cursors_hold_while_entries_come_and_go(
    worlds: Any, begin: dict[str, int], between: list[list[tuple[str, str, int]]], most: int
) -> None:
    """Entries that exist throughout are listed exactly once, in order, although many share a score."""
    world: World = worlds()
    due = world.now + 1000
    stayed = set(begin)
    if begin:
        world.submit(*[world.new(id=task, eta_ms=due + at) for task, at in begin.items()])
    found: list[str] = []
    cursor = None
    changes = iter(between)
    while True:
        page = world.run(world.ledger.list("due", cursor=cursor, most=most))
        found += [record.id for record in page.records]
        cursor = page.cursor
        if cursor is None:
            break
        for change, task, at in next(changes, []):
            here = world.state(task) is State.SCHEDULED
            if change == "add" and world.state(task) is None:
                world.submit(world.new(id=task, eta_ms=due + at))
            elif change == "remove" and here:
                world.cancel(task)
                stayed.discard(task)
    assert len(found) == len(set(found)), "nothing twice"
    assert stayed <= set(found), "nothing left out"
    order = sorted(stayed, key=lambda task: (begin[task], task.encode()))
    assert [task for task in found if task in stayed] == order


def test_a_cursor_continues_inside_many_equal_scores(clocked: World) -> None:
    ids = [f"t{n:04}" for n in range(500)]
    for part in range(0, 500, 100):
        clocked.submit(*[clocked.new(id=task, eta_ms=clocked.now + 1000) for task in ids[part : part + 100]])
    page = clocked.run(clocked.ledger.list("due", most=350))
    assert len(page.records) == LIST_PAGE, "no read is longer"
    last = page.records[-1].id
    clocked.cancel(last)
    rest = clocked.run(clocked.ledger.list("due", cursor=page.cursor, most=1000))
    assert [record.id for record in (*page.records, *rest.records)] == ids


def test_stats_add_up(clocked: World) -> None:
    for _ in range(3):
        clocked.push()
    clocked.push(delay_ms=1000)
    clocked.push(queue="other")
    clocked.claim(want=2)
    clocked.commit(clocked.start(queue="x"))
    clocked.bury(clocked.start(queue="x"))
    clocked.cancel(clocked.push(queue="x"))
    stats = clocked.run(clocked.ledger.stats())
    assert stats.by_state() == {
        State.SCHEDULED: 1,
        State.QUEUED: 2,
        State.RUNNING: 2,
        State.DONE: 1,
        State.DEAD: 1,
        State.CANCELLED: 1,
    }
    assert sum(stats.by_state().values()) == stats.counts["submitted"] == 8
    assert {queue.queue: queue.ready for queue in stats.queues} == {"default": 1, "other": 1, "x": 0}
    assert (stats.counts["done"], stats.counts["dead"], stats.counts["cancelled"]) == (1, 1, 1)


def test_stats_show_what_workers_report(clocked: World) -> None:
    clocked.start()
    clocked.join("other", 60_000)
    clocked.advance(1000)
    clocked.run(clocked.ledger.beat("boot", 5000, "1799999999999"))
    stats = {worker.node_id: worker for worker in clocked.run(clocked.ledger.stats()).workers}
    assert (stats["boot"].owned, stats["boot"].lease_left_ms, stats["boot"].polled) == (1, 5000, "1799999999999")
    assert (stats["other"].owned, stats["other"].lease_left_ms, stats["other"].beat_ms) == (
        0,
        59_000,
        clocked.now - 1000,
    )
    assert stats["boot"].registered_ms == clocked.now - 1000


def test_stats_show_the_oldest_waiting_task(clocked: World) -> None:
    assert clocked.run(clocked.ledger.stats()).queues == ()
    old = clocked.now
    clocked.push(priority=-9)
    clocked.advance(1000)
    clocked.push(priority=9)
    (queue,) = clocked.run(clocked.ledger.stats()).queues
    assert queue.oldest_at_ms == old
    clocked.claim()
    (queue,) = clocked.run(clocked.ledger.stats()).queues
    assert (queue.oldest_at_ms, queue.ready) == (None, 0)


def test_revived_tasks_are_counted_among_the_waiting(clocked: World) -> None:
    clocked.start()
    clocked.push()
    clocked.lose()
    (queue,) = clocked.run(clocked.ledger.stats()).queues
    assert (queue.ready, queue.revived) == (2, 1)
