"""Workers: registering, heartbeats, claims, and the data that an attempt writes while it runs."""

from __future__ import annotations

import pytest

from relier.ledger.records import ClaimStatus, Lease
from relier.states import State
from tests.support.ledger_world import World


def test_a_worker_registers_sends_heartbeats_and_retires(clocked: World) -> None:
    assert clocked.beat().alive
    assert clocked.run(clocked.ledger.retire("boot")) == 0
    assert not clocked.beat().alive
    assert clocked.members("boots") == clocked.members("leases") == []
    assert clocked.pttl("worker", "boot") == -2


def test_registering_again_changes_nothing(clocked: World) -> None:
    with clocked.unchanged():
        clocked.join()


def test_a_repeated_heartbeat_changes_nothing(clocked: World) -> None:
    clocked.beat()
    with clocked.unchanged():
        clocked.beat()


def test_retiring_again_changes_nothing(clocked: World) -> None:
    clocked.run(clocked.ledger.retire("boot"))
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.retire("boot")) == 0


def test_a_worker_that_holds_tasks_cannot_retire(clocked: World) -> None:
    clocked.start()
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.retire("boot")) == 1
    assert clocked.beat().alive


def test_a_late_heartbeat_renews_a_worker_not_declared_lost(clocked: World) -> None:
    clocked.join("idle", 60_000)
    for _ in range(4):
        clocked.advance(2500)
        clocked.beat("idle", 60_000)
    assert clocked.beat().alive
    assert clocked.revive().removed == 0


def test_a_heartbeat_of_an_unknown_worker_is_answered_gone(clocked: World) -> None:
    assert not clocked.beat("nobody").alive
    assert clocked.pttl("worker", "nobody") == -2


def test_a_heartbeat_reports_what_the_worker_holds(clocked: World) -> None:
    clocked.push()
    clocked.push()
    clocked.claim()
    assert clocked.beat().owned == 2


def test_a_claim_hands_over_everything(clocked: World) -> None:
    task = clocked.push(payload=b"\x00\xff")
    (claimed,) = clocked.claim()
    assert claimed.lease == Lease(task, str(clocked.now_us), "boot")
    assert claimed.payload == b"\x00\xff"
    assert (claimed.record.state, claimed.record.attempt, claimed.record.worker_id) == (State.RUNNING, 1, "boot")
    assert (claimed.checkpoint, claimed.steps, claimed.retries, claimed.deaths, claimed.alone) == (
        None,
        {},
        0,
        0,
        False,
    )
    assert clocked.get(task).record == claimed.record


def test_a_claim_of_an_unknown_worker_is_answered_gone(clocked: World) -> None:
    clocked.push()
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.claim("nobody", 1, ["default"], 1)).status is ClaimStatus.GONE


def test_a_claim_takes_the_wanted_number_of_tasks(clocked: World) -> None:
    tasks = [clocked.push() for _ in range(5)]
    assert [claimed.record.id for claimed in clocked.claim(want=3)] == tasks[:3]
    assert [claimed.record.id for claimed in clocked.claim(want=3)] == tasks[3:]
    assert clocked.claim() == ()


def test_queues_are_emptied_in_the_order_given(clocked: World) -> None:
    tasks = {queue: [clocked.push(queue=queue) for _ in range(2)] for queue in ("a", "b", "c")}
    assert [one.record.id for one in clocked.claim(want=3, queues=["b", "a", "c"])] == [*tasks["b"], tasks["a"][0]]
    assert [one.record.id for one in clocked.claim(queues=["c", "a"])] == [*tasks["c"], tasks["a"][1]]


def test_a_claim_that_leaves_work_rings_the_doorbell_again(clocked: World) -> None:
    clocked.push()
    clocked.push()
    clocked.push(queue="other")
    for queue in ("default", "other"):
        clocked.command("DEL", clocked.ledger.bell(queue))
    clocked.claim(want=1, queues=["default", "other"])
    for queue in ("default", "other"):
        assert clocked.command("LLEN", clocked.ledger.bell(queue)) == 1


def test_a_claim_stops_at_its_byte_limit_but_takes_at_least_one_task(clocked: World) -> None:
    tasks = [clocked.push(payload=b"x" * 1000) for _ in range(4)]
    small = clocked.push(payload=b"x")
    assert [one.record.id for one in clocked.claim(max_bytes=1)] == tasks[:1]
    assert [one.record.id for one in clocked.claim(max_bytes=3000)] == tasks[1:3]
    assert [one.record.id for one in clocked.claim(max_bytes=3000)] == [tasks[3], small]


def test_a_task_put_back_for_its_size_keeps_its_place(clocked: World) -> None:
    tasks = [clocked.push(payload=b"x" * size) for size in (10, 5000, 10)]
    assert [one.record.id for one in clocked.claim(max_bytes=1000)] == tasks[:1], "the large one holds its place"
    assert clocked.members("ready", "default") == tasks[1:]


def test_a_paused_queue_is_passed_over(clocked: World) -> None:
    clocked.push(queue="a")
    other = clocked.push(queue="b")
    clocked.run(clocked.ledger.pause("a", 0))
    assert [one.record.id for one in clocked.claim(queues=["a", "b"])] == [other]
    clocked.run(clocked.ledger.resume("a", 1))
    assert len(clocked.claim(queues=["a", "b"])) == 1


def test_a_resent_claim_gets_the_same_set(clocked: World) -> None:
    tasks = [clocked.push() for _ in range(3)]
    first = clocked.run(clocked.ledger.claim("boot", 1, ["default"], 2))
    with clocked.unchanged():
        again = clocked.run(clocked.ledger.claim("boot", 1, ["default"], 2))
    assert again == first
    assert [one.record.id for one in again.tasks] == tasks[:2]


