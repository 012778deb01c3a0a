"""Tasks of an application with a lifespan, middleware and dependencies."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

from relier import INJECTED, Depends, TaskContext, lifespan, rl_task, use_middleware
from tests.support.conformance.signals import note

PLACE = os.environ.get("CONFORMANCE_PLACE", "")
tenant: ContextVar[str] = ContextVar("tenant", default="none")


async def shared() -> AsyncIterator[dict[str, Any]]:
    note(PLACE, "entered", os.getpid())
    yield {"pool": f"pool of {os.getpid()}"}
    note(PLACE, "left", os.getpid())


async def failing() -> AsyncIterator[None]:
    raise OSError("the database is unreachable")
    yield


async def for_acme(call_next: Any, ctx: TaskContext) -> Any:
    tenant.set("acme")
    return [*await call_next(ctx), "wrapped"]


if "CONFORMANCE_PLACE" in os.environ:  # in a worker, not in the process of the tests, which others share
    lifespan(shared)
    use_middleware(run=[for_acme])


def session(ctx: TaskContext) -> Iterator[str]:
    yield f"session of {ctx.state['pool']} for {tenant.get()}"
    note(PLACE, "closed", ctx.task_id)


async def client() -> str:
    return "client"


@rl_task
async def on_loop(n: int, db: str = Depends(session), ctx: TaskContext = INJECTED, http: str = Depends(client)) -> Any:
    return [n, db, ctx.state["pool"], http]


@rl_task
def in_thread(n: int, db: str = Depends(session), ctx: TaskContext = INJECTED, http: str = Depends(client)) -> Any:
    return [n, db, ctx.state["pool"], http]


@rl_task(isolate=True)
async def alone(n: int, db: str = Depends(session), ctx: TaskContext = INJECTED, http: str = Depends(client)) -> Any:
    return [n, db, ctx.state["pool"], http]


EVERYWHERE = {"loop": on_loop, "thread": in_thread, "alone": alone}
