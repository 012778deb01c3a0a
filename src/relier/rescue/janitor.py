"""Remove checkpoint files that no task needs: files of deleted records, superseded files and partial writes.

Only files of a certain age are considered: by then their writer has recorded them in the ledger, or never will. A file
of the running attempt is kept at any age, because the attempt may still record it.

Files of other stores, with other birth marks, are ignored. A file written by an earlier release names no store: it is
removed only if a record of this store has had its fence.
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
    """Walks through the folder in chunks, by file name, and starts over at the end."""

    def __init__(self, settings: Settings, store: AsyncStore, ledger: Ledger, old: float = OLD_S) -> None:
        self._settings = settings
        self._store = store
        self._ledger = ledger
        self._old = old
        self._reached = ""

    async def tidy(self) -> int:
        """Process the next chunk of files. Return how many were removed."""
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
        useless += await self._unneeded({name: whose for name in here if (whose := named(name)) is not None}, born)
        await asyncio.to_thread(_remove, folder, useless)
        return len(useless)

    async def _unneeded(self, files: dict[str, Named], born: str) -> list[str]:
        ids = sorted({whose.task_id for whose in files.values()})
        found = await self._store.run_many(self._ledger.get(task_id, born) for task_id in ids)
        answers = dict(zip(ids, found, strict=True))
        return [name for name, whose in files.items() if _is_useless(name, whose, answers[whose.task_id])]


def _is_useless(name: str, whose: Named, answer: Task | RelierError) -> bool:
    if isinstance(answer, RelierError):  # keep the file unless the record is certainly gone
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
        log.info("checkpoint file removed, no task needs it: file=%s", name)
