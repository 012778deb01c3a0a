"""Idempotency keys: which task holds one, for how long, and what frees it."""

from __future__ import annotations

import pytest

from relier.states import State
from tests.support.ledger_world import DAY, HOUR, World


def test_a_key_has_no_expiry_while_its_task_lives(clocked: World) -> None:
    clocked.push(key="k", key_ttl_ms=1000, delay_ms=1000)
    assert clocked.pttl("idem", "k") == -1
    clocked.advance(1000)
    clocked.run(clocked.ledger.promote())
    (claimed,) = clocked.claim()
    for lease in (claimed.lease, None):
        assert clocked.pttl("idem", "k") == -1
        clocked.advance(100 * DAY)
        assert clocked.submit(clocked.new(key="k"))[0].status == "duplicate"
        if lease:
            clocked.retry(lease, 5)


def test_a_key_is_kept_for_its_time_after_done(clocked: World) -> None:
    lease = clocked.start(key="k", key_ttl_ms=HOUR, result_ttl_ms=1000)
    clocked.commit(lease, b"42")
    assert clocked.pttl("idem", "k") > 0
    clocked.advance(HOUR - 1)
    clocked.run(clocked.ledger.reap())
    (answer,) = clocked.submit(clocked.new(key="k"))
    assert (answer.status, answer.id, answer.state) == ("duplicate", lease.task_id, State.DONE)
    assert clocked.get(lease.task_id).result == b"42", "the record outlives its key"
    clocked.advance(1)
    assert clocked.submit(clocked.new(key="k"))[0].status == "new"
    assert clocked.run(clocked.ledger.reap()) == 1
    assert clocked.submit(clocked.new(key="k"))[0].status == "duplicate", "reaping the old one frees nobody else's key"


@pytest.mark.parametrize("end", ["bury", "cancel", "expire", "max_resurrections"])
def test_a_key_is_freed_by_an_end_without_effect(clocked: World, end: str) -> None:
    clocked.push(key="k", key_ttl_ms=HOUR, max_resurrections=0, expires_in_ms=1000)
    if end == "bury":
        clocked.bury(clocked.claim()[0].lease)
    elif end == "cancel":
        clocked.cancel("task000")
    elif end == "expire":
        clocked.advance(1000)
        assert clocked.claim() == ()
    else:
        clocked.claim()
        clocked.lose()
    assert clocked.submit(clocked.new(key="k"))[0].status == "new"


@pytest.mark.parametrize("answer", ["owner", "lease"])
def test_cancelling_a_running_task_frees_its_key_only_with_the_answer(clocked: World, answer: str) -> None:
    lease = clocked.start(key="k")
    clocked.cancel(lease.task_id)
    assert clocked.submit(clocked.new(key="k"))[0].status == "duplicate"
    if answer == "owner":
        clocked.release(lease)
    else:
        clocked.lose()
    assert clocked.state(lease.task_id) is State.CANCELLED
    assert clocked.submit(clocked.new(key="k"))[0].status == "new"


@pytest.mark.parametrize("on_lost", ["bury", "hold"])
@pytest.mark.parametrize("decision", ["discard", "replay"])
def test_a_lost_task_keeps_its_key_until_it_is_replayed_or_discarded(
    clocked: World, on_lost: str, decision: str
) -> None:
    lease = clocked.start(key="k", key_ttl_ms=1000, on_lost=on_lost)
    clocked.lose()
    clocked.advance(20 * DAY)
    clocked.run(clocked.ledger.reap())
    (answer,) = clocked.submit(clocked.new(key="k"))
    assert (answer.status, answer.state) == ("duplicate", State.DEAD)
    if decision == "discard":
        clocked.run(clocked.ledger.discard(lease.task_id, clocked.version(lease.task_id)))
        assert clocked.submit(clocked.new(key="k"))[0].status == "new"
    else:
        clocked.replay(lease.task_id)
        assert clocked.submit(clocked.new(key="k"))[0].state is State.QUEUED
