"""What follows the end of an attempt: follow-ups of a burial, and a task that continues as another task."""

from __future__ import annotations

from typing import Any

import pytest

from relier.errors import InvalidSubmissionError
from relier.ledger.moves.worker import COMMIT_TASKS
from relier.ledger.records import Admission, Lease, Settled, Submission
from relier.states import State
from tests.support.ledger_world import HOUR, World

# --- burials with follow-ups ------------------------------------------------------------------------------------------


def test_follow_ups_enter_once_with_the_burial(clocked: World) -> None:
    lease = clocked.start()
    after = [clocked.new(), clocked.new(queue="other", key="k"), clocked.new(delay_ms=1000)]
    assert clocked.bury(lease, "failed", after) == Settled("ok", "dead", lease.fence)
    assert [clocked.state(task.id) for task in after] == [State.QUEUED, State.QUEUED, State.SCHEDULED]
    assert clocked.command("LLEN", clocked.key("bell", "other")) == 1
    with clocked.unchanged():
        assert clocked.bury(lease, "failed", after).verdict == "repeat"
    assert clocked.counts()["submitted"] == 4


def test_a_repeated_burial_does_not_submit_a_reaped_follow_up_again(clocked: World) -> None:
    lease = clocked.start()
    after = clocked.new(result_ttl_ms=10)
    clocked.bury(lease, "failed", [after])
    (claimed,) = clocked.claim()
    clocked.commit(claimed.lease)
    clocked.advance(10)
    assert clocked.run(clocked.ledger.reap()) == 1
    with clocked.unchanged():
        assert clocked.bury(lease, "failed", [after]).verdict == "repeat"


def test_follow_ups_of_a_stale_burial_do_not_enter(clocked: World) -> None:
    lease = clocked.start()
    clocked.lose()
    assert clocked.bury(lease, "failed", [clocked.new()]).verdict == "stale"
    assert clocked.bury(Lease("nothing", "1", "boot"), "failed", [clocked.new()]).verdict == "missing"
    assert clocked.counts()["submitted"] == 1


def test_a_burial_leaves_existing_follow_ups_alone(clocked: World) -> None:
    lease = clocked.start()
    here = clocked.push(payload=b"old", key="k")
    after = [clocked.new(id=here, payload=b"new"), clocked.new(key="k"), clocked.new(id=lease.task_id)]
    assert clocked.bury(lease, "failed", after).verdict == "ok"
    assert (clocked.get(here).payload, clocked.state(lease.task_id)) == (b"old", State.DEAD)
    assert clocked.state(after[1].id) is None


def test_the_key_of_a_buried_task_is_free_for_its_follow_up(clocked: World) -> None:
    lease = clocked.start(key="k", key_ttl_ms=HOUR)
    after = clocked.new(key="k")
    clocked.bury(lease, "failed", [after])
    assert clocked.state(after.id) is State.QUEUED


def test_admission_does_not_apply_to_follow_ups_of_a_burial(clocked: World) -> None:
    clocked.submit(clocked.new(), admission=Admission(max_bytes=100))
    (claimed,) = clocked.claim()
    clocked.bury(claimed.lease, "failed", [clocked.new(payload=b"x" * 500)])
    assert clocked.counts()["bytes"] == 0


def test_a_burial_takes_many_follow_ups(clocked: World) -> None:
    lease, most = clocked.start(), COMMIT_TASKS - 1
    with pytest.raises(InvalidSubmissionError, match=f"one burial takes at most {most} follow-ups"):
        clocked.bury(lease, "failed", [clocked.new() for _ in range(most + 1)])
    assert clocked.bury(lease, "failed", [clocked.new() for _ in range(most)]).verdict == "ok"
    assert len(clocked.members("ready", "default")) == most


# --- going on as another task -----------------------------------------------------------------------------------------


def other(task_id: str, **fields: Any) -> Submission:
    return Submission(**{"id": task_id, "name": "app.other", "payload": b"other\n\0", "queue": "there", **fields})


def test_a_retry_can_continue_as_another_task(clocked: World) -> None:
    lease = clocked.start(payload=b"x" * 3000)
    before = clocked.get(lease.task_id).record
    clocked.advance(1)
    answer = clocked.retry(lease, replace=other(lease.task_id, priority=3))
    assert answer == Settled("ok", "queued", lease.fence)
    found = clocked.get(lease.task_id)
    record = found.record
    assert (record.name, record.queue, record.spec.priority, found.payload) == ("app.other", "there", 3, b"other\n\0")
    assert (record.spec.at_us, record.fence, record.attempt) == (before.spec.at_us, lease.fence, 1)
    assert (record.more["retries"], [entry.move for entry in found.history]) == ("1", ["retry"])
    assert clocked.members("ready", "default") == []
    place = clocked.command("ZSCORE", clocked.key("ready", "there"), lease.task_id)
    assert place == str(clocked.now_us - 3 * 60_000_000).encode()
    assert clocked.command("LLEN", clocked.key("bell", "there")) == 1
    assert clocked.pttl("task", lease.task_id) == -1
    (claimed,) = clocked.claim(queues=["there"])
    assert (claimed.record.name, claimed.payload, claimed.retries) == ("app.other", b"other\n\0", 1)


