"""`-P asyncio`: a pool for `async def`. Coroutines of `@rl_task`s run by the hundred on the worker's own loop, `def`
tasks in threads beside them."""

from __future__ import annotations

from typing import Any

import celery.concurrency
from celery.concurrency.thread import TaskPool as ThreadPool

NAME = "asyncio"
PATH = "relier.celery.pool.asyncio_pool:TaskPool"


class TaskPool(ThreadPool):
    """Threads for what blocks. Coroutines of ours never come here: the ledger's thread runs them itself."""

    def _get_info(self) -> Any:
        return super()._get_info() | {"implementation": PATH}


def offer_asyncio_pool() -> None:
    """Make `-P asyncio` known, also to the command line, which has taken its choices by the time an app is imported."""
    celery.concurrency.ALIASES.setdefault(NAME, PATH)
    try:
        from celery.bin.worker import WORKERS_POOL
    except ImportError:  # not started by the command
        return
    if NAME not in WORKERS_POOL.choices:
        WORKERS_POOL.choices = (*WORKERS_POOL.choices, NAME)
