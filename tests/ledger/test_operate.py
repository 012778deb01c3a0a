"""The moves of operators: replay, cancel, discard, pause and resume."""

from __future__ import annotations

import pytest

from relier.errors import (
    IdempotencyConflictError,
    IllegalMoveError,
    TaskNotFoundError,
    VersionConflictError,
)
from relier.states import State
from tests.support.ledger_world import HOUR, World


def dead(world: World, **fields: object) -> str:
    lease = world.start(**fields)
    world.run(world.ledger.checkpoint(lease, 1, b"half"))
    world.run(world.ledger.step(lease, "pay", b"1"))
    world.retry(lease)
    (claimed,) = world.claim()
    world.bury(claimed.lease)
    return lease.task_id


# --- replay -----------------------------------------------------------------------------------------------------------


def test_a_replayed_task_starts_over_and_keeps_its_history(clocked: World) -> None:
    task = dead(clocked, payload=b"in")
    clocked.advance(1000)
    answer = clocked.replay(task)
    assert (answer.verdict, answer.state) == ("ok", "queued")
    (claimed,) = clocked.claim()
    assert (claimed.payload, claimed.checkpoint, claimed.steps) == (b"in", b"half", {"pay": b"1"})
    assert (claimed.record.attempt, claimed.retries, claimed.deaths, claimed.revision) == (1, 0, 0, 0)
    assert clocked.get(task).record.reason == ""
    assert [entry.move for entry in clocked.get(task).history] == ["retry", "bury"]


def test_a_repeated_replay_changes_nothing(clocked: World) -> None:
    task = dead(clocked)
    version = clocked.version(task)
    clocked.run(clocked.ledger.replay(task, version, "n"))
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.replay(task, version, "n")).verdict == "repeat"
    clocked.claim()
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.replay(task, version, "n")).verdict == "repeat"


def test_a_replay_can_have_another_payload(clocked: World) -> None:
    task = dead(clocked, payload=b"in")
    clocked.replay(task, payload=b"\x00edited\n")
    (claimed,) = clocked.claim()
    assert (claimed.payload, claimed.revision) == (b"\x00edited\n", 1)
    assert claimed.checkpoint == b"half"


def test_a_fresh_replay_forgets_checkpoint_and_steps(clocked: World) -> None:
    task = dead(clocked)
    clocked.replay(task, fresh=True)
    assert clocked.pttl("checkpoint", task) == clocked.pttl("steps", task) == -2
    (claimed,) = clocked.claim()
    assert (claimed.checkpoint, claimed.steps) == (None, {})
    assert clocked.run(clocked.ledger.checkpoint(claimed.lease, 1, b"new")).verdict == "ok"


def test_a_replayed_suspect_is_no_longer_a_suspect(clocked: World) -> None:
    clocked.push(id="a", max_resurrections=0)
    clocked.push(id="b")
    for boot in ("boot", "b2", "b3"):
        clocked.join(boot)
        clocked.claim(boot)
        clocked.lose(boot)
    assert clocked.state("a") is State.DEAD
    clocked.replay("a")
    clocked.join("b4")
    claimed = next(one for one in clocked.claim("b4") if one.record.id == "a")
    assert (claimed.deaths, claimed.scares, claimed.alone) == (0, 0, False)


def test_only_the_dead_are_replayed(clocked: World) -> None:
    queued, scheduled = clocked.push(), clocked.push(delay_ms=1)
    running = clocked.start(queue="other")
    done = clocked.start(queue="other")
    clocked.commit(done)
    for task in (queued, scheduled, running.task_id, done.task_id):
        with clocked.unchanged(), pytest.raises(IllegalMoveError):
            clocked.replay(task)


def test_a_replay_of_an_unknown_task_is_refused(clocked: World) -> None:
    with pytest.raises(TaskNotFoundError):
        clocked.run(clocked.ledger.replay("nothing", 1, "n"))


def test_a_replay_of_another_version_is_refused(clocked: World) -> None:
    task = dead(clocked)
    with clocked.unchanged(), pytest.raises(VersionConflictError, match="read it again"):
        clocked.run(clocked.ledger.replay(task, clocked.version(task) - 1, "n"))


def test_a_replay_takes_its_key_again(clocked: World) -> None:
    task = dead(clocked, key="k", key_ttl_ms=HOUR)
    assert clocked.pttl("idem", "k") == -2
    clocked.replay(task)
    assert clocked.submit(clocked.new(key="k"))[0].id == task
    assert clocked.pttl("idem", "k") == -1


def test_a_replay_is_refused_while_another_task_has_its_key(clocked: World) -> None:
    task = dead(clocked, key="k", key_ttl_ms=HOUR)
    lease = clocked.start(key="k", key_ttl_ms=HOUR)
    with clocked.unchanged(), pytest.raises(IdempotencyConflictError):
        clocked.replay(task)
    clocked.commit(lease)
    with clocked.unchanged(), pytest.raises(IdempotencyConflictError):
        clocked.replay(task)
    clocked.advance(HOUR)
    assert clocked.replay(task).verdict == "ok"


def test_a_replayed_task_waits_behind_queued_tasks(clocked: World) -> None:
    task = dead(clocked)
    there = clocked.push()
    clocked.advance(1)
    clocked.replay(task)
    assert clocked.members("ready", "default") == [there, task]


