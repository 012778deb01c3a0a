"""Limits at run time: a slot belongs to a running task, and waiting tasks get slots in order."""

from __future__ import annotations

import pytest

from relier.errors import AdmissionRejectedError, InvalidSubmissionError, VersionConflictError
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.records import Admission, Lease
from relier.states import State
from tests.support.ledger_world import World


def per(key: str, concurrency: int = 0, *, interval_ms: int = 0, burst: int = 1) -> RunLimit:
    interval = interval_ms * 1000
    return RunLimit(key.partition(":")[0], key, LimitNumbers(concurrency, interval, interval * burst))


def pushed(world: World, n: int, *limits: RunLimit, queue: str = "default") -> list[str]:
    ids = []
    for _ in range(n):
        world.advance(1)
        ids.append(world.push(limits=limits, queue=queue))
    return ids


def claimed(world: World, want: int = 100, queues: tuple[str, ...] = ("default",)) -> dict[str, Lease]:
    return {one.record.id: one.lease for one in world.claim(want=want, queues=queues)}


# --- concurrency -----------------------------------------------------------------------------------------------------


def test_at_most_so_many_tasks_of_a_key_run_at_once(clocked: World) -> None:
    first, second, third, fourth = pushed(clocked, 4, per("tenant:1", 2))
    running = claimed(clocked)
    assert list(running) == [first, second]
    assert claimed(clocked) == {}
    clocked.commit(running[first])
    assert list(claimed(clocked)) == [third]
    assert clocked.state(fourth) is State.QUEUED


def test_each_key_is_limited_separately(clocked: World) -> None:
    pushed(clocked, 3, per("tenant:1", 1))
    (other,) = pushed(clocked, 1, per("tenant:2", 1))
    assert other in claimed(clocked)


def test_tasks_without_limits_overtake_those_that_wait(clocked: World) -> None:
    pushed(clocked, 3, per("tenant:1", 1))
    plain = clocked.push()
    assert plain in claimed(clocked)


def test_a_task_needs_a_slot_of_each_of_its_limits(clocked: World) -> None:
    one, both = pushed(clocked, 1, per("a", 1)) + pushed(clocked, 1, per("a", 1), per("b", 1))
    running = claimed(clocked)
    assert list(running) == [one]
    clocked.commit(running[one])
    assert list(claimed(clocked)) == [both]


@pytest.mark.parametrize("end", ["commit", "bury", "retry", "release", "lose"])
def test_whatever_ends_an_attempt_frees_its_slot(clocked: World, end: str) -> None:
    first, second = pushed(clocked, 2, per("a", 1))
    lease = claimed(clocked)[first]
    {
        "commit": lambda: clocked.commit(lease),
        "bury": lambda: clocked.bury(lease),
        "retry": lambda: clocked.retry(lease, 60_000),
        "release": lambda: clocked.release(lease),
        "lose": lambda: (clocked.lose(), clocked.join()),
    }[end]()
    expected = first if end in {"release", "lose"} else second
    assert list(claimed(clocked)) == [expected]


def test_a_cancelled_head_makes_way_for_the_next(clocked: World) -> None:
    first, second, third = pushed(clocked, 3, per("a", 1))
    clocked.cancel(first)
    assert list(claimed(clocked)) == [second]
    clocked.cancel(third)
    assert clocked.members("lane", "a default") == []


def test_a_revived_task_comes_before_the_others_of_its_key(clocked: World) -> None:
    first, *_ = pushed(clocked, 3, per("a", 1))
    claimed(clocked)
    clocked.lose()
    clocked.join()
    assert list(claimed(clocked)) == [first]


def test_a_paused_queue_does_not_hold_up_the_same_key_elsewhere(clocked: World) -> None:
    pushed(clocked, 2, per("a", 1), queue="one")
    (running,) = claimed(clocked, queues=("one",)).values()
    (other,) = pushed(clocked, 1, per("a", 1), queue="two")
    clocked.run(clocked.ledger.pause("one", 0))
    clocked.commit(running)
    assert list(claimed(clocked, queues=("one", "two"))) == [other]


def test_expired_tasks_leave_their_lane(clocked: World) -> None:
    first = clocked.push(limits=(per("a", 1),), expires_in_ms=100)
    (second,) = pushed(clocked, 1, per("a", 1))
    clocked.advance(100)
    assert list(claimed(clocked)) == [second]
    assert clocked.state(first) is State.CANCELLED


def test_a_lane_is_one_entry_of_its_queue_however_long_it_is(clocked: World) -> None:
    pushed(clocked, 50, per("a", 1))
    pushed(clocked, 3, per("b", 1))
    assert len(clocked.members("ready", "default")) == 2
    stats = clocked.run(clocked.ledger.stats())
    assert [(queue.ready, queue.held_back) for queue in stats.queues] == [(2, 51)]


def test_tasks_that_wait_count_for_the_depth_of_their_queue(clocked: World) -> None:
    pushed(clocked, 3, per("a", 1))
    for task in (clocked.new(), clocked.new(limits=(per("a", 1),))):
        with pytest.raises(AdmissionRejectedError):
            clocked.submit(task, admission=Admission(max_depth=3))


# --- rates -----------------------------------------------------------------------------------------------------------


def test_a_rate_lets_one_start_at_its_exact_time(clocked: World) -> None:
    first, second, third = pushed(clocked, 3, per("api", interval_ms=1000))
    assert list(claimed(clocked)) == [first]
    assert clocked.state(second) is State.SCHEDULED
    clocked.advance(999)
    clocked.run(clocked.ledger.promote())
    assert claimed(clocked) == {}
    clocked.advance(1)
    clocked.run(clocked.ledger.promote())
    assert list(claimed(clocked)) == [second]
    assert clocked.state(third) is State.SCHEDULED


