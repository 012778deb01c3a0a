"""Removes checkpoint files nobody can come back to: of records that are gone, and such as a newer one replaced.

A file is looked at only when it is old enough that whoever wrote it has long told the ledger of it, or never will.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from itertools import islice

from relier.errors import RelierError, TaskNotFoundError
from relier.ledger.ledger import Ledger
from relier.ledger.records import Task
from relier.run.checkpoint_files import Folder, folder_of, task_of
from relier.run.checkpoints import file_in
from relier.store import AsyncStore

log = logging.getLogger("relier.phoenix")

OLD_S = 600.0
AT_ONCE = 200


async def tidy_checkpoints(where: str, store: AsyncStore, ledger: Ledger) -> int:
    """One pass over RELIER_CHECKPOINT_DIR. How many files were removed."""
    folder = folder_of(where)
    names = await asyncio.to_thread(lambda: list(islice(folder.older_than(OLD_S), AT_ONCE)))
    tasks: dict[str, list[str]] = {}
    for name in names:
        tasks.setdefault(task_of(name), []).append(name)
    answers = await store.run_many(ledger.get(task_id) for task_id in tasks)
    useless = [
        name
        for files, answer in zip(tasks.values(), answers, strict=True)
        for name in files
        if _is_useless(name, answer)
    ]
    await asyncio.to_thread(_remove, folder, useless)
    return len(useless)


def _is_useless(name: str, answer: Task | RelierError) -> bool:
    if isinstance(answer, RelierError):
        return isinstance(answer, TaskNotFoundError)  # of anything else nobody knows: leave it
    return file_in(answer.checkpoint) != name


def _remove(folder: Folder, names: Iterable[str]) -> None:
    for name in names:
        folder.remove(name)
        log.info("the checkpoint file %s was removed: no task needs it", name)
