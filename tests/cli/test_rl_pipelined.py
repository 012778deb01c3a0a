"""Reads that share round trips say the same as those that read page after page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from relier.cli.pipelined.limits import limits_reading
from relier.cli.pipelined.stats import stats_reading
from relier.cli.pipelined.steps import Reading, TriedRead, answers_to, raw, read_all, script, together
from relier.errors import StoreReplyError, TaskNotFoundError
from relier.ledger.limit_overview import read_limits, set_limit
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.pages import read_stats
from relier.ledger.records import Task
from relier.ledger.stats import QueueStats
from tests.dashboard.round_trips import counted_round_trips
from tests.support.cli_desk import Desk


def read(desk: Desk, *readings: Reading[Any]) -> list[Any]:
    return read_all(desk.store, desk.ledger, *readings)


def counting(desk: Desk, steps: int) -> Reading[list[bytes]]:
    found = []
    for n in range(steps):
        (answer,) = yield [raw("ECHO", str(n))]
        found.append(answer)
    return found


# --- steps -------------------------------------------------------------------------------------------------------


def test_readings_share_the_round_trips_of_their_steps(desk: Desk) -> None:
    task = desk.push()
    desk.get(task)  # loads the script
    with counted_round_trips() as trips:
        two, none, (found, loaded), (nested,) = read(
            desk,
            counting(desk, 2),
            counting(desk, 0),
            answers_to(desk.ledger.get(task), script("limit_counts", "a", "b")),
            together(counting(desk, 3)),
        )
    assert trips.count == 3
    assert (two, none, loaded, nested) == ([b"0", b"1"], [], [0, 0], [b"0", b"1", b"2"])
    assert isinstance(found, Task)
    assert read(desk) == []


def test_an_error_is_raised_in_its_reading(desk: Desk) -> None:
    desk.command("SET", "text", "x")
    with pytest.raises(TaskNotFoundError):
        read(desk, counting(desk, 2), answers_to(desk.ledger.get("none")))
    with pytest.raises(StoreReplyError, match="WRONGTYPE"):
        read(desk, answers_to(raw("HGETALL", "text")))
    ((missing, wrong, echo),) = read(
        desk, answers_to(TriedRead(desk.ledger.get("none")), TriedRead(raw("HGETALL", "text")), raw("ECHO", "x"))
    )
    assert (type(missing), type(wrong), echo) == (TaskNotFoundError, StoreReplyError, b"x")


def test_a_reading_may_handle_its_error(desk: Desk) -> None:
    def careful() -> Reading[str]:
        try:
            yield [desk.ledger.get("none")]
        except TaskNotFoundError:
            (answer,) = yield [raw("ECHO", "instead")]
            return str(answer.decode())
        raise AssertionError("there is no such task")

    assert read(desk, careful(), counting(desk, 1)) == ["instead", [b"0"]]


# --- stats -------------------------------------------------------------------------------------------------------


def every(queues: Iterable[QueueStats]) -> list[str]:
    return [queue.queue for queue in queues]


def test_stats_are_those_of_the_ledger(desk: Desk) -> None:
    for n in range(120):
        desk.push(queue=f"queue-{n:03d}")
        desk.join(host=f"host-{n}", queues=[f"queue-{n:03d}"])
    desk.one_of_each()
    desk.push(queue="urgent", priority=9)
    desk.push(queue="urgent", priority=-9)
    for _ in range(3):
        desk.push(queue="narrow", limits=(RunLimit("one", "one", LimitNumbers(1)),))
    desk.run(desk.ledger.pause("queue-007", 0))
    lost = desk.join(host="lost", queues=["again"])
    desk.push(queue="again")
    desk.claim("again", lost)
    desk.run(desk.ledger.revive(worker_id=lost))
    slow = read_stats(desk.run, desk.ledger)
    (fast,) = read(desk, stats_reading(desk.ledger, exact=every))
    assert {queue.queue: queue for queue in fast.queues} == {queue.queue: queue for queue in slow.queues}
    assert {node.node_id: node.owned for node in fast.nodes} == {node.node_id: node.owned for node in slow.nodes}
    assert (fast.counts, fast.scheduled, fast.ended, fast.cursor) == (slow.counts, slow.scheduled, slow.ended, "")
    assert fast.by_state() == slow.by_state()


def test_the_order_of_the_next_task_tells_when_it_arrived(desk: Desk) -> None:
    """Without reading its record: exactly for priority 0, revived or not, and a minute off for each step."""
    desk.push(queue="plain")
    desk.push(queue="urgent", priority=2)
    (exact,), (told,) = (read(desk, stats_reading(desk.ledger, exact=chosen)) for chosen in (every, None))
    arrivals = [{queue.queue: queue.oldest_at_ms or 0 for queue in stats.queues} for stats in (exact, told)]
    assert arrivals[0]["plain"] == arrivals[1]["plain"]
    assert arrivals[0]["urgent"] == arrivals[1]["urgent"] + 2 * 60_000


def test_only_some_queues_are_read(desk: Desk) -> None:
    desk.push(queue="a")
    desk.push(queue="b")
    (stats,) = read(desk, stats_reading(desk.ledger, queues=["b", "unknown"]))
    assert [(queue.queue, queue.ready) for queue in stats.queues] == [("b", 1), ("unknown", 0)]
    assert len(stats.nodes) == 1


# --- limits ------------------------------------------------------------------------------------------------------


def test_limits_are_those_of_the_ledger(desk: Desk) -> None:
    for n in range(130):
        for _ in range(2):
            desk.push(queue=f"queue-{n % 3}", limits=(RunLimit("tenant:{id}", f"tenant:{n}", LimitNumbers(1)),))
    for _ in range(20):
        desk.claim("queue-0")
    set_limit(desk.run, desk.ledger, "tenant:{id}", LimitNumbers(1, 5, 10))
    set_limit(desk.run, desk.ledger, "tenant:3", LimitNumbers(4))
    slow = read_limits(desk.run, desk.ledger)
    (fast,) = read(desk, limits_reading(desk.ledger, 500))
    assert fast.overview.keys == slow.keys
    assert fast.overview.set == slow.set
    assert (fast.total, fast.complete) == (130, True)
    (some,) = read(desk, limits_reading(desk.ledger, 5, "tenant:12"))
    assert all(key.startswith("tenant:12") for key in some.overview.keys)
