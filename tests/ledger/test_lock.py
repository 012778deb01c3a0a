"""Locks of user code: who gets one, how long it lasts, what ends it, and that nobody can end another holder's lock."""

from __future__ import annotations

import pytest

from relier.errors import LeaseLostError
from relier.ledger.records import Lease, Locked, LockState, Verdict
from tests.support.ledger_world import HOUR, World

HOLD = 120_000
CLAIMED = Locked(LockState.CLAIMED)


def take(world: World, token: str, holder: Lease | str = "web.1", key: str = "k", ms: int = HOLD) -> Locked:
    return world.run(world.ledger.lock(key, token, ms, holder))  # type: ignore[no-any-return]


def renew(world: World, token: str, ms: int = HOLD) -> Verdict:
    return world.run(world.ledger.renew("k", token, ms))  # type: ignore[no-any-return]


def conclude(world: World, token: str, result: bytes = b"42", ms: int = HOUR) -> Verdict:
    return world.run(world.ledger.conclude("k", token, ms, result))  # type: ignore[no-any-return]


def unlock(world: World, token: str) -> Verdict:
    return world.run(world.ledger.unlock("k", token))  # type: ignore[no-any-return]


def test_a_lock_is_taken_renewed_and_concluded(clocked: World) -> None:
    assert take(clocked, "one") == CLAIMED
    assert take(clocked, "two") == Locked(LockState.IN_FLIGHT, HOLD, "web.1")
    assert conclude(clocked, "one") == "ok"
    assert take(clocked, "two") == Locked(LockState.COMPLETED, result=b"42")
    clocked.advance(HOUR - 1)
    assert take(clocked, "two") == Locked(LockState.COMPLETED, result=b"42")
    clocked.advance(1)
    assert take(clocked, "two") == CLAIMED


def test_different_keys_are_different_locks(clocked: World) -> None:
    long = "x" * 10_000
    for key in ("k", "k ", "", "\n", "ü", long, long + "y"):
        if key:
            assert take(clocked, "one", key=key) == CLAIMED, key[:10]
            assert take(clocked, "two", key=key).state is LockState.IN_FLIGHT
    assert clocked.submit(clocked.new(key="k"))[0].status == "new", "nor do the keys of tasks and of locks"
    assert max(len(name) for name in clocked.dump()) < 80


# --- its time ------------------------------------------------------------------------------------------------------


def test_a_lock_holds_until_its_time_is_over(clocked: World) -> None:
    take(clocked, "one")
    clocked.advance(HOLD - 1)
    assert take(clocked, "two").left_ms == 1
    clocked.advance(1)
    assert take(clocked, "two") == CLAIMED
    for late in (renew(clocked, "one"), conclude(clocked, "one"), unlock(clocked, "one")):
        assert late == "stale"
    assert take(clocked, "three").left_ms == HOLD


def test_renewing_restarts_the_time_of_a_lock(clocked: World) -> None:
    take(clocked, "one")
    for _ in range(5):
        clocked.advance(HOLD - 1)
        assert renew(clocked, "one") == "ok"
    assert take(clocked, "two").left_ms == HOLD


@pytest.mark.parametrize("late", [renew, conclude, unlock])
def test_a_late_holder_is_accepted_if_nobody_took_the_lock(clocked: World, late: object) -> None:
    """It did the work, and nobody else has begun it, so its result is kept."""
    take(clocked, "one")
    clocked.advance(10 * HOLD)
    assert late(clocked, "one") == "ok"  # type: ignore[operator]


def test_the_expiry_of_the_key_is_only_a_backstop(clocked: World) -> None:
    take(clocked, "one")
    assert HOLD < clocked.pttl("lock", "k") <= HOLD + HOUR
    renew(clocked, "one", 5)
    assert 5 < clocked.pttl("lock", "k") <= 5 + HOUR
    conclude(clocked, "one", ms=2 * HOUR)
    assert 2 * HOUR < clocked.pttl("lock", "k") <= 2 * HOUR + 60_000, "a result is no use after its time"


