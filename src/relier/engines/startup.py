"""Do what a worker must do when it starts: wait for its store, declare schedules, and warn about likely mistakes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from relier import registry
from relier.errors import RelierError, StoreSetupError, StoreUnavailableError, WorkerInitializationError
from relier.nodes.process import resident_mb
from relier.schedules.declared import declare_all, declared_schedules
from relier.settings import unknown_variables
from relier.store.until_answered import growing_pauses
from relier.submit.client import Client
from relier.submit.shards.routing import check_fits_shards

log = logging.getLogger("relier.worker")

REPORT_S = 30.0  # how often to report that the store is still unreachable
MOST_NAMES = 3  # of tasks in one warning


async def until_reachable(act: Callable[[], Awaitable[Any]], stopped: asyncio.Event) -> bool:
    """Await `act` until the store answers. Return False if the process was asked to stop before that.

    A store that refuses this client (user, password, ACL, eviction policy) does not count as unreachable: the error is
    raised.
    """
    reported = -math.inf
    for pause in growing_pauses():
        try:
            await act()
        except StoreSetupError:
            raise
        except StoreUnavailableError as error:
            if time.monotonic() - reported >= REPORT_S:
                reported = time.monotonic()
                log.warning("store unreachable, waiting for it before the start: %s", error)
        else:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), pause)
        if stopped.is_set():
            break
    return False


def check_memory(limit: float | None) -> None:
    """Raise WorkerInitializationError if the process already holds more memory than its limit (MB)."""
    now = resident_mb()
    if limit is not None and now > limit:
        raise WorkerInitializationError(
            f"--max-rss-mb {limit:g} is less than this worker holds before its first task ({now:.0f} MB): it would "
            f"restart for ever; raise the limit"
        )


def check_schedules() -> None:
    """Raise ScheduleDefinitionError if a schedule that the code declares does not fit its task."""
    for spec in declared_schedules():
        spec.check_call()


def check_tasks_fit_shards() -> None:
    """Raise ShardsError if a known task cannot be pushed to a namespace with shards."""
    for task in registry.known_tasks():
        check_fits_shards(task)


async def at_start(client: Client, queues: Sequence[str], started_with: Sequence[str], stopped: asyncio.Event) -> None:
    """Log warnings and declare schedules. The first claim does not wait for this.

    `started_with`: the modules on the command line, which become the origin of the schedules.
    """
    await warn_at_start(client, queues)
    await declare_at_start(client, ",".join(sorted(started_with)), stopped)


async def declare_at_start(client: Client, application: str, stopped: asyncio.Event) -> None:
    """Write the schedules that the code declares to the ledger, and disable those that it no longer declares."""
    specs = declared_schedules()

    async def declare() -> None:
        await declare_all(client, client.arun, application, specs)

    try:
        await until_reachable(declare, stopped)
    except RelierError as error:
        log.warning("the schedules of %s were not declared: %s; restart this worker", application, error)


async def warn_at_start(client: Client, queues: Sequence[str]) -> None:
    """Log conditions that would keep tasks waiting unnoticed: misspelt settings, queues that nobody serves, paused
    queues."""
    for variable, near in unknown_variables().items():
        advice = f"did you mean {near}?" if near else "remove it, or correct its name"
        log.warning("%s is set, but there is no such setting: it has no effect; %s", variable, advice)
    try:
        stats = await client.arun(client.ledger.stats())
    except RelierError:  # the store has just become unreachable: the worker works without these warnings
        return
    for queue, tasks in sorted(_tasks_elsewhere(queues).items()):
        if stats.unattended(queue, client.settings.heartbeat_ttl):
            log.warning(
                "neither this worker nor any other live worker serves queue %r: tasks pushed to it wait (%s); "
                "start this worker with `--queues %s`, or another one with `--queues %s`",
                queue,
                ", ".join([*tasks[:MOST_NAMES], *(["…"] if len(tasks) > MOST_NAMES else [])]),
                ",".join([*queues, queue]),
                queue,
            )
    for queue in queues:
        if stats.is_paused(queue):
            log.warning(
                "queue %r is paused (by `rl queues pause` or `rl celery drain`): its tasks wait; resume it "
                "with `rl queues resume %s`",
                queue,
                queue,
            )


def _tasks_elsewhere(queues: Sequence[str]) -> dict[str, list[str]]:
    """Return the other queues to which known tasks are pushed, with the names of those tasks."""
    found: dict[str, list[str]] = {}
    for task in registry.known_tasks():
        ours = task.fn.__module__.startswith("relier.")  # stands for a Celery task, which Celery routes
        if not ours and task.options.queue not in queues:
            found.setdefault(task.options.queue, []).append(task.name)
    return found