# --- cancel -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0, 1000])
def test_a_waiting_task_is_cancelled_at_once(clocked: World, delay: int) -> None:
    task = clocked.push(delay_ms=delay, key="k", payload=b"large")
    answer = clocked.cancel(task)
    assert (answer.verdict, answer.state) == ("ok", "cancelled")
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.cancel(task, 1)).verdict == "repeat"
    assert clocked.get(task).record.reason == "cancelled"
    assert clocked.pttl("idem", "k") == -2
    assert clocked.claim() == ()


def test_a_running_task_is_asked_to_stop(clocked: World) -> None:
    lease = clocked.start()
    version = clocked.version(lease.task_id)
    assert clocked.cancel(lease.task_id).verdict == "asked"
    assert clocked.beat().asked == ((lease.task_id, lease.fence),)
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.cancel(lease.task_id, version)).verdict == "repeat"
    assert clocked.state(lease.task_id) is State.RUNNING


def test_a_cancel_request_applies_only_to_the_running_attempt(clocked: World) -> None:
    lease = clocked.start()
    version = clocked.version(lease.task_id)
    clocked.release(lease)
    (claimed,) = clocked.claim()
    with clocked.unchanged(), pytest.raises(VersionConflictError):
        clocked.run(clocked.ledger.cancel(lease.task_id, version))
    assert clocked.commit(claimed.lease).verdict == "ok"


def test_a_request_does_not_outlive_its_attempt(clocked: World) -> None:
    lease = clocked.start()
    clocked.cancel(lease.task_id)
    clocked.bury(lease)
    clocked.replay(lease.task_id)
    (claimed,) = clocked.claim()
    assert clocked.beat().asked == ()
    assert clocked.release(claimed.lease).state == "queued"


@pytest.mark.parametrize("end", [World.commit, World.bury])
def test_an_ended_task_cannot_be_cancelled(clocked: World, end: object) -> None:
    lease = clocked.start()
    end(clocked, lease)  # type: ignore[operator]
    with clocked.unchanged(), pytest.raises(IllegalMoveError):
        clocked.cancel(lease.task_id)


def test_a_cancel_of_an_unknown_task_is_refused(clocked: World) -> None:
    with pytest.raises(TaskNotFoundError):
        clocked.run(clocked.ledger.cancel("nothing", 1))


def test_a_cancel_of_another_version_is_refused(clocked: World) -> None:
    task = clocked.push()
    with clocked.unchanged(), pytest.raises(VersionConflictError):
        clocked.run(clocked.ledger.cancel(task, 2))


# --- discard ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["done", "dead", "cancelled"])
def test_a_discarded_record_leaves_nothing(clocked: World, end: str) -> None:
    before = clocked.dump().keys()
    task = dead(clocked, key="k", key_ttl_ms=HOUR)
    if end != "dead":
        clocked.replay(task)
    if end == "done":
        clocked.commit(clocked.claim()[0].lease)
    if end == "cancelled":
        clocked.cancel(task)
    version = clocked.version(task)
    assert clocked.run(clocked.ledger.discard(task, version)).verdict == "ok"
    left = clocked.dump().keys() - before
    assert {name for name in left if task in name or name.startswith(("i:", "e:"))} == set()
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.discard(task, version)).verdict == "missing"


def test_a_live_task_cannot_be_discarded(clocked: World) -> None:
    tasks = [clocked.start(queue="other").task_id, clocked.push(), clocked.push(delay_ms=1)]
    for task in tasks:
        with clocked.unchanged(), pytest.raises(IllegalMoveError):
            clocked.run(clocked.ledger.discard(task, clocked.version(task)))


def test_a_discard_of_another_version_is_refused(clocked: World) -> None:
    task = dead(clocked)
    with clocked.unchanged(), pytest.raises(VersionConflictError):
        clocked.run(clocked.ledger.discard(task, 1))


# --- pause, resume ----------------------------------------------------------------------------------------------------


def test_pause_and_resume_count_versions(clocked: World) -> None:
    ledger = clocked.ledger
    clocked.push()
    assert clocked.run(ledger.pause("default", 0)).version == 1
    with clocked.unchanged():
        assert clocked.run(ledger.pause("default", 0)).verdict == "repeat"
    assert clocked.run(ledger.resume("default", 1)).version == 2
    with clocked.unchanged():
        assert clocked.run(ledger.resume("default", 1)).verdict == "repeat"
        with pytest.raises(VersionConflictError):
            clocked.run(ledger.pause("default", 0))
    assert clocked.run(ledger.pause("default", 2)).version == 3


def test_a_resumed_queue_rings_its_doorbell(clocked: World) -> None:
    clocked.push()
    clocked.run(clocked.ledger.pause("default", 0))
    clocked.command("DEL", clocked.ledger.bell("default"))
    clocked.run(clocked.ledger.resume("default", 1))
    assert clocked.command("LLEN", clocked.ledger.bell("default")) == 1


def test_stats_show_a_pause_also_of_a_queue_without_tasks(clocked: World) -> None:
    clocked.run(clocked.ledger.pause("empty", 0))
    (queue,) = clocked.run(clocked.ledger.stats()).queues
    assert (queue.queue, queue.paused, queue.pause_version) == ("empty", True, 1)


def test_a_running_task_continues_while_its_queue_is_paused(clocked: World) -> None:
    lease = clocked.start()
    clocked.run(clocked.ledger.pause("default", 0))
    assert clocked.retry(lease).verdict == "ok"
    assert clocked.claim() == ()
