"""Admission: limits, depth and bytes, and the order in which a submit is checked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relier.errors import AdmissionRejectedError, InvalidSubmissionError
from relier.ledger.records import Admission, AdmissionLimit
from tests.support.ledger_world import World

SECOND_US = 1_000_000


def limited(*limits: AdmissionLimit, **more: int) -> Admission:
    return Admission(limits, **more)


def admitted(world: World, admission: Admission, n: int = 1, **fields: Any) -> bool:
    try:
        world.submit(*[world.new(**fields) for _ in range(n)], admission=admission)
    except AdmissionRejectedError:
        return False
    return True


def test_a_limit_admits_exactly_its_number(clocked: World) -> None:
    ten = limited(AdmissionLimit.per_window("l", 10, 60_000))
    assert [admitted(clocked, ten) for _ in range(12)] == [True] * 10 + [False] * 2
    clocked.advance(5999)
    assert not admitted(clocked, ten)
    clocked.advance(1)
    assert [admitted(clocked, ten) for _ in range(2)] == [True, False]
    clocked.advance(600_000)
    assert [admitted(clocked, ten) for _ in range(11)] == [True] * 10 + [False]


def test_a_refused_submit_changes_nothing_and_says_when_to_return(clocked: World) -> None:
    ten = limited(AdmissionLimit.per_window("mails", 10, 60_000))
    assert admitted(clocked, ten, 7)
    with clocked.unchanged(), pytest.raises(AdmissionRejectedError, match="'mails'") as refused:
        clocked.submit(*[clocked.new() for _ in range(5)], admission=ten)
    assert (refused.value.limit, refused.value.retry_after) == ("mails", 12.0)
    clocked.set_time(clocked.now_us + 12 * SECOND_US - 1)
    assert not admitted(clocked, ten, 5)
    clocked.set_time(clocked.now_us + 1)
    assert admitted(clocked, ten, 5), "exactly then"


def test_a_batch_is_admitted_as_a_whole(clocked: World) -> None:
    ten = limited(AdmissionLimit.per_window("l", 10, 60_000))
    assert admitted(clocked, ten, 6)
    assert not admitted(clocked, ten, 5)
    assert clocked.counts()["submitted"] == 6
    assert admitted(clocked, ten, 4)


def test_the_limit_that_refuses_leaves_the_others_uncharged(clocked: World) -> None:
    wide, narrow = AdmissionLimit.per_window("wide", 100, 60_000), AdmissionLimit.per_window("narrow", 1, 60_000)
    assert admitted(clocked, limited(wide, narrow))
    before = clocked.command("GET", clocked.key("rate", "wide"))
    assert not admitted(clocked, limited(wide, narrow))
    assert clocked.command("GET", clocked.key("rate", "wide")) == before


def test_weights_and_extra_cost_are_charged(clocked: World) -> None:
    heavy = limited(AdmissionLimit.per_window("l", 10, 60_000, weight=3), extra=1)
    assert admitted(clocked, heavy, 2)  # 7
    assert not admitted(clocked, heavy)  # 4
    assert admitted(clocked, limited(AdmissionLimit.per_window("l", 10, 60_000), extra=2))  # 3
    assert not admitted(clocked, limited(AdmissionLimit.per_window("l", 10, 60_000)))


def test_a_batch_that_never_fits_is_the_callers_mistake(clocked: World) -> None:
    ten = limited(AdmissionLimit.per_window("l", 10, 60_000))
    with pytest.raises(InvalidSubmissionError, match="never fit into limit 'l'"):
        clocked.submit(*[clocked.new() for _ in range(11)], admission=ten)


@pytest.mark.parametrize("limit", [0, -1, 60_000_001])
def test_a_limit_that_admits_nothing_is_refused(limit: int) -> None:
    with pytest.raises(InvalidSubmissionError):
        AdmissionLimit.per_window("l", limit, 60_000)


def test_depth_counts_what_waits_in_each_queue(clocked: World) -> None:
    shallow = Admission(max_depth=3)
    assert admitted(clocked, shallow, 2)
    with clocked.unchanged(), pytest.raises(AdmissionRejectedError, match="wait until workers catch up") as refused:
        clocked.submit(clocked.new(), clocked.new(), admission=shallow)
    assert refused.value.limit == "depth:default"
    assert refused.value.retry_after > 0
    assert admitted(clocked, shallow, 3, queue="other")
    assert admitted(clocked, shallow)
    clocked.claim(want=1)
    assert admitted(clocked, shallow)


def test_bytes_held_are_given_back_at_every_end(clocked: World) -> None:
    small = Admission(max_bytes=1000)
    ends = ["commit", "bury", "cancel", "expire"]
    for end in ends:
        clocked.submit(clocked.new(payload=b"x" * 900, expires_in_ms=1000), admission=small)
        assert not admitted(clocked, small, payload=b"x" * 100), "the record's own lines count too"
        if end == "expire":
            clocked.advance(1000)
            clocked.claim()
        elif end == "cancel":
            clocked.cancel(f"task{2 * ends.index(end):03}")
        else:
            getattr(clocked, end)(clocked.claim()[0].lease)
        assert clocked.counts()["bytes"] == 0


def test_a_replay_counts_its_bytes_again(clocked: World) -> None:
    clocked.submit(clocked.new(payload=b"x" * 900), admission=Admission(max_bytes=1000))
    held = clocked.counts()["bytes"]
    (claimed,) = clocked.claim()
    clocked.bury(claimed.lease)
    clocked.replay(claimed.record.id)
    assert clocked.counts()["bytes"] == held
    clocked.commit(clocked.claim()[0].lease)
    assert clocked.counts()["bytes"] == 0


def test_ids_and_keys_are_checked_before_admission(clocked: World) -> None:
    one = limited(AdmissionLimit.per_window("l", 1, 60_000))
    first = clocked.new(key="k")
    clocked.submit(first, admission=one)
    with clocked.unchanged():
        assert clocked.submit(first, admission=one)[0].status == "exists", "an id that is here is not weighed"
        both = clocked.new(id=first.id, key="other")
        assert clocked.submit(both, admission=one)[0].status == "exists", "the id is asked before the key"
        assert clocked.submit(clocked.new(key="k"), admission=one)[0].status == "duplicate", "the key before the limit"
        assert not admitted(clocked, one)


def test_only_the_new_tasks_of_a_batch_are_charged(clocked: World) -> None:
    two = limited(AdmissionLimit.per_window("l", 2, 60_000))
    first = clocked.new()
    clocked.submit(first, admission=two)
    answers = clocked.submit(first, clocked.new(), admission=two)
    assert [answer.status for answer in answers] == ["exists", "new"]
    assert not admitted(clocked, two)


def test_a_refused_batch_is_refused_with_its_known_ids(clocked: World) -> None:
    two = limited(AdmissionLimit.per_window("l", 2, 60_000))
    first = clocked.new()
    clocked.submit(first, clocked.new(), admission=two)
    with clocked.unchanged(), pytest.raises(AdmissionRejectedError):
        clocked.submit(first, clocked.new(), admission=two)


def test_equal_tasks_in_a_limited_batch_are_charged_once(clocked: World) -> None:
    two = limited(AdmissionLimit.per_window("l", 2, 60_000), max_depth=10, max_bytes=10_000)
    twin = clocked.new(id="twin")
    answers = clocked.submit(twin, twin, admission=two)
    assert [answer.status for answer in answers] == ["new", "exists"]
    assert admitted(clocked, two)
    assert not admitted(clocked, two)


def test_revive_replay_and_follow_ups_are_exempt(clocked: World) -> None:
    one = limited(AdmissionLimit.per_window("l", 1, 60_000), max_depth=1)
    clocked.submit(clocked.new(), admission=one)
    (claimed,) = clocked.claim()
    clocked.push()
    clocked.lose()
    clocked.join("next")
    first, second = clocked.claim("next")
    assert first.record.id == claimed.record.id
    clocked.commit(first.lease, b"1", [clocked.new(), clocked.new()])
    clocked.bury(second.lease)
    assert clocked.replay(second.record.id).verdict == "ok"
    assert not admitted(clocked, one)


@pytest.mark.parametrize("jump", [-3_600_000, 3_600_000])
def test_a_limit_survives_a_jump_of_time(clocked: World, jump: int) -> None:
    ten = limited(AdmissionLimit.per_window("l", 10, 60_000))
    assert admitted(clocked, ten, 10)
    clocked.advance(jump)
    admitted(clocked, ten, 1)  # the first caller finds the limit ahead of TIME, and corrects it
    clocked.advance(60_000)
    assert admitted(clocked, ten, 10), "one window later at the latest it admits again"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    limit=st.integers(1, 20),
    window=st.sampled_from([20_000, 60_000, 3_600_000]),
    steps=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), min_size=1, max_size=30),
)
def test_no_window_ever_sees_more_than_limit_and_burst(
    worlds: Any, limit: int, window: int, steps: list[tuple[int, int]]
) -> None:
    """In any window, wherever it begins, at most `limit` (refilled) + `limit` (the burst) tasks are admitted. A refused
    submit is admitted after the time in its answer, if no other task comes first."""
    world: World = worlds()
    admission = limited(AdmissionLimit.per_window("l", limit, window))
    came: list[tuple[int, int]] = []
    for wait, wanted in steps:
        n = min(wanted, limit)
        world.advance(wait * window // 20)
        try:
            world.submit(*[world.new() for _ in range(n)], admission=admission)
        except AdmissionRejectedError as refused:
            world.set_time(world.now_us + round(refused.retry_after * SECOND_US) - 1)
            assert not admitted(world, admission, n)
            world.set_time(world.now_us + 1)
            assert admitted(world, admission, n)
        came.append((world.now_us, n))
        assert world.pttl("rate", "l") > 0
    for begin, _ in came:
        inside = sum(n for at, n in came if begin <= at < begin + window * 1000)
        assert inside <= 2 * limit


def test_a_limit_is_kept_until_it_is_idle_and_half_a_minute_longer(worlds: Any) -> None:
    """Single submits update the limit in place, and extend its expiry only sometimes. The expiry is never too
    early."""
    world: World = worlds()
    admission = limited(AdmissionLimit.per_window("l", 720, 3_600_000))
    for _ in range(60):
        world.submit(world.new(), admission=admission)
        ahead_ms = (int(world.command("GET", world.key("rate", "l"))) - world.now_us) // 1000
        assert ahead_ms + 30_000 <= world.pttl("rate", "l") <= ahead_ms + 60_000
