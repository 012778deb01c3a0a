"""Levels above memory: what confirms them, what happens without a confirmation, and which server each level needs."""

from __future__ import annotations

import asyncio
import time

import pytest

from relier.errors import ConfigurationError, IndeterminateError
from relier.settings import Settings
from relier.store import AsyncStore, Durability, Scripts
from tests.support.either_store import OpenStore
from tests.support.servers import Boot, Server, wait_until
from tests.support.toy_scripts import count, echo, put
from tests.support.wire import Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.matrix]
FSYNC, REPLICATED = Durability.FSYNC, Durability.REPLICATED


def pair(boot: Boot, flavour: str) -> tuple[Server, Server]:
    master = boot(flavour=flavour)
    replica = boot(flavour=flavour, config={"replicaof": f"127.0.0.1 {master.port}"})
    wait_until(lambda: replica.info("replication")["master_link_status"] == "up")
    wait_until(lambda: "state=online" in master.info("replication").get("slave0", ""))
    return master, replica


async def test_replicated_is_confirmed_by_the_replica(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    master, replica = pair(boot, flavour)
    store = open_store(master.url, redis_replicas=1)
    answers = await store.run_many([count("k", str(number), REPLICATED) for number in range(10)])
    assert answers == list(range(1, 11))
    assert replica.command("GET", "k") == b"10"
    assert await store.run(count("k", "10", REPLICATED)) == 11


async def test_one_wait_confirms_all_calls_of_a_turn(boot: Boot, flavour: str, scripts: Scripts) -> None:
    master, _ = pair(boot, flavour)
    async with AsyncStore(Settings(redis_url=master.url, redis_replicas=1), scripts) as store:
        await store.run(count("k", "0", REPLICATED))
        before = master.calls_of("wait")
        levels = [REPLICATED, Durability.MEMORY] * 10
        await asyncio.gather(*(store.run(count("k", str(number), level)) for number, level in enumerate(levels)))
        assert master.calls_of("wait") == before + 1


async def test_a_frozen_replica_makes_the_push_indeterminate(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    master, replica = pair(boot, flavour)
    store = open_store(master.url, redis_replicas=1, redis_durability_timeout=0.5)
    await store.run(put("k", "v0", REPLICATED))
    replica.freeze()
    before = master.calls_of("wait")
    with pytest.raises(IndeterminateError) as caught:
        await store.run(put("k", "v1", REPLICATED))
    assert master.calls_of("wait") == before + 1, "one wait, not one per retry"
    assert caught.value.__notes__ == ["WAIT confirmed 0 of 1 replicas"]
    assert master.command("GET", "k") == b"v1", "it ran"
    assert await store.run(put("k", "v2")) == b"OK", "memory asks no replica"
    replica.thaw()
    assert await store.run(put("k", "v3", REPLICATED)) == b"OK"


async def test_a_call_chooses_the_error_of_an_unconfirmed_write(open_store: OpenStore, server: Server) -> None:
    store = open_store(server.url, redis_replicas=1, redis_durability_timeout=0.05)

    class MineError(IndeterminateError):
        pass

    with pytest.raises(MineError):
        await store.run(echo("x", REPLICATED).when_indeterminate(MineError))


async def test_the_wait_ends_before_the_deadline(open_store: OpenStore, server: Server) -> None:
    store = open_store(server.url, redis_replicas=3, redis_durability_timeout=60, redis_deadline=4)
    await store.run(echo())
    began = time.monotonic()
    with pytest.raises(IndeterminateError):
        await store.run(echo("x", REPLICATED))
    assert time.monotonic() - began < 4


async def test_a_missing_script_is_confirmed_when_it_ran(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    master, replica = pair(boot, flavour)
    store = open_store(master.url, redis_replicas=1)
    await store.run(put("k", "v", REPLICATED))
    master.command("SCRIPT", "FLUSH")
    assert await store.run_many([put("a", "1", REPLICATED), count("n", "1", REPLICATED)]) == [b"OK", 1]
    assert (replica.command("GET", "a"), replica.command("GET", "n")) == (b"1", b"1")


async def test_replicated_needs_a_number_of_replicas(open_store: OpenStore, server: Server) -> None:
    with pytest.raises(ConfigurationError, match="number of replicas is unknown; set RELIER_REDIS_REPLICAS"):
        await open_store(server.url).run(echo("x", REPLICATED))
    with pytest.raises(ConfigurationError, match="there are 0 replicas; add a replica"):
        await open_store(server.url, redis_replicas=0).run(echo("x", REPLICATED))


async def test_fsync_is_confirmed_by_the_disk(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    server = boot(flavour=flavour)
    store = open_store(server.url)
    found = await store.probe()
    await store.run_many([put("k", "v"), echo()])
    if found.waitaof:
        before = server.calls_of("waitaof")
        assert await store.run_many([put("k", "v", FSYNC), echo("x", FSYNC)]) == [b"OK", b"x"]
        assert server.calls_of("waitaof") == before + 1
    else:
        with pytest.raises(ConfigurationError, match="no WAITAOF and its appendfsync is everysec; set appendfsync al"):
            await store.run(put("k", "v", FSYNC))
    server.command("CONFIG", "SET", "appendfsync", "always")
    assert await open_store(server.url).run(put("k", "w", FSYNC)) == b"OK"


async def test_fsync_without_an_append_only_file_is_refused(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    server = boot(flavour=flavour, config={"appendonly": "no"})
    with pytest.raises(ConfigurationError, match="the server's AOF is off; set appendonly yes"):
        await open_store(server.url).run(put("k", "v", FSYNC))
    assert server.command("GET", "k") is None, "nothing was sent"


@pytest.mark.parametrize("answer", [b"*2\r\n:0\r\n:0\r\n", b"-ERR WAITAOF cannot be used\r\n"])
async def test_a_disk_that_does_not_confirm_makes_the_push_indeterminate(
    open_store: OpenStore, boot: Boot, answer: bytes
) -> None:
    server = boot()
    with Proxy(server.port) as proxy:
        store = open_store(proxy.url)
        await store.run(put("k", "v", FSYNC))
        proxy.disturb = lambda request: b"+OK\r\n" + answer if b"EVALSHA" in request else None
        with pytest.raises(IndeterminateError) as caught:
            await store.run(put("k", "w", FSYNC))
        assert caught.value.__notes__[0].startswith("WAITAOF ")