def test_a_burst_may_start_at_once(clocked: World) -> None:
    ids = pushed(clocked, 4, per("api", interval_ms=1000, burst=3))
    assert list(claimed(clocked)) == ids[:3]


def test_only_one_of_many_lanes_waits_in_due(clocked: World) -> None:
    for tenant in range(20):
        pushed(clocked, 2, per("api", interval_ms=1000), per(f"tenant:{tenant}", 1))
    (lease,) = claimed(clocked).values()
    clocked.commit(lease)
    assert len(clocked.members("due")) == 1
    for _ in range(39):
        clocked.advance(1000)
        clocked.run(clocked.ledger.promote())
        (lease,) = claimed(clocked).values()
        clocked.commit(lease)


def test_a_task_that_waits_for_a_rate_can_be_cancelled(clocked: World) -> None:
    _, second, third = pushed(clocked, 3, per("api", interval_ms=1000))
    claimed(clocked)
    clocked.cancel(second)
    claimed(clocked)
    clocked.advance(1000)
    clocked.run(clocked.ledger.promote())
    assert list(claimed(clocked)) == [third]


# --- operators -------------------------------------------------------------------------------------------------------


def test_a_raised_limit_counts_at_once(clocked: World) -> None:
    ids = pushed(clocked, 4, per("tenant:1", 1))
    claimed(clocked)
    change = clocked.run(clocked.ledger.limit("tenant", 0, LimitNumbers(3)))
    assert (change.verdict, change.version, change.cursor) == ("ok", 1, "")
    assert list(claimed(clocked)) == ids[1:3]


def test_a_key_has_its_own_numbers_before_those_of_its_name(clocked: World) -> None:
    clocked.run(clocked.ledger.limit("tenant", 0, LimitNumbers(1)))
    clocked.run(clocked.ledger.limit("tenant:2", 0, LimitNumbers(2)))
    pushed(clocked, 3, per("tenant:1", 5))
    pushed(clocked, 3, per("tenant:2", 5))
    assert len(claimed(clocked)) == 3


def test_a_lifted_rate_lets_the_waiting_task_go(clocked: World) -> None:
    _, second = pushed(clocked, 2, per("api", interval_ms=3_600_000))
    claimed(clocked)
    clocked.run(clocked.ledger.limit("api", 0, LimitNumbers(10)))
    clocked.run(clocked.ledger.promote())
    assert list(claimed(clocked)) == [second]


def test_an_operator_changes_only_the_version_that_they_saw(clocked: World) -> None:
    assert clocked.run(clocked.ledger.limit("a", 0, LimitNumbers(1))).verdict == "ok"
    assert clocked.run(clocked.ledger.limit("a", 0, LimitNumbers(1))).verdict == "repeat"
    with pytest.raises(VersionConflictError, match="limit a was not changed"):
        clocked.run(clocked.ledger.limit("a", 0, LimitNumbers(2)))
    assert clocked.run(clocked.ledger.limit("a", 1, None)).verdict == "ok"
    assert clocked.run(clocked.ledger.limit("a", 1, None)).verdict == "repeat"


def test_the_list_of_limits_shows_running_and_waiting_tasks(clocked: World) -> None:
    pushed(clocked, 3, per("tenant:1", 1))
    claimed(clocked)
    clocked.run(clocked.ledger.limit("other", 0, LimitNumbers(4)))
    page = clocked.run(clocked.ledger.limits())
    (key,) = page.keys
    assert (key.key, key.live, key.running, key.numbers) == ("tenant:1", 3, 1, LimitNumbers(1))
    assert page.set == {"other": (LimitNumbers(4), 1)}


def test_bad_limits_are_refused(clocked: World) -> None:
    too_many = tuple(per(f"k{n}", 1) for n in range(6))
    for limits in (too_many, (per("a", 1), per("a", 2)), (per("a b", 1),), (per("a,b", 1),), (per("a", -1),)):
        with pytest.raises(InvalidSubmissionError):
            clocked.push(limits=limits)


# --- damage ----------------------------------------------------------------------------------------------------------


def test_the_reaper_frees_the_slot_of_a_missing_record(clocked: World) -> None:
    first, second = pushed(clocked, 2, per("a", 1))
    claimed(clocked)
    clocked.delete(first)
    clocked.command("DEL", clocked.key("more", first))
    assert claimed(clocked) == {}
    clocked.run(clocked.ledger.reap())
    assert list(claimed(clocked)) == [second]
    assert clocked.counts()["slots_freed"] == 1


def test_the_reaper_gives_a_lane_a_new_head_if_the_old_one_is_missing(clocked: World) -> None:
    first, second = pushed(clocked, 2, per("a", 1))
    clocked.delete(first)
    assert claimed(clocked) == {}
    clocked.run(clocked.ledger.reap())
    assert list(claimed(clocked)) == [second]
    assert clocked.counts()["lanes_woken"] == 1


def test_a_lane_continues_if_its_head_that_waited_for_a_rate_is_missing(clocked: World) -> None:
    _, second, third = pushed(clocked, 3, per("api", interval_ms=1000))
    (other,) = pushed(clocked, 1, per("api", interval_ms=1000), per("b", 1))
    claimed(clocked)
    clocked.delete(second)
    clocked.command("ZREM", clocked.key("due"), second)
    clocked.run(clocked.ledger.reap())
    for expected in (third, other):
        clocked.advance(1000)
        clocked.run(clocked.ledger.promote())
        claimed(clocked)
        clocked.run(clocked.ledger.promote())
        assert clocked.state(expected) is State.RUNNING, expected
