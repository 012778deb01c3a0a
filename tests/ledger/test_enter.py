"""How tasks enter: submit, its answers, and their order in the queue."""

from __future__ import annotations

import pytest

from relier.errors import InvalidSubmissionError
from relier.ledger.ledger import Ledger
from relier.ledger.records import Submission
from relier.states import State
from relier.store import AsyncStore, SyncStore
from tests.support.ledger_world import World

MINUTE = 60_000


def test_a_new_task_is_queued_and_rings_the_doorbell(clocked: World) -> None:
    task = clocked.new()
    (answer,) = clocked.submit(task)
    assert (answer.status, answer.id, answer.state, answer.version) == ("new", task.id, State.QUEUED, 1)
    assert clocked.members("ready", "default") == [task.id]
    assert clocked.command("LLEN", clocked.ledger.bell("default")) == 1
    assert clocked.counts() == {"submitted": 1}


def test_a_submission_is_stored_unchanged(clocked: World) -> None:
    payload = bytes(range(256)) + b"\n\n0 0\n"
    task = clocked.push(
        name="läuft", queue="große Sachen", payload=payload, priority=-3, max_resurrections=2, on_lost="hold"
    )
    found = clocked.get(task)
    assert found.payload == payload
    assert (found.record.name, found.record.queue) == ("läuft", "große Sachen")
    assert (found.record.spec.priority, found.record.spec.max_resurrections) == (-3, 2)
    assert (found.record.spec.on_lost, found.record.spec.expires_ms) == ("hold", None)
    assert found.record.spec.at_us // 1000 == clocked.now


def test_many_tasks_enter_in_their_order(clocked: World) -> None:
    tasks = [clocked.new() for _ in range(100)]
    answers = clocked.submit(*tasks)
    assert [answer.status for answer in answers] == ["new"] * 100
    assert clocked.members("ready", "default") == [task.id for task in tasks]


def test_the_same_id_again_gets_the_same_receipt(clocked: World) -> None:
    first = clocked.new(payload=b"1")
    clocked.submit(first)
    with clocked.unchanged():
        (answer,) = clocked.submit(clocked.new(id=first.id, payload=b"2"))
    assert (answer.status, answer.id, answer.state) == ("exists", first.id, State.QUEUED)
    assert clocked.get(first.id).payload == b"1"


def test_a_repeated_push_is_recognised_by_its_nonce(clocked: World) -> None:
    first = clocked.new(nonce="a")
    clocked.submit(first)
    with clocked.unchanged():
        (mine,) = clocked.submit(first)
        (other,) = clocked.submit(clocked.new(id=first.id, nonce="b"))
        (none,) = clocked.submit(clocked.new(id=first.id))
    assert [mine.status, other.status, none.status] == ["new", "exists", "exists"]


def test_the_receipt_of_an_id_follows_its_state(clocked: World) -> None:
    lease = clocked.start()
    again = clocked.new(id=lease.task_id)
    assert clocked.submit(again)[0].state is State.RUNNING
    clocked.commit(lease)
    assert clocked.submit(again)[0].state is State.DONE


@pytest.mark.parametrize("keys", [("", ""), ("k", ""), ("", "k"), ("k", "k")])
def test_one_id_twice_in_a_batch_is_one_task(clocked: World, keys: tuple[str, str]) -> None:
    twins = [clocked.new(id="twin", key=key) for key in keys]
    other = clocked.new()
    answers = clocked.submit(*twins, other)
    assert [answer.status for answer in answers] == ["new", "exists", "new"]
    assert clocked.members("ready", "default") == ["twin", other.id]


def test_one_key_twice_in_a_batch_is_one_task(clocked: World) -> None:
    first, second = clocked.new(key="k"), clocked.new(key="k", delay_ms=5)
    answers = clocked.submit(first, second)
    assert [(answer.status, answer.id) for answer in answers] == [("new", first.id), ("duplicate", first.id)]


def test_a_batch_of_known_and_new_ids_is_answered_per_task(clocked: World) -> None:
    old = clocked.push()
    new = clocked.new(), clocked.new(key="k")
    answers = clocked.submit(new[0], clocked.new(id=old), new[1])
    assert [answer.status for answer in answers] == ["new", "exists", "new"]


def test_delay_and_eta_make_a_scheduled_task(clocked: World) -> None:
    later = clocked.push(delay_ms=5000)
    at = clocked.push(eta_ms=clocked.now + 2000)
    past = clocked.push(eta_ms=clocked.now - 1)
    assert clocked.members("due") == [at, later]
    assert clocked.state(later) is State.SCHEDULED
    assert clocked.members("ready", "default") == [past]


def test_the_same_scheduled_id_again_changes_nothing(clocked: World) -> None:
    task = clocked.new(delay_ms=5000)
    clocked.submit(task)
    clocked.advance(1000)
    with clocked.unchanged():
        (answer,) = clocked.submit(task)
    assert (answer.status, answer.state) == ("exists", State.SCHEDULED)


