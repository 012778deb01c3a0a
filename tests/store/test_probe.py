"""The capability probe on real servers, including servers that do not tell."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hiredis import ReplyError

from relier.errors import ConfigurationError
from relier.store import Capabilities
from relier.store.connect.probe import capabilities_of
from tests.support.either_store import OpenStore
from tests.support.servers import Boot, Server
from tests.support.toy_scripts import echo
from tests.support.wire import Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.matrix]

WAITAOF = {"valkey-9.1", "valkey-8.1", "redis-8.2"}
FIELD_EXPIRY = {"valkey-9.1", "redis-8.2"}


async def test_the_probe_finds_what_a_server_can_do(open_store: OpenStore, server: Server) -> None:
    assert await open_store(server.url).probe() == Capabilities(
        scripts=True,
        streams=True,
        wait=True,
        waitaof=server.flavour in WAITAOF,
        hash_field_expiry=server.flavour in FIELD_EXPIRY,
        role="master",
        aof=True,
        appendfsync="everysec",
        rdb=False,
        eviction_policy="noeviction",
    )


async def test_replicas_are_counted(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    master = boot(flavour=flavour)
    replica = boot(flavour=flavour, config={"replicaof": f"127.0.0.1 {master.port}"})
    found = await open_store(replica.url).probe()
    assert (found.role, found.wait) == ("slave", True)


async def test_if_config_is_denied_info_is_used(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    server = boot(flavour=flavour)
    server.command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-config", "-xlen")
    store = open_store(f"redis://app:pw@127.0.0.1:{server.port}")
    found = await store.probe()
    assert (found.aof, found.eviction_policy) == (True, "noeviction")
    assert (found.appendfsync, found.rdb, found.streams) == (None, None, None)
    assert found.persistent is True
    assert await store.run(echo()) == b"hello", "what is unknown is not refused"


async def test_a_server_that_says_nothing_at_all_is_used(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    server = boot(flavour=flavour)
    server.command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-config", "-info", "-role")
    store = open_store(f"redis://app:pw@127.0.0.1:{server.port}")
    found = await store.probe()
    assert (found.role, found.aof, found.eviction_policy, found.persistent) == (None, None, None, None)
    assert await store.run(echo()) == b"hello"


@pytest.mark.parametrize("denied", [[], ["-config"]])
async def test_a_server_that_evicts_is_refused(
    open_store: OpenStore, boot: Boot, flavour: str, denied: list[str]
) -> None:
    server = boot(flavour=flavour, config={"maxmemory-policy": "allkeys-lru"})
    server.command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", *denied)
    url = f"redis://app:pw@127.0.0.1:{server.port}"
    refused = open_store(url)
    for attempt in (refused.probe(), refused.run(echo())):
        with pytest.raises(
            ConfigurationError, match="maxmemory-policy allkeys-lru deletes tasks when memory runs short"
        ):
            await attempt
    assert await open_store(url, redis_allow_eviction=True).run(echo()) == b"hello"
    server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert await refused.run(echo()) == b"hello", "corrected without a restart"


async def test_a_server_that_keeps_nothing_is_warned_about_once(
    open_store: OpenStore, boot: Boot, flavour: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = boot(flavour=flavour, config={"appendonly": "no"})
    store = open_store(server.url)
    with caplog.at_level(logging.WARNING, "relier.store"):
        assert (await store.probe()).persistent is False
        server.restart()
        await store.run(echo())
    assert len(caplog.records) == 1
    assert "store is not persistent: store=" in caplog.text


async def test_the_probe_writes_nothing(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    server = boot(flavour=flavour)
    await open_store(server.url).probe()
    assert server.command("DBSIZE") == 0
    assert server.info("persistence")["rdb_changes_since_last_save"] == "0"


async def test_a_server_without_scripts_is_refused(open_store: OpenStore, server: Server) -> None:
    with Proxy(server.port) as proxy:
        answers = [b"-ERR unknown command 'EVAL'", *[b"-NOPERM no"] * 12]
        proxy.disturb = lambda request: b"\r\n".join([*answers, b""]) if b"EVAL" in request else None
        with pytest.raises(ConfigurationError, match=r"cannot run scripts; use Redis 6\.2"):
            await open_store(proxy.url).run(echo())


def test_unknown_is_none() -> None:
    replies: list[Any] = [ReplyError("NOPERM no")] * 13
    assert capabilities_of(replies) == Capabilities(*[None] * 10)
