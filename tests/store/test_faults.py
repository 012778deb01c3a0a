"""Faults, and what the caller gets: a typed error, within the deadline, that says what to do."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relier.errors import (
    ConfigurationError,
    RedisConnectionError,
    RelierError,
    StoreDiskError,
    StoreError,
    StoreFullError,
    StoreNotReadyError,
    StoreReadOnlyError,
)
from relier.settings import Settings
from relier.store import AsyncStore, Scripts
from relier.store.connect.address import Address
from relier.store.policy import AttemptError
from relier.store.sync_wire import SyncConnection, SyncWire, run_sync
from tests.support.either_store import OpenStore
from tests.support.servers import Boot, Server, free_port, wait_until
from tests.support.toy_scripts import Hands, count, echo, put, slow
from tests.support.wire import Proxy, Puppet, resp

pytestmark = [pytest.mark.anyio, pytest.mark.matrix]
SHORT: dict[str, Any] = {"redis_read_timeout": 0.2, "redis_connect_timeout": 0.2, "redis_deadline": 0.6}


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as running:
        yield running


def only_calls(what: Any, times: int = 1000) -> Callable[[bytes], Any]:
    """Disturb that many calls, but let handshakes and probes pass."""
    left = [times]

    def disturb(request: bytes) -> Any:
        if b"EVALSHA" not in request or not left[0]:
            return None
        left[0] -= 1
        return what

    return disturb


async def test_an_address_without_a_server_is_reported(open_store: OpenStore) -> None:
    store = open_store(f"redis://:hunter2@127.0.0.1:{free_port()}", redis_retries=0, redis_deadline=0.5)
    with pytest.raises(RedisConnectionError) as caught:
        await store.run(echo())
    message = str(caught.value)
    assert message.startswith("the store at redis://***@127.0.0.1:")
    assert re.search(r"gave no answer in \d+ attempts: cannot connect to 127.0.0.1:", message)
    assert message.endswith(
        "check that it is running and that RELIER_REDIS_URL points to it; repeating the call is safe"
    )


@pytest.mark.parametrize("url", ["redis://db..internal:6379", "rediss://.example.com:6379"])
async def test_a_host_name_that_cannot_be_resolved_is_reported(open_store: OpenStore, url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"the address is not valid \(.*\); correct RELIER_REDIS_URL"):
        await open_store(url).run(echo())


async def test_an_unexpected_error_reaches_every_caller(scripts: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no resolver today")

    monkeypatch.setattr(socket, "getaddrinfo", broken)
    async with AsyncStore(Settings(redis_url="redis://localhost"), scripts) as store:
        answers = await asyncio.gather(store.run(echo()), store.run(echo()), return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreError, StoreError]
        assert str(answers[0]).startswith(
            "the call to the store failed with an unexpected RuntimeError: no resolver today; "
        )
        assert isinstance(answers[0].__cause__, RuntimeError)  # type: ignore[union-attr]


async def test_a_silent_server_costs_no_more_than_the_deadline(open_store: OpenStore) -> None:
    with Puppet(lambda _: None) as silent:
        store = open_store(silent.url, redis_retries=100, **SHORT)
        began = time.monotonic()
        with pytest.raises(RedisConnectionError, match="timed out"):
            await store.run(echo())
        assert time.monotonic() - began < 5, "all attempts together would take 20 s"


async def test_a_server_that_stops_answering_is_reported(open_store: OpenStore, proxy: Proxy) -> None:
    store = open_store(proxy.url, redis_retries=100, **SHORT)
    await store.run(echo())
    proxy.disturb = only_calls("silent", times=1)
    assert await store.run(echo("again")) == b"again", "one silent connection is left for another"
    proxy.disturb = only_calls("silent")
    began = time.monotonic()
    with pytest.raises(RedisConnectionError, match="timed out"):
        await store.run(echo())
    assert time.monotonic() - began < 5, "all attempts together would take 20 s"


async def test_a_frozen_server_costs_no_more_than_the_deadline(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    server = boot(flavour=flavour)
    store = open_store(server.url, **SHORT)
    await store.run(echo())
    server.freeze()
    with pytest.raises(RedisConnectionError):
        await store.run(echo())
    server.thaw()


async def test_the_deadline_cuts_a_longer_read_timeout(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    server = boot(flavour=flavour)
    store = open_store(server.url, redis_read_timeout=30, redis_deadline=0.5, redis_retries=0)
    await store.run(echo())
    server.freeze()
    began = time.monotonic()
    with pytest.raises(RedisConnectionError):
        await store.run(echo())
    assert time.monotonic() - began < 5
    server.thaw()


def test_the_addresses_of_a_name_share_the_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as stack:
        places = [full_listener(stack, f"127.0.0.{number}") for number in range(2, 6)]
        places.append(("127.0.0.1", server.port))
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        began = time.monotonic()
        run_sync(SyncWire().connect(Address("name"), 1.0)).close()
        assert time.monotonic() - began < 1.5


def full_listener(stack: contextlib.ExitStack, host: str) -> tuple[str, int]:
    """A listener that drops packets, as a firewall does: nobody accepts, and its queue is full."""
    listener = stack.enter_context(socket.create_server((host, 0), backlog=0))
    place: tuple[str, int] = listener.getsockname()
    for _ in range(3):
        client = stack.enter_context(socket.socket())
        client.setblocking(False)
        client.connect_ex(place)
    return place


def test_sending_and_waiting_share_the_time() -> None:
    mine, theirs = socket.socketpair()
    sender = LimitedSocket(fileno=mine.detach())
    request = b"x" * 4_000_000

    def read_late() -> None:
        wait_until(lambda: sender.limits)
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + 0.3)
        left = len(request)
        while left > 0:
            left -= len(theirs.recv(1 << 20))
        theirs.close()

    reader = threading.Thread(target=read_late)
    reader.start()
    with pytest.raises(AttemptError, match="closed by the server"):
        run_sync(SyncConnection(sender).exchange(request, 1, 20.0))
    reader.join()
    assert sender.limits[0] == 20.0
    assert sender.limits[-1] <= 19.7


class LimitedSocket(socket.socket):
    """A socket that remembers the time limits that it was given."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.limits: list[float] = []

    def settimeout(self, value: float | None) -> None:
        super().settimeout(value)
        if value is not None:
            self.limits.append(value)


