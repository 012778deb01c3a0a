"""Tasks that provoke alerts, and what dashboards show."""

from __future__ import annotations

from contextlib import suppress

from relier import Admit, Limit, Missed, TaskContext, events, rl_task
from relier.errors import AdmissionRejectedError
from tests.support.jobs.common import gate_opens, note


@rl_task(queue="parked", limits=Limit(concurrency=1))
async def limited() -> None:
    """Nobody runs it: its queue is paused."""


@rl_task(admission=Admit("rationed", limit=1, window=3600))
async def rationed() -> None: ...


@rl_task
async def overdraws() -> None:
    with suppress(AdmissionRejectedError):
        for _ in range(2):
            await rationed.apush()


@rl_task
async def falls_behind(gate: str, ctx: TaskContext) -> None:
    """Read an event and do not finish with it. Before that, begin at a place that does not exist, which is a gap."""
    async for event in events("tasks", since="tasks=999999999-1"):
        assert isinstance(event, Missed)
        break
    async for _ in events("tasks", since="start"):
        note("begin", ctx)
        await gate_opens(gate)
        break
