"""Batches: the script that ends a member also counts that end in its batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relier.errors import BatchNotFoundError
from relier.ledger.batches.membership import INHERITED, BatchHeader, Member, packed_plan
from relier.ledger.batches.records import BatchRecord, BatchState, Stage
from relier.ledger.records import Lease
from relier.states import State
from tests.support.ledger_world import DAY, HOUR, World

CALLBACKS = ("then", "on_failure", "on_complete")


def push(world: World, size: int = 1, *, collects: bool = False, **fields: Any) -> list[str]:
    """Push a batch `g` of `size` tasks, with all three callbacks in their own queue."""
    plans = tuple((name, packed_plan([], [world.new(id=name, queue="callbacks")])) for name in CALLBACKS)
    header = BatchHeader(id="g", collects=collects, plans=plans)
    first = world.new(member=Member(batch="g", place=0, how="opens", opens=(header,)), **fields)
    rest = [world.new(member=Member(batch="g", place=n, how="with"), **fields) for n in range(1, size)]
    return [answer.id for answer in world.submit(first, *rest)]


def read(world: World) -> BatchRecord:
    batch: BatchRecord = world.store.run(world.ledger.batch("g"))
    return batch


def fired(world: World) -> set[str]:
    return {name for name in CALLBACKS if name in world.states()}


def lease_of(world: World) -> Lease:
    return world.claim()[0].lease


def expire_by_claim(world: World) -> None:
    push(world, expires_in_ms=100)
    world.advance(100)
    world.claim()


def expire_by_promote(world: World) -> None:
    push(world, expires_in_ms=100)
    world.advance(100)
    world.run(world.ledger.promote())


def cancel_waiting(world: World) -> None:
    world.cancel(push(world)[0])


def cancel_running(world: World, settle: Callable[[World, Lease], Any]) -> None:
    (task,) = push(world)
    lease = lease_of(world)
    world.cancel(task)
    settle(world, lease)


def corrupt(world: World) -> None:
    (task,) = push(world)
    world.command("SET", world.key("task", task), "broken")
    world.claim()


def vanish(world: World) -> None:
    (task,) = push(world)
    world.command("DEL", world.key("task", task))
    world.store.run(world.ledger.claim("boot", 1, ["default"], 1))  # not by `world`, which knows that none may vanish


def lose(world: World) -> None:
    push(world, on_lost="bury")
    lease_of(world)
    world.lose()


def kill_too_often(world: World) -> None:
    push(world, max_resurrections=0)
    world.run(world.ledger.forfeit(lease_of(world), "exit 139"))


def bury(world: World) -> None:
    push(world)
    world.bury(lease_of(world))


FAILURES: dict[str, Callable[[World], None]] = {
    "bury": bury,
    "expiry in a claim": expire_by_claim,
    "expiry in a promote": expire_by_promote,
    "cancel of a waiting task": cancel_waiting,
    "cancel, then a release": lambda w: cancel_running(w, lambda w, lease: w.release(lease)),
    "cancel, then a retry": lambda w: cancel_running(w, lambda w, lease: w.retry(lease)),
    "cancel, then a late retry": lambda w: cancel_running(w, lambda w, lease: w.retry(lease, 1000)),
    "cancel, then the sweep": lambda w: cancel_running(w, lambda w, lease: w.lose()),
    "a lost worker": lose,
    "too many deaths": kill_too_often,
    "a broken record": corrupt,
    "a record that was deleted": vanish,
}


@pytest.mark.parametrize("how", FAILURES)
def test_every_way_to_fail_reaches_the_batch(clocked: World, how: str) -> None:
    clocked.sound = False
    FAILURES[how](clocked)
    batch = read(clocked)
    assert (batch.state, batch.done, batch.dead + batch.cancelled) == (BatchState.ENDED, 0, 1)
    assert fired(clocked) == {"on_failure", "on_complete"}


def test_then_is_submitted_once_with_the_last_member(clocked: World) -> None:
    push(clocked, 2)
    first, second = (claimed.lease for claimed in clocked.claim())
    clocked.commit(first)
    assert fired(clocked) == set()
    clocked.commit(second)
    clocked.commit(second)
    assert fired(clocked) == {"then", "on_complete"}
    assert read(clocked).succeeded


def test_a_repeated_push_of_a_workflow_counts_once(clocked: World) -> None:
    header = BatchHeader(id="g")
    tasks = [
        clocked.new(member=Member(batch="g", place=0, how="opens", opens=(header,))),
        clocked.new(member=Member(batch="g", place=1, how="with")),
    ]
    assert [answer.status for answer in clocked.submit(*tasks)] == ["new", "new"]
    assert [answer.status for answer in clocked.submit(*tasks)] == ["exists", "exists"]
    assert read(clocked).size == 2


def test_a_member_that_was_reaped_does_not_enter_again(clocked: World) -> None:
    task = clocked.new(result_ttl_ms=1, member=Member(batch="g", place=0))
    clocked.run(clocked.ledger.open_batch(BatchHeader(id="g", open=True, lease_ms=DAY)))
    clocked.submit(task)
    clocked.commit(lease_of(clocked))
    clocked.advance(10)
    clocked.run(clocked.ledger.reap())
    assert clocked.submit(task)[0].status == "ended"
    assert (read(clocked).size, read(clocked).done) == (1, 1)


def test_a_chain_passes_its_value_to_the_next_batch(clocked: World) -> None:
    link = clocked.new(id="b", member=Member(batch="g", place=INHERITED, input=">n1", tasks=None, how="stored"))
    header = BatchHeader(id="g", collects=True, plans=(("n1", packed_plan([], [link])),))
    clocked.push(id="a", member=Member(batch="g", place=0, next="n1", tasks=2, how="opens", opens=(header,)))
    clocked.commit(lease_of(clocked), b"\xff1")
    assert clocked.run(clocked.ledger.results("g", field=">n1"))[0] == {">n1": b"a\n\xff1"}
    clocked.commit(lease_of(clocked), None)
    assert clocked.run(clocked.ledger.results("g"))[0] == {"0": b"b"}, "the value is not kept, the result is"
    assert (read(clocked).tasks, read(clocked).tasks_done) == (2, 2)


def test_members_are_listed_by_stage(clocked: World) -> None:
    done, dead, live = push(clocked, 3)
    leases = {claimed.lease.task_id: claimed.lease for claimed in clocked.claim()}
    clocked.commit(leases[done])
    clocked.bury(leases[dead])
    stages = {member.id: member.stage for member in clocked.run(clocked.ledger.members("g"))}
    assert stages == {live: Stage.LIVE, done: Stage.DONE, dead: Stage.DEAD}
    assert [member.id for member in clocked.run(clocked.ledger.members("g", Stage.DEAD))] == [dead]
    assert read(clocked).failed == dead


def test_a_replayed_member_completes_the_batch(clocked: World) -> None:
    (task,) = push(clocked)
    clocked.bury(lease_of(clocked))
    clocked.replay(task)
    assert (read(clocked).state, read(clocked).failed) == (BatchState.SEALED, "")
    clocked.commit(lease_of(clocked))
    assert fired(clocked) == set(CALLBACKS)


def test_a_batch_is_removed_after_its_time(clocked: World) -> None:
    push(clocked)
    clocked.commit(lease_of(clocked))
    for claimed in clocked.claim(queues=["callbacks"]):
        clocked.commit(claimed.lease)
    clocked.advance(HOUR + 1)
    clocked.run(clocked.ledger.reap())
    with pytest.raises(BatchNotFoundError):
        read(clocked)
    assert clocked.run(clocked.ledger.batches()).batches == ()


def test_cancelling_a_batch_leaves_ended_members_alone(clocked: World) -> None:
    ids = push(clocked, 5)
    first, running = (claimed.lease for claimed in clocked.claim(want=2))
    clocked.commit(first)
    passes = [clocked.run(clocked.ledger.cancel_batch("g", "", 2))]
    while passes[-1].cursor:
        passes.append(clocked.run(clocked.ledger.cancel_batch("g", passes[-1].cursor, 2)))
    assert clocked.state(ids[0]) is State.DONE
    assert clocked.state(running.task_id) is State.RUNNING
    assert {clocked.state(task) for task in ids[2:]} == {State.CANCELLED}
    assert fired(clocked) == set()
    clocked.release(running)
    assert fired(clocked) == {"on_complete"}
    assert clocked.run(clocked.ledger.cancel_batch("g")).verdict == "ended"


def test_cancelling_counts_members_whose_records_are_gone(clocked: World) -> None:
    ids = push(clocked, 2)
    clocked.sound = False
    for kind in ("task", "more"):
        clocked.command("DEL", clocked.key(kind, ids[0]))
    clocked.store.run(clocked.ledger.cancel_batch("g"))
    assert (read(clocked).state, read(clocked).cancelled) == (BatchState.ENDED, 2)
