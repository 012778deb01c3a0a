"""Both stores on a healthy server: answers, batching, scripts, loops, threads, cancellation."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from relier.errors import RedisConnectionError, StoreReplyError, TaskNotFoundError
from relier.settings import Settings
from relier.store import AsyncStore, Call, Scripts, SyncStore
from relier.store.policy import Deadline
from tests.support.either_store import OpenStore
from tests.support.servers import Boot, Server, wait_until
from tests.support.toy_scripts import Hands, broken, count, echo, put, slow
from tests.support.wire import Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.matrix]


def refuse(reply: Any) -> Any:
    raise TaskNotFoundError(f"no task {reply!r}")


async def test_a_call_is_run_and_parsed(open_store: OpenStore, server: Server) -> None:
    store = open_store(server.url)
    assert await store.run(Call("echo", "k", ("7",), int)) == 7
    assert await store.run(echo(b"\x00\xff")) == b"\x00\xff"
    assert await store.command("PING") == b"PONG"


async def test_a_call_works_over_tcp(open_store: OpenStore, server: Server) -> None:
    assert await open_store(server.tcp_url).run(echo()) == b"hello"


async def test_the_database_of_the_url_is_used(open_store: OpenStore, server: Server, namespace: str) -> None:
    await open_store(f"{server.url}?db=3").run(put(f"rl:{{{namespace}}}:x", "three"))
    assert await open_store(server.url).command("GET", f"rl:{{{namespace}}}:x") is None
    assert await open_store(f"{server.tcp_url}/3").command("GET", f"rl:{{{namespace}}}:x") == b"three"


async def test_many_calls_each_get_their_own_answer(open_store: OpenStore, server: Server) -> None:
    store = open_store(server.url)
    answers = await store.run_many([echo("a"), broken(), Call("echo", "k", ("x",), refuse), echo("b")])
    assert answers[0] == b"a"
    assert isinstance(answers[1], StoreReplyError)
    assert "BROKEN on purpose" in str(answers[1])
    assert isinstance(answers[2], TaskNotFoundError)
    assert answers[3] == b"b"
    assert await store.run_many([]) == []


async def test_an_error_of_one_call_reaches_only_its_caller(store: AsyncStore) -> None:
    def explode(reply: Any) -> Any:
        raise ZeroDivisionError

    calls: list[Coroutine[Any, Any, Any]] = [
        store.run(echo("a")),
        store.run(broken()),
        store.run(Call("echo", "k", ("x",), explode)),
        store.run(Call("echo", "k", (None,), bytes)),  # type: ignore[arg-type]
        store.run(Call("unheard_of", "k", (), bytes)),
        store.run(echo("b")),
    ]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [
        bytes,
        StoreReplyError,
        ZeroDivisionError,
        TypeError,
        KeyError,
        bytes,
    ]


async def test_calls_of_one_loop_turn_are_one_write(settings: Settings, scripts: Scripts, server: Server) -> None:
    with Proxy(server.port) as proxy:
        async with AsyncStore(settings.replace(redis_url=proxy.url), scripts) as store:
            await store.run(echo())
            proxy.requests.clear()
            await asyncio.gather(*(store.run(echo(str(number))) for number in range(50)), store.run_many([echo()] * 50))
            assert len(proxy.requests) == 1
            assert proxy.requests[0].count(b"EVALSHA") == 100


@pytest.mark.parametrize("forget", ["flush", "restart"])
async def test_flushed_scripts_are_loaded_again(open_store: OpenStore, boot: Any, forget: str, flavour: str) -> None:
    server = boot(flavour=flavour)
    store = open_store(server.url)
    assert await store.run_many([echo("a"), count("k", "1")]) == [b"a", 1]
    server.command("SCRIPT", "FLUSH") if forget == "flush" else server.restart()
    answers = await store.run_many([echo("b"), count("k", "2"), echo("c"), count("k", "2")])
    assert answers == [b"b", 2, b"c", 2]


async def test_only_the_missing_script_of_a_pipeline_is_sent_again(
    settings: Settings, scripts: Scripts, server: Server, namespace: str
) -> None:
    with Proxy(server.port) as proxy:
        async with AsyncStore(settings.replace(redis_url=proxy.url), scripts) as store:
            await store.run(echo())
            server.command("SCRIPT", "FLUSH")
            server.command("SCRIPT", "LOAD", scripts["echo"].text)
            proxy.requests.clear()
            key = f"rl:{{{namespace}}}:n"
            answers = await asyncio.gather(store.run(echo("a")), store.run(count(key, "1")), store.run(echo("b")))
            assert list(answers) == [b"a", 1, b"b"]
            assert [request.count(b"EVALSHA") for request in proxy.requests] == [3, 1]
            assert b"LOAD" in proxy.requests[1]


async def test_a_cancelled_caller_does_not_affect_others(store: AsyncStore, server: Server, namespace: str) -> None:
    await store.run(echo())
    key = f"rl:{{{namespace}}}:n"
    tasks = [asyncio.create_task(store.run(count(key, str(number)))) for number in range(3)]
    busy = asyncio.create_task(store.run(slow(50)))
    await asyncio.sleep(0)
    tasks[0].cancel()  # before the batch leaves: it is never sent
    await asyncio.sleep(0)
    tasks[1].cancel()  # while the batch is under way
    answers = await asyncio.gather(*tasks, busy, return_exceptions=True)
    assert [type(answer) for answer in answers] == [asyncio.CancelledError, asyncio.CancelledError, int, bytes]
    assert await store.run(echo("after")) == b"after"
    assert int(server.command("GET", key)) == 2


async def test_a_cancelled_command_leaves_no_half_read_connection(store: AsyncStore) -> None:
    sleeping = asyncio.create_task(store.command("BLPOP", "nothing", 5))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(sleeping, 0.05)
    assert [await store.run(echo(str(number))) for number in range(3)] == [b"0", b"1", b"2"]


async def test_a_doorbell_wakes_its_waiter(open_store: OpenStore, server: Server, namespace: str) -> None:
    store = open_store(server.url, redis_pool_size=1)
    bells = [f"rl:{{{namespace}}}:bell{number}" for number in range(2)]
    waiting = asyncio.create_task(store.wait_for_bell(bells, 1))
    await asyncio.to_thread(wait_until, lambda: int(server.info("clients")["blocked_clients"]) > 0)
    assert await store.run(echo("meanwhile")) == b"meanwhile", "the bell has a connection of its own"
    server.command("RPUSH", bells[1], "ding")
    assert await waiting == bells[1].encode()
    assert await store.wait_for_bell(bells, 0) is None


async def test_a_cancelled_wait_for_a_doorbell_closes_its_connection(
    settings: Settings, scripts: Scripts, boot: Boot, namespace: str
) -> None:
    server = boot()  # nobody else waits for a bell there
    async with AsyncStore(settings.replace(redis_url=server.url), scripts) as store:
        waiting = asyncio.create_task(store.wait_for_bell([f"rl:{{{namespace}}}:bell"], 30))
        await asyncio.to_thread(wait_until, lambda: int(server.info("clients")["blocked_clients"]) == 1)
        waiting.cancel()
        await asyncio.to_thread(wait_until, lambda: int(server.info("clients")["blocked_clients"]) == 0)
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_call_without_a_free_connection_waits(open_store: OpenStore, boot: Boot, namespace: str) -> None:
    server = boot()
    store = open_store(server.url, redis_pool_size=2, redis_read_timeout=10, redis_deadline=20)
    bell = f"rl:{{{namespace}}}:list"
    await store.run(echo())
    blocked = [asyncio.create_task(store.command("BLPOP", bell, 5)) for _ in range(2)]
    await asyncio.to_thread(wait_until, lambda: int(server.info("clients")["blocked_clients"]) == 2)
    waiting = [asyncio.create_task(store.run(echo(str(number)))) for number in range(5)]
    server.command("RPUSH", bell, "1", "2")
    assert await asyncio.gather(*waiting) == [b"0", b"1", b"2", b"3", b"4"]
    await asyncio.gather(*blocked)


async def test_waiting_for_a_connection_ends_at_the_deadline(open_store: OpenStore, server: Server) -> None:
    store = open_store(server.url, redis_pool_size=1, redis_deadline=1.0)
    pool = (await store.core())._pool
    taken = await pool.take(Deadline(time.monotonic, 5))
    with pytest.raises(RedisConnectionError, match=r"all 1 connections stayed in use \(RELIER_REDIS_POOL_SIZE\)"):
        await store.run(echo())
    pool.give_back(taken)
    assert await store.run(echo()) == b"hello"


async def test_a_closed_store_raises(open_store: OpenStore, server: Server) -> None:
    store = open_store(server.url)
    await store.run(echo())
    await store.close()
    with pytest.raises(RedisConnectionError, match=r"nothing was sent: .* is closed; create a new store"):
        await store.run(echo())


def test_a_loop_may_end_in_the_middle_of_a_call(settings: Settings, scripts: Scripts) -> None:
    store = AsyncStore(settings, scripts)

    async def leave_early() -> None:
        await store.run(echo())
        calls = [asyncio.create_task(store.run(slow(20))), asyncio.create_task(store.run(echo()))]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not any(call.done() for call in calls)

    for _ in range(5):
        asyncio.run(store.command("SCRIPT", "FLUSH"))  # so that replies in flight cause a second attempt
        asyncio.run(leave_early())
    asyncio.run(store.aclose())
    gc.collect()


async def test_closing_waits_for_running_calls(settings: Settings, scripts: Scripts) -> None:
    store = AsyncStore(settings, scripts)
    await store.run(echo())
    running = [asyncio.create_task(store.run(echo(str(number)))) for number in range(3)]
    await asyncio.sleep(0)
    await store.aclose()
    assert await asyncio.gather(*running) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("maker", "ending"), [("asyncio", "asyncio.run"), ("asyncio", "loop.close"), ("uvloop", "asyncio.run")]
)
def test_each_loop_has_connections_of_its_own(settings: Settings, scripts: Scripts, maker: str, ending: str) -> None:
    new_event_loop = pytest.importorskip(maker).new_event_loop
    store = AsyncStore(settings, scripts)

    async def several() -> list[bytes]:
        return await asyncio.gather(*(store.run(echo(str(number))) for number in range(3)))

    def in_a_loop(_: int) -> list[bytes]:
        if ending == "asyncio.run":
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                return runner.run(several())
        loop = new_event_loop()
        try:
            return loop.run_until_complete(several())
        finally:
            loop.close()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(3):
            assert in_a_loop(number) == [b"0", b"1", b"2"]
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(in_a_loop, range(8))) == [[b"0", b"1", b"2"]] * 8
        asyncio.run(store.aclose())


def test_threads_share_a_sync_store(sync_store: SyncStore, namespace: str) -> None:
    key = f"rl:{{{namespace}}}:n"
    start = threading.Barrier(8)

    def work(thread: int) -> list[bytes]:
        start.wait()
        sync_store.run_many([count(key, f"{thread}-{number}") for number in range(20)])
        return [sync_store.run(echo(f"{thread}-{number}")) for number in range(20)]

    with ThreadPoolExecutor(8) as pool:
        for thread, answers in enumerate(pool.map(work, range(8))):
            assert answers == [f"{thread}-{number}".encode() for number in range(20)]
    assert int(sync_store.command("GET", key)) == 160


async def test_a_sync_store_works_inside_a_loop(sync_store: SyncStore) -> None:
    assert sync_store.run(echo()) == b"hello"


async def test_idle_connections_above_the_minimum_are_closed_in_time(boot: Any, scripts: Scripts) -> None:
    server = boot()
    clock = Hands()
    async with AsyncStore(Settings(redis_url=server.url, redis_pool_idle=1), scripts, clock=clock) as store:
        await asyncio.gather(*(store.command("PING") for _ in range(4)))
        before = int(server.info("clients")["connected_clients"])
        for _ in range(4):
            clock.now += 31
            await store.command("PING")
        await asyncio.to_thread(wait_until, lambda: int(server.info("clients")["connected_clients"]) == before - 3)


def test_scripts_are_read_as_utf8_in_every_locale(tmp_path: Path) -> None:
    (tmp_path / "x.lua").write_bytes("-- first → second\nreturn 1\n".encode())
    program = f"from pathlib import Path; from relier.store import Scripts; Scripts(Path({str(tmp_path)!r}))"
    plain = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", program], env=plain, check=True, timeout=60)
