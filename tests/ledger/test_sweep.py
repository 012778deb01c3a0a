"""The sweepers' moves: revive and its brakes, promote, reap."""

from __future__ import annotations

from typing import Any

import pytest

from relier.ledger.records import Claimed
from relier.states import State
from tests.support.ledger_world import DAY, HOUR, World

LEASE = 5000


def let_run_out(world: World, ms: int = LEASE) -> None:
    """Let time pass in steps that the ledger clock follows, while a sweeper moves that clock."""
    for _ in range(ms // 1000):
        world.advance(1000)
        world.revive(most=0)


def running(world: World, boot: str, n: int, **fields: object) -> list[str]:
    tasks = [world.push(**fields) for _ in range(n)]
    queue = fields.get("queue", "default")
    assert [one.record.id for one in world.claim(boot, queues=[str(queue)])] == tasks
    return tasks


def test_a_live_lease_is_never_stolen(clocked: World) -> None:
    running(clocked, "boot", 2)
    clocked.advance(2000)
    clocked.beat()
    let_run_out(clocked, LEASE - 1000)
    swept = clocked.revive()
    assert (swept.outcomes, swept.removed, swept.pending) == ((), 0, 0)


def test_tasks_return_to_their_queue_when_the_lease_has_run_out(clocked: World) -> None:
    tasks = running(clocked, "boot", 2)
    let_run_out(clocked)
    swept = clocked.revive()
    assert sorted(swept.outcomes) == [(task, "queued") for task in tasks]
    assert (swept.removed, swept.pending, swept.deferred) == (1, 0, 0)
    assert clocked.members("boots") == []
    assert not clocked.beat().alive


def test_a_second_sweep_finds_nothing(clocked: World) -> None:
    running(clocked, "boot", 1)
    clocked.lose()
    with clocked.unchanged():
        assert clocked.lose().outcomes == ()


def test_a_worker_can_be_declared_lost_by_id(clocked: World) -> None:
    clocked.join("other")
    mine, theirs = running(clocked, "boot", 1), running(clocked, "other", 1)
    assert clocked.lose().outcomes == ((mine[0], "queued"),)
    assert clocked.state(theirs[0]) is State.RUNNING
    assert clocked.lose("nobody").outcomes == ()


def test_revived_tasks_come_before_all_others(clocked: World) -> None:
    (task,) = running(clocked, "boot", 1, priority=-9)
    clocked.push(priority=9)
    clocked.lose()
    assert clocked.members("ready", "default")[0] == task
    assert clocked.command("LLEN", clocked.ledger.bell("default")) == 1


def test_a_sweep_looks_at_no_more_than_its_batch(clocked: World) -> None:
    tasks = running(clocked, "boot", 5)
    first = clocked.revive(worker_id="boot", most=2)
    assert ([task for task, _ in first.outcomes], first.removed, first.pending) == (tasks[:2], 0, 1)
    assert clocked.members("boots") == ["boot"], "it still owns something, so it is not removed"
    assert not clocked.beat().alive
    second = clocked.revive(most=2)
    assert (len(second.outcomes), second.removed, second.pending) == (2, 0, 1), "a lost boot needs no name any more"
    third = clocked.revive(most=2)
    assert (len(third.outcomes), third.removed, third.pending) == (1, 1, 0)


def test_the_depth_limit_delays_revivals_and_forgets_none(clocked: World) -> None:
    running(clocked, "boot", 5)
    swept = clocked.revive(worker_id="boot", deepest=2)
    assert (len(swept.outcomes), swept.deferred, swept.removed, swept.pending) == (2, 3, 0, 1)
    clocked.join("next")
    clocked.claim("next", want=1)
    swept = clocked.revive(deepest=2)
    assert (len(swept.outcomes), swept.deferred) == (1, 2)
    clocked.claim("next")
    swept = clocked.revive(deepest=2)
    assert (len(swept.outcomes), swept.deferred, swept.removed) == (2, 0, 1)


def test_a_full_lane_delays_no_other_queue(clocked: World) -> None:
    running(clocked, "boot", 4, queue="full")
    other = running(clocked, "boot", 2, queue="free")
    freed: list[str] = []
    for _ in range(4):
        clocked.advance(1)
        freed += [task for task, _ in clocked.revive(worker_id="boot", most=3, deepest=1).outcomes]
    assert set(other) & set(freed), "braked tasks went to the end of the line"


def test_a_full_lane_delays_no_other_queue_after_the_clock_went_back(clocked: World) -> None:
    running(clocked, "boot", 4, queue="full")
    other = running(clocked, "boot", 2, queue="free")
    clocked.advance(-HOUR)
    freed: list[str] = []
    for _ in range(4):
        clocked.advance(1)
        freed += [task for task, _ in clocked.revive(worker_id="boot", most=3, deepest=1).outcomes]
    assert set(other) & set(freed)


def test_a_worker_at_the_depth_limit_delays_no_other_worker(clocked: World) -> None:
    clocked.join("other")
    running(clocked, "boot", 4, queue="full")
    (free,) = running(clocked, "other", 1, queue="free")
    freed: list[str] = []
    clocked.lose("other")
    clocked.revive(worker_id="boot", most=1, deepest=1)
    for _ in range(6):
        clocked.advance(1)
        freed += [task for task, _ in clocked.revive(most=1, deepest=1).outcomes]
    assert clocked.state(free) is State.QUEUED


def test_a_death_alone_counts_against_the_task(clocked: World) -> None:
    running(clocked, "boot", 1)
    clocked.lose()
    clocked.join("next")
    (claimed,) = clocked.claim("next")
    assert (claimed.deaths, claimed.scares, claimed.alone) == (1, 0, False)


def test_a_first_shared_death_counts_against_no_task(clocked: World) -> None:
    running(clocked, "boot", 3)
    clocked.lose()
    clocked.join("next")
    for claimed in clocked.claim("next"):
        assert (claimed.deaths, claimed.scares, claimed.alone) == (0, 1, False)


def scared(clocked: World, times: int) -> tuple[Claimed, ...]:
    """Return the waiting tasks, claimed once more after `times` workers died while they ran them."""
    for _ in range(times):
        clocked.claim(clocked.join("victim"))
        clocked.lose("victim")
    return clocked.claim(clocked.join("next"))


def test_after_two_shared_deaths_a_task_runs_alone_and_its_own_death_counts(clocked: World) -> None:
    clocked.push(max_resurrections=0)
    clocked.push(max_resurrections=0)
    claims = scared(clocked, 2)
    assert [(one.deaths, one.scares, one.alone) for one in claims] == [(0, 2, True)] * 2
    assert clocked.run(clocked.ledger.forfeit(claims[0].lease, "its process was killed")).state == "dead"
    assert clocked.get(claims[0].record.id).record.reason == "max_resurrections_exceeded"


def test_the_death_of_its_worker_does_not_count_against_a_suspect(clocked: World) -> None:
    """The task waited there for an isolated process, or had one, when the host died."""
    clocked.push(max_resurrections=1)
    clocked.push(max_resurrections=1)
    claims = scared(clocked, 4)
    assert [(one.deaths, one.scares, one.alone) for one in claims] == [(0, 4, True)] * 2
    clocked.commit(claims[0].lease)
    ((_, state),) = clocked.lose("next").outcomes
    assert state == "queued"
    (claimed,) = clocked.claim(clocked.join("last"))
    assert (claimed.deaths, claimed.scares) == (1, 4), "that worker ran it alone"


@pytest.mark.parametrize(("options", "most"), [({}, 12), ({"max_resurrections": 0}, 2), ({"max_resurrections": 3}, 8)])
def test_a_task_whose_workers_keep_dying_becomes_a_dead_letter(
    clocked: World, options: dict[str, Any], most: int
) -> None:
    """It kills its worker although it is isolated. There are always other tasks in the worker, so no death counts
    against it."""
    task = clocked.push(**options)
    clocked.push(max_resurrections=99)
    scared(clocked, most)
    assert (task, "dead") in clocked.lose("next").outcomes
    dead = clocked.get(task)
    assert (dead.record.reason, dead.payload) == ("workers_kept_dying", b'{"n":1}')
    assert [entry.detail for entry in dead.history] == ["killed"] * (most + 1)
    clocked.replay(task)
    claimed = next(one for one in clocked.claim(clocked.join("b")) if one.record.id == task)
    assert (claimed.deaths, claimed.scares, claimed.alone) == (0, 0, False)


@pytest.mark.parametrize(("how", "left"), [("failure", 0), ("putback", 2), ("quiet", 2), ("release", 2)])
def test_a_failure_of_the_task_resets_its_shared_deaths(clocked: World, how: str, left: int) -> None:
    """The failure shows that the worker survived the task. A task that was handed back may not have run at all. A
    suspect stays a suspect."""
    clocked.push()
    clocked.push()
    lease = scared(clocked, 2)[0].lease
    if how == "release":
        clocked.release(lease)
    else:
        clocked.retry(lease, putback=how == "putback", quiet=how == "quiet")
    (claimed,) = clocked.claim("next")
    assert (claimed.scares, claimed.alone) == (left, True)


def test_a_split_sweep_judges_all_by_what_the_process_ran(clocked: World) -> None:
    running(clocked, "boot", 2)
    for _ in range(2):
        clocked.revive(worker_id="boot", most=1)
    clocked.join("next")
    assert [(one.deaths, one.scares) for one in clocked.claim("next")] == [(0, 1)] * 2


@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_task_dies_after_max_resurrections(clocked: World, most: int) -> None:
    clocked.push(id="poison", max_resurrections=most)
    for death in range(most + 1):
        boot = clocked.join(f"b{death}")
        clocked.claim(boot)
        ((_, state),) = clocked.lose(boot).outcomes
        assert state == ("dead" if death == most else "queued")
    assert clocked.get("poison").record.reason == "max_resurrections_exceeded"


def test_five_resurrections_are_the_default(clocked: World) -> None:
    clocked.push()
    states = []
    for death in range(6):
        boot = clocked.join(f"b{death}")
        clocked.claim(boot)
        states.append(clocked.lose(boot).outcomes[0][1])
    assert states == ["queued"] * 5 + ["dead"]


def test_the_cause_of_death_is_in_the_history(clocked: World) -> None:
    (task,) = running(clocked, "boot", 1)
    clocked.lose()
    (entry,) = clocked.get(task).history
    assert (entry.move, entry.worker_id, entry.attempt, entry.detail) == ("revive", "boot", 1, "killed")


@pytest.mark.parametrize("on_lost", ["bury", "hold"])
def test_a_lost_task_that_may_not_run_again_is_dead(clocked: World, on_lost: str) -> None:
    (task,) = running(clocked, "boot", 1, on_lost=on_lost, dead_ttl_ms=HOUR)
    assert clocked.lose().outcomes == ((task, "dead"),)
    assert clocked.get(task).record.reason == "lost"
    clocked.advance(400 * DAY)
    clocked.run(clocked.ledger.reap())
    assert clocked.state(task) is (State.DEAD if on_lost == "hold" else None)


def test_a_cancel_request_ends_with_the_lease(clocked: World) -> None:
    (task,) = running(clocked, "boot", 1)
    clocked.cancel(task)
    assert clocked.lose().outcomes == ((task, "cancelled"),)


# --- promote ----------------------------------------------------------------------------------------------------------


def test_due_tasks_enter_their_queue(clocked: World) -> None:
    later, soon = clocked.push(delay_ms=5000), clocked.push(delay_ms=1000)
    clocked.advance(999)
    with clocked.unchanged():
        promoted = clocked.run(clocked.ledger.promote())
    assert (promoted.count, promoted.next_due_ms) == (0, clocked.now + 1)
    clocked.advance(1)
    promoted = clocked.run(clocked.ledger.promote())
    assert (promoted.count, promoted.next_due_ms) == (1, clocked.now + 4000)
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.promote()).count == 0
    assert clocked.members("ready", "default") == [soon]
    assert clocked.command("LLEN", clocked.ledger.bell("default")) == 1
    clocked.advance(9000)
    assert clocked.run(clocked.ledger.promote()).next_due_ms is None
    assert clocked.members("ready", "default") == [soon, later]


