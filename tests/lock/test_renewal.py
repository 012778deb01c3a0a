"""The mark of a lock has a time limit, is renewed while its block runs, and expires when its holder can no longer renew
it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from relier import Client, IdempotencyInFlightError, LeaseLostError, idempotency_lock
from relier.errors import RedisConnectionError, RelierError
from relier.ledger.records import Verdict
from relier.lock.renewal import HeldKey, ThreadRenewals
from relier.run.current import current_context
from tests.support.locking import Enter, eventually, inside, join, lease_of, mark, take_over
from tests.support.servers import Server
from tests.support.wire import Proxy

pytestmark = pytest.mark.anyio
SHORT_S = 0.9  # three times as long as a busy machine may pause


@pytest.fixture
def changed() -> dict[str, Any]:
    return {"idempotency_inflight_ttl": SHORT_S}


def until(client: Client, key: str = "k") -> int:
    """Return when the mark expires (ms)."""
    return int((mark(client, key) or b"held 0 ").split()[1])


async def test_a_block_longer_than_its_mark_keeps_its_key(client: Client, enter: Enter) -> None:
    async with enter() as lock:
        first = until(client)
        await eventually(lambda: until(client) > first + 1000 * SHORT_S)
        with pytest.raises(IdempotencyInFlightError, match=r"for at most 0\.\d+ s unless"):
            await idempotency_lock("k").__aenter__()
        assert not lock.lost
        lock.set_result(1)
    with idempotency_lock("k") as lock:
        assert lock.cached_result == 1


async def test_renewing_ends_with_the_block(client: Client, enter: Enter, caplog: pytest.LogCaptureFixture) -> None:
    """Even if a renewal was in flight when the block ended: it finds the result, which does not count as a loss."""
    for n in range(30):
        async with enter(f"k{n}") as lock:
            first = until(client, f"k{n}")
            if n % 10 == 0:
                await eventually(lambda n=n, first=first: until(client, f"k{n}") > first)
            lock.set_result(n)
    done = [mark(client, f"k{n}") for n in range(30)]
    async with enter("longer") as lock:
        first = until(client, "longer")
        await eventually(lambda: until(client, "longer") > first + 1000 * SHORT_S)
        lock.set_result(1)
    assert [mark(client, f"k{n}") for n in range(30)] == done
    assert "lost" not in caplog.text


async def test_a_key_that_nobody_renews_is_free_when_its_time_is_over(client: Client, enter: Enter) -> None:
    """Its process died."""
    client.run(client.ledger.lock("k", "dead", round(1000 * SHORT_S), "elsewhere.1"))
    tried = 0
    async with asyncio.timeout(20):
        while True:
            try:
                async with enter() as lock:
                    lock.set_result(1)
                break
            except IdempotencyInFlightError:
                tried += 1
    assert tried > 0


async def test_a_renewal_that_finds_the_key_lost_notifies_the_block(
    client: Client, enter: Enter, caplog: pytest.LogCaptureFixture
) -> None:
    async def block() -> None:
        async with enter() as lock:
            take_over(client)
            await eventually(lambda: lock.lost)
            lock.set_result("mine")

    with pytest.raises(LeaseLostError, match="not renewed in time"):
        await block()
    assert "is lost: its mark is stale" in caplog.text
    assert b" anothers elsewhere.1 " in (mark(client) or b"")


async def test_one_thread_renews_all_locks_of_a_process(client: Client) -> None:
    before = set(threading.enumerate())
    with contextlib.ExitStack() as blocks:
        held = [blocks.enter_context(idempotency_lock(f"k{n}")) for n in range(20)]
        first = [until(client, lock.key) for lock in held]
        await eventually(lambda: all(until(client, lock.key) > was for lock, was in zip(held, first, strict=True)))
        for lock in held:
            lock.set_result(1)
    assert len(set(threading.enumerate()) - before) <= 1


async def test_locks_held_elsewhere_do_not_wake_the_thread(client: Client) -> None:
    """A block that ends before its first renewal does not wake the thread."""
    renewer = ThreadRenewals()
    woken = 0

    class Counted(threading.Condition):
        def notify(self, n: int = 1) -> None:
            nonlocal woken
            woken += 1
            super().notify(n)

    renewer._turn = Counted()
    long = [HeldKey(client, "k", "t", 3_600_000) for _ in range(100)]
    for held in long:
        renewer.start(held)
        renewer.end(held)
    assert woken == 0
    soon = HeldKey(client, "k", "t", 30)
    renewer.start(soon)
    await eventually(lambda: soon.lost)
    assert woken == 1


async def test_a_renewal_that_fails_is_tried_again_sooner(client: Client) -> None:
    held = HeldKey(client, "k", "t", 120_000)
    assert held.renewed(Verdict.OK) == 40
    assert held.renewed(RedisConnectionError("out of reach")) == 1
    assert not held.lost
    assert held.renewed(Verdict.MISSING) is None
    assert held.lost


# --- a store out of reach ------------------------------------------------------------------------------------------


@pytest.fixture
async def cut(server: Server, client: Client, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A proxy between the locks and the store, and short deadlines."""
    with Proxy(server.port) as proxy:
        reached = {"redis_url": proxy.url, "redis_deadline": 0.4, "redis_read_timeout": 0.2, "redis_retries": 1}
        own = Client(client.settings.replace(**reached))
        monkeypatch.setattr("relier.lock.blocks.default_client", lambda: own)
        yield proxy
        proxy.disturb = lambda _: None
        await own.aclose()