async def test_connections_that_are_refused_use_up_no_retries(open_store: OpenStore, boot: Boot) -> None:
    server = boot()
    server.kill()
    store = open_store(server.tcp_url, redis_retries=0, redis_deadline=20)
    breaker = (await store.core())._breaker
    call = asyncio.create_task(store.run(echo()))
    await asyncio.to_thread(wait_until, lambda: breaker._failed > 3)
    server.start()
    assert await call == b"hello"


async def test_an_unreadable_reply_is_retried_and_then_reported(open_store: OpenStore, proxy: Proxy) -> None:
    store = open_store(proxy.url, redis_breaker_failures=100)
    proxy.disturb = only_calls(b"HTTP/1.1 502 Bad Gateway\r\n\r\n", times=2)
    assert await store.run(echo()) == b"hello"
    proxy.disturb = only_calls(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
    with pytest.raises(RedisConnectionError, match="the reply is not valid RESP"):
        await store.run(echo())
    proxy.disturb = only_calls(None)
    assert await store.run(echo("after")) == b"after"


async def test_more_replies_than_asked_for_are_not_handed_to_the_next(open_store: OpenStore, proxy: Proxy) -> None:
    store = open_store(proxy.url)
    proxy.disturb = only_calls(b"$5\r\nfirst\r\n$6\r\nsecond\r\n", times=1)
    assert await store.run(echo()) == b"first"
    assert await store.run(echo("mine")) == b"mine"


@pytest.mark.parametrize("what", ["lose", 1, 5])
async def test_a_call_whose_reply_was_lost_is_sent_again(
    open_store: OpenStore, proxy: Proxy, namespace: str, server: Server, what: Any
) -> None:
    store = open_store(proxy.url)
    key = f"rl:{{{namespace}}}:n"
    await store.run(count(key, "0"))
    proxy.disturb = only_calls(what, times=2)
    assert await store.run_many([count(key, "1"), count(key, "2")]) == [2, 3]
    assert int(server.command("GET", key)) == 3, "sent three times, counted once"


async def test_scripts_are_loaded_also_where_nothing_is_retried(open_store: OpenStore, boot: Boot) -> None:
    assert await open_store(boot().url, redis_retries=0).run(echo()) == b"hello"


async def test_a_command_once_sent_is_not_repeated_unless_told(
    open_store: OpenStore, proxy: Proxy, namespace: str
) -> None:
    store = open_store(proxy.url)
    key = f"rl:{{{namespace}}}:n"
    await store.command("GET", key)
    lost = iter(["lose", None, "lose", None])
    proxy.disturb = lambda request: next(lost, None) if b"INCR" in request else None
    with pytest.raises(RedisConnectionError):
        await store.command("INCR", key)
    assert await store.command("INCR", key) == 2
    assert await store.command("INCR", key, retry=True) == 4


async def test_idle_connections_the_server_closed_are_noticed(open_store: OpenStore, proxy: Proxy) -> None:
    store = open_store(proxy.url)
    assert await store.run(echo()) == b"hello"
    proxy.drop_all()
    assert await store.run(echo()) == b"hello"


async def test_a_dead_store_fails_fast_and_heals(open_store: OpenStore, proxy: Proxy) -> None:
    clock = Hands()
    store = open_store(proxy.url, clock, redis_breaker_failures=3, redis_breaker_cooldown=2, redis_retries=2)
    await store.run(echo())
    proxy.disturb = only_calls("lose")
    with pytest.raises(RedisConnectionError, match="in 3 attempts"):
        await store.run(echo())
    seen = len(proxy.requests)
    with pytest.raises(RedisConnectionError, match="failed 3 times in a row; the next attempt is allowed in 2 s;"):
        await store.run(echo())
    assert len(proxy.requests) == seen
    clock.now += 2
    with pytest.raises(RedisConnectionError, match="the connection was lost"):
        await store.run(echo())
    assert len(proxy.requests) > seen, "half open: one call may try"
    with pytest.raises(RedisConnectionError, match="nothing was sent"):
        await store.run(echo())
    clock.now += 2
    proxy.disturb = only_calls(None)
    assert await store.run(echo("healed")) == b"healed"
    assert await store.run(echo("closed")) == b"closed"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", StoreNotReadyError),
        (b"-MASTERDOWN Link with MASTER is down\r\n", StoreNotReadyError),
        (b"-READONLY You can't write against a read only replica.\r\n", StoreReadOnlyError),
        (b"-BUSY Valkey is busy running a script.\r\n", StoreNotReadyError),
        (b"-NOREPLICAS Not enough good replicas to write.\r\n", StoreNotReadyError),
    ],
)
async def test_calls_wait_until_temporary_errors_end(
    open_store: OpenStore, proxy: Proxy, reply: bytes, error: type[RelierError]
) -> None:
    store = open_store(proxy.url, redis_retries=0, redis_deadline=1)
    await store.run(echo())
    proxy.disturb = only_calls(reply, times=3)
    assert await store.run(echo("at last")) == b"at last"
    proxy.disturb = only_calls(reply)
    with pytest.raises(error, match=r"in \d+ attempts: the server replied"):
        await store.run(echo())


