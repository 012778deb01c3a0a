"""The moves of a task's owner: commit, retry, release, bury, forfeit, and their answers ok, repeat, stale, missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relier.ledger.records import Lease, Settled
from relier.states import State
from tests.support.ledger_world import HOUR, World

Move = Callable[[World, Lease], Settled]
MOVES: dict[str, Move] = {
    "commit": World.commit,
    "retry": World.retry,
    "retry later": lambda world, lease: world.retry(lease, 5000),
    "put back": lambda world, lease: world.retry(lease, 1000, putback=True),
    "put back in silence": lambda world, lease: world.retry(lease, 1000, quiet=True),
    "release": World.release,
    "bury": World.bury,
    "forfeit": lambda world, lease: world.run(world.ledger.forfeit(lease, "killed")),  # type: ignore[no-any-return]
}
BECOMES = {
    "commit": State.DONE,
    "retry": State.QUEUED,
    "retry later": State.SCHEDULED,
    "put back": State.SCHEDULED,
    "put back in silence": State.SCHEDULED,
    "release": State.QUEUED,
    "bury": State.DEAD,
    "forfeit": State.QUEUED,
}
every_move = pytest.mark.parametrize("move", MOVES)


@every_move
def test_the_owner_can_settle_its_attempt(clocked: World, move: str) -> None:
    lease = clocked.start()
    assert MOVES[move](clocked, lease) == Settled("ok", BECOMES[move], lease.fence)
    assert clocked.state(lease.task_id) is BECOMES[move]
    assert clocked.members("owned", "boot") == []


@every_move
def test_the_same_call_again_changes_nothing(clocked: World, move: str) -> None:
    lease = clocked.start()
    MOVES[move](clocked, lease)
    clocked.advance(10)
    with clocked.unchanged():
        again = MOVES[move](clocked, lease)
    assert again == Settled("repeat", BECOMES[move], lease.fence)


@every_move
def test_the_same_call_again_while_another_attempt_runs(clocked: World, move: str) -> None:
    lease = clocked.start()
    MOVES[move](clocked, lease)
    clocked.advance(10_000)
    clocked.run(clocked.ledger.promote())
    clocked.claim()
    with clocked.unchanged():
        assert MOVES[move](clocked, lease).verdict == "repeat"


@every_move
def test_another_fence_is_stale(clocked: World, move: str) -> None:
    lease = clocked.start()
    for fence in (str(int(lease.fence) + 1), str(int(lease.fence) - 1), "0", ""):
        answer = MOVES[move](clocked, Lease(lease.task_id, fence, lease.worker_id))
        assert answer == Settled("stale", "running", lease.fence)
    assert clocked.counts()["refused"] == 4
    assert MOVES[move](clocked, lease).verdict == "ok"


@every_move
def test_another_owner_is_stale(clocked: World, move: str) -> None:
    lease = clocked.start()
    clocked.join("other")
    assert MOVES[move](clocked, Lease(lease.task_id, lease.fence, "other")).verdict == "stale"
    assert clocked.state(lease.task_id) is State.RUNNING


@every_move
def test_a_waiting_task_has_no_owner(clocked: World, move: str) -> None:
    task = clocked.push()
    assert MOVES[move](clocked, Lease(task, "0", "-")) == Settled("stale", "queued", "0")


@every_move
def test_an_unknown_id_is_missing(clocked: World, move: str) -> None:
    with clocked.unchanged():
        assert MOVES[move](clocked, Lease("nothing", "1", "boot")) == Settled("missing", "", "0")


def test_a_commit_keeps_the_result(clocked: World) -> None:
    for result in (b"\x00\xff\n", b"", None):
        lease = clocked.start(payload=b"in")
        clocked.commit(lease, result)
        found = clocked.get(lease.task_id)
        assert (found.result, found.payload, found.record.state) == (result, None, State.DONE)
        assert found.record.fence == lease.fence


def test_a_batch_of_commits_is_answered_one_by_one(clocked: World) -> None:
    clocked.push()
    clocked.push()
    one, two = (claimed.lease for claimed in clocked.claim())
    clocked.commit(two)
    rows = [(one, b"1", ()), (two, b"1", ()), (Lease("nothing", "1", "boot"), None, ())]
    answers = clocked.run(clocked.ledger.commit(rows))
    assert [answer.verdict for answer in answers] == ["ok", "repeat", "missing"]
    stale = clocked.run(clocked.ledger.commit([(Lease(one.task_id, "7", "boot"), b"2", ())]))
    assert stale == [Settled("stale", "done", one.fence)]
    assert clocked.get(one.task_id).result == b"1"


def test_follow_ups_enter_once_with_the_commit(clocked: World) -> None:
    lease = clocked.start()
    after = [clocked.new(), clocked.new(queue="other", key="k"), clocked.new(delay_ms=1000)]
    assert clocked.commit(lease, b"1", after).verdict == "ok"
    assert [clocked.state(task.id) for task in after] == [State.QUEUED, State.QUEUED, State.SCHEDULED]
    with clocked.unchanged():
        assert clocked.commit(lease, b"1", after).verdict == "repeat"
    assert clocked.counts()["submitted"] == 4


def test_follow_ups_of_a_stale_commit_do_not_enter(clocked: World) -> None:
    lease = clocked.start()
    clocked.lose()
    assert clocked.commit(lease, b"1", [clocked.new()]).verdict == "stale"
    assert clocked.counts()["submitted"] == 1


def test_an_existing_follow_up_is_left_alone(clocked: World) -> None:
    lease = clocked.start()
    here = clocked.push(payload=b"old", key="k")
    after = [clocked.new(id=here, payload=b"new"), clocked.new(key="k")]
    assert clocked.commit(lease, b"1", after).verdict == "ok"
    assert clocked.get(here).payload == b"old"
    assert clocked.state(after[1].id) is None


def test_follow_ups_may_share_an_id_or_a_key(clocked: World) -> None:
    lease = clocked.start()
    after = [clocked.new(id="a", key="k"), clocked.new(id="a"), clocked.new(id="b", key="k", on_conflict="replace")]
    assert clocked.commit(lease, b"1", after).verdict == "ok"
    assert len(clocked.members("ready", "default")) == 1


def test_commits_of_one_call_may_follow_up_with_one_key(clocked: World) -> None:
    clocked.push()
    clocked.push()
    one, two = (claimed.lease for claimed in clocked.claim())
    rows = [(one, None, [clocked.new(key="k")]), (two, None, [clocked.new(key="k", on_conflict="replace")])]
    assert [answer.verdict for answer in clocked.run(clocked.ledger.commit(rows))] == ["ok", "ok"]


def test_a_follow_up_may_have_its_own_predecessors_key(clocked: World) -> None:
    lease = clocked.start(key="k", key_ttl_ms=HOUR)
    after = clocked.new(key="k")
    clocked.commit(lease, b"1", [after])
    assert clocked.state(after.id) is None, "the key is its predecessor's for its time"
    freed = clocked.start(key="l")
    after = clocked.new(key="l")
    clocked.commit(freed, b"1", [after])
    assert clocked.state(after.id) is State.QUEUED, "without a time the key ends with the task"


def test_a_retry_after_failure_counts(clocked: World) -> None:
    lease = clocked.start()
    clocked.retry(lease)
    (claimed,) = clocked.claim()
    assert (claimed.retries, claimed.record.attempt, claimed.since_ms) == (1, 2, 0)
    (entry,) = clocked.get(lease.task_id).history
    assert (entry.move, entry.attempt, entry.worker_id, entry.fence, entry.detail) == (
        "retry",
        1,
        "boot",
        lease.fence,
        "why",
    )


def test_a_retry_waits_behind_earlier_tasks(clocked: World) -> None:
    first, second = clocked.push(), clocked.push()
    (claimed,) = clocked.claim(want=1)
    clocked.advance(1)
    clocked.retry(claimed.lease)
    assert clocked.members("ready", "default") == [second, first]


def test_a_failure_ends_a_series_of_put_backs(clocked: World) -> None:
    lease = clocked.start()
    clocked.retry(lease, putback=True)
    (claimed,) = clocked.claim()
    assert claimed.since_ms == clocked.now
    clocked.retry(claimed.lease)
    (claimed,) = clocked.claim()
    assert (claimed.since_ms, claimed.retries, claimed.record.attempt) == (0, 1, 2)


def test_a_release_uses_up_no_attempt_and_keeps_its_place(clocked: World) -> None:
    first, second = clocked.push(), clocked.push()
    (claimed,) = clocked.claim(want=1)
    clocked.advance(60_000)
    clocked.release(claimed.lease)
    assert clocked.members("ready", "default") == [first, second]
    record = clocked.get(first).record
    assert (record.attempt, record.worker_id) == (0, "")
    assert clocked.get(first).history == ()


def test_a_batch_is_released_one_by_one(clocked: World) -> None:
    clocked.push()
    clocked.push()
    one, two = (claimed.lease for claimed in clocked.claim())
    clocked.commit(two)
    answers = clocked.run(clocked.ledger.release([one, two, Lease("nothing", "1", "boot")]))
    assert [answer.verdict for answer in answers] == ["ok", "stale", "missing"]


def test_a_dead_task_keeps_everything_for_a_replay(clocked: World) -> None:
    lease = clocked.start(payload=b"bytes")
    clocked.run(clocked.ledger.checkpoint(lease, 1, b"half"))
    clocked.run(clocked.ledger.step(lease, "pay", b"1"))
    clocked.bury(lease, "unknown_task")
    found = clocked.get(lease.task_id)
    assert (found.record.reason, found.payload, found.checkpoint) == ("unknown_task", b"bytes", b"half")
    assert found.steps == {"pay": b"1"}
    assert (found.history[0].move, found.history[0].detail) == ("bury", "Traceback")


def test_the_history_keeps_the_last_fifty_entries(clocked: World) -> None:
    lease = clocked.start()
    for _ in range(55):
        clocked.retry(lease)
        lease = clocked.claim()[0].lease
    history = clocked.get(lease.task_id).history
    assert [entry.attempt for entry in history] == list(range(6, 56))


def test_a_forfeit_counts_as_a_death_of_the_task_alone(clocked: World) -> None:
    waiting = clocked.push()
    lease = clocked.start(queue="other", max_resurrections=1)
    assert clocked.run(clocked.ledger.forfeit(lease, "OOM")).state == "queued"
    (claimed,) = clocked.claim(queues=["other"])
    assert (claimed.deaths, claimed.scares, claimed.record.attempt) == (1, 0, 2)
    assert clocked.run(clocked.ledger.forfeit(claimed.lease, "OOM")).state == "dead"
    assert clocked.get(lease.task_id).record.reason == "max_resurrections_exceeded"
    assert [entry.detail for entry in clocked.get(lease.task_id).history] == ["OOM", "OOM"]
    assert clocked.state(waiting) is State.QUEUED


@pytest.mark.parametrize(("on_lost", "hold"), [("bury", False), ("hold", True)])
def test_a_forfeited_task_that_may_not_be_retried_is_dead(clocked: World, on_lost: str, hold: bool) -> None:
    lease = clocked.start(on_lost=on_lost)
    assert clocked.run(clocked.ledger.forfeit(lease, "OOM")).state == "dead"
    assert clocked.get(lease.task_id).record.reason == "lost"
    assert (clocked.pttl("task", lease.task_id) == -1) is hold


def test_a_task_that_was_asked_to_cancel_ends_when_it_is_settled(clocked: World) -> None:
    """An attempt that was asked to cancel may still end its task itself. A task that would run again is cancelled
    instead."""
    ends = {"commit": "done", "bury": "dead"}
    for move in MOVES:
        lease = clocked.start()
        assert clocked.cancel(lease.task_id).verdict == "asked"
        answer = MOVES[move](clocked, lease)
        assert (answer.verdict, answer.state) == ("ok", ends.get(move, "cancelled")), move
        with clocked.unchanged():
            assert MOVES[move](clocked, lease).verdict == "repeat"
    assert clocked.pttl("asked", "boot") == -2


def comes_round(world: World, lease: Lease, delay: int, **how: Any) -> None:
    world.retry(lease, delay, **how)
    world.advance(delay)
    world.run(world.ledger.promote())


def claimed_ids(world: World) -> list[str]:
    return [claimed.record.id for claimed in world.claim()]


def test_a_task_without_a_free_process_keeps_its_place(clocked: World) -> None:
    """However often it is refused, tasks that were pushed later do not overtake it."""
    lease = clocked.start()
    for _ in range(3):
        later = clocked.push()
        comes_round(clocked, lease, 5000, quiet=True)
        (first,) = clocked.claim(want=1)
        assert first.record.id == lease.task_id
        clocked.cancel(later)
        lease = first.lease


def test_a_quiet_retry_returns_to_the_place_of_its_priority(clocked: World) -> None:
    low = clocked.start(priority=-1)
    high = clocked.start(priority=1)
    between = clocked.push()
    clocked.retry(high, 1000, quiet=True)
    comes_round(clocked, low, 1000, quiet=True)
    assert claimed_ids(clocked) == [high.task_id, between, low.task_id]


@pytest.mark.parametrize("how", [{}, {"putback": True}, {"locked": True}])
def test_any_other_retry_takes_the_place_of_the_time_it_is_due(clocked: World, how: dict[str, bool]) -> None:
    lease = clocked.start()
    comes_round(clocked, lease, 5000, quiet=True)
    (claimed,) = clocked.claim()
    later = clocked.push()
    comes_round(clocked, claimed.lease, 5000, **how)
    assert claimed_ids(clocked) == [later, lease.task_id]


def test_a_quiet_retry_without_a_delay_goes_to_the_end(clocked: World) -> None:
    """Otherwise a task that is rejected at once would be claimed again and again before all others."""
    lease = clocked.start()
    later = clocked.push()
    clocked.advance(1)
    clocked.retry(lease, quiet=True)
    assert claimed_ids(clocked) == [later, lease.task_id]
