"""The script that ends a task counts its end, once, with how long it ran; a claim counts how long it waited."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from relier.errors import InvalidSubmissionError
from relier.ledger.defaults import HOURS_KEPT_MS, MINUTES_KEPT_MS, OUTCOME_FIELDS
from relier.ledger.ledger import load_scripts
from relier.ledger.outcomes.records import Series
from relier.ledger.outcomes.writing import OutcomeCounting
from relier.slo.buckets import EDGES_MS, bucket_of
from relier.store import SyncStore
from relier.testing.virtual import store_clock
from tests.support.ledger_world import HOUR, World

MINUTE = 60_000


def counted(world: World, unit: Any = "minute", back: int = 400) -> Counter[Series]:
    """Return all that was counted, without waits."""
    found = all_counted(world, unit, back)
    return Counter({series: n for series, n in found.items() if series.what != "wait"})


def all_counted(world: World, unit: Any = "minute", back: int = 400) -> Counter[Series]:
    total: Counter[Series] = Counter()
    cursor = ""
    while True:
        page = world.run(world.ledger.outcomes(unit, back, cursor))
        for period in page.periods:
            total.update(period.counts)
        cursor = page.cursor
        if not cursor:
            return total


def ended(what: Any, ran_ms: int | None = None, queue: str = "default", name: str = "app.work") -> Series:
    return Series(what, None if ran_ms is None else bucket_of(ran_ms), queue, name)


def name_of(world: World) -> str:
    return world.new().name


@pytest.fixture
def named(clocked: World) -> str:
    return name_of(clocked)


def test_a_commit_is_counted_with_its_run_time(clocked: World, named: str) -> None:
    lease = clocked.start()
    clocked.advance(1234)
    clocked.commit(lease)
    clocked.commit(lease)
    assert counted(clocked) == {ended("done", 1234, name=named): 1}, "a repeat is not counted"
    assert counted(clocked, "hour") == counted(clocked)


@pytest.mark.parametrize("ms", sorted({edge + step for edge in EDGES_MS[:-1] for step in (-1, 0)} - {-1}))
def test_times_at_the_edges_fall_into_the_right_bucket(clocked: World, named: str, ms: int) -> None:
    lease = clocked.start()
    clocked.run(clocked.ledger.beat("boot", 5000))
    clocked.advance(ms)
    clocked.commit(lease)
    assert counted(clocked, "hour") == {ended("done", ms, name=named): 1}


def test_the_last_bucket_has_no_end(clocked: World, named: str) -> None:
    for ms in (10**9, 5 * 10**11):
        lease = clocked.start()
        clocked.advance(ms)
        clocked.commit(lease)
        assert counted(clocked) == {Series("done", 37, "default", named): 1}


def test_a_retry_is_no_outcome_and_each_claim_has_its_wait(clocked: World, named: str) -> None:
    task = clocked.push()
    clocked.advance(20)
    (first,) = clocked.claim()
    clocked.advance(500)
    clocked.run(clocked.ledger.retry(first.lease, 0, "{}"))
    assert not counted(clocked)
    clocked.advance(300)
    (second,) = clocked.claim()
    clocked.advance(70)
    clocked.commit(second.lease)
    found = all_counted(clocked)
    waits = {ended("wait", 20, name=named): 1, ended("wait", 300, name=named): 1}
    assert found == {**waits, ended("done", 70, name=named): 1}, f"the last attempt of {task} ran for 70 ms"


def test_a_delayed_task_waits_from_when_it_was_due(clocked: World, named: str) -> None:
    clocked.push(delay_ms=60_000)
    clocked.advance(60_000)
    clocked.run(clocked.ledger.promote())
    clocked.advance(7)
    clocked.claim()
    assert all_counted(clocked, "hour") == {ended("wait", 7, name=named): 1}


def test_burials_cancels_and_expiries_are_counted(clocked: World, named: str) -> None:
    lease = clocked.start()
    clocked.advance(15)
    clocked.bury(lease)
    clocked.cancel(clocked.push())
    clocked.push(expires_in_ms=1000)
    clocked.advance(1000)
    clocked.run(clocked.ledger.promote())
    clocked.push(queue="late", expires_in_ms=1000)
    clocked.advance(1000)
    clocked.claim(queues=["late"])
    expected = {ended("dead", 15, name=named): 1, ended("cancelled", name=named): 1}
    expected |= {ended("expired", name=named): 1, ended("expired", None, "late", named): 1}
    assert counted(clocked) == expected


def test_a_sweep_counts_the_task_that_killed_its_workers(clocked: World, named: str) -> None:
    clocked.start(max_resurrections=0)
    clocked.advance(2000)
    clocked.run(clocked.ledger.revive(worker_id="boot"))
    assert counted(clocked) == {ended("dead", 2000, name=named): 1}


def test_a_cancelled_run_and_a_replaced_task_are_counted(clocked: World, named: str) -> None:
    lease = clocked.start()
    clocked.cancel(lease.task_id)
    clocked.advance(50)
    clocked.run(clocked.ledger.release([lease]))
    clocked.push(key="k")
    clocked.push(key="k", on_conflict="replace")
    assert counted(clocked) == {ended("cancelled", 50, name=named): 1, ended("cancelled", name=named): 1}


def test_an_unreadable_record_is_counted_without_a_name(clocked: World) -> None:
    clocked.sound = False
    clocked.command("SET", clocked.key("task", clocked.push()), "rubbish")
    clocked.claim()
    assert counted(clocked) == {ended("dead", None, "?", "?"): 1}


def test_the_outcomes_of_a_batch_are_added_up(clocked: World, named: str) -> None:
    for nth in range(10):
        clocked.push(queue=f"q{nth % 2}")
    leases = [one.lease for one in clocked.claim(queues=["q0", "q1"], want=10)]
    clocked.run(clocked.ledger.commit([(lease, None, ()) for lease in leases]))
    assert counted(clocked) == {ended("done", 0, queue, named): 5 for queue in ("q0", "q1")}


def test_every_minute_and_hour_has_its_hash_which_expires(clocked: World, named: str) -> None:
    for _ in range(3):
        clocked.commit(clocked.start())
        clocked.advance(MINUTE)
    page = clocked.run(clocked.ledger.outcomes("minute", 400))
    starts = [period.start_ms for period in page.periods]
    assert starts == [(clocked.now // MINUTE - back) * MINUTE for back in (3, 2, 1)]
    assert all(period.counts[ended("done", 0, name=named)] == 1 for period in page.periods)
    for period, kept in ((f"m{starts[0] // MINUTE}", MINUTES_KEPT_MS), (f"h{starts[0] // HOUR}", HOURS_KEPT_MS)):
        assert 0 < clocked.command("PTTL", clocked.key("outcomes", period)) <= kept
    assert not clocked.run(clocked.ledger.outcomes("minute", 0)).periods, "only the present minute"


def test_a_hash_is_bounded_and_loses_nothing(clocked: World, named: str) -> None:
    minute = clocked.key("outcomes", f"m{clocked.now // MINUTE}")
    for n in range(OUTCOME_FIELDS):
        clocked.command("HSET", minute, f"done 1\nq{n}\nother", 1)
    clocked.commit(clocked.start())
    clocked.commit(clocked.start())
    found = all_counted(clocked)
    assert found[Series("done", 0, "", "")] == 2
    assert found[Series("wait", 0, "", "")] == 2
    assert len(found) == OUTCOME_FIELDS + 2
    assert counted(clocked, "hour") == {ended("done", 0, name=named): 2}, "the hash of the hour has room"


def test_a_hash_with_many_fields_is_not_searched_from_the_beginning(clocked: World, named: str) -> None:
    minute = clocked.key("outcomes", f"m{clocked.now // MINUTE}")
    for n in range(62):
        clocked.command("HSET", minute, f"done 1\nq{n}\nother", 1)
    assert clocked.command("OBJECT", "ENCODING", minute) != b"hashtable"
    clocked.commit(clocked.start())
    assert clocked.command("OBJECT", "ENCODING", minute) == b"hashtable"
    assert len(all_counted(clocked)) == clocked.command("HLEN", minute) == 64


def test_many_series_are_read_in_pages(clocked: World) -> None:
    for back in range(20):
        key = clocked.key("outcomes", f"m{clocked.now // MINUTE - back}")
        fields = [word for n in range(400) for word in (f"done {n % 37}\nq{n}\nwork", 1)]
        clocked.command("HSET", key, *fields)
    first = clocked.run(clocked.ledger.outcomes("minute", 30))
    assert first.cursor
    assert len(first.periods) < 20
    assert all_counted(clocked, "minute", 30).total() == 20 * 400


def test_fields_of_another_program_are_left_out(clocked: World, named: str) -> None:
    clocked.commit(clocked.start())
    minute = clocked.key("outcomes", f"m{clocked.now // MINUTE}")
    for field, value in (("x", 1), ("done x\nq\nn", 1), ("odd 1\nq\nn", 1), ("done 1\nq\nn", "x"), (b"\xff\n\n", 1)):
        clocked.command("HSET", minute, field, value)
    assert counted(clocked) == {ended("done", 0, name=named): 1}


def test_a_key_of_another_type_does_not_stop_a_commit(clocked: World) -> None:
    clocked.sound = False
    clocked.command("SET", clocked.key("outcomes", f"m{clocked.now // MINUTE}"), "x")
    lease = clocked.start()
    clocked.commit(lease)
    assert clocked.get(lease.task_id).record.state == "done"
    assert not counted(clocked)
    assert counted(clocked, "hour").total() == 1


def test_nothing_is_counted_while_counting_is_off(clocked: World) -> None:
    off = load_scripts(None, OutcomeCounting(on=False), lib__time=store_clock.TIME_LIBRARY)
    with SyncStore(clocked.settings, off) as store:
        own = World(store, clocked.settings)
        own.join("quiet")
        own.commit(own.start("quiet"))
        assert not all_counted(own)


def test_wrong_arguments_are_refused(clocked: World) -> None:
    with pytest.raises(InvalidSubmissionError, match="unknown unit 'day'"):
        clocked.ledger.outcomes("day", 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidSubmissionError):
        clocked.ledger.outcomes("hour", 1000)
