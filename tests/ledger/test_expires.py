"""`expires`: a task that has not begun by then is cancelled, whether or not any worker serves its queue."""

from __future__ import annotations

from typing import Any

import pytest

from relier.ledger.records import Join
from relier.states import State
from tests.support.ledger_world import DAY, World


def promote(world: World, most: int = 200) -> Any:
    return world.run(world.ledger.promote(most))


def expiring(world: World) -> list[str]:
    return world.members("expiring")


def assert_expired(world: World, task: str) -> None:
    record = world.get(task).record
    assert (record.state, record.reason) == (State.CANCELLED, "expired")
    assert expiring(world) == []


def test_a_task_expires_in_a_queue_that_no_worker_serves(clocked: World) -> None:
    task, stays = clocked.push(queue="unserved", expires_in_ms=1000), clocked.push(queue="unserved")
    clocked.advance(999)
    promote(clocked)
    assert clocked.state(task) is State.QUEUED
    clocked.advance(1)
    promote(clocked)
    assert_expired(clocked, task)
    assert clocked.members("ready", "unserved") == [stays]


def test_a_task_expires_in_a_paused_queue(clocked: World) -> None:
    clocked.run(clocked.ledger.pause("default", 0))
    task = clocked.push(expires_in_ms=1000, key="k")
    clocked.advance(1000)
    assert clocked.claim() == ()
    promote(clocked)
    assert_expired(clocked, task)
    assert clocked.submit(clocked.new(key="k"))[0].status == "new"


def test_a_task_expires_before_it_is_due(clocked: World) -> None:
    """The task could not begin in time, so it ends without waiting for its eta."""
    task = clocked.push(delay_ms=DAY, expires_in_ms=1000)
    clocked.advance(1000)
    promote(clocked)
    assert_expired(clocked, task)
    assert clocked.members("due") == []


def test_a_join_that_waits_for_parts_expires(clocked: World) -> None:
    join = clocked.new(id="j", delay_ms=DAY, expires_in_ms=1000, join=Join(2, "0"))
    clocked.commit(clocked.start(), b"1", [join])
    clocked.advance(1000)
    promote(clocked)
    assert_expired(clocked, "j")


def test_the_sweep_learns_when_the_next_task_is_due(clocked: World) -> None:
    now = clocked.now
    clocked.push(expires_in_ms=700)
    assert promote(clocked).next_due_ms == now + 700
    clocked.push(delay_ms=300)
    assert promote(clocked).next_due_ms == now + 300
    clocked.advance(300)
    assert promote(clocked).next_due_ms == now + 700
    clocked.advance(400)
    assert promote(clocked).next_due_ms is None


def test_expired_tasks_are_cancelled_in_bounded_passes(clocked: World) -> None:
    for _ in range(5):
        clocked.push(queue="unserved", expires_in_ms=1000)
        clocked.push(delay_ms=1000)
    clocked.advance(1000)
    left, moved = 10, []
    while left:
        answer = promote(clocked, 3)
        states = list(clocked.states().values())
        still = states.count(State.SCHEDULED) + len(clocked.members("ready", "unserved"))
        moved.append(left - still)
        left = still
        assert (answer.next_in_s == 0.0) == (left > 0)
    assert moved == [3, 3, 3, 1]


def test_a_task_that_has_begun_does_not_expire(clocked: World) -> None:
    lease = clocked.start(expires_in_ms=1000)
    assert expiring(clocked) == []
    clocked.advance(1000)
    promote(clocked)
    assert clocked.state(lease.task_id) is State.RUNNING
    clocked.release(lease)
    promote(clocked)
    assert clocked.state(lease.task_id) is State.QUEUED


ENDS: dict[str, Any] = {
    "cancelled": lambda world, task: world.cancel(task),
    "replaced": lambda world, task: world.submit(world.new(key="k", on_conflict="replace")),
    "claimed": lambda world, task: world.claim(),
    "claimed late": lambda world, task: (world.advance(1000), world.claim()),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_task_that_no_longer_waits_leaves_the_expiry_index(clocked: World, how: str) -> None:
    task = clocked.push(expires_in_ms=1000, key="k")
    assert expiring(clocked) == [task]
    ENDS[how](clocked, task)
    assert expiring(clocked) == []


def test_entries_of_an_older_release_are_read(clocked: World) -> None:
    """Older workers claim, and older clients push, without the index. Stale entries are removed in time, and a task
    without an entry expires when it is claimed or becomes due."""
    lease, unlisted = clocked.start(), clocked.push(queue="other", expires_in_ms=1000)
    for task in (lease.task_id, "never was"):
        clocked.command("ZADD", clocked.key("expiring"), clocked.now + 1000, task)
    clocked.command("ZREM", clocked.key("expiring"), unlisted)
    clocked.advance(1000)
    with_stray = clocked.counts().get("strays", 0)
    promote(clocked)
    assert expiring(clocked) == []
    assert clocked.state(lease.task_id) is State.RUNNING
    assert clocked.counts().get("strays", 0) == with_stray
    assert clocked.claim(queues=["other"]) == ()
    assert_expired(clocked, unlisted)


def test_an_unreadable_record_is_buried_where_it_is_found(clocked: World) -> None:
    task = clocked.push(expires_in_ms=1000)
    clocked.sound = False
    clocked.command("SET", clocked.key("task", task), "ruin")
    clocked.advance(1000)
    promote(clocked)
    assert expiring(clocked) == []
    clocked.claim()
    assert clocked.get(task).record.reason == "corrupt_record"
