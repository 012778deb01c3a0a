"""Removes checkpoint files nobody can come back to: of records that are gone, such as a newer one replaced, and what a
killed process left unfinished.

A file is looked at only when it is old enough that whoever wrote it has long told the ledger of it, or never will; and
one that the attempt under way may still tell of is left alone, however old.

Files of other stores, with other birth marks, are never looked at. A file that an earlier release wrote names no store:
it is removed only where a record of this store has had its fence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from relier.errors import RelierError, StoreEmptiedError, TaskNotFoundError
from relier.ledger.ledger import Ledger
from relier.ledger.records import Task
from relier.run.checkpoint_files import UNFINISHED, Folder, Named, folder_for, named
from relier.run.checkpoints import file_in
from relier.settings import Settings
from relier.states import State
from relier.store import AsyncStore

log = logging.getLogger("relier.phoenix")

OLD_S = 600.0
AT_ONCE = 200


class Janitor:
    """Walks through the folder by name, some files at a time, and begins anew at its end."""

    def __init__(self, settings: Settings, store: AsyncStore, ledger: Ledger, old: float = OLD_S) -> None:
        self._settings = settings
        self._store = store
        self._ledger = ledger
        self._old = old
        self._reached = ""

    async def tidy(self) -> int:
        """How many files were removed."""
        folder = folder_for(self._settings)
        if folder is None:
            return 0
        born = await self._store.run(self._ledger.open())
        names = await asyncio.to_thread(
            lambda: sorted([*folder.older_than(self._old), *folder.older_than(self._old, born)])
        )
        here = [name for name in names if name > self._reached][:AT_ONCE]
        self._reached = here[-1] if len(here) == AT_ONCE else ""
        useless = [name for name in here if name.rpartition("/")[2].startswith(UNFINISHED)]
        useless += await self._of_nobody({name: whose for name in here if (whose := named(name)) is not None}, born)
        await asyncio.to_thread(_remove, folder, useless)
        return len(useless)

    async def _of_nobody(self, files: dict[str, Named], born: str) -> list[str]:
        ids = sorted({whose.task_id for whose in files.values()})
        found = await self._store.run_many(self._ledger.get(task_id, born) for task_id in ids)
        answers = dict(zip(ids, found, strict=True))
        return [name for name, whose in files.items() if _is_useless(name, whose, answers[whose.task_id])]


def _is_useless(name: str, whose: Named, answer: Task | RelierError) -> bool:
    if isinstance(answer, RelierError):  # of anything else than a record that is gone nobody knows: leave it
        gone = isinstance(answer, TaskNotFoundError) and not isinstance(answer, StoreEmptiedError)
        return gone and whose.born != ""
    if not whose.born and whose.fence not in {answer.record.fence, *(entry.fence for entry in answer.history)}:
        return False
    if answer.record.state is State.RUNNING and answer.record.fence == whose.fence:
        return False
    try:
        return file_in(answer.checkpoint) != name
    except RelierError:
        return False


def _remove(folder: Folder, names: Iterable[str]) -> None:
    for name in names:
        folder.remove(name)
        log.info("the checkpoint file %s was removed: no task needs it", name)
