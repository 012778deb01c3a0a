"""Sentinel with real processes: finding the master, losing it, and leaving a stale one."""

from __future__ import annotations

import asyncio

import pytest

from relier.errors import ConfigurationError, RedisConnectionError, StoreReadOnlyError
from relier.settings import Settings
from relier.store import AsyncStore, Durability, Scripts
from tests.support.either_store import OpenStore
from tests.support.servers import Boot, Server, free_port, wait_until
from tests.support.toy_scripts import Hands, count, echo, put
from tests.support.wire import Puppet, resp

pytestmark = [pytest.mark.anyio]
PATIENT = {"redis_deadline": 20, "redis_retries": 200, "redis_read_timeout": 0.5, "redis_breaker_failures": 10_000}


def watched_pair(boot: Boot) -> tuple[Server, Server, Server]:
    """A master, its replica, and a Sentinel that knows both and reacts quickly."""
    master = boot()
    replica = boot(config={"replicaof": f"127.0.0.1 {master.port}", "replica-priority": "10"})
    wait_until(lambda: replica.info("replication")["master_link_status"] == "up")
    wait_until(lambda: "state=online" in master.info("replication").get("slave0", ""))
    sentinel = boot(
        sentinel=f"sentinel monitor main 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
    )
    wait_until(lambda: known(sentinel)["num-slaves"] == "1", what="the replica known to Sentinel")
    return master, replica, sentinel


def known(sentinel: Server) -> dict[str, str]:
    words = [word.decode() for word in sentinel.command("SENTINEL", "MASTER", "main")]
    return dict(zip(words[::2], words[1::2], strict=True))


def url_of(*sentinels: Server | int) -> str:
    ports = [one if isinstance(one, int) else one.port for one in sentinels]
    return f"sentinel://{','.join(f'127.0.0.1:{port}' for port in ports)}/main"


@pytest.mark.parametrize("death", ["kill", "freeze"])
async def test_a_failover_is_followed(open_store: OpenStore, boot: Boot, death: str) -> None:
    master, replica, sentinel = watched_pair(boot)
    store = open_store(url_of(free_port(), sentinel), **PATIENT)
    assert await store.run(put("k", "before", Durability.REPLICATED)) == b"OK", "Sentinel knows one replica"
    master.kill() if death == "kill" else master.freeze()
    assert await store.run(count("n", "1")) == 1
    assert replica.info("replication")["role"] == "master"
    assert await store.command("GET", "k") == b"before"
    if death == "freeze":
        master.thaw()
        wait_until(lambda: master.info("replication")["role"], what="the old master back, believing it is in charge")
        assert await store.run(count("n", "2")) == 2
        assert replica.command("GET", "n") == b"2"


def sentinel_says(epoch: int, port: int, replicas: int = 1) -> bytes:
    fields = ["name", "main", "ip", "127.0.0.1", "port", port, "config-epoch", epoch, "num-slaves", replicas]
    return resp([str(field) for field in fields])


async def test_a_stale_master_is_left_within_two_seconds(open_store: OpenStore, boot: Boot) -> None:
    """The old master reports nothing: it is isolated, and believes that it is still the master."""
    old, new = boot(), boot()
    said = [sentinel_says(1, old.port)]
    clock = Hands()
    with Puppet(lambda _: said[0]) as sentinel:
        store = open_store(url_of(sentinel.port), clock)
        assert await store.run(put("k", "old")) == b"OK"
        said[0] = sentinel_says(2, new.port)
        clock.now += 1.9
        assert await store.run(put("k", "new")) == b"OK"
        assert (old.command("GET", "k"), new.command("GET", "k")) == (b"old", b"new")
        await asyncio.to_thread(
            wait_until, lambda: int(old.info("clients")["connected_clients"]) == 1, what="the stale connection closed"
        )


async def test_the_answer_with_the_highest_epoch_wins(open_store: OpenStore, boot: Boot) -> None:
    stale, master = boot(), boot()
    with Puppet(lambda _: sentinel_says(1, stale.port)) as one, Puppet(lambda _: sentinel_says(2, master.port)) as two:
        assert await open_store(url_of(one.port, two.port)).run(put("k", "v")) == b"OK"
    assert (stale.command("GET", "k"), master.command("GET", "k")) == (None, b"v")


