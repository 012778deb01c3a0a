"""What a worker does when it starts: wait for its store, and warn about what would go unnoticed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from relier import registry
from relier.errors import RelierError, StoreSetupError, StoreUnavailableError
from relier.settings import unknown_variables
from relier.store.until_answered import growing_pauses
from relier.submit.client import Client

log = logging.getLogger("relier.worker")

REPORT_S = 30.0  # how often to report that the store is still away
MOST_NAMES = 3  # of tasks in one warning


async def until_reachable(act: Callable[[], Awaitable[Any]], stopped: asyncio.Event) -> bool:
    """Await `act` until the store answers. Return False if the process was told to stop before that.

    A store that refuses this client (user, password, ACL, eviction policy) does not count as away: the error is raised.
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


async def warn_at_start(client: Client, queues: Sequence[str]) -> None:
    """Log what would keep tasks waiting unnoticed: misspelt settings, queues that nobody serves, paused queues."""
    for variable, near in unknown_variables().items():
        advice = f"did you mean {near}?" if near else "remove it, or correct its name"
        log.warning("%s is set, but there is no such setting: it has no effect; %s", variable, advice)
    try:
        stats = await client.arun(client.ledger.stats())
    except RelierError:  # the store went away just now: the worker works without these warnings
        return
    for queue, tasks in sorted(_tasks_elsewhere(queues).items()):
        if stats.unattended(queue, client.settings.heartbeat_ttl):
            log.warning(
                "neither this worker nor another one that is alive serves queue %r: tasks pushed to it wait (%s); "
                "start this worker with `--queues %s`, or another one with `--queues %s`",
                queue,
                ", ".join([*tasks[:MOST_NAMES], *(["…"] if len(tasks) > MOST_NAMES else [])]),
                ",".join([*queues, queue]),
                queue,
            )
    for queue in queues:
        if stats.is_paused(queue):
            log.warning(
                "queue %r is paused, as `rl queues pause` and `rl celery drain` leave it: its tasks wait; resume it "
                "with `rl queues resume %s`",
                queue,
                queue,
            )


def _tasks_elsewhere(queues: Sequence[str]) -> dict[str, list[str]]:
    """Return the queues that are not among these, with the names of the known tasks that are pushed to them."""
    found: dict[str, list[str]] = {}
    for task in registry.known_tasks():
        ours = task.fn.__module__.startswith("relier.")  # stands for a Celery task, which Celery routes
        if not ours and task.options.queue not in queues:
            found.setdefault(task.options.queue, []).append(task.name)
    return found