async def test_a_server_that_keeps_no_script_is_sent_the_text(open_store: OpenStore) -> None:
    seen: list[bytes] = []

    def answer(command: list[bytes]) -> bytes:
        seen.append(command[0])
        if command[0] == b"EVALSHA":
            return b"-NOSCRIPT No matching script.\r\n"
        if command[0] == b"EVAL" and len(command) > 3:
            return resp(command[-1].decode())
        return b"+OK\r\n" if command[0] == b"SCRIPT" else b"-NOPERM no\r\n"

    with Puppet(answer) as forgetful:
        store = open_store(forgetful.url, redis_retries=0)
        assert await store.run_many([echo("one"), echo("two")]) == [b"one", b"two"]
        assert seen[-2:] == [b"EVAL", b"EVAL"]


async def test_scripts_forgotten_at_every_attempt_reach_no_caller(
    open_store: OpenStore, boot: Boot, flavour: str
) -> None:
    server = boot(flavour=flavour)
    with Proxy(server.port) as proxy:
        store = open_store(proxy.url, redis_retries=1)
        await store.run(echo())
        trouble = iter(["lose", b"-LOADING Loading.\r\n"])

        def disturb(request: bytes) -> Any:
            if b"EVALSHA" not in request:
                return None
            server.command("SCRIPT", "FLUSH")  # as if it had restarted: what is not loaded with the call is not there
            return next(trouble, None)

        proxy.disturb = disturb
        assert await store.run(echo("kept")) == b"kept"