async def test_renewals_continue_after_the_store_was_unreachable(
    client: Client, enter: Enter, cut: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    async with enter() as lock:
        cut.disturb = lambda _: "lose"
        cut.drop_all()
        await eventually(lambda: "could not be renewed, will retry" in caplog.text)
        cut.disturb = lambda _: None
        first = until(client)
        await eventually(lambda: until(client) > first)
        lock.set_result(1)
    assert not lock.lost
    assert (mark(client) or b"").startswith(b"done")


async def test_renewals_pass_a_breaker_that_other_calls_have_opened(
    client: Client, enter: Enter, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renewals are separate from other calls, whose failures must not cost a block its key."""
    with Proxy(server.port) as proxy:
        touchy = {"redis_retries": 0, "redis_breaker_failures": 1, "redis_breaker_cooldown": 3600.0}
        own = Client(client.settings.replace(redis_url=proxy.url, **touchy))
        monkeypatch.setattr("relier.lock.blocks.default_client", lambda: own)

        async def block() -> None:
            async with enter() as lock:
                proxy.disturb = lambda _: "lose"
                with pytest.raises(RedisConnectionError):
                    own.run(own.ledger.stats())
                with pytest.raises(RedisConnectionError):
                    await own.arun(own.ledger.stats())
                proxy.disturb = lambda _: None
                first = until(client)
                await eventually(lambda: until(client) > first + 1000 * SHORT_S, 10)
                assert not lock.lost
                raise ValueError("renewed")  # other calls are still refused, so the outcome could not be reported

        with pytest.raises(ValueError, match="renewed"):
            await block()
        await own.aclose()


async def test_the_end_of_a_block_is_reported_through_an_outage(
    client: Client, enter: Enter, cut: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """This takes longer than a deadline. If it gave up, the next caller would run the block again."""

    async def block() -> None:
        async with enter() as lock:
            lock.set_result(1)
            cut.disturb = lambda _: "lose" if "conclude of lock 'k' will be sent again" not in caplog.text else None
            cut.drop_all()

    await block()
    with idempotency_lock("k") as lock:
        assert lock.cached_result == 1
    assert "is lost" not in caplog.text


async def test_a_task_keeps_reporting_done_after_its_mark_expired(client: Client, enter: Enter, cut: Proxy) -> None:
    """The store's answer says whether another caller took the lock meanwhile."""
    back: list[float] = []

    def silent(_: bytes) -> str | None:
        if time.monotonic() < back[0]:
            return "silent"
        if len(back) == 1:
            back.append(0.0)
            take_over(client)
        return None

    async def block() -> None:
        async with enter() as lock:
            lock.set_result(1)
            back.append(time.monotonic() + 1.5 * SHORT_S)
            cut.disturb = silent

    with pytest.raises(LeaseLostError, match="another may have run the block since"):
        await inside(lease_of(join(client)), block)


async def test_a_lost_task_reports_nothing_more(client: Client, enter: Enter, cut: Proxy) -> None:
    boot = join(client)

    async def block() -> None:
        ctx = current_context()
        assert ctx is not None
        async with enter() as lock:
            lock.set_result(1)
            cut.disturb = lambda _: "silent"
            ctx.lose()

    with pytest.raises(RedisConnectionError):
        await inside(lease_of(boot), block)


async def test_a_result_that_cannot_be_reported_is_an_error(client: Client, enter: Enter, cut: Proxy) -> None:
    async def block() -> None:
        async with enter() as lock:
            lock.set_result(1)
            cut.disturb = lambda _: "silent"

    with pytest.raises(RelierError):
        await block()
    assert (mark(client) or b"").startswith(b"held"), "and its key is free when its time is over"


async def test_a_key_that_cannot_be_freed_hides_no_exception(
    enter: Enter, cut: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    async def block() -> None:
        async with enter():
            cut.disturb = lambda _: "silent"
            raise ValueError("my own")

    with pytest.raises(ValueError, match="my own"):
        await block()
    assert "could not be released and stays in flight for 0.9 s" in caplog.text


# --- forks ---------------------------------------------------------------------------------------------------------

FORKED = """
import os, sys, time
from relier import Client, Settings, idempotency_lock, use_client
client = Client(Settings(redis_url=sys.argv[1], namespace=sys.argv[2], idempotency_inflight_ttl=0.3))
use_client(client)
key = client.ledger.prefix + "l:"

def keeps(name):
    with idempotency_lock(name) as lock:
        lock.set_result(name)
        first = int(client.sync_store.command("GET", key + name).split()[1])
        until = time.monotonic() + 20
        while int(client.sync_store.command("GET", key + name).split()[1]) < first + 600:
            assert time.monotonic() < until, name
            time.sleep(0.01)

keeps("before")
child = os.fork()
keeps("child" if not child else "parent")
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


async def test_a_forked_child_renews_its_own_locks(client: Client, server: Server) -> None:
    command = [sys.executable, "-c", FORKED, server.url, client.settings.namespace]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for name in ("before", "child", "parent"):
        assert (mark(client, name) or b"").startswith(b"done"), name
