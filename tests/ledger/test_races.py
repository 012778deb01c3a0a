"""Races in designs that check first and act later: each test makes exactly those calls, in exactly that order."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from relier.ledger.ledger import Ledger
from relier.ledger.records import Admission, AdmissionLimit, ClaimStatus, Submission
from relier.states import State
from relier.store import AsyncStore
from tests.support.ledger_world import HOUR, World


def test_only_one_of_two_claims_gets_the_task(clocked: World) -> None:
    clocked.join("other")
    clocked.push()
    assert len(clocked.claim("boot")) == 1
    assert clocked.claim("other") == ()


def test_many_claims_at_once_share_nothing(worlds: Any) -> None:
    """Real threads claim at once: every task goes to one worker id."""
    world: World = worlds(clocked=False)
    boots = [world.join(f"b{n}") for n in range(8)]
    tasks = [world.push() for _ in range(60)]
    start = threading.Barrier(len(boots))

    def drain(boot: str) -> list[str]:
        start.wait()
        found: list[str] = []
        for seq in range(1, 100):
            claim = world.store.run(world.ledger.claim(boot, seq, ["default"], 3))
            if not claim.tasks:
                return found
            found += [one.record.id for one in claim.tasks]
        raise AssertionError("more claims than tasks")

    with ThreadPoolExecutor(len(boots)) as pool:
        taken = [task for found in pool.map(drain, boots) for task in found]
    assert sorted(taken) == sorted(tasks)


@pytest.mark.parametrize("same_boot", [True, False])
def test_a_stale_release_does_not_free_a_newer_owner(clocked: World, same_boot: bool) -> None:
    """The owner pauses before it releases the task. Meanwhile, the task has got another owner."""
    old = clocked.start()
    clocked.run(clocked.ledger.forfeit(old, "presumed dead")) if same_boot else clocked.lose()
    new_boot = clocked.join("boot" if same_boot else "next")
    (claimed,) = clocked.claim(new_boot)
    assert clocked.release(old).verdict == "stale"
    assert clocked.state(old.task_id) is State.RUNNING
    assert clocked.members("owned", new_boot) == [old.task_id]
    assert clocked.commit(claimed.lease).verdict == "ok"


def test_a_stale_end_does_not_free_a_newer_holders_key(clocked: World) -> None:
    old = clocked.start(key="k", on_lost="retry")
    clocked.lose()
    clocked.cancel(old.task_id)
    newer = clocked.push(key="k")
    for move in (clocked.commit, clocked.bury, clocked.release):
        assert move(old).verdict == "stale"
    assert clocked.command("GET", clocked.key("idem", "k")) == newer.encode()


@pytest.mark.parametrize("end", ["commit", "bury", "cancel"])
def test_ending_a_task_leaves_a_key_that_another_task_took(clocked: World, end: str) -> None:
    """The holder's record could not be read for a moment, so another task took the key. Then the record was
    repaired."""
    old = clocked.start(key="k", key_ttl_ms=HOUR)
    record = clocked.command("GET", clocked.key("task", old.task_id))
    clocked.command("SET", clocked.key("task", old.task_id), "broken")
    newer = clocked.push(key="k")
    clocked.command("SET", clocked.key("task", old.task_id), record)
    if end == "cancel":
        clocked.cancel(old.task_id)
        clocked.release(old)
    else:
        assert getattr(clocked, end)(old).verdict == "ok"
    assert clocked.command("GET", clocked.key("idem", "k")) == newer.encode()


def test_a_replaced_task_that_is_discarded_leaves_the_newer_holders_key(clocked: World) -> None:
    old = clocked.push(key="k")
    newer = clocked.push(key="k", on_conflict="replace")
    clocked.run(clocked.ledger.discard(old, clocked.version(old)))
    assert clocked.command("GET", clocked.key("idem", "k")) == newer.encode()


def test_two_resurrectors_revive_once(clocked: World) -> None:
    lease = clocked.start()
    first = clocked.lose()
    second = clocked.lose()
    assert (len(first.outcomes), len(second.outcomes)) == (1, 0)
    assert clocked.members("ready", "default") == [lease.task_id]
    assert clocked.counts()["revived"] == 1


def test_two_sweeps_revive_one_worker_at_the_same_time(clocked: World) -> None:
    for _ in range(4):
        clocked.push()
    clocked.claim()
    swept = [clocked.revive(worker_id="boot", most=1) for _ in range(5)]
    ids = [task for sweep in swept for task, _ in sweep.outcomes]
    assert len(ids) == len(set(ids)) == 4
    assert sum(sweep.removed for sweep in swept) == 1


def test_a_supervisor_and_a_sweeper_revive_once(clocked: World) -> None:
    lease = clocked.start()
    clocked.run(clocked.ledger.forfeit(lease, "OOM"))
    assert clocked.lose().outcomes == ()
    clocked.join("next")
    (claimed,) = clocked.claim("next")
    assert claimed.deaths == 1


def test_a_zombie_between_its_last_check_and_its_write(clocked: World) -> None:
    """The worker sends a heartbeat, which is answered with ok. Then it is frozen for longer than its lease. Then it
    writes."""
    zombie = clocked.start()
    assert clocked.beat().alive
    clocked.lose()
    clocked.join("next")
    (claimed,) = clocked.claim("next")
    before = clocked.get(zombie.task_id)
    assert clocked.run(clocked.ledger.checkpoint(zombie, 9, b"late")).verdict == "stale"
    assert clocked.run(clocked.ledger.step(zombie, "pay", b"late")).settled.verdict == "stale"
    assert clocked.commit(zombie, b"late").verdict == "stale"
    assert clocked.retry(zombie).verdict == "stale"
    assert clocked.bury(zombie).verdict == "stale"
    assert clocked.get(zombie.task_id) == before
    assert clocked.commit(claimed.lease, b"good").verdict == "ok"
    assert clocked.commit(zombie, b"late").verdict == "stale", "also once the task is done"
    assert clocked.get(zombie.task_id).result == b"good"


def test_a_commit_with_an_old_fence_while_the_task_waits(clocked: World) -> None:
    lease = clocked.start()
    clocked.lose()
    answer = clocked.commit(lease)
    assert (answer.verdict, answer.state) == ("stale", "queued")
    assert clocked.members("ready", "default") == [lease.task_id]


def test_a_commit_just_before_the_sweep_counts(clocked: World) -> None:
    lease = clocked.start()
    for _ in range(6):
        clocked.advance(1000)
        clocked.revive(most=0)
    assert clocked.commit(lease).verdict == "ok", "the lease ran out, but nobody took the task yet"
    assert clocked.revive().outcomes == ()
    assert clocked.state(lease.task_id) is State.DONE


def test_a_commit_of_a_lost_worker_whose_task_still_waits(clocked: World) -> None:
    """A brake holds back the sweep: the worker is declared lost, but there is no other attempt, so its result is still
    accepted."""
    lease = clocked.start()
    clocked.revive(worker_id="boot", deepest=0)
    assert clocked.commit(lease).verdict == "ok"
    swept = clocked.revive()
    assert (swept.outcomes, swept.removed) == ((), 1)


def test_every_limit_has_an_expiry_from_its_first_use(clocked: World) -> None:
    """If one call created a counter and the next one set its expiry, the counter would stay forever if the caller died
    in between."""
    limits = (
        AdmissionLimit.per_window("a", 5, 1000),
        AdmissionLimit.per_window("b", 100, 60_000),
        AdmissionLimit("c", 1_000_000, 5_000_000, 2),
    )
    clocked.submit(clocked.new(), clocked.new(), admission=Admission(limits))
    for limit in limits:
        assert 0 < clocked.pttl("rate", limit.name) < 10 * 60_000
    clocked.advance(2000)
    clocked.submit(clocked.new(), admission=Admission(limits[1:]))
    for limit in limits:
        assert clocked.pttl("rate", limit.name) > 0


def test_a_late_claim_of_a_worker_declared_lost_is_refused(clocked: World) -> None:
    clocked.push()
    clocked.push(queue="other")
    clocked.claim()
    clocked.revive(worker_id="boot", deepest=0)
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.claim("boot", 2, ["other"], 1)).status is ClaimStatus.GONE
    clocked.revive()
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.claim("boot", 3, ["other"], 1)).status is ClaimStatus.GONE


def test_a_resent_claim_of_a_worker_declared_lost_is_refused(clocked: World) -> None:
    clocked.start()
    clocked.lose()
    with clocked.unchanged():
        assert clocked.run(clocked.ledger.claim("boot", 1, ["default"], 1)).status is ClaimStatus.GONE


def test_a_claim_that_arrives_after_a_newer_one_gets_nothing(clocked: World) -> None:
    for _ in range(3):
        clocked.push()
    clocked.run(clocked.ledger.claim("boot", 1, ["default"], 1))
    clocked.run(clocked.ledger.claim("boot", 2, ["default"], 1))
    with clocked.unchanged():
        late = clocked.run(clocked.ledger.claim("boot", 1, ["default"], 1))
    assert (late.status, late.tasks) == (ClaimStatus.OLD, ())


def test_a_claim_that_arrives_after_newer_empty_ones_is_found_and_handed_back(clocked: World) -> None:
    """Empty claims leave no trace, so this late claim does take a task. The check for orphaned claims hands it back."""
    for seq in (1, 2):
        assert clocked.run(clocked.ledger.claim("boot", seq, ["default"], 1)).tasks == ()
    task = clocked.push()
    (stranger,) = clocked.run(clocked.ledger.claim("boot", 1, ["default"], 1)).tasks
    assert clocked.run(clocked.ledger.owned("boot")) == {task: stranger.lease.fence}
    assert clocked.release(stranger.lease).verdict == "ok"
    assert clocked.get(task).record.attempt == 0


def test_a_duplicate_register_while_the_lost_worker_still_owns_tasks(clocked: World) -> None:
    clocked.start()
    clocked.revive(worker_id="boot", deepest=0)
    assert not clocked.run(clocked.ledger.register("boot", 5000))
    assert clocked.run(clocked.ledger.claim("boot", 2, ["default"], 1)).status is ClaimStatus.GONE
    assert len(clocked.revive().outcomes) == 1


def test_a_duplicate_register_after_the_lost_worker_was_removed(clocked: World) -> None:
    """This registers a worker id that no process uses. It holds nothing, the next sweep after its lease removes it, and
    earlier attempts of its tasks stay stale."""
    lease = clocked.start()
    clocked.lose()
    clocked.run(clocked.ledger.register("boot", 5000))
    assert clocked.commit(lease).verdict == "stale"
    for _ in range(6):
        clocked.advance(1000)
        clocked.revive()
    assert clocked.members("boots") == []
    assert clocked.pttl("worker", "boot") == -2


def test_a_heartbeat_of_a_worker_declared_lost_renews_nothing(clocked: World) -> None:
    clocked.start()
    clocked.revive(worker_id="boot", deepest=0)
    assert not clocked.beat().alive
    assert len(clocked.revive().outcomes) == 1, "the beat renewed nothing"


def test_a_tombstone_refuses_a_repeated_push_of_a_removed_id(clocked: World) -> None:
    """Without a tombstone, an id may be used again once its record is gone; with a tombstone it may not."""
    for tomb, status in ((None, "new"), (100 * HOUR, "ended")):
        lease = clocked.start(tomb_ttl_ms=tomb)
        clocked.commit(lease)
        clocked.advance(HOUR)
        clocked.run(clocked.ledger.reap())
        assert clocked.submit(clocked.new(id=lease.task_id, queue="again"))[0].status == status


@pytest.mark.anyio
async def test_pushes_of_one_loop_with_one_key_make_one_task(store: AsyncStore, ledger: Ledger) -> None:
    """Pushes with one key over the async store, which sends the calls of one turn of the loop in one pipeline."""
    await store.run(ledger.register("boot", 5000))
    pushes = [ledger.submit([Submission(id=f"t{n}", name="n", payload=b"", key="k")]) for n in range(20)]
    answers = await asyncio.gather(*(store.run(push) for push in pushes))
    assert sorted(answer.status for (answer,) in answers) == ["duplicate"] * 19 + ["new"]
    claims = await asyncio.gather(
        *(store.run(ledger.claim("boot", 1, ["default"], 1, lane=str(lane))) for lane in range(5))
    )
    (lease,) = [one.lease for claim in claims for one in claim.tasks]
    commits = await store.run_many([ledger.commit([(lease, b"1", ())])] * 3)
    assert [answer[0].verdict for answer in commits if isinstance(answer, list)] == ["ok", "repeat", "repeat"]


def test_many_pushes_of_one_key_at_once_make_one_task(worlds: Any) -> None:
    world: World = worlds(clocked=False)
    start = threading.Barrier(8)

    def push(n: int) -> str:
        start.wait()
        (answer,) = world.store.run(world.ledger.submit([world.new(id=f"t{n}", key="k")]))
        return str(answer.status)

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(push, range(8)))
    assert statuses == ["duplicate"] * 7 + ["new"]
