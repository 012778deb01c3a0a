"""Cluster mode: the store finds the master of the namespace's slot, and finds it again when the slot has moved."""

from __future__ import annotations

import contextlib

import pytest

from relier.errors import ConfigurationError, RedisConnectionError, StoreNotReadyError
from tests.support.either_store import OpenStore
from tests.support.servers import Boot, Server, wait_until
from tests.support.toy_scripts import put
from tests.support.wire import Puppet, resp

pytestmark = [pytest.mark.anyio, pytest.mark.matrix]


def node(boot: Boot, flavour: str) -> Server:
    """A real node that owns every slot."""
    server = boot(flavour=flavour, config={"cluster-enabled": "yes"})
    server.command("CLUSTER", "ADDSLOTS", *range(16384))
    wait_until(lambda: b"cluster_state:ok" in server.command("CLUSTER", "INFO"))
    return server


async def test_a_call_reaches_the_cluster_node_of_its_slot(
    open_store: OpenStore, boot: Boot, flavour: str, namespace: str
) -> None:
    server = node(boot, flavour)
    store = open_store(f"redis+cluster://127.0.0.1:1,127.0.0.1:{server.port}", redis_connect_timeout=0.5)
    key = f"rl:{{{namespace}}}:k"
    assert await store.run(put(key, "v")) == b"OK"
    assert server.command("GET", key) == b"v"
    assert (await store.probe()).streams


async def test_a_moved_slot_is_found(open_store: OpenStore, boot: Boot, flavour: str, namespace: str) -> None:
    """The first node believes that it owns every slot, until it is asked for a key."""
    server = node(boot, flavour)
    key = f"rl:{{{namespace}}}:k"
    slot = server.command("CLUSTER", "KEYSLOT", key)
    moved = [False]

    def stale(command: list[bytes]) -> bytes:
        if command[0] == b"CLUSTER":
            owner = server.port if moved[0] else seed.port
            return resp([[0, slot, ["127.0.0.1", owner, "id"]], [slot + 1, 16383, ["127.0.0.1", 1, "id"]]])
        if command[0] == b"EVALSHA":
            moved[0] = True
            return b"-MOVED %d 127.0.0.1:%d\r\n" % (slot, server.port)
        return b"-NOPERM nothing to see\r\n"

    with Puppet(stale) as seed:
        store = open_store(f"redis+cluster://127.0.0.1:{seed.port}")
        assert await store.run(put(key, "v")) == b"OK"
    assert server.command("GET", key) == b"v"


async def test_one_node_that_refuses_us_is_skipped(
    open_store: OpenStore, boot: Boot, flavour: str, namespace: str
) -> None:
    other, server = boot(flavour=flavour, config={"requirepass": "new"}), node(boot, flavour)
    server.command("CONFIG", "SET", "requirepass", "pw")
    store = open_store(f"redis+cluster://:pw@127.0.0.1:{other.port},127.0.0.1:{server.port}")
    assert await store.run(put(f"rl:{{{namespace}}}:k", "v")) == b"OK"
    with pytest.raises(ConfigurationError, match=r"no node located the master of slot \d+: .* refused AUTH"):
        await open_store(f"redis+cluster://:pw@127.0.0.1:{other.port}").run(put("k", "v"))


async def test_unreachable_nodes_are_asked_last(open_store: OpenStore, boot: Boot, namespace: str) -> None:
    server = node(boot, "valkey-9.1")
    call = put(f"rl:{{{namespace}}}:k", "v")
    with contextlib.ExitStack() as stack:
        gone = [stack.enter_context(Puppet(lambda _: None)) for _ in range(6)]
        url = f"redis+cluster://{','.join(f'127.0.0.1:{port}' for port in [*(one.port for one in gone), server.port])}"
        store = open_store(url, redis_connect_timeout=0.5, redis_deadline=2.5)
        with pytest.raises(RedisConnectionError):  # the time is not enough for all of them, but for most
            await store.run(call)
        assert await store.run(call) == b"OK"
        asked = [one.connections for one in gone]
        (await store.core())._lookup.forget((await store.core())._lookup.generation)
        assert await store.run(call) == b"OK"
        assert [one.connections for one in gone] == asked


async def test_a_node_that_left_the_cluster_is_forgotten(open_store: OpenStore, boot: Boot) -> None:
    server = boot()
    with Puppet(lambda _: None) as left, Puppet(lambda _: said[0]) as seed:
        member, former = (["127.0.0.1", port, "id"] for port in (server.port, left.port))
        said: list[bytes | None] = [resp([[0, 16383, member, former]])]
        store = open_store(f"redis+cluster://127.0.0.1:{seed.port}", redis_connect_timeout=0.3, redis_deadline=1)
        for reply in (resp([[0, 16383, member]]), None):
            assert await store.run(put("k", "v")) == b"OK"
            (await store.core())._lookup.forget((await store.core())._lookup.generation)
            said[0] = reply
        with pytest.raises(RedisConnectionError, match="no node located the master"):
            await store.run(put("k", "v"))
        assert left.connections == 0


async def test_a_slot_that_stays_elsewhere_is_an_error_not_a_loop(open_store: OpenStore) -> None:
    def answer(command: list[bytes]) -> bytes:
        if command[0] == b"CLUSTER":
            return resp([[0, 16383, ["127.0.0.1", seed.port, "id"]]])
        return b"-MOVED 1 127.0.0.1:1\r\n" if command[0] == b"EVALSHA" else b"-NOPERM no\r\n"

    with Puppet(answer) as seed:
        store = open_store(f"redis+cluster://127.0.0.1:{seed.port}", redis_deadline=1)
        with pytest.raises(
            StoreNotReadyError, match=r"in \d+ attempts: the server replied 'MOVED 1 127.*redis\+cluster://"
        ):
            await store.run(put("x", "v"))


async def test_an_error_is_raised_if_no_node_answers(open_store: OpenStore) -> None:
    with pytest.raises(RedisConnectionError, match="no node located the master of slot"):
        await open_store("redis+cluster://127.0.0.1:1", redis_deadline=0.5).run(put("x", "v"))
