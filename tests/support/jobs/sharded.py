"""Tasks for namespaces with shards."""

from __future__ import annotations

from relier import TaskContext, idempotency_lock, rl_task
from relier.limits import Limit


@rl_task
async def add(a: int, b: int = 0) -> int:
    return a + b


@rl_task(idempotency_key="order:{order}")
async def charge(order: int) -> int:
    return order


@rl_task(limits=[Limit(concurrency=1, per="tenant:{tenant}")])
async def per_tenant(tenant: int) -> int:
    return tenant


@rl_task(limits=[Limit(concurrency=2)])
async def two_at_once(n: int) -> int:
    return n


@rl_task(idempotent=True, limits=[Limit(concurrency=1, per="tenant:{tenant}")])
async def once_per_tenant(tenant: int) -> int:
    return tenant


@rl_task(isolate=True)
def alone(n: int) -> int:
    return n


@rl_task
async def grow(ctx: TaskContext, n: int) -> int:
    """Add tasks to its own batch."""
    assert ctx.batch is not None
    await ctx.batch.aadd(*(add.si(each) for each in range(n)))
    return n


@rl_task
async def locked(key: str) -> str:
    """Take a lock whose key may lie in another shard than the task."""
    async with idempotency_lock(key) as lock:
        if lock.already_executed:
            return f"{lock.cached_result}, kept"
        lock.set_result(key)
    return key
