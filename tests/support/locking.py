"""Helpers for tests of locks: the mark itself, and code that runs as if inside a task."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from relier import Client
from relier.ledger import keys
from relier.ledger.records import Claimed, Lease, Record, Spec, new_task_id, short_key
from relier.lock import IdempotencyLock
from relier.run.channel import LedgerChannel
from relier.run.context import TaskContext
from relier.run.current import enter_context
from relier.states import State
from relier.store import Durability
from relier.submit.client import default_client

T = TypeVar("T")
Enter = Callable[..., contextlib.AbstractAsyncContextManager[IdempotencyLock]]  # the fixture `enter`


def mark(client: Client, key: str = "k") -> bytes | None:
    """Return the mark as the store has it."""
    found: bytes | None = client.sync_store.command("GET", spelled(client, key))
    return found


def spelled(client: Client, key: str = "k") -> str:
    return keys.spell(client.ledger.prefix, "lock", short_key(key))


async def eventually(predicate: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until a condition holds that another task, a thread or the store brings about."""
    async with asyncio.timeout(seconds):
        while not predicate():  # noqa: ASYNC110 - nobody there could set an event
            await asyncio.sleep(0.002)


async def inside(lease: Lease, work: Callable[[], Awaitable[T]]) -> T:
    """Run `work` as if in the body of a task."""

    async def body() -> T:
        spec = Spec(0, 0, *[None] * 7, "retry", Durability.MEMORY)
        record = Record(lease.task_id, State.RUNNING, 2, lease.fence, lease.worker_id, 1, "", 0, spec, "default", "w")
        enter_context(TaskContext(Claimed(lease, record, b""), LedgerChannel(default_client())))
        return await work()

    return await asyncio.create_task(body())


def take_over(client: Client, key: str = "k") -> None:
    """Give the mark to another holder, as if it had expired and somebody else had taken it."""
    client.sync_store.command("DEL", spelled(client, key))
    client.run(client.ledger.lock(key, "anothers", 120_000, "elsewhere.1"))


def join(client: Client, boot: str = "boot", lease_ms: int = 60_000) -> str:
    assert client.run(client.ledger.register(boot, lease_ms))
    return boot


def lease_of(boot: str, task_id: str = "", fence: int = 1_800_000_000_000_000) -> Lease:
    return Lease(task_id or new_task_id(), str(fence), boot)