def test_a_task_promoted_late_gets_the_place_of_its_due_time(clocked: World) -> None:
    due = clocked.push(delay_ms=1000)
    clocked.advance(2000)
    pushed = clocked.push()
    clocked.advance(1)
    clocked.run(clocked.ledger.promote())
    assert clocked.members("ready", "default") == [due, pushed]


def test_promote_takes_no_more_than_its_batch(clocked: World) -> None:
    for _ in range(5):
        clocked.push(delay_ms=1)
    clocked.advance(1)
    assert [clocked.run(clocked.ledger.promote(2)).count for _ in range(4)] == [2, 2, 1, 0]


# --- reap -------------------------------------------------------------------------------------------------------------


def test_ended_records_are_removed_after_their_retention(clocked: World) -> None:
    done, dead = clocked.start(result_ttl_ms=1000), clocked.start(dead_ttl_ms=2000)
    clocked.commit(done)
    clocked.bury(dead)
    clocked.run(clocked.ledger.reap())  # it also notes that the queue is empty
    clocked.advance(999)
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.reap()) == 0
    clocked.advance(1)
    assert clocked.run(clocked.ledger.reap()) == 1
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.reap()) == 0
    clocked.advance(1000)
    assert clocked.run(clocked.ledger.reap()) == 1
    assert clocked.states() == {}
    assert clocked.counts()["reaped"] == 2