def test_a_resent_claim_hands_over_checkpoints_and_steps_again(clocked: World) -> None:
    lease = clocked.start()
    clocked.run(clocked.ledger.checkpoint(lease, 1, b"half"))
    clocked.run(clocked.ledger.step(lease, "pay", b"paid"))
    clocked.release(lease)
    first = clocked.run(clocked.ledger.claim("boot", 2, ["default"], 1))
    assert (first.tasks[0].checkpoint, first.tasks[0].steps) == (b"half", {"pay": b"paid"})
    assert clocked.run(clocked.ledger.claim("boot", 2, ["default"], 1)) == first


def test_a_resent_claim_leaves_out_what_was_settled_since(clocked: World) -> None:
    clocked.push()
    clocked.push()
    one, two = clocked.claim()
    clocked.commit(one.lease)
    again = clocked.run(clocked.ledger.claim("boot", 1, ["default"], 100))
    assert [task.lease for task in again.tasks] == [two.lease]


def test_each_lane_has_its_own_sequence(clocked: World) -> None:
    clocked.push()
    clocked.push()
    claims = [clocked.run(clocked.ledger.claim("boot", 1, ["default"], 1, lane=lane)) for lane in ("0", "1")]
    assert claims[0].tasks != claims[1].tasks
    assert clocked.run(clocked.ledger.claim("boot", 1, ["default"], 1, lane="0")) == claims[0]


def test_fences_grow_even_if_time_does_not(clocked: World) -> None:
    fences = []
    lease = clocked.start()
    for jump in (0, 0, -3_600_000, 1000, 3_700_000):
        fences.append(int(lease.fence))
        clocked.release(lease)
        clocked.advance(jump)
        (claimed,) = clocked.claim()
        lease = claimed.lease
    fences.append(int(lease.fence))
    assert fences == sorted(set(fences))
    assert fences[:5] == [fences[0] + n for n in range(5)], "while TIME stands or goes back, one by one"
    assert fences[5] == clocked.now_us


def test_a_checkpoint_is_stored_and_a_repeat_changes_nothing(clocked: World) -> None:
    lease = clocked.start()
    assert clocked.run(clocked.ledger.checkpoint(lease, 1, b"one")).verdict == "ok"
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.checkpoint(lease, 1, b"one")).verdict == "repeat"
    assert clocked.get(lease.task_id).checkpoint == b"one"


def test_an_older_checkpoint_never_replaces_a_newer_one(clocked: World) -> None:
    lease = clocked.start()
    clocked.run(clocked.ledger.checkpoint(lease, 2, b"two"))
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.checkpoint(lease, 1, b"one")).verdict == "repeat"


def test_a_new_attempt_numbers_its_checkpoints_from_the_start(clocked: World) -> None:
    lease = clocked.start()
    clocked.run(clocked.ledger.checkpoint(lease, 9, b"nine"))
    clocked.release(lease)
    (claimed,) = clocked.claim()
    assert claimed.checkpoint == b"nine"
    assert clocked.run(clocked.ledger.checkpoint(claimed.lease, 1, b"one")).verdict == "ok"
    assert clocked.run(clocked.ledger.checkpoint(lease, 10, b"ten")).verdict == "stale"
    assert clocked.get(lease.task_id).checkpoint == b"one"


def test_the_first_record_of_a_step_wins(clocked: World) -> None:
    lease = clocked.start()
    first = clocked.run(clocked.ledger.step(lease, "pay", b"1"))
    assert (first.settled.verdict, first.value) == ("ok", b"1")
    with clocked.unchanged():
        again = clocked.run(clocked.ledger.step(lease, "pay", b"2"))
    assert (again.settled.verdict, again.value) == ("repeat", b"1")
    assert clocked.run(clocked.ledger.step(lease, "mail", b"")).value == b""


def test_steps_outlive_their_attempt(clocked: World) -> None:
    lease = clocked.start()
    clocked.run(clocked.ledger.step(lease, "pay", b"1"))
    clocked.lose()
    clocked.join("next")
    (claimed,) = clocked.claim("next")
    assert claimed.steps == {"pay": b"1"}
    assert clocked.run(clocked.ledger.step(claimed.lease, "pay", b"2")).value == b"1"
    refused = clocked.run(clocked.ledger.step(lease, "mail", b"1"))
    assert (refused.settled.verdict, refused.value) == ("stale", None)


@pytest.mark.parametrize("end", ["commit", "cancel"])
def test_checkpoints_and_steps_end_with_their_use(clocked: World, end: str) -> None:
    lease = clocked.start()
    clocked.run(clocked.ledger.checkpoint(lease, 1, b"half"))
    clocked.run(clocked.ledger.step(lease, "pay", b"1"))
    if end == "commit":
        clocked.commit(lease)
    else:
        clocked.release(lease)
        clocked.cancel(lease.task_id)
    assert clocked.pttl("checkpoint", lease.task_id) == clocked.pttl("steps", lease.task_id) == -2


def test_owned_lists_the_tasks_that_a_worker_runs(clocked: World) -> None:
    clocked.push()
    clocked.push()
    one, two = clocked.claim()
    assert clocked.run(clocked.ledger.owned("boot")) == {
        one.lease.task_id: one.lease.fence,
        two.lease.task_id: two.lease.fence,
    }
    assert clocked.run(clocked.ledger.owned("nobody")) == {}