# --- who may touch it ----------------------------------------------------------------------------------------------


def test_only_its_holder_can_change_a_lock(clocked: World) -> None:
    take(clocked, "one")
    with clocked.unchanged():
        assert renew(clocked, "two") == "stale"
        assert conclude(clocked, "two") == "stale"
        assert unlock(clocked, "two") == "stale"
    conclude(clocked, "one")
    with clocked.unchanged():
        assert renew(clocked, "two") == "stale"
        assert conclude(clocked, "two") == "stale"
        assert unlock(clocked, "two") == "stale"


def test_calls_on_a_missing_lock_change_nothing(clocked: World) -> None:
    with clocked.unchanged():
        assert renew(clocked, "one") == "missing"
        assert conclude(clocked, "one") == "missing"
        assert unlock(clocked, "one") == "missing"


def test_every_lock_call_may_be_repeated(clocked: World) -> None:
    """A client sends a call again if it got no answer, and a network may deliver a call late."""
    assert take(clocked, "one") == CLAIMED
    clocked.advance(1000)
    with clocked.unchanged():
        assert take(clocked, "one") == CLAIMED, "a repeat does not even prolong it"
    assert renew(clocked, "one") == "ok"
    with clocked.unchanged():
        assert renew(clocked, "one") == "ok"
    assert conclude(clocked, "one") == "ok"
    clocked.advance(1000)
    with clocked.unchanged():
        assert conclude(clocked, "one") == "repeat"
        assert conclude(clocked, "one", b"other") == "repeat"
        assert renew(clocked, "one") == "stale", "a late renewal does not undo a result"
        assert unlock(clocked, "one") == "stale", "nor does a late unlock"
        assert take(clocked, "one").state is LockState.COMPLETED


def test_an_unlock_may_be_repeated(clocked: World) -> None:
    take(clocked, "one")
    assert unlock(clocked, "one") == "ok"
    assert unlock(clocked, "one") == "missing"
    assert take(clocked, "two") == CLAIMED
    with clocked.unchanged():
        assert unlock(clocked, "one") == "stale"
        assert conclude(clocked, "one") == "stale"


def test_a_result_is_bytes_of_any_kind(clocked: World) -> None:
    for n, result in enumerate((b"", b"\n", b"held 9 x y z w\n", bytes(range(256)), b"x" * 1_000_000)):
        take(clocked, f"t{n}")
        conclude(clocked, f"t{n}", result, 1)
        assert take(clocked, "next").result == result
        assert conclude(clocked, f"t{n}", result) == "repeat"
        clocked.advance(1)


# --- inside tasks --------------------------------------------------------------------------------------------------


def test_a_lock_ends_with_its_worker(clocked: World) -> None:
    lease = clocked.start()
    assert take(clocked, "one", lease) == CLAIMED
    assert take(clocked, "two") == Locked(LockState.IN_FLIGHT, HOLD, "boot", lease.task_id)
    clocked.lose()
    assert take(clocked, "two") == CLAIMED
    assert conclude(clocked, "one") == "stale"


def test_a_lock_ends_when_its_worker_is_declared_lost(clocked: World) -> None:
    """The worker is declared lost but not swept yet: its tasks wait behind a brake, but its locks are free."""
    leases = [clocked.start(), clocked.start()]
    take(clocked, "one", leases[0])
    clocked.revive(most=1, worker_id="boot")
    assert clocked.members("boots") == ["boot"]
    assert take(clocked, "two") == CLAIMED


def test_a_lock_ends_when_its_worker_retires(clocked: World) -> None:
    lease = clocked.start()
    take(clocked, "one", lease)
    clocked.commit(lease)
    assert clocked.run(clocked.ledger.retire("boot")) == 0
    assert take(clocked, "two") == CLAIMED