async def test_a_replica_is_never_taken_for_the_master(open_store: OpenStore, boot: Boot) -> None:
    master = boot()
    replica = boot(config={"replicaof": f"127.0.0.1 {master.port}"})
    with Puppet(lambda _: sentinel_says(1, replica.port)) as sentinel:
        store = open_store(url_of(sentinel.port), redis_retries=1)
        with pytest.raises(StoreReadOnlyError, match="is a slave, not a master"):
            await store.run(echo())


async def test_sentinels_that_fall_silent_do_not_stop_a_healthy_master(open_store: OpenStore, boot: Boot) -> None:
    master = boot()
    said: list[bytes | None] = [sentinel_says(1, master.port)]
    clock = Hands()
    with Puppet(lambda _: said[0]) as sentinel:
        store = open_store(url_of(sentinel.port), clock, redis_connect_timeout=0.1)
        await store.run(echo())
        said[0] = None
        clock.now += 2
        assert await store.run(echo("still")) == b"still"


async def test_no_sentinel_knows_the_master(open_store: OpenStore, boot: Boot) -> None:
    with Puppet(lambda _: b"-ERR No such master with that name\r\n") as sentinel:
        store = open_store(url_of(sentinel.port), redis_retries=1)
        with pytest.raises(
            RedisConnectionError, match=r"no Sentinel located the master 'main' \(127.0.0.1:\d+ replied"
        ):
            await store.run(echo())


async def test_the_number_of_replicas_grows_and_never_shrinks(boot: Boot, scripts: Scripts) -> None:
    master = boot()
    said = [sentinel_says(1, master.port, replicas=0)]
    clock = Hands()
    with Puppet(lambda _: said[0]) as sentinel:
        settings = Settings(redis_url=url_of(sentinel.port), redis_durability_timeout=0.05)
        async with AsyncStore(settings, scripts, clock=clock) as store:
            with pytest.raises(ConfigurationError, match="there are 0 replicas"):
                await store.run(echo("x", Durability.REPLICATED))
            for number, pinned in ((2, 2), (1, 2), (3, 3)):
                said[0] = sentinel_says(1, master.port, replicas=number)
                clock.now += 1.1
                await store.run(echo())
                assert store._lookup.required_replicas(None) == pinned


async def test_the_master_may_want_a_password_sentinel_does_not(open_store: OpenStore, boot: Boot) -> None:
    master = boot(config={"requirepass": "pw"})

    def answer(command: list[bytes]) -> bytes:
        return b"-ERR no password here\r\n" if command[0] == b"AUTH" else sentinel_says(1, master.port)

    with Puppet(answer) as sentinel:
        store = open_store(f"sentinel://:pw@127.0.0.1:{sentinel.port}/main/1")
        assert await store.run(put("k", "v")) == b"OK"


async def test_one_sentinel_that_refuses_us_is_skipped(open_store: OpenStore, boot: Boot) -> None:
    master = boot()
    clock = Hands()
    refuses = [False, True]

    def sentinel(number: int) -> Puppet:
        def answer(command: list[bytes]) -> bytes:
            if command[0] == b"AUTH":
                return b"-WRONGPASS no\r\n" if refuses[number] else b"+OK\r\n"
            return b"-NOAUTH no\r\n" if refuses[number] else sentinel_says(1, master.port)

        return Puppet(answer)

    with sentinel(0) as one, sentinel(1) as two:
        url = f"{url_of(two.port, one.port)}?sentinel_password=pw"
        store = open_store(url, clock)
        assert await store.run(echo("one")) == b"one", "the other one is asked"
        refuses[0] = True
        clock.now += 10
        assert await store.run(echo("none")) == b"none", "the master that is known stays so"
        with pytest.raises(ConfigurationError, match=r"no Sentinel located the master 'main': .* refused AUTH"):
            await open_store(url).run(echo())
