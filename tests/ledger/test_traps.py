"""Rules that were learned from reviews, one test each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from relier.errors import (
    CommitIndeterminate,
    PushIndeterminate,
    VersionConflictError,
)
from relier.ledger.records import Claimed, Lease, Submission
from relier.states import State
from relier.store import Call, Durability
from tests.support.ledger_world import DAY, HOUR, World
from tests.support.servers import Server, wait_until

Boot = Callable[..., Server]


# --- false receipts ---------------------------------------------------------------------------------------------------


def changes(server: Server) -> int:
    """Return a number that grows with every write that replicas and the append-only file receive."""
    return int(server.info("persistence")["rdb_changes_since_last_save"])


def unconfirmed(call: Call[Any]) -> Call[Any]:
    """Return a call whose script must write durably, while the store waits for no confirmation."""
    return replace(call, durability=Durability.MEMORY)


def test_every_answer_of_a_durable_submit_follows_a_write(clocked: World, server: Server) -> None:
    ended = clocked.start(tomb_ttl_ms=HOUR)
    clocked.commit(ended)
    clocked.run(clocked.ledger.discard(ended.task_id, clocked.version(ended.task_id)))
    first = clocked.new(key="k", nonce="n")
    clocked.submit(first)
    again = {
        "new": first,
        "exists": replace_of(first, nonce="other"),
        "duplicate": clocked.new(key="k"),
        "ended": clocked.new(id=ended.task_id),
    }
    for status, task in again.items():
        before = changes(server)
        (answer,) = clocked.run(unconfirmed(clocked.ledger.submit([task], durability=Durability.REPLICATED)))
        assert answer.status == status
        assert changes(server) > before, f"{status} wrote nothing, so WAIT would confirm nothing"
        with clocked.unchanged():
            clocked.submit(task)


def replace_of(task: Submission, **fields: Any) -> Submission:
    return Submission(**{name: getattr(task, name) for name in task.__struct_fields__} | fields)


def test_a_durable_commit_that_repeats_or_is_refused_writes(clocked: World, server: Server) -> None:
    lease = clocked.start()
    clocked.commit(lease)
    for one in (lease, Lease(lease.task_id, "1", "boot"), Lease("nothing", "1", "boot")):
        before = changes(server)
        clocked.run(unconfirmed(clocked.ledger.commit([(one, b"1", ())], Durability.REPLICATED)))
        assert changes(server) > before


def test_no_receipt_before_the_replica_has_the_task(boot: Boot, worlds: Any, flavour: str) -> None:
    master = boot(flavour=flavour, config={"repl-diskless-sync-delay": "0"})
    replica = boot(flavour=flavour)
    replica.command("REPLICAOF", "127.0.0.1", master.port)
    wait_until(lambda: replica.info("replication")["master_link_status"] == "up", what="the replica's first copy")
    world = worlds(master, redis_replicas=1, redis_durability_timeout=0.5, redis_deadline=3.0)
    world.join()
    task = world.new()
    lease = world.start()
    replica.freeze()
    world.submit(task)
    world.commit(lease)
    with pytest.raises(PushIndeterminate):
        world.run(world.ledger.submit([task], durability=Durability.REPLICATED))
    with pytest.raises(CommitIndeterminate):
        world.run(world.ledger.commit([(lease, b"1", ())], Durability.REPLICATED))
    replica.thaw()
    sent = int(master.info("replication")["master_repl_offset"])
    wait_until(
        lambda: int(replica.info("replication").get("slave_repl_offset", 0)) >= sent, what="the replica's return"
    )
    assert world.run(world.ledger.submit([task], durability=Durability.REPLICATED))[0].status == "exists"
    assert world.run(world.ledger.commit([(lease, b"1", ())], Durability.REPLICATED))[0].verdict == "repeat"


# --- live: no expiry --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("payload", [None, b"edited"])
def test_a_replayed_record_does_not_expire(clocked: World, fresh: bool, payload: bytes | None) -> None:
    lease = clocked.start(dead_ttl_ms=HOUR, key="k", key_ttl_ms=HOUR)
    clocked.run(clocked.ledger.checkpoint(lease, 1, b"half"))
    clocked.run(clocked.ledger.step(lease, "pay", b"1"))
    clocked.bury(lease)
    sides = ("task", "more", "history", "checkpoint", "steps")
    assert all(clocked.pttl(side, lease.task_id) > 0 for side in sides)
    clocked.replay(lease.task_id, payload=payload, fresh=fresh)
    assert {clocked.pttl(side, lease.task_id) for side in sides} == ({-1, -2} if fresh else {-1})
    assert clocked.pttl("idem", "k") == -1
    clocked.advance(2 * HOUR)
    assert clocked.run(clocked.ledger.reap()) == 0
    assert clocked.state(lease.task_id) is State.QUEUED


# --- fences of sixteen digits -----------------------------------------------------------------------------------------


def neighbours(world: World) -> tuple[Lease, Lease]:
    """Create two attempts of one task whose fences differ in the last of sixteen digits. The second one runs."""
    first = world.start()
    world.release(first)
    (claimed,) = world.claim()
    assert int(claimed.lease.fence) == int(first.fence) + 1 > 10**15
    return first, claimed.lease


@pytest.mark.parametrize("move", ["commit", "retry", "bury", "forfeit", "checkpoint", "step", "progress", "release"])
def test_adjacent_fences_are_distinguished(clocked: World, move: str) -> None:
    old, new = neighbours(clocked)
    call: dict[str, Callable[[Lease], Call[Any]]] = {
        "commit": lambda lease: clocked.ledger.commit([(lease, b"1", ())]),
        "retry": lambda lease: clocked.ledger.retry(lease, 0),
        "bury": lambda lease: clocked.ledger.bury(lease, "failed"),
        "forfeit": lambda lease: clocked.ledger.forfeit(lease, "killed"),
        "checkpoint": lambda lease: clocked.ledger.checkpoint(lease, 1, b""),
        "step": lambda lease: clocked.ledger.step(lease, "s", b""),
        "progress": lambda lease: clocked.ledger.progress(lease, "half"),
        "release": lambda lease: clocked.ledger.release([lease]),
    }

    def verdict(lease: Lease) -> str:
        answer = clocked.run(call[move](lease))
        answer = answer[0] if isinstance(answer, list) else answer
        return str(getattr(answer, "settled", answer).verdict)

    expected_of_old = "repeat" if move == "release" else "stale"
    assert verdict(old) == expected_of_old
    assert verdict(Lease(new.task_id, str(int(new.fence) + 1), "boot")) == "stale"
    assert verdict(new) == "ok"
    assert verdict(old) == "stale" if move != "release" else "repeat"


def test_adjacent_fences_are_kept_apart_in_lists_and_requests(clocked: World) -> None:
    old, new = neighbours(clocked)
    assert clocked.run(clocked.ledger.owned("boot")) == {new.task_id: new.fence}
    again = clocked.run(clocked.ledger.claim("boot", 2, ["default"], 1)).tasks
    assert [one.lease for one in again] == [new]
    clocked.cancel(new.task_id)
    assert clocked.beat().asked == ((new.task_id, new.fence),)
    clocked.bury(new)
    assert clocked.get(old.task_id).history[0].fence == new.fence
    assert clocked.get(old.task_id).record.fence == new.fence


def test_a_resent_claim_does_not_return_a_task_with_an_adjacent_fence(clocked: World) -> None:
    """Claimed in lane a, released, and claimed again by the same worker in lane b: the claim of lane a no longer
    returns it."""
    clocked.push()
    (first,) = clocked.run(clocked.ledger.claim("boot", 1, ["default"], 1, lane="a")).tasks
    clocked.release(first.lease)
    (second,) = clocked.run(clocked.ledger.claim("boot", 1, ["default"], 1, lane="b")).tasks
    assert int(second.lease.fence) == int(first.lease.fence) + 1
    assert clocked.run(clocked.ledger.claim("boot", 1, ["default"], 1, lane="a")).tasks == ()


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_a_claim_stops_at_four_mebibytes(clocked: World) -> None:
    for _ in range(6):
        clocked.submit(clocked.new(payload=b"x" * 1_000_000))
    assert [len(clocked.claim()) for _ in range(3)] == [4, 2, 0]


# --- late commands of an operator -------------------------------------------------------------------------------------


def test_a_late_operator_command_is_refused_by_version(clocked: World) -> None:
    lease = clocked.start()
    task, ledger = lease.task_id, clocked.ledger
    clocked.bury(lease)
    version = clocked.version(task)
    late = [ledger.replay(task, version, "late"), ledger.discard(task, version), ledger.cancel(task, version)]
    clocked.replay(task, "now")
    clocked.claim()
    for call in late:
        with clocked.unchanged(), pytest.raises(VersionConflictError):
            clocked.run(call)


def test_a_late_pause_is_refused_by_version(clocked: World) -> None:
    ledger = clocked.ledger
    clocked.run(ledger.pause("default", 0))
    clocked.run(ledger.resume("default", 1))
    for call in (ledger.pause("default", 0), ledger.pause("default", 1)):
        with clocked.unchanged(), pytest.raises(VersionConflictError):
            clocked.run(call)


# --- ends that must be defined ----------------------------------------------------------------------------------------


def test_a_held_task_is_dead_and_never_expires(clocked: World) -> None:
    lease = clocked.start(on_lost="hold", dead_ttl_ms=1)
    clocked.run(clocked.ledger.step(lease, "pay", b"1"))
    clocked.lose()
    for side in ("task", "more", "history", "steps"):
        assert clocked.pttl(side, lease.task_id) == -1
    clocked.advance(10_000 * DAY)
    assert clocked.run(clocked.ledger.reap()) == 0


@pytest.mark.parametrize("where", ["claim", "promote"])
def test_a_task_past_its_expiry_is_cancelled(clocked: World, where: str) -> None:
    task = clocked.push(expires_in_ms=1000, delay_ms=500 if where == "promote" else 0)
    clocked.advance(1000)
    if where == "promote":
        assert clocked.run(clocked.ledger.promote()).count == 0
    else:
        assert clocked.claim() == ()
    assert clocked.get(task).record.reason == "expired"
    assert clocked.state(task) is State.CANCELLED


def test_a_task_claimed_1_ms_before_its_expiry_runs(clocked: World) -> None:
    clocked.push(expires_at_ms=clocked.now + 1000)
    clocked.advance(999)
    assert len(clocked.claim()) == 1


@pytest.mark.parametrize("came", ["retried", "released", "revived", "replayed"])
def test_a_task_that_has_begun_continues_past_its_expiry(clocked: World, came: str) -> None:
    """Cancelling it would lose its checkpoint, and would undo the replay of a dead letter."""
    lease = clocked.start(expires_in_ms=1000, payload=b"precious")
    clocked.run(clocked.ledger.checkpoint(lease, 1, b"half"))
    moves: dict[str, Callable[[], Any]] = {
        "retried": lambda: clocked.retry(lease, 2000),
        "released": lambda: clocked.release(lease),
        "revived": lambda: clocked.lose(),
        "replayed": lambda: (clocked.bury(lease), clocked.replay(lease.task_id)),
    }
    moves[came]()
    clocked.advance(5000)
    clocked.run(clocked.ledger.promote())
    clocked.join("next")
    (again,) = clocked.claim("next")
    assert (again.record.id, again.payload, again.checkpoint) == (lease.task_id, b"precious", b"half")


def test_expired_tasks_do_not_delay_those_behind_them(clocked: World) -> None:
    """A claim that has cancelled as many as it may rings the bell for the next claim, even if no bell woke it."""
    for _ in range(3):
        clocked.submit(*[clocked.new(expires_in_ms=1) for _ in range(100)])
    clocked.advance(10)
    live = clocked.push()
    clocked.command("DEL", clocked.ledger.bell("default"))
    assert clocked.claim(want=10, rung=False) == ()
    assert clocked.command("LLEN", clocked.ledger.bell("default")) == 1
    (claimed,) = clocked.claim()
    assert claimed.record.id == live


def test_thousands_of_expired_tasks_end_in_bounded_calls(clocked: World) -> None:
    clocked.submit(*[clocked.new(expires_in_ms=1000) for _ in range(100)])
    for _ in range(49):
        clocked.store.run(clocked.ledger.submit([clocked.new(expires_in_ms=1000) for _ in range(100)]))
    clocked.advance(1)
    task = clocked.push()
    clocked.advance(1000)
    found: list[Claimed] = []
    rounds = 0
    while not found:
        found += clocked.claim(want=10)
        rounds += 1
    assert [one.record.id for one in found] == [task]
    assert 1 < rounds <= 30, "one claim puts a bounded number away"
    assert clocked.counts()["cancelled"] == 5000


# --- put-backs --------------------------------------------------------------------------------------------------------


def test_put_backs_use_up_no_attempt_and_record_the_first_time(clocked: World) -> None:
    lease = clocked.start()
    since = clocked.now
    for delay in (1000, 2000, 30_000):
        clocked.retry(lease, delay, putback=True)
        clocked.advance(delay)
        clocked.run(clocked.ledger.promote())
        (claimed,) = clocked.claim()
        assert (claimed.record.attempt, claimed.retries, claimed.since_ms) == (1, 0, since)
        lease = claimed.lease


def test_each_put_back_limit_has_its_own_start_time(clocked: World) -> None:
    """A task that older workers have put back for long still has its full time when it meets a lock, and vice versa:
    each limit counts from the first put-back of an unbroken series."""
    lease, times = clocked.start(), []
    for how in ({"putback": True}, {"locked": True}, {"locked": True}, {"quiet": True}, {"putback": True}, {}):
        clocked.retry(lease, **how)
        clocked.advance(1000)
        (claimed,) = clocked.claim()
        lease = claimed.lease
        times.append((claimed.since_ms, claimed.locked_since_ms))
        assert claimed.record.attempt == (1 if how else 2)
    now = clocked.now
    assert times == [
        (now - 6000, 0),
        (0, now - 5000),
        (0, now - 5000),
        (0, now - 5000),
        (now - 2000, 0),
        (0, 0),
    ]


@pytest.mark.parametrize("how", ["putback", "locked"])
@pytest.mark.parametrize("death", ["revive", "forfeit"])
def test_an_attempt_that_really_ran_ends_a_series_of_put_backs(clocked: World, death: str, how: str) -> None:
    lease = clocked.start()
    clocked.retry(lease, **{how: True})
    (claimed,) = clocked.claim()
    clocked.advance(HOUR)
    clocked.lose() if death == "revive" else clocked.run(clocked.ledger.forfeit(claimed.lease, "OOM"))
    clocked.join("next")
    (claimed,) = clocked.claim("next")
    assert (claimed.since_ms, claimed.locked_since_ms) == (0, 0)


# --- the bell ---------------------------------------------------------------------------------------------------------


def test_a_bell_holds_one_ring_at_the_most(clocked: World) -> None:
    leases = []
    for _ in range(3):
        leases.append(clocked.start())
        clocked.push(queue="other")
    for lease in leases:
        clocked.release(lease)
    for queue in ("default", "other"):
        assert clocked.command("LLEN", clocked.ledger.bell(queue)) == 1


def test_a_task_can_be_claimed_after_its_ring_was_consumed(clocked: World) -> None:
    task = clocked.push()
    assert clocked.store.wait_for_bell([clocked.ledger.bell("default")], 1.0) is not None
    assert [one.record.id for one in clocked.claim()] == [task], "no ring is needed to claim"
    clocked.push()
    assert clocked.store.wait_for_bell([clocked.ledger.bell("default")], 1.0) is not None


# --- tombstones -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["discard", "reap"])
@pytest.mark.parametrize("again", [{}, {"tomb_ttl_ms": 7 * DAY}, {"key": "k"}, {"nonce": "n"}])
def test_an_id_that_left_a_tombstone_does_not_run_again(clocked: World, how: str, again: dict[str, Any]) -> None:
    lease = clocked.start(tomb_ttl_ms=7 * DAY, result_ttl_ms=1000)
    clocked.commit(lease)
    if how == "discard":
        clocked.run(clocked.ledger.discard(lease.task_id, clocked.version(lease.task_id)))
    else:
        clocked.advance(1000)
        assert clocked.run(clocked.ledger.reap()) == 1
    clocked.advance(7 * DAY - 1)
    with clocked.unchanged():
        (answer,) = clocked.submit(clocked.new(id=lease.task_id, **again))
    assert (answer.status, answer.state) == ("ended", State.DONE)
    clocked.advance(1)
    assert clocked.submit(clocked.new(id=lease.task_id, **again))[0].status == "new"


def test_a_tombstone_is_not_a_record(clocked: World) -> None:
    lease = clocked.start(tomb_ttl_ms=DAY)
    clocked.bury(lease)
    version = clocked.version(lease.task_id)
    clocked.run(clocked.ledger.discard(lease.task_id, version))
    assert clocked.pttl("task", lease.task_id) > DAY - 1000
    with clocked.unchanged():
        assert clocked.commit(lease).verdict == "missing"
        assert clocked.bury(lease).verdict == "missing"
        assert clocked.run(clocked.ledger.discard(lease.task_id, version)).verdict == "missing"
