"""Provide `-P asyncio`, a pool for `async def`.

Coroutines of `@rl_task`s run on the worker's event loop, hundreds at once, and `def` tasks run in threads.
"""

from __future__ import annotations

from typing import Any

import celery.concurrency
from celery.concurrency.thread import TaskPool as ThreadPool

NAME = "asyncio"
PATH = "relier.celery.pool.asyncio_pool:TaskPool"


class TaskPool(ThreadPool):
    """Provide threads for blocking tasks.

    Coroutines of `@rl_task`s never enter this pool: the ledger thread runs them itself.
    """

    def _get_info(self) -> Any:
        return super()._get_info() | {"implementation": PATH}


def register_asyncio_pool() -> None:
    """Register `-P asyncio`, also with the command line, which reads its choices before it imports an app."""
    celery.concurrency.ALIASES.setdefault(NAME, PATH)
    try:
        from celery.bin.worker import WORKERS_POOL
    except ImportError:  # not started by the command
        return
    if NAME not in WORKERS_POOL.choices:
        WORKERS_POOL.choices = (*WORKERS_POOL.choices, NAME)
