"""Wrong input from callers and servers: it is refused with a message that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from relier.errors import (
    CorruptRecordError,
    InvalidSubmissionError,
    LayoutError,
    PayloadTooLargeError,
    RedisConnectionError,
    StoreDiskError,
    StoreError,
    StoreReadOnlyError,
    StoreReplyError,
)
from relier.ledger.ledger import Ledger
from relier.ledger.records import Join, Lease, Submission
from relier.settings import Settings
from relier.store import Call, Scripts, SyncStore
from tests.support.ledger_world import World
from tests.support.servers import Server, wait_until
from tests.support.wire import Proxy, Puppet

Boot = Callable[..., Server]
SHORT: dict[str, Any] = {"redis_deadline": 0.5, "redis_read_timeout": 0.2, "redis_retries": 1}
LEASE = Lease("t", "1", "boot")
JOIN = Submission(id="j", name="n", payload=b"", delay_ms=1, join=Join(2, "0"))


@pytest.fixture
def offline() -> Ledger:
    """A ledger without a store: input that it refuses never leaves the process."""
    return Ledger(Settings(redis_url="redis://127.0.0.1:1"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("id", value) for value in ("", " ", "a b", "a\nb", "a\tb", "x" * 513, 5, None, b"id", "\ud800")],
        *[("name", value) for value in ("", "a\nb", "a\0b", "n" * 513, 5, None, "\ud800")],
        *[("queue", value) for value in ("", "a\nb", "q" * 513, "ü" * 257, 5, None, "\ud800")],
        *[("priority", value) for value in (-10, 10, 0.5, "1", None, True)],
        *[("delay_ms", value) for value in (-1, 0.5, "1", None, 2**53 + 1)],
        *[("eta_ms", value) for value in (-1, 1.0, None)],
        *[("expires_at_ms", value) for value in (-1, "soon")],
        *[("expires_in_ms", value) for value in (-1, 2**60)],
        *[("key_ttl_ms", value) for value in (-1, None, "1h")],
        *[("result_ttl_ms", value) for value in (-1, 0.1)],
        *[("dead_ttl_ms", value) for value in (-1, "x")],
        *[("tomb_ttl_ms", value) for value in (0, -1, "x")],
        *[("max_resurrections", value) for value in (-1, "5", 1.5)],
        *[("on_lost", value) for value in ("", "drop", None)],
        *[("on_conflict", value) for value in ("", "merge", None)],
        *[("key", value) for value in (5, None, b"k", "\ud800", "\ud800" * 100)],
        *[("nonce", value) for value in (5, None, "\ud800")],
        *[("durability", value) for value in ("memory", None)],
        *[("payload", value) for value in ("text", None, {"a": 1}, bytearray(b"x"))],
    ],
)
def test_an_invalid_field_raises_in_the_caller(offline: Ledger, field: str, value: object) -> None:
    plain: dict[str, Any] = {"id": "t", "name": "n", "payload": b"{}"}
    task = Submission(**plain | {field: value})
    for make in (
        lambda: offline.submit([task]),
        lambda: offline.commit([(LEASE, None, [task])]),
        lambda: offline.bury(LEASE, "failed", follow_ups=[task]),
        lambda: offline.retry(LEASE, 0, replace=task),
    ):
        with pytest.raises(InvalidSubmissionError, match=r"must be|is retry") as refused:
            make()
        assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "changed",
    [
        *[{"join": Join(size, "0")} for size in (0, -1, 1_000_001, 2.0, "2", None, True)],
        *[{"join": Join(2, part)} for part in ("", " ", "a b", "x" * 65, 0, None, b"0")],
        *[{"join": join} for join in (5, "2 0", (2, "0"))],
        {"delay_ms": 0},
        {"key": "k"},
        {"nonce": "n"},
    ],
    ids=str,
)
def test_an_invalid_join_is_refused(offline: Ledger, changed: dict[str, Any]) -> None:
    offline.commit([(LEASE, None, [JOIN])])
    wrong = replace(JOIN, **changed)
    for make in (lambda: offline.commit([(LEASE, None, [wrong])]), lambda: offline.bury(LEASE, "r", "", [wrong])):
        with pytest.raises(InvalidSubmissionError, match=r"must be|needs an eta"):
            make()


@pytest.mark.parametrize("field", ["key", "nonce", "eta_ms", "delay_ms", "expires_at_ms", "expires_in_ms"])
def test_a_replacement_cannot_change_fixed_fields(offline: Ledger, field: str) -> None:
    task = Submission(id="t", name="n", payload=b"")
    offline.retry(LEASE, 0, replace=task)
    with pytest.raises(InvalidSubmissionError, match=f"sets {field}, which was fixed"):
        offline.retry(LEASE, 0, replace=replace(task, **{field: "x" if field in {"key", "nonce"} else 1}))


@pytest.mark.parametrize(
    "make",
    [
        lambda ledger, big: ledger.submit([Submission(id="t", name="n", payload=big)]),
        lambda ledger, big: ledger.commit([(LEASE, big, ())]),
        lambda ledger, big: ledger.commit([(LEASE, None, [Submission(id="f", name="n", payload=big)])]),
        lambda ledger, big: ledger.bury(LEASE, "r", "", [Submission(id="f", name="n", payload=big)]),
        lambda ledger, big: ledger.bury(LEASE, "r", part=big),
        lambda ledger, big: ledger.retry(LEASE, 0, replace=Submission(id="t", name="n", payload=big)),
        lambda ledger, big: ledger.checkpoint(LEASE, 1, big),
        lambda ledger, big: ledger.step(LEASE, "s", big),
        lambda ledger, big: ledger.replay("t", 1, "n", big),
        lambda ledger, big: ledger.conclude("k", "t", 1, big),
    ],
    ids=[
        *("payload", "result", "follow-up", "follow-up of a burial", "part", "replacement"),
        *("checkpoint", "step", "edited", "lock"),
    ],
)
def test_twenty_megabytes_are_too_large(offline: Ledger, make: Callable[[Ledger, bytes], Any]) -> None:
    with pytest.raises(
        PayloadTooLargeError, match=r"20,000,000 bytes, the limit is 1,048,576 \(RELIER_MAX_PAYLOAD_BYTES\)"
    ):
        make(offline, b"x" * 20_000_000)


def test_the_limit_is_inclusive_and_a_setting(worlds: Any) -> None:
    world: World = worlds(max_payload_bytes=2_000_000)
    world.join()
    world.push(payload=b"x" * 2_000_000)
    assert len(world.claim()[0].payload) == 2_000_000
    with pytest.raises(PayloadTooLargeError):
        world.push(payload=b"x" * 2_000_001)


@pytest.mark.parametrize(
    "make",
    [
        lambda ledger: ledger.register("", 5000),
        lambda ledger: ledger.register("two words", 5000),
        lambda ledger: ledger.register("b" * 25, 5000),
        lambda ledger: ledger.register("b", 0),
        lambda ledger: ledger.register("b", 0.5),
        lambda ledger: ledger.claim("b", 1, [], 1),
        lambda ledger: ledger.claim("b", 1, "default", 1),
        lambda ledger: ledger.claim("b", 1, [""], 1),
        lambda ledger: ledger.claim("b", 1, ["q"], 0),
        lambda ledger: ledger.claim("b", 1, ["q"], 1001),
        lambda ledger: ledger.claim("b", 0, ["q"], 1),
        lambda ledger: ledger.claim("b", "x", ["q"], 1),
        lambda ledger: ledger.claim("b", 1, ["q"], 1, lane="a b"),
        lambda ledger: ledger.step(LEASE, "", b""),
        lambda ledger: ledger.step(LEASE, "s", "text"),
        lambda ledger: ledger.checkpoint(LEASE, 1, None),
        lambda ledger: ledger.commit([(LEASE, "text", ())]),
        lambda ledger: ledger.commit([(LEASE, None, ()), (Lease("u", "1", "other"), None, ())]),
        lambda ledger: ledger.commit([]),
        lambda ledger: ledger.commit([(LEASE, None, [Submission(id="f", name="n", payload=b"")] * 1000)]),
        lambda ledger: ledger.release([]),
        lambda ledger: ledger.retry(LEASE, -1),
        lambda ledger: ledger.retry(LEASE, "soon"),
        lambda ledger: ledger.bury(LEASE, ""),
        lambda ledger: ledger.bury(LEASE, "two\nlines"),
        lambda ledger: ledger.bury(LEASE, "r", part="text"),
        lambda ledger: ledger.bury(LEASE, "r", "", [Submission(id="f", name="n", payload=b"")] * 1000),
        lambda ledger: ledger.submit([JOIN]),
        lambda ledger: ledger.retry(LEASE, 0, replace=replace(JOIN, id="t", delay_ms=0)),
        lambda ledger: ledger.retry(LEASE, 0, replace=Submission(id="u", name="n", payload=b"")),
        lambda ledger: ledger.replay("t", 1, ""),
        lambda ledger: ledger.pause("", 0),
        lambda ledger: ledger.list("tasks"),
        lambda ledger: ledger.list("due", most=0),
        lambda ledger: ledger.beat("b", -5),
        lambda ledger: ledger.checkpoint(LEASE, -1, b""),
        lambda ledger: ledger.checkpoint(LEASE, "x", b""),
        lambda ledger: ledger.lock("", "t", 1, "web"),
        lambda ledger: ledger.lock(b"k", "t", 1, "web"),
        lambda ledger: ledger.lock(None, "t", 1, "web"),
        lambda ledger: ledger.lock("\ud800", "t", 1, "web"),
        lambda ledger: ledger.lock("k", "", 1, "web"),
        lambda ledger: ledger.lock("k", "two words", 1, "web"),
        lambda ledger: ledger.lock("k", "t" * 65, 1, "web"),
        lambda ledger: ledger.lock("k", "t", 0, "web"),
        lambda ledger: ledger.lock("k", "t", -1, "web"),
        lambda ledger: ledger.lock("k", "t", 0.5, "web"),
        lambda ledger: ledger.lock("k", "t", 1, ""),
        lambda ledger: ledger.lock("k", "t", 1, Lease("", "1", "boot")),
        lambda ledger: ledger.lock("k", "t", 1, Lease("t", "1 2", "boot")),
        lambda ledger: ledger.renew("", "t", 1),
        lambda ledger: ledger.renew("k", "t", 0),
        lambda ledger: ledger.conclude("k", "t", 0, b""),
        lambda ledger: ledger.conclude("k", "t", float("nan"), b""),
        lambda ledger: ledger.conclude("k", "t", 1, "text"),
        lambda ledger: ledger.unlock("k", ""),
    ],
)
def test_an_invalid_argument_raises_in_the_caller(offline: Ledger, make: Callable[[Ledger], Any]) -> None:
    with pytest.raises(InvalidSubmissionError):
        make(offline)


@pytest.mark.parametrize("text", ["\x00", "\\ \" '", "}{", "%d%s", "ünïcödé 🎉", "a'..redis.call('FLUSHALL')..'"])
def test_unusual_texts_are_stored_unchanged(clocked: World, text: str) -> None:
    word = "".join(text.split())
    name = text.replace("\x00", "nul")
    lease = clocked.start(id=f"id-{word}", name=name, queue=name, key=text, nonce=text, payload=text.encode())
    clocked.run(clocked.ledger.step(lease, name, text.encode()))
    assert clocked.submit(clocked.new(key=text))[0].id == lease.task_id
    clocked.bury(lease, name)
    found = clocked.get(lease.task_id)
    assert (found.record.name, found.record.queue, found.record.reason) == (name, name, name)
    assert (found.payload, found.steps) == (text.encode(), {name: text.encode()})


@pytest.mark.parametrize("text", ["\udc80 \ud83d", "\x00\x01\x7f\u2028", '"\\/', "x" * 1_000_000])
def test_any_error_text_can_be_stored(clocked: World, text: str) -> None:
    """The text of an exception decides nothing, so no text may prevent its task from being settled."""
    ledger = clocked.ledger
    for settle in (
        lambda lease: ledger.retry(lease, 0, text),
        lambda lease: ledger.forfeit(lease, text),
        lambda lease: ledger.bury(lease, "failed", text),
    ):
        clocked.push(id="t") if clocked.state("t") is None else None
        (claimed,) = clocked.claim()
        assert clocked.run(settle(claimed.lease)).verdict == "ok"
    history = clocked.get("t").history
    assert [entry.move for entry in history] == ["retry", "revive", "bury"]
    assert all(len(entry.detail) <= 100_000 for entry in history), "bounded"
    if text.isprintable() and len(text) < 100:
        assert history[0].detail == text


def test_the_largest_names_fit(clocked: World) -> None:
    long = "ü" * 256
    most = 2**53 - 1
    lease = clocked.start(
        id="i" * 512, name=long, queue=long, max_resurrections=most, result_ttl_ms=10**12, dead_ttl_ms=10**12, key=long
    )
    clocked.bury(lease)
    clocked.replay(lease.task_id)
    (claimed,) = clocked.claim(queues=[long])
    assert (claimed.record.name, claimed.record.queue) == (long, long)
    assert clocked.commit(claimed.lease).verdict == "ok"


@pytest.mark.parametrize(
    "field", ["key_ttl_ms", "result_ttl_ms", "dead_ttl_ms", "tomb_ttl_ms", "delay_ms", "expires_in_ms"]
)
def test_the_largest_times_fit(clocked: World, field: str) -> None:
    """2**53 ms are 285,000 years. No script fails on such a time halfway."""
    task = clocked.push(key="k", **{field: 2**53})
    if field == "delay_ms":
        clocked.cancel(task)
    else:
        (claimed,) = clocked.claim()
        clocked.bury(claimed.lease) if field == "dead_ttl_ms" else clocked.commit(claimed.lease)
    clocked.run(clocked.ledger.discard(task, clocked.version(task)))


def test_another_layout_is_refused(clocked: World) -> None:
    clocked.command("HSET", clocked.key("meta"), "layout", "99")
    with clocked.unchanged(), pytest.raises(LayoutError, match="layout 99, but this release uses layout 1") as refused:
        clocked.run(clocked.ledger.open())
    assert "nothing was written" in str(refused.value)


def test_opening_again_changes_nothing(clocked: World) -> None:
    with clocked.unchanged():
        clocked.run(clocked.ledger.open())


# --- the server -------------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_the_call_as_a_whole(boot: Boot, worlds: Any, flavour: str) -> None:
    server = boot(flavour=flavour, config={"appendonly": "no", "save": "3600 1", "stop-writes-on-bgsave-error": "yes"})
    world: World = worlds(server)
    world.join()
    lease = world.start()
    (server.folder / "dump.rdb").mkdir(exist_ok=True)  # the snapshot cannot take this name
    server.command("BGSAVE")
    wait_until(lambda: server.info("persistence")["rdb_last_bgsave_status"] == "err")
    ledger = world.ledger
    for call in (ledger.submit([world.new()]), ledger.commit([(lease, b"1", ())]), ledger.beat("boot", 5000)):
        with world.unchanged(), pytest.raises(StoreDiskError, match="nothing was written"):
            world.run(call)
    assert world.get(lease.task_id).record.state == "running"
    world.sound = False


def test_a_replica_refuses_the_call_as_a_whole(boot: Boot, worlds: Any, flavour: str) -> None:
    server = boot(flavour=flavour)
    world: World = worlds(server, **SHORT)
    world.join()
    lease = world.start()
    server.command("REPLICAOF", "127.0.0.1", 1)
    server.command("CONFIG", "SET", "replica-serve-stale-data", "yes")
    for call in (world.ledger.submit([world.new()]), world.ledger.commit([(lease, b"1", ())])):
        with pytest.raises(StoreReadOnlyError, match="nothing was written"):
            world.store.run(call)
    server.command("REPLICAOF", "NO", "ONE")
    assert world.commit(lease).verdict == "ok"


def test_a_silent_server_raises_within_the_deadline(settings: Settings, scripts: Scripts) -> None:
    with Puppet(lambda _: None) as silent:
        own = settings.replace(redis_url=silent.url, **SHORT)
        with SyncStore(own, scripts) as store, pytest.raises(RedisConnectionError):
            store.run(Ledger(own).stats())


CALLS: dict[str, Callable[[Ledger], Call[Any]]] = {
    "submit": lambda ledger: ledger.submit([Submission(id="t", name="n", payload=b"")]),
    "register": lambda ledger: ledger.register("boot", 5000),
    "beat": lambda ledger: ledger.beat("boot", 5000),
    "retire": lambda ledger: ledger.retire("boot"),
    "claim": lambda ledger: ledger.claim("boot", 1, ["q"], 1),
    "commit": lambda ledger: ledger.commit([(LEASE, None, ())]),
    "release": lambda ledger: ledger.release([LEASE]),
    "step": lambda ledger: ledger.step(LEASE, "s", b""),
    "progress": lambda ledger: ledger.progress(LEASE, "half"),
    "revive": lambda ledger: ledger.revive(),
    "promote": lambda ledger: ledger.promote(),
    "cancel": lambda ledger: ledger.cancel("t", 1),
    "get": lambda ledger: ledger.get("t"),
    "steps": lambda ledger: ledger.steps("t"),
    "stats": lambda ledger: ledger.stats(),
    "schedule": lambda ledger: ledger.schedule("s", "0", b"{}", 1),
    "fire": lambda ledger: ledger.fire("s", "1", 1, 2, []),
    "unschedule": lambda ledger: ledger.unschedule("s", "1"),
    "schedules": lambda ledger: ledger.schedules(),
}


@pytest.mark.parametrize(
    "reply",
    [b"*0\r\n", b"$-1\r\n", b":7\r\n", b"$3\r\nfoo\r\n", b"*2\r\n$2\r\nno\r\n*0\r\n", b"*1\r\n*1\r\n$1\r\nx\r\n"],
    ids=["empty", "nil", "number", "word", "short", "nested"],
)
@pytest.mark.parametrize("move", CALLS)
def test_an_answer_that_makes_no_sense_is_reported(
    server: Server, settings: Settings, scripts: Scripts, move: str, reply: bytes
) -> None:
    """The reply is valid RESP, but not one that the script returns: the caller gets a typed error."""
    with Proxy(server.port) as proxy:
        own = settings.replace(redis_url=proxy.url, **SHORT)
        ledger = Ledger(own)
        with SyncStore(own, scripts) as store:
            store.run(ledger.open())
            proxy.disturb = lambda request: reply if b"EVALSHA" in request else None
            with pytest.raises((StoreReplyError, CorruptRecordError) if move == "get" else StoreReplyError):
                store.run(CALLS[move](ledger))


def test_a_lost_reply_is_asked_for_again(server: Server, worlds: Any) -> None:
    """Every script is safe to repeat, so the store sends the call again, and the caller gets one answer."""
    with Proxy(server.port) as proxy:
        world: World = worlds(redis_url=proxy.url)
        world.join()
        lost: list[bytes] = []

        def lose_once(request: bytes) -> str | None:
            if b"EVALSHA" in request and not lost:
                lost.append(request)
                return "lose"
            return None

        def losing(call: Any) -> Any:
            lost.clear()
            proxy.disturb = lose_once
            answer = world.run(call)
            proxy.disturb = lambda _: None
            assert lost
            return answer

        task = world.new(nonce="n")
        assert losing(world.ledger.submit([task]))[0].status == "new"
        (claimed,) = losing(world.ledger.claim("boot", 1, ["default"], 5)).tasks
        assert losing(world.ledger.commit([(claimed.lease, b"1", [world.new()])]))[0].ok
        assert world.counts() == {"submitted": 2, "done": 1}
        world.audit()
        world.sound = False  # at the end of the test its connection to the server is gone


def test_errors_of_the_store_have_one_root() -> None:
    for error in (RedisConnectionError, StoreDiskError, StoreReadOnlyError, StoreReplyError):
        assert issubclass(error, StoreError)