def test_a_task_of_higher_priority_overtakes_others(clocked: World) -> None:
    low, normal, high = (clocked.push(priority=priority) for priority in (-1, 0, 9))
    assert [task.record.id for task in clocked.claim()] == [high, normal, low]


def test_a_long_wait_outweighs_priority(clocked: World) -> None:
    low = clocked.push(priority=-1)
    clocked.advance(MINUTE + 1)
    high = clocked.push(priority=0)
    assert [task.record.id for task in clocked.claim()] == [low, high]


def test_nothing_is_overtaken_for_longer_than_its_distance(clocked: World) -> None:
    lowest = clocked.push(priority=-9)
    for _ in range(18):
        clocked.push(priority=9)
        clocked.advance(MINUTE)
    clocked.advance(1)
    clocked.push(priority=9)
    assert clocked.rank_of(lowest, "ready", "default") == 18


def test_only_the_first_of_a_queue_rings(clocked: World) -> None:
    clocked.push()
    clocked.command("LPOP", clocked.ledger.bell("default"))
    with clocked.unchanged():
        clocked.submit(clocked.new(id="task000"))
    clocked.push()
    assert clocked.command("LLEN", clocked.ledger.bell("default")) == 0, "what waits already was rung for"


def test_a_taken_key_is_a_duplicate(clocked: World) -> None:
    first = clocked.push(key="k")
    with clocked.unchanged():
        (answer,) = clocked.submit(clocked.new(key="k"))
    assert (answer.status, answer.id, answer.state) == ("duplicate", first, State.QUEUED)


@pytest.mark.parametrize("delay", [0, 5000])
def test_a_waiting_holder_can_be_replaced(clocked: World, delay: int) -> None:
    first = clocked.push(key="k", delay_ms=delay)
    replacing = clocked.new(key="k", on_conflict="replace")
    (answer,) = clocked.submit(replacing)
    assert answer.status == "new"
    assert clocked.get(first).record.reason == "replaced"
    assert clocked.state(first) is State.CANCELLED
    assert clocked.command("GET", clocked.key("idem", "k")) == replacing.id.encode()


def test_a_running_holder_cannot_be_replaced(clocked: World) -> None:
    lease = clocked.start(key="k")
    with clocked.unchanged():
        (answer,) = clocked.submit(clocked.new(key="k", on_conflict="replace"))
    assert (answer.status, answer.id, answer.state) == ("duplicate", lease.task_id, State.RUNNING)


def test_a_long_key_is_stored_as_its_digest(clocked: World) -> None:
    first = clocked.push(key="k" * 5000)
    assert clocked.submit(clocked.new(key="k" * 5000))[0].id == first
    assert clocked.submit(clocked.new(key="k" * 5001))[0].status == "new"


def test_chunks_hold_a_hundred_tasks_or_a_mebibyte(clocked: World) -> None:
    many = [clocked.new() for _ in range(250)]
    assert [len(chunk) for chunk in Ledger.chunks(many)] == [100, 100, 50]
    large = [clocked.new(payload=b"x" * 600_000) for _ in range(3)]
    assert [len(chunk) for chunk in Ledger.chunks(large)] == [1, 1, 1]
    assert list(Ledger.chunks([])) == []


@pytest.mark.parametrize("n", [0, 101])
def test_a_submit_takes_a_bounded_number(clocked: World, n: int) -> None:
    with pytest.raises(InvalidSubmissionError, match="use chunks"):
        clocked.ledger.submit([clocked.new() for _ in range(n)])


@pytest.mark.anyio
async def test_both_stores_run_the_same_calls(store: AsyncStore, sync_store: SyncStore, ledger: Ledger) -> None:
    """The moves of one task alternate between the two stores, on the server's own TIME."""
    await store.run(ledger.open())
    task = Submission(id="a", name="n", payload=b"{}")
    assert sync_store.run(ledger.submit([task]))[0].status == "new"
    assert (await store.run(ledger.submit([task])))[0].status == "exists"
    assert sync_store.run(ledger.register("boot", 5000))
    (claimed,) = (await store.run(ledger.claim("boot", 1, ["default"], 10))).tasks
    assert sync_store.run(ledger.claim("boot", 1, ["default"], 10)).tasks == (claimed,)
    (answer,) = await store.run(ledger.commit([(claimed.lease, b"42", ())]))
    assert answer.verdict == "ok"
    assert sync_store.run(ledger.commit([(claimed.lease, b"42", ())]))[0].verdict == "repeat"
    assert (await store.run(ledger.get("a"))).result == b"42"
    assert sync_store.run(ledger.get("a")) == await store.run(ledger.get("a"))
    answers = await store.run_many([ledger.get("a"), ledger.owned("boot"), ledger.retire("boot")])
    assert answers[1:] == [{}, 0]