async def test_a_real_loading_server_is_waited_for(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    server = boot(flavour=flavour, config={"appendonly": "no", "save": "3600 1000000"})
    for number in range(20):
        server.command("SET", f"k{number}", "v")
    server.command("SAVE")
    server.kill()
    server._config["key-load-delay"] = "20000"
    server.start(wait=False)
    store = open_store(server.url, redis_retries=50, redis_deadline=10)
    wait_until(lambda: Path(server.path).exists())
    assert await store.run(echo()) == b"hello"


async def test_a_replica_is_read_only(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    master = boot(flavour=flavour)
    replica = boot(flavour=flavour, config={"replicaof": f"127.0.0.1 {master.port}"})
    wait_until(lambda: replica.info("replication")["master_link_status"] == "up")
    store = open_store(replica.tcp_url, redis_deadline=1)
    assert await store.run(echo("reads")) == b"reads"
    with pytest.raises(StoreReadOnlyError, match="nothing was written; point RELIER_REDIS_URL at the master"):
        await store.run(put("k", "v"))
    replica.command("REPLICAOF", "NO", "ONE")
    assert await store.run(put("k", "v")) == b"OK", "promoted: the same store goes on"


async def test_a_full_store_raises_its_own_error(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    server = boot(flavour=flavour)
    store = open_store(server.url)
    await store.run(put("k", "v"))
    server.command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreFullError, match="nothing was written; raise maxmemory or remove data"):
        await store.run(put("k", "w"))
    assert await store.run(echo("still there")) == b"still there"


async def test_a_store_that_cannot_save_raises_its_own_error(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    server = boot(flavour=flavour, config={"appendonly": "no", "save": "3600 1000000"})
    store = open_store(server.url)
    await store.run(put("k", "v"))
    (server.folder / "dump.rdb").mkdir()  # the snapshot cannot take this name
    server.command("BGSAVE")
    wait_until(lambda: server.info("persistence")["rdb_last_bgsave_status"] == "err")
    with pytest.raises(StoreDiskError, match="nothing was written; free disk space"):
        await store.run(put("k", "w"))


async def test_wrong_passwords_and_missing_permissions_are_reported(
    open_store: OpenStore, boot: Boot, flavour: str
) -> None:
    server = boot(flavour=flavour, config={"requirepass": "hunter2"})
    admin = open_store(f"redis://:hunter2@127.0.0.1:{server.port}")
    await admin.command("ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all", "-set")
    host = f"127.0.0.1:{server.port}"
    assert await open_store(f"redis://:hunter2@{host}").run(put("k", "v")) == b"OK"
    assert await open_store(f"redis://ann:pw@{host}").run(echo()) == b"hello"
    with pytest.raises(ConfigurationError, match="NOPERM"):
        await open_store(f"redis://ann:pw@{host}").command("SET", "k", "v")
    with pytest.raises(ConfigurationError, match="NOAUTH"):
        await open_store(f"redis://{host}").command("GET", "k")
    for url in (f"redis://:hunter3@{host}", f"redis://ann:hunter3@{host}"):
        with pytest.raises(ConfigurationError, match="refused AUTH: WRONGPASS") as caught:
            await open_store(url).run(echo())
        assert "hunter" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="refused SELECT: ERR"):
        await open_store(f"redis://:hunter2@{host}/999").run(echo())


async def test_an_unneeded_password_is_reported(open_store: OpenStore, server: Server) -> None:
    with pytest.raises(ConfigurationError, match="refused AUTH: ") as caught:
        await open_store(f"redis://ann:hunter2@127.0.0.1:{server.port}").run(echo())
    assert "hunter2" not in str(caught.value)


async def test_a_slow_script_is_not_mistaken_for_a_dead_store(open_store: OpenStore, server: Server) -> None:
    assert await open_store(server.url).run(slow(20)) == b"OK"


async def test_every_call_of_a_lost_batch_gets_the_error(settings: Settings, scripts: Scripts, proxy: Proxy) -> None:
    chosen = settings.replace(redis_url=proxy.url, redis_retries=0)
    async with AsyncStore(chosen, scripts) as store:
        await store.run(echo())
        proxy.disturb = only_calls("lose")
        answers = await asyncio.gather(*(store.run(echo()) for _ in range(3)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [RedisConnectionError] * 3
        assert len({id(answer) for answer in answers}) == 3


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key in the same file."""
    folder = tmp_path_factory.mktemp("tls")
    made = folder / "both.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=relier -addext subjectAltName=IP:127.0.0.1"
    try:
        subprocess.run(
            [*command.split(), "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("no openssl command to make a certificate with")
    made.write_text((folder / "key").read_text() + (folder / "cert").read_text())
    return made


@pytest.fixture
def tls_proxy(server: Server, certificate: Path) -> Iterator[Proxy]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Proxy(server.port, context) as running:
        yield running


async def test_certificates_are_verified(open_store: OpenStore, tls_proxy: Proxy, certificate: Path) -> None:
    url = f"rediss://127.0.0.1:{tls_proxy.port}"
    assert await open_store(f"{url}?ssl_ca_certs={certificate}").run(echo("x" * 100_000)) == b"x" * 100_000
    assert await open_store(f"{url}?ssl_cert_reqs=none").run(echo()) == b"hello"
    with pytest.raises(ConfigurationError, match=r"cannot verify the TLS certificate of 127.0.0.1:\d+: self.signed"):
        await open_store(url).run(echo())
    named = f"rediss://localhost:{tls_proxy.port}?ssl_ca_certs={certificate}"
    with pytest.raises(ConfigurationError, match=r"cannot verify the TLS certificate of .*: Hostname mismatch"):
        await open_store(named).run(echo())
    assert await open_store(f"{named}&ssl_check_hostname=false").run(echo()) == b"hello"


async def test_tls_to_a_plain_server_is_reported(open_store: OpenStore, server: Server) -> None:
    with pytest.raises(RedisConnectionError):
        await open_store(f"rediss://127.0.0.1:{server.port}", **SHORT).run(echo())


async def test_a_user_who_may_not_load_scripts(open_store: OpenStore, boot: Boot, flavour: str) -> None:
    server = boot(flavour=flavour)
    server.command("ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all", "-script")
    store = open_store(f"redis://ann:pw@127.0.0.1:{server.port}")
    with pytest.raises(ConfigurationError, match=r"NOPERM .* check the user and the password .* ACL on the server"):
        await store.run(echo())
