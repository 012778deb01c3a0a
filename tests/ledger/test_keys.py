"""Every key is listed in the schema, has the type given there, and has an end."""

from __future__ import annotations

import re
from typing import Any

import pytest

from relier.ledger.batches.membership import BatchHeader, Member, packed_plan
from relier.ledger.keys import BY_NAME, SCHEMA, Key
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.nodes import Role
from relier.ledger.records import Admission, AdmissionLimit
from relier.states import State
from tests.support.ledger_world import DAY, World
from tests.support.servers import Server

SMALL = 800  # bytes of a running task with a payload of 100 bytes, its place in the indexes included


def schema_of(name: str) -> Key:
    """Return the one entry of the schema that spells this key."""
    found = [
        key
        for key in SCHEMA
        if (name == key.spelled if key.per is None else name.startswith(key.spelled) and len(name) > len(key.spelled))
    ]
    assert len(found) == 1, f"{name}: {[key.name for key in found]}"
    return found[0]


def everything(world: World) -> None:
    """Create a bit of everything, and leave it in progress."""
    guard = Admission((AdmissionLimit.per_window("l", 50, 60_000),), max_depth=1000, max_bytes=100_000)
    world.join("other")
    world.run(world.ledger.register("relay", 60_000, "{}", Role.RELAY))
    world.submit(*[world.new(queue="a", key=f"k{n}", key_ttl_ms=DAY, nonce="n") for n in range(8)], admission=guard)
    world.push(queue="b", delay_ms=5000, expires_in_ms=9000)
    leases = [claimed.lease for claimed in world.claim(queues=["a"])]
    for lease in leases:
        world.run(world.ledger.checkpoint(lease, 1, b"half"))
        world.run(world.ledger.step(lease, "pay", b"1"))
    world.commit(leases[0], b"1", [world.new(queue="c")])
    world.bury(leases[1])
    world.retry(leases[2], 1000)
    world.retry(leases[3])
    world.release(leases[4])
    world.run(world.ledger.forfeit(leases[5], "killed"))
    world.cancel(leases[6].task_id)
    world.cancel(world.push(tomb_ttl_ms=DAY))
    held = world.start("other", queue="d", on_lost="hold", key="held")
    world.lose("other")
    world.join("third")
    lost = world.start("third", queue="d", on_lost="bury", key="lost", key_ttl_ms=DAY)
    world.lose("third")
    assert {world.state(lease.task_id) for lease in (held, lost)} == {State.DEAD}
    buried = world.start(tomb_ttl_ms=DAY)
    world.bury(buried)
    world.run(world.ledger.discard(buried.task_id, world.version(buried.task_id)))
    world.run(world.ledger.pause("c", 0))
    for n, holder in enumerate((leases[7], "web.1")):
        world.run(world.ledger.lock(f"lock{n}", "token", 1000, holder))
    world.run(world.ledger.conclude("lock1", "token", DAY, b"1"))
    after = packed_plan([], [world.new(queue="c")])
    header = BatchHeader(id="g", collects=True, plans=(("on_complete", after),))
    world.submit(
        world.new(queue="g", member=Member(batch="g", place=0, how="opens", opens=(header,))),
        world.new(queue="g", member=Member(batch="g", place=1, how="with")),
    )
    world.commit(world.claim(queues=["g"], want=1)[0].lease, b"1")
    world.run(world.ledger.reap())
    version = world.run(world.ledger.schedule("nightly", "0", b"{}", world.now + 1)).version
    world.advance(1)
    world.run(world.ledger.fire("nightly", version, world.now, world.now + DAY, [(world.now, world.new())]))
    world.run(world.ledger.watch())
    for _ in range(2):
        world.run(world.ledger.ring_outbox())
    limited_tasks(world)


def limited_tasks(world: World) -> None:
    """Create two limit keys, one that is full and one with a rate, each with a running task and two waiting ones, and a
    limit that an operator set."""
    full, rated = LimitNumbers(1), LimitNumbers(0, 5_000_000, 5_000_000)
    for key, numbers in (("full", full), ("rated", rated)):
        limits = (RunLimit(key, key, numbers),)
        world.submit(*[world.new(queue="e", limits=limits) for _ in range(3)])
    world.claim(queues=["e"])
    world.run(world.ledger.limit("set", 0, LimitNumbers(7)))


@pytest.fixture
def busy(clocked: World) -> World:
    everything(clocked)
    return clocked


def test_every_key_is_in_the_schema_and_of_its_type(busy: World) -> None:
    seen = set()
    for name, (kind, _, _) in busy.dump().items():
        key = schema_of(name)
        assert kind == key.type, name
        seen.add(key.name)
    written_by_the_dashboard = {"actions"}  # tests/dashboard
    assert seen == BY_NAME.keys() - written_by_the_dashboard, "the scenario makes one of each"


