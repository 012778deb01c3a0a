"""Tasks that wait for parts: each task that names the join delivers its part when it ends, and the last part queues the
join."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relier.ledger.records import Join, Lease, Settled, Submission
from relier.states import State
from tests.support.ledger_world import DAY, HOUR, World

End = Callable[[World, Lease, list[Submission], bytes], Settled]
ENDS: dict[str, End] = {
    "commit": lambda world, lease, after, part: world.commit(lease, part, after),
    "bury": lambda world, lease, after, part: world.bury(lease, "failed", after, part),
}
every_end = pytest.mark.parametrize("end", ENDS)


def part_of(world: World, part: str, size: int = 3, **fields: Any) -> list[Submission]:
    """Return the join `j`, as the task that delivers `part` names it."""
    return [world.new(**{"id": "j", "queue": "joins", "delay_ms": HOUR, **fields}, join=Join(size, part))]


def bring(world: World, part: str, size: int = 3, value: bytes = b"1", end: str = "commit", **fields: Any) -> Lease:
    lease = world.start()
    assert ENDS[end](world, lease, part_of(world, part, size, **fields), value).verdict == "ok"
    return lease


@every_end
def test_the_first_part_creates_the_join_as_scheduled(clocked: World, end: str) -> None:
    bring(clocked, "0", end=end, value=b"one", priority=2, payload=b"body")
    found = clocked.get("j")
    assert (found.record.state, found.record.version, found.record.flags) == (State.SCHEDULED, 1, "s")
    assert (found.payload, found.steps) == (b"body", {"0": b"one"})
    assert clocked.command("ZSCORE", clocked.key("due"), "j") == str(clocked.now + HOUR).encode()


@every_end
def test_the_last_part_queues_the_join_at_once(clocked: World, end: str) -> None:
    bring(clocked, "0")
    bring(clocked, "1", value=b"two")
    assert clocked.state("j") is State.SCHEDULED
    clocked.advance(5000)
    clocked.beat()
    bring(clocked, "2", value=b"three", end=end)
    assert clocked.state("j") is State.QUEUED
    assert clocked.members("due") == []
    assert clocked.command("LLEN", clocked.key("bell", "joins")) == 1
    assert clocked.command("ZSCORE", clocked.key("ready", "joins"), "j") == str(clocked.now_us).encode()
    (claimed,) = clocked.claim(queues=["joins"])
    assert claimed.steps == {"0": b"1", "1": b"two", "2": b"three"}
    clocked.commit(claimed.lease)
    assert clocked.pttl("steps", "j") == -2


def test_a_join_is_queued_by_its_priority(clocked: World) -> None:
    waiting = clocked.push(queue="joins")
    clocked.advance(1)
    bring(clocked, "0", size=1, priority=5)
    assert clocked.members("ready", "joins") == ["j", waiting]


def test_a_join_of_one_part_is_queued_by_that_part(clocked: World) -> None:
    bring(clocked, "0", size=1)
    assert (clocked.state("j"), clocked.version("j")) == (State.QUEUED, 2)
    assert clocked.members("due") == []


def test_a_missing_result_is_an_empty_part(clocked: World) -> None:
    clocked.commit(clocked.start(), None, part_of(clocked, "0"))
    clocked.bury(clocked.start(), "failed", part_of(clocked, "1"))
    assert clocked.get("j").steps == {"0": b"", "1": b""}


@every_end
def test_a_repeated_move_delivers_no_part(clocked: World, end: str) -> None:
    lease = clocked.start()
    ENDS[end](clocked, lease, part_of(clocked, "0", 2), b"1")
    with clocked.unchanged():
        assert ENDS[end](clocked, lease, part_of(clocked, "1", 2), b"2").verdict == "repeat"


@every_end
def test_a_zombie_delivers_no_part(clocked: World, end: str) -> None:
    lease = clocked.start()
    bring(clocked, "0", 2)
    clocked.release(lease)
    assert ENDS[end](clocked, lease, part_of(clocked, "1", 2), b"late").verdict == "stale"
    assert (clocked.state("j"), clocked.get("j").steps) == (State.SCHEDULED, {"0": b"1"})
    assert ENDS[end](clocked, Lease("nothing", "1", "boot"), part_of(clocked, "1", 2), b"late").verdict == "missing"
    assert clocked.get("j").steps == {"0": b"1"}


def test_a_zombie_creates_no_join(clocked: World) -> None:
    lease = clocked.start()
    clocked.release(lease)
    assert clocked.commit(lease, b"1", part_of(clocked, "0")).verdict == "stale"
    assert clocked.state("j") is None
    assert clocked.pttl("steps", "j") == -2


def test_a_replayed_member_delivers_its_part_again(clocked: World) -> None:
    lease = bring(clocked, "0", 2, b"failed", "bury")
    clocked.replay(lease.task_id)
    (again,) = clocked.claim()
    assert clocked.commit(again.lease, b"worked", part_of(clocked, "0", 2)).verdict == "ok"
    assert (clocked.state("j"), clocked.get("j").steps) == (State.SCHEDULED, {"0": b"worked"})


def test_a_batch_of_commits_delivers_all_its_parts(clocked: World) -> None:
    clocked.push()
    clocked.push()
    rows = [(claimed.lease, b"%d" % i, part_of(clocked, str(i), 2)) for i, claimed in enumerate(clocked.claim())]
    assert [answer.verdict for answer in clocked.run(clocked.ledger.commit(rows))] == ["ok", "ok"]
    assert (clocked.state("j"), clocked.get("j").steps) == (State.QUEUED, {"0": b"0", "1": b"1"})


def test_one_move_may_deliver_several_parts(clocked: World) -> None:
    after = part_of(clocked, "0", 2) + part_of(clocked, "1", 2) + part_of(clocked, "0", id="k") + [clocked.new(id="n")]
    clocked.commit(clocked.start(), b"r", after)
    assert [clocked.state(task) for task in ("j", "k", "n")] == [State.QUEUED, State.SCHEDULED, State.QUEUED]
    assert clocked.counts()["submitted"] == 4


def test_at_its_deadline_a_join_is_queued_with_the_parts_it_has(clocked: World) -> None:
    bring(clocked, "0", delay_ms=1000)
    clocked.advance(1000)
    clocked.run(clocked.ledger.promote())
    bring(clocked, "1")
    (claimed,) = clocked.claim(queues=["joins"])
    assert claimed.steps == {"0": b"1", "1": b"1"}
    bring(clocked, "2", value=b"late")
    assert (clocked.state("j"), clocked.get("j").steps["2"]) == (State.RUNNING, b"late")
    assert clocked.commit(claimed.lease).verdict == "ok"


def test_a_join_past_its_deadline_is_queued_at_once(clocked: World) -> None:
    bring(clocked, "0", delay_ms=0, eta_ms=1)
    assert (clocked.state("j"), clocked.get("j").steps) == (State.QUEUED, {"0": b"1"})
    assert clocked.members("ready", "joins") == ["j"]


@pytest.mark.parametrize("end", ["done", "cancelled"])
def test_a_done_or_cancelled_join_accepts_no_part(clocked: World, end: str) -> None:
    bring(clocked, "0", size=1)
    if end == "done":
        clocked.commit(clocked.claim(queues=["joins"])[0].lease)
    else:
        clocked.cancel("j")
    text = clocked.command("GET", clocked.key("task", "j"))
    bring(clocked, "1", size=1)
    assert clocked.command("GET", clocked.key("task", "j")) == text
    assert clocked.pttl("steps", "j") == -2


def test_a_dead_join_accepts_parts_and_a_replay_sees_them_all(clocked: World) -> None:
    bring(clocked, "0", size=1)
    clocked.bury(clocked.claim(queues=["joins"])[0].lease)
    bring(clocked, "1")
    assert clocked.get("j").steps == {"0": b"1", "1": b"1"}
    assert abs(clocked.pttl("steps", "j") - clocked.pttl("task", "j")) < HOUR / 2
    clocked.audit()
    clocked.replay("j")
    assert clocked.pttl("steps", "j") == -1
    (claimed,) = clocked.claim(queues=["joins"])
    assert claimed.steps == {"0": b"1", "1": b"1"}


def test_the_parts_of_a_dead_join_expire_with_it(clocked: World) -> None:
    """A join that died before it had any parts: its steps are new, and expire with its record."""
    lease = clocked.start(id="j", queue="joins", dead_ttl_ms=DAY)
    clocked.bury(lease)
    bring(clocked, "0")
    assert DAY < clocked.pttl("steps", "j") < DAY + 2 * HOUR
    assert clocked.get("j").record.flags.endswith("s")
    clocked.run(clocked.ledger.discard("j", clocked.version("j")))
    assert clocked.pttl("steps", "j") == -2


def test_the_parts_of_a_held_join_never_expire(clocked: World) -> None:
    lease = clocked.start(id="j", queue="joins", on_lost="hold")
    clocked.run(clocked.ledger.forfeit(lease, "killed"))
    bring(clocked, "0")
    assert (clocked.pttl("task", "j"), clocked.pttl("steps", "j")) == (-1, -1)


def test_a_tombstone_accepts_no_part(clocked: World) -> None:
    bring(clocked, "0", size=1, tomb_ttl_ms=DAY)
    clocked.commit(clocked.claim(queues=["joins"])[0].lease)
    clocked.run(clocked.ledger.discard("j", clocked.version("j")))
    bring(clocked, "1", size=1, tomb_ttl_ms=DAY)
    assert clocked.state("j") is None
    assert clocked.pttl("steps", "j") == -2


@pytest.mark.parametrize("broken", ["text", "type"])
def test_a_broken_record_accepts_no_part(clocked: World, broken: str) -> None:
    bring(clocked, "0")
    clocked.sound = False
    key = clocked.key("task", "j")
    clocked.command("DEL", key)
    clocked.command(*(("SET", key, "broken") if broken == "text" else ("RPUSH", key, "broken")))
    clocked.commit(clocked.start(), b"1", part_of(clocked, "1"))
    assert clocked.command("HLEN", clocked.key("steps", "j")) == 1


def test_a_steps_key_of_another_type_is_replaced(clocked: World) -> None:
    bring(clocked, "0")
    clocked.command("DEL", clocked.key("steps", "j"))
    clocked.command("SET", clocked.key("steps", "j"), "broken")
    bring(clocked, "1")
    assert clocked.get("j").steps == {"1": b"1"}


def test_a_retried_join_keeps_its_parts(clocked: World) -> None:
    bring(clocked, "0", size=1)
    clocked.retry(clocked.claim(queues=["joins"])[0].lease)
    (claimed,) = clocked.claim(queues=["joins"])
    assert claimed.steps == {"0": b"1"}


def test_names_are_words_and_values_any_bytes(clocked: World) -> None:
    bring(clocked, "ü" * 32, value=b"\x00\n\xff")
    assert clocked.get("j").steps == {"ü" * 32: b"\x00\n\xff"}