def test_a_silent_worker_not_declared_lost_holds_its_locks(clocked: World) -> None:
    take(clocked, "one", clocked.start())
    clocked.advance(60_000)
    assert take(clocked, "two").state is LockState.IN_FLIGHT


def test_a_lock_taken_outside_tasks_does_not_end_with_a_worker(clocked: World) -> None:
    take(clocked, "one", "boot")
    clocked.lose()
    assert take(clocked, "two").state is LockState.IN_FLIGHT


def test_a_lost_holder_may_still_report_done_while_no_other_took_the_key(clocked: World) -> None:
    take(clocked, "one", clocked.start())
    clocked.lose()
    assert conclude(clocked, "one") == "ok"
    assert take(clocked, "two").state is LockState.COMPLETED


def test_a_lost_worker_id_takes_no_lock(clocked: World) -> None:
    first, second = clocked.start(), clocked.start()
    clocked.revive(most=1, worker_id="boot")
    for lease in (first, second):
        with clocked.unchanged(), pytest.raises(LeaseLostError, match="worker boot got no lock: it was declared lost"):
            take(clocked, "one", lease)
        clocked.lose()
    take(clocked, "web")
    conclude(clocked, "web")
    with pytest.raises(LeaseLostError):
        take(clocked, "one", first)


def test_a_later_attempt_takes_over_its_own_tasks_lock(clocked: World) -> None:
    first = clocked.start()
    take(clocked, "one", first)
    clocked.retry(first)
    (again,) = clocked.claim()
    assert take(clocked, "two", again.lease) == CLAIMED
    assert take(clocked, "late", first).state is LockState.IN_FLIGHT, "an earlier one does not"
    assert conclude(clocked, "one") == "stale"
    assert conclude(clocked, "two") == "ok"


def test_fences_that_differ_in_their_last_digit_are_distinguished(clocked: World) -> None:
    for first, second in (("1800000000000001", "1800000000000002"), ("999", "1000")):
        take(clocked, f"one{first}", Lease("t", first, "boot"), key=first)
        assert take(clocked, "two", Lease("t", second, "boot"), key=first) == CLAIMED
        assert take(clocked, "three", Lease("t", first, "boot"), key=first).state is LockState.IN_FLIGHT


def test_one_attempt_does_not_take_its_own_lock_twice(clocked: World) -> None:
    lease = clocked.start()
    take(clocked, "one", lease)
    assert take(clocked, "two", lease).task_id == lease.task_id


def test_another_task_of_the_same_worker_waits(clocked: World) -> None:
    take(clocked, "one", clocked.start())
    assert take(clocked, "two", clocked.start()).state is LockState.IN_FLIGHT


# --- what else may be there ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", "rubbish", "held", "held x y z v w\n", "held 99999999999999 t o k"])
def test_a_mark_that_cannot_be_read_holds_nothing(clocked: World, value: str) -> None:
    clocked.command("SET", clocked.key("lock", "k"), value)
    assert renew(clocked, "one") == "missing"
    assert conclude(clocked, "one") == "missing"
    assert unlock(clocked, "one") == "missing"
    assert take(clocked, "one") == CLAIMED
    assert conclude(clocked, "one") == "ok"


def test_a_key_of_another_type_holds_nothing(clocked: World) -> None:
    clocked.command("LPUSH", clocked.key("lock", "k"), "x")
    assert unlock(clocked, "one") == "missing"
    assert take(clocked, "one") == CLAIMED
    assert conclude(clocked, "one") == "ok"


@pytest.mark.parametrize("jump", [-3_600_000, 3_600_000])
def test_a_holder_that_renews_survives_a_jump_of_time(clocked: World, jump: int) -> None:
    take(clocked, "one")
    clocked.advance(jump)
    assert renew(clocked, "one") == "ok"
    assert take(clocked, "two").left_ms == HOLD
