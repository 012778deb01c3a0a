"""The clients that bench/wire.py compares, each behind one function: send these calls together, return their results.

Every client gets the same calls and the same read timeout, and the results are parsed by the calls themselves. Retries
are off where a client has them: whether a call whose reply was lost is sent again must be Relier's decision.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import coredis
import glide
import glide_sync
import redis.asyncio
import valkey.asyncio
from coredis.retry import NoRetryPolicy
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkey.asyncio.retry import Retry as ValkeyAsyncRetry
from valkey.backoff import NoBackoff as ValkeyNoBackoff
from valkey.retry import Retry as ValkeyRetry

from relier.settings import Settings
from relier.store import AsyncStore, Call, Scripts, SyncStore
from relier.store.async_wire import AsyncWire
from relier.store.connect.address import parse_url
from relier.store.sync_wire import SyncWire, run_sync
from relier.store.wire import pack

Calls = list[Call[Any]]
Send = Callable[[Calls], list[Any]]
AsyncSend = Callable[[Calls], Awaitable[list[Any]]]
TIMEOUT_S = 1.0


class Clients:
    """Open each client on the server at `port`."""

    def __init__(self, port: int, scripts: Scripts) -> None:
        self._port = port
        self._scripts = scripts
        self._url = f"redis://127.0.0.1:{port}"
        self._settings = Settings(redis_url=self._url, namespace="bench")
        self._address = parse_url(self._url).nodes[0]
        self.sync = {
            "relier store": self.store,
            "redis-py": self.redis_py,
            "valkey-py": self.valkey_py,
            "valkey-glide": self.valkey_glide,
            "relier connection": self.own_connection,
            "redis-py connection": self.redis_connection,
        }
        self.asynchronous = {
            "relier store": self.async_store,
            "redis-py": self.async_redis_py,
            "valkey-py": self.async_valkey_py,
            "coredis": self.async_coredis,
            "valkey-glide": self.async_valkey_glide,
            "relier connection": self.async_own_connection,
            "redis-py connection": self.async_redis_connection,
        }

    def _sha(self, call: Call[Any]) -> str:
        return self._scripts[call.script].sha

    def _words(self, call: Call[Any]) -> tuple[Any, ...]:
        return ("EVALSHA", self._sha(call), 1, call.key, *call.args)

    def _texts(self, call: Call[Any]) -> list[str | bytes]:
        """Convert the arguments: valkey-glide takes only text and bytes."""
        return [str(word) if type(word) is int else word for word in self._words(call)]

    def _packed(self, calls: Calls) -> bytes:
        return b"".join([pack(self._words(call)) for call in calls])

    # Threads.

    @contextlib.contextmanager
    def store(self) -> Iterator[Send]:
        with SyncStore(self._settings, self._scripts) as store:

            def send(calls: Calls) -> list[Any]:
                return [store.run(calls[0])] if len(calls) == 1 else store.run_many(calls)

            yield send

    @contextlib.contextmanager
    def redis_py(self) -> Iterator[Send]:
        with redis.Redis(port=self._port, socket_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0)) as client:
            yield self._through_pipelines(client)

    @contextlib.contextmanager
    def valkey_py(self) -> Iterator[Send]:
        retry = ValkeyRetry(ValkeyNoBackoff(), 0)
        with valkey.Valkey(port=self._port, socket_timeout=TIMEOUT_S, retry=retry) as client:
            yield self._through_pipelines(client)

    def _through_pipelines(self, client: Any) -> Send:
        def send(calls: Calls) -> list[Any]:
            if len(calls) == 1:
                call = calls[0]
                return [call.read(client.evalsha(self._sha(call), 1, call.key, *call.args))]
            with client.pipeline(transaction=False) as pipe:
                for call in calls:
                    pipe.evalsha(self._sha(call), 1, call.key, *call.args)
                return read_all(calls, pipe.execute(raise_on_error=False))

        return send

    @contextlib.contextmanager
    def valkey_glide(self) -> Iterator[Send]:
        client = glide_sync.GlideClient.create(
            glide_sync.GlideClientConfiguration(
                [glide_sync.NodeAddress("127.0.0.1", self._port)], request_timeout=int(1000 * TIMEOUT_S)
            )
        )

        def send(calls: Calls) -> list[Any]:
            if len(calls) == 1:
                return [calls[0].read(client.custom_command(self._texts(calls[0])))]
            batch = glide_sync.Batch(is_atomic=False)
            for call in calls:
                batch.custom_command(self._texts(call))
            return read_all(calls, client.exec(batch, raise_on_error=False))

        try:
            yield send
        finally:
            client.close()

    @contextlib.contextmanager
    def own_connection(self) -> Iterator[Send]:
        connection = run_sync(SyncWire().connect(self._address, TIMEOUT_S))

        def send(calls: Calls) -> list[Any]:
            return read_all(calls, run_sync(connection.exchange(self._packed(calls), len(calls), TIMEOUT_S)))

        try:
            yield send
        finally:
            connection.close()

    @contextlib.contextmanager
    def redis_connection(self) -> Iterator[Send]:
        connection = redis.Connection(
            port=self._port, protocol=2, socket_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0)
        )
        connection.connect()

        def send(calls: Calls) -> list[Any]:
            connection.send_packed_command([self._packed(calls)])
            return read_all(calls, [connection.read_response() for _ in calls])

        try:
            yield send
        finally:
            connection.disconnect()

    # Event loops.

    @contextlib.asynccontextmanager
    async def async_store(self) -> AsyncIterator[AsyncSend]:
        async with AsyncStore(self._settings, self._scripts) as store:

            async def send(calls: Calls) -> list[Any]:
                return [await store.run(calls[0])] if len(calls) == 1 else await store.run_many(calls)

            yield send

    @contextlib.asynccontextmanager
    async def async_redis_py(self) -> AsyncIterator[AsyncSend]:
        retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
        async with redis.asyncio.Redis(port=self._port, socket_timeout=TIMEOUT_S, retry=retry) as client:
            yield self._through_async_pipelines(client)

    @contextlib.asynccontextmanager
    async def async_valkey_py(self) -> AsyncIterator[AsyncSend]:
        retry = ValkeyAsyncRetry(ValkeyNoBackoff(), 0)
        async with valkey.asyncio.Valkey(port=self._port, socket_timeout=TIMEOUT_S, retry=retry) as client:
            yield self._through_async_pipelines(client)

    def _through_async_pipelines(self, client: Any) -> AsyncSend:
        async def send(calls: Calls) -> list[Any]:
            if len(calls) == 1:
                call = calls[0]
                return [call.read(await client.evalsha(self._sha(call), 1, call.key, *call.args))]
            async with client.pipeline(transaction=False) as pipe:
                for call in calls:
                    pipe.evalsha(self._sha(call), 1, call.key, *call.args)
                return read_all(calls, await pipe.execute(raise_on_error=False))

        return send

    @contextlib.asynccontextmanager
    async def async_coredis(self) -> AsyncIterator[AsyncSend]:
        client = coredis.Redis(
            "127.0.0.1", self._port, stream_timeout=TIMEOUT_S, retry_policy=NoRetryPolicy(), verify_version=False
        )

        async def send(calls: Calls) -> list[Any]:
            if len(calls) == 1:
                call = calls[0]
                return [call.read(await client.evalsha(self._sha(call), [call.key], call.args))]
            async with client.pipeline(transaction=False, raise_on_error=False) as pipe:
                replies = [pipe.evalsha(self._sha(call), [call.key], call.args) for call in calls]
            return read_all(calls, [await reply for reply in replies])

        async with client:
            yield send

    @contextlib.asynccontextmanager
    async def async_valkey_glide(self) -> AsyncIterator[AsyncSend]:
        client = await glide.GlideClient.create(
            glide.GlideClientConfiguration(
                [glide.NodeAddress("127.0.0.1", self._port)], request_timeout=int(1000 * TIMEOUT_S)
            )
        )

        async def send(calls: Calls) -> list[Any]:
            if len(calls) == 1:
                return [calls[0].read(await client.custom_command(self._texts(calls[0])))]
            batch = glide.Batch(is_atomic=False)
            for call in calls:
                batch.custom_command(self._texts(call))
            return read_all(calls, await client.exec(batch, raise_on_error=False))

        try:
            yield send
        finally:
            await client.close()

    @contextlib.asynccontextmanager
    async def async_own_connection(self) -> AsyncIterator[AsyncSend]:
        connection = await AsyncWire(asyncio.get_running_loop()).connect(self._address, TIMEOUT_S)

        async def send(calls: Calls) -> list[Any]:
            return read_all(calls, await connection.exchange(self._packed(calls), len(calls), TIMEOUT_S))

        try:
            yield send
        finally:
            connection.close()

    @contextlib.asynccontextmanager
    async def async_redis_connection(self) -> AsyncIterator[AsyncSend]:
        retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
        connection = redis.asyncio.Connection(port=self._port, protocol=2, socket_timeout=TIMEOUT_S, retry=retry)
        await connection.connect()

        async def send(calls: Calls) -> list[Any]:
            await connection.send_packed_command([self._packed(calls)])
            return read_all(calls, [await connection.read_response() for _ in calls])

        try:
            yield send
        finally:
            await connection.disconnect()


def read_all(calls: Calls, replies: list[Any] | None) -> list[Any]:
    return [call.read(reply) for call, reply in zip(calls, replies or [], strict=True)]