def test_every_key_is_removed_in_the_end(busy: World) -> None:
    books = busy.dump()
    states = busy.states()
    endless = {key.name for key in SCHEMA if key.name not in {"task", "more", "history", "checkpoint", "steps"}}
    endless -= {"idem", "rate", "lock", "pace", "watched", "outcomes"}
    for name, (_, value, expires) in books.items():
        key = schema_of(name)
        of = name.removeprefix(key.spelled)
        if key.name in endless:
            assert not expires, f"{name} is kept by its owner, not by an expiry"
        elif key.name in {"rate", "lock", "pace", "watched", "outcomes"}:
            assert expires
        elif key.name == "idem":
            end = busy.command("ZSCORE", busy.key("ended", "dead"), value)
            runs_off = b" " in value or end not in (None, b"inf")
            assert expires is runs_off, "a mark of a live task has no expiry, one that runs off has"
        elif of not in states:
            assert expires, f"{name} is a tombstone"
        elif busy.command("ZSCORE", busy.key("ended", states[of]), of) == b"inf":
            assert not expires, f"{name} is held"
        else:
            assert expires is (states[of] in {State.DONE, State.DEAD, State.CANCELLED}), name


def test_nothing_is_left_when_everything_has_ended(busy: World) -> None:
    busy.run(busy.ledger.resume("c", 1))
    busy.run(busy.ledger.limit("set", 1, None))
    busy.run(busy.ledger.unschedule("nightly", busy.run(busy.ledger.schedules("nightly")).schedules[0].version))
    busy.advance(10_000)
    busy.lose()
    busy.join("last")
    for _ in range(6):  # the rate of one limit lets a task start every five seconds
        busy.run(busy.ledger.promote())
        for claimed in busy.claim("last", queues=["a", "b", "c", "d", "e", "g", "default"]):
            busy.commit(claimed.lease)
        busy.advance(5000)
    for task, state in busy.states().items():
        assert state in {State.DONE, State.DEAD, State.CANCELLED}
        if busy.command("ZSCORE", busy.key("ended", state), task) == b"inf":
            busy.run(busy.ledger.discard(task, busy.version(task)))
    for node in ("last", "relay"):
        assert busy.run(busy.ledger.retire(node)) == 0
    for _ in range(2):  # the second time its queues are found unused
        busy.advance(60 * DAY)
        busy.run(busy.ledger.reap())
    left = busy.dump()
    assert {schema_of(name).name for name in left} <= {"meta", "clock", "counts"} | {
        "outbox",  # one element, until a relay takes it
        "rate",
        "pace",  # these five end by expiry, which the test's clock does not cause
        "lock",
        "watched",
        "outcomes",
        "task",
        "events",  # trimmed to what is kept
        "event_numbers",
    }
    tombs = [value for name, (_, value, _) in left.items() if name.startswith("t:")]
    assert all(re.fullmatch(rb"ended \d+ \w+", value) for value in tombs)
    counts = busy.counts()
    assert counts["submitted"] == sum(counts[end] for end in ("done", "dead", "cancelled"))
    assert counts.get("strays", 0) == 0
    assert counts["bytes"] == 0


def test_nothing_depends_on_the_expiry_of_hash_fields(server: Server, busy: World) -> None:
    """Servers with and without that feature run the same tests. Here: no hash field has an expiry, on servers that
    support it."""
    for name, (kind, value, _) in busy.dump().items():
        if kind == "hash":
            for field in value:
                answer = server.command("HTTL", busy.prefix + name, "FIELDS", 1, field)
                assert answer == [-1] or "unknown command" in str(answer).lower()


def test_a_running_task_is_small(worlds: Any) -> None:
    """This counts a record with a payload of 100 bytes and default options, its entry in its owner's index, and its
    entry in the worker's last claim. Indexes are shared, so the difference of a hundred tasks is measured."""
    world: World = worlds()
    world.join()

    def used() -> int:
        names = [key for key in world.dump() if schema_of(key).owner in {"task", "worker", "queue"}]
        return sum(world.command("MEMORY", "USAGE", world.prefix + name, "SAMPLES", 0) for name in names)

    before = used()
    for n in range(200):
        world.push(id=f"{n:032x}", payload=b"x" * 100, name="shop.orders.charge_customer")
    world.claim(want=200)
    per_task = (used() - before) / 200
    assert per_task <= SMALL, per_task


def test_every_key_of_a_namespace_shares_one_slot(busy: World) -> None:
    for name in busy.dump():
        key = busy.prefix + name
        assert re.match(r"[^{]*\{([^}]+)\}", key)[1] == busy.settings.namespace  # type: ignore[index]


def test_a_mark_is_removed_a_minute_after_its_time(clocked: World) -> None:
    """A value that contains its own end is useless after it, and no sweep removes it."""
    ledger = clocked.ledger
    clocked.run(ledger.lock("done", "token", 1000, "web.1"))
    clocked.run(ledger.conclude("done", "token", 5000, b"x"))
    clocked.commit(clocked.start(key="k", key_ttl_ms=2000))
    gone = clocked.start(tomb_ttl_ms=3000)
    clocked.bury(gone)
    clocked.run(ledger.discard(gone.task_id, clocked.version(gone.task_id)))
    clocked.submit(clocked.new(), admission=Admission((AdmissionLimit.per_window("l", 10, 10_000),)))
    ends = {("lock", "done"): 5, ("idem", "k"): 2, ("task", gone.task_id): 3, ("rate", "l"): 1}
    for (name, of), seconds in ends.items():
        assert 1000 * seconds < clocked.pttl(name, of) <= 1000 * seconds + 60_000, name
