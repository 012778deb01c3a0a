"""Events that scripts write: every change, one entry per call, numbered, and never an obstacle to a move."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import relier
from relier.errors import InvalidSubmissionError
from relier.ledger.events.records import KINDS, Event, Topic
from relier.ledger.events.writing import EventWriting
from relier.ledger.ledger import load_scripts
from relier.ledger.schedule_records import ScheduleState
from relier.settings import EventMode
from relier.states import State
from relier.store import SyncStore
from relier.testing.virtual.store_clock import TIME_LIBRARY
from tests.support.ledger_world import World


def told(world: World, topic: Topic = "tasks") -> list[Event]:
    """Return all entries of a stream."""
    page = world.store.run(world.ledger.events(topic, "start", most=1000))
    return [event for entry in page.entries for event in entry.changes]


def changes(world: World, task: str) -> list[tuple[str, str, str, str]]:
    return [(event.move, event.old_state, event.new_state, event.reason) for event in told(world) if event.id == task]


def entries(world: World, topic: Topic = "tasks") -> int:
    return len(world.store.run(world.ledger.events(topic, "start", most=1000)).entries)


def test_each_step_in_the_life_of_a_task_is_an_event(clocked: World) -> None:
    task = clocked.push(queue="mail", name="shop.mail")
    lease = clocked.claim(queues=["mail"])[0].lease
    clocked.retry(lease, 1000)
    clocked.advance(1000)
    clocked.run(clocked.ledger.promote())
    last = clocked.claim(queues=["mail"])[0].lease
    clocked.bury(last, "ValueError")
    assert changes(clocked, task) == [
        ("submit", "", "queued", ""),
        ("claim", "queued", "running", ""),
        ("retry", "running", "scheduled", ""),
        ("promote", "scheduled", "queued", ""),
        ("claim", "queued", "running", ""),
        ("bury", "running", "dead", "ValueError"),
    ]
    *_, claimed, buried = told(clocked)
    assert (claimed.kind, claimed.attempt, claimed.fence, claimed.worker_id) == ("running", 2, last.fence, "boot")
    assert (buried.kind, buried.name, buried.queue, buried.worker_id) == ("dead", "shop.mail", "mail", "boot")
    assert [event.number for event in told(clocked)] == [1, 2, 3, 4, 5, 6]
    assert [event.version for event in told(clocked)] == [1, 2, 3, 4, 5, 6]
    assert buried.at.timestamp() == clocked.now / 1000


def test_each_action_of_an_operator_is_an_event(clocked: World) -> None:
    dead, waits, runs = clocked.start(), clocked.push(delay_ms=5000), clocked.start()
    clocked.bury(dead)
    clocked.run(clocked.ledger.replay(dead.task_id, clocked.version(dead.task_id), "nonce"))
    clocked.cancel(waits)
    clocked.cancel(runs.task_id)
    clocked.release(runs)
    clocked.run(clocked.ledger.discard(waits, clocked.version(waits)))
    assert ("replay", "dead", "queued", "") in changes(clocked, dead.task_id)
    assert changes(clocked, waits)[1:] == [
        ("cancel", "scheduled", "cancelled", "cancelled"),
        ("discard", "cancelled", "", ""),
    ]
    assert changes(clocked, runs.task_id)[2:] == [
        ("cancel", "running", "running", "cancel_requested"),
        ("release", "running", "cancelled", "cancelled"),
    ]
    assert [event.kind for event in told(clocked) if event.id == waits][-1] == "removed"


def test_a_call_writes_one_entry_however_many_tasks_it_changes(clocked: World) -> None:
    clocked.submit(*[clocked.new(key=f"k{n}") for n in range(50)], *[clocked.new() for _ in range(50)])
    assert entries(clocked) == 1
    leases = [claimed.lease for claimed in clocked.claim(want=100)]
    assert entries(clocked) == 2
    clocked.run(clocked.ledger.commit([(lease, None, ()) for lease in leases]))
    assert entries(clocked) == 3
    assert [event.number for event in told(clocked)] == list(range(1, 301))


def test_a_sweep_writes_events_of_tasks_and_of_the_lost_worker(clocked: World) -> None:
    lease = clocked.start()
    clocked.lose()
    assert changes(clocked, lease.task_id)[-1][:3] == ("revive", "running", "queued")
    assert [event.worker_id for event in told(clocked)][-1] == "boot"
    lost = told(clocked, "cluster")[-1]
    assert (lost.kind, lost.id, lost.move) == ("lost", "boot", "revive")


def test_a_broken_record_is_reported_as_corrupt(clocked: World) -> None:
    task = clocked.push()
    clocked.command("SET", clocked.key("task", task), "broken")
    clocked.sound = False
    assert clocked.store.run(clocked.ledger.claim("boot", 1, ["default"], 1)).tasks == ()
    assert changes(clocked, task)[-1] == ("claim", "corrupt", "dead", "corrupt_record")
    clocked.command("SET", clocked.key("task", task), "broken again")
    clocked.advance(60 * 86_400_000)
    clocked.store.run(clocked.ledger.reap())
    assert changes(clocked, task)[-1] == ("reap", "corrupt", "", "")


def test_a_reason_cannot_forge_another_event(clocked: World) -> None:
    call = clocked.ledger.bury(
        clocked.start(), "bad"
    )  # which refuses such a reason, as a script of another origin would not
    clocked.run(
        replace(call, args=tuple("bad\n- queued 1 0 0 - -\nq\nn\nforged" if a == "bad" else a for a in call.args))
    )
    assert "forged" not in {event.id for event in told(clocked)}
    assert told(clocked)[-1].reason == "bad - queued 1 0 0 - - q n forged"


@pytest.mark.parametrize("spoil", ["stream", "number", "number of another kind", "number gone", "stream gone"])
def test_a_damaged_stream_stops_no_move_and_is_written_again(clocked: World, spoil: str) -> None:
    clocked.push(queue="other")
    stream, number = clocked.key("events", "tasks"), clocked.key("event_numbers", "tasks")
    if spoil == "stream":
        clocked.command("SET", stream, "another program's")
    elif spoil.endswith("gone"):
        clocked.command("DEL", number if "number" in spoil else stream)
    else:
        clocked.command("DEL", number)
        clocked.command(*(("SET", number, "x") if spoil == "number" else ("SADD", number, "x")))
    for _ in range(3):
        clocked.commit(clocked.start())
    found = told(clocked)
    numbers = [event.number for event in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert [event.new_state for event in found][-9:] == ["queued", "running", "done"] * 3


def small(world: World, mode: EventMode, keep: int = 100) -> SyncStore:
    return SyncStore(world.settings, load_scripts(EventWriting(mode, keep), lib__time=TIME_LIBRARY))


def test_a_stream_keeps_a_limited_number_of_changes(clocked: World) -> None:
    with small(clocked, "always") as store:
        for _ in range(60):
            store.run(clocked.ledger.submit([clocked.new() for _ in range(7)]))
            store.run(clocked.ledger.submit([clocked.new()]))
            kept = len(told(clocked))
            number = int(clocked.command("GET", clocked.key("event_numbers", "tasks")))
            assert min(number, 100) <= kept <= 100 + 5 + 7
    clocked.sound = False  # the world did not see these tasks enter


@pytest.mark.parametrize("mode", ["never", "watched"])
def test_without_readers_nothing_is_written(clocked: World, mode: EventMode) -> None:
    before = clocked.command("GET", clocked.key("event_numbers", "cluster"))
    with small(clocked, mode) as store:
        store.run(clocked.ledger.submit([clocked.new()]))
        store.run(clocked.ledger.pause("q", 0))
        assert told(clocked) == []
        assert clocked.command("GET", clocked.key("event_numbers", "cluster")) == before
        assert store.run(clocked.ledger.watch()) is False
        assert store.run(clocked.ledger.watch()) is True
        store.run(clocked.ledger.submit([clocked.new()]))
        assert len(told(clocked)) == (1 if mode == "watched" else 0)
    assert 0 < clocked.pttl("watched") <= 60_000
    clocked.sound = False


def test_a_reader_at_an_unknown_position_gets_missed(clocked: World) -> None:
    for _ in range(3):
        clocked.push()
    for position, count in (("2-7", None), ("9-1", None), ("9-0", None)):
        page = clocked.run(clocked.ledger.events("tasks", position))
        assert (page.missed, page.count) == (True, count), position
    page = clocked.run(clocked.ledger.events("tasks", "2-0"))
    assert (page.missed, [entry.first for entry in page.entries]) == (False, [3])


@pytest.mark.parametrize("arguments", [("weather", "now"), ("", "now")])
def test_an_unknown_topic_is_refused(clocked: World, arguments: Any) -> None:
    with pytest.raises(InvalidSubmissionError, match="unknown topic"):
        clocked.ledger.events(*arguments)


def test_every_kind_of_event_that_a_script_writes_is_described() -> None:
    """Kinds of tasks are states. The others are words of the scripts, or states of batches and schedules."""
    scripts = "\n".join(file.read_text() for file in (Path(relier.__file__).parent / "ledger" / "lua").rglob("*.lua"))
    written: dict[str, set[str]] = {topic: set() for topic in KINDS}
    for topic, kind in re.findall(r"news\('(\w+)', ([^,]+),", scripts):
        written[topic] |= set(re.findall(r"'(\w+)'", kind))
    written["schedules"] |= {"created", "changed", "resumed", "fired", "skipped_overlap", "duplicate", "missed"}
    written["schedules"] |= set(map(str, ScheduleState)) - {"active"}
    written["batches"] |= {"open", "sealed"}
    written["tasks"] |= {*map(str, State), "cancel_requested", "removed"}
    assert {topic: set(kinds) for topic, kinds in KINDS.items()} == written