def test_a_retry_can_continue_as_another_task_after_a_delay(clocked: World) -> None:
    lease = clocked.start()
    assert clocked.retry(lease, 1000, quiet=True, replace=other(lease.task_id)).state == "scheduled"
    assert clocked.get(lease.task_id).record.queue == "there"
    clocked.advance(1000)
    clocked.run(clocked.ledger.promote())
    (claimed,) = clocked.claim(queues=["there"])
    assert (claimed.payload, claimed.record.attempt, claimed.retries) == (b"other\n\0", 1, 0)


def test_the_same_retry_again_changes_nothing(clocked: World) -> None:
    lease = clocked.start()
    clocked.retry(lease, replace=other(lease.task_id))
    with clocked.unchanged():
        assert clocked.retry(lease, replace=other(lease.task_id)).verdict == "repeat"
        assert clocked.retry(lease, replace=other(lease.task_id, queue="elsewhere")).verdict == "repeat"
    clocked.claim(queues=["there"])
    with clocked.unchanged():
        assert clocked.retry(lease, replace=other(lease.task_id)).verdict == "repeat"


def test_a_zombie_replaces_nothing(clocked: World) -> None:
    lease = clocked.start()
    clocked.release(lease)
    text = clocked.command("GET", clocked.key("task", lease.task_id))
    assert clocked.retry(lease, replace=other(lease.task_id)).verdict == "stale"
    assert clocked.command("GET", clocked.key("task", lease.task_id)) == text


def test_a_replacement_keeps_the_fields_fixed_at_submission(clocked: World) -> None:
    task = clocked.new(key="k", key_ttl_ms=HOUR, expires_in_ms=HOUR, nonce="n", result_ttl_ms=5, tomb_ttl_ms=7)
    clocked.submit(task, admission=Admission(max_bytes=1000))
    (claimed,) = clocked.claim()
    held = clocked.counts()["bytes"]
    before = claimed.record.spec
    clocked.retry(claimed.lease, replace=other(task.id, payload=b"x" * 500, on_lost="bury", dead_ttl_ms=9))
    after = clocked.get(task.id).record.spec
    assert (after.at_us, after.expires_ms, after.held) == (before.at_us, before.expires_ms, before.held)
    assert (after.key_ttl_ms, after.result_ttl_ms, after.tomb_ttl_ms) == (HOUR, None, None)
    assert (after.on_lost, after.dead_ttl_ms) == ("bury", 9)
    assert clocked.counts()["bytes"] == held
    assert clocked.submit(task)[0].status == "new", "the same push again"
    assert clocked.submit(clocked.new(key="k"))[0].id == task.id
    (claimed,) = clocked.claim(queues=["there"])
    clocked.commit(claimed.lease)
    assert clocked.counts()["bytes"] == 0
    assert clocked.pttl("idem", "k") > HOUR
    assert clocked.submit(clocked.new(key="k"))[0].status == "duplicate"


@pytest.mark.parametrize("first", [{}, {"on_lost": "bury"}, {"expires_in_ms": HOUR}, {"key": "k"}])
@pytest.mark.parametrize("second", [{}, {"max_resurrections": 1}, {"priority": 1}])
def test_the_options_flag_matches_the_options_of_the_replacement(
    clocked: World, first: dict[str, Any], second: dict[str, Any]
) -> None:
    lease = clocked.start(**first)
    clocked.retry(lease, replace=other(lease.task_id, **second))
    record = clocked.get(lease.task_id).record
    expected = bool({"expires_in_ms", "key"} & first.keys() or "max_resurrections" in second)
    assert ("o" in record.flags) is expected
    assert record.spec.max_resurrections == second.get("max_resurrections")
    assert record.spec.on_lost == "retry"


def test_the_options_of_the_replacement_apply(clocked: World) -> None:
    lease = clocked.start(queue="there")
    clocked.retry(lease, replace=other(lease.task_id, on_lost="hold"))
    clocked.claim(queues=["there"])
    clocked.lose()
    assert (clocked.state(lease.task_id), clocked.pttl("task", lease.task_id)) == (State.DEAD, -1)


def test_a_cancelled_task_is_not_replaced(clocked: World) -> None:
    lease = clocked.start()
    clocked.cancel(lease.task_id)
    assert clocked.retry(lease, replace=other(lease.task_id)).state == "cancelled"
    assert clocked.get(lease.task_id).record.name == "app.work"


def test_a_revived_replacement_waits_in_its_new_queue(clocked: World) -> None:
    lease = clocked.start()
    clocked.retry(lease, replace=other(lease.task_id))
    clocked.claim(queues=["there"])
    clocked.lose()
    assert clocked.members("ready", "there") == [lease.task_id]


def test_optional_fields_stay_with_the_record(clocked: World) -> None:
    lease = clocked.start()
    clocked.run(clocked.ledger.checkpoint(lease, 1, b"half"))
    clocked.run(clocked.ledger.step(lease, "pay", b"1"))
    clocked.retry(lease, replace=other(lease.task_id))
    (claimed,) = clocked.claim(queues=["there"])
    assert (claimed.checkpoint, claimed.steps) == (b"half", {"pay": b"1"})