def test_default_retention_times_apply(clocked: World) -> None:
    done, dead = clocked.start(), clocked.start()
    clocked.commit(done)
    clocked.bury(dead)
    clocked.advance(HOUR)
    assert clocked.run(clocked.ledger.reap()) == 1
    clocked.advance(30 * DAY - HOUR - 1)
    assert clocked.run(clocked.ledger.reap()) == 0
    clocked.advance(1)
    assert clocked.run(clocked.ledger.reap()) == 1


def test_reap_takes_no_more_than_its_batch(clocked: World) -> None:
    for _ in range(5):
        clocked.commit(clocked.start())
    clocked.cancel(clocked.push())
    clocked.advance(HOUR)
    assert [clocked.run(clocked.ledger.reap(4)) for _ in range(3)] == [4, 2, 0]


@pytest.mark.parametrize("end", ["done", "dead", "cancelled"])
def test_an_id_that_must_be_remembered_outlives_its_record_without_a_sweep(clocked: World, end: str) -> None:
    """The record may expire before any sweep could write the tombstone."""
    lease = clocked.start(tomb_ttl_ms=7 * DAY, result_ttl_ms=1000, dead_ttl_ms=1000)
    if end == "done":
        clocked.commit(lease)
    elif end == "dead":
        clocked.bury(lease)
    else:
        clocked.release(lease)
        clocked.cancel(lease.task_id)
    assert clocked.state(lease.task_id) is State(end)
    assert clocked.pttl("task", lease.task_id) >= 7 * DAY
