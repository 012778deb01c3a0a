"""Find tasks that a worker owns in the ledger but does not run: the answer to their claim was lost and not repeated.

Such a task is handed back, by fence, only if it was seen twice and a claim was answered in between. So tasks of a claim
still in flight do not count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from relier import background
from relier.engines.settler import Settler
from relier.errors import RelierError
from relier.ledger.ledger import OWNED_PAGE, Ledger
from relier.ledger.records import Lease
from relier.run.attempt import Attempt
from relier.store import AsyncStore

log = logging.getLogger("relier.worker")
Key = tuple[str, str]


class OrphanedClaims:
    """Compare the ledger's list with the worker's own whenever a heartbeat reports more tasks than the worker knows."""

    def __init__(self, store: AsyncStore, ledger: Ledger, settler: Settler, attempts: Mapping[Key, Attempt]) -> None:
        self._store = store
        self._ledger = ledger
        self._settler = settler
        self._attempts = attempts
        self._seen: dict[Key, int] = {}
        self._checking: asyncio.Task[None] | None = None
        self.repaired = 0  # tasks that were handed back
        self.answered = 0  # claims answered so far; counted by the worker

    def compare(self, worker_id: str, owned: int) -> None:
        idle = self._checking is None or self._checking.done()
        if idle and (self._seen or owned > len(self._attempts) + len(self._settler.unsettled)):
            self._checking = background.start(asyncio.get_running_loop(), self._find(worker_id))

    async def _owned(self, worker_id: str) -> dict[str, str]:
        """Return the fences of all tasks that the worker owns, by task id, read in pages.

        A task that moves to a page already read, because others are settled meanwhile, is found at the next check.
        """
        owned: dict[str, str] = {}
        first, size = 0, OWNED_PAGE
        while size == OWNED_PAGE:
            page = await self._store.run(self._ledger.owned(worker_id, first))
            owned |= page
            first, size = first + OWNED_PAGE, len(page)
        return owned

    async def _find(self, worker_id: str) -> None:
        answered = self.answered
        try:
            owned = await self._owned(worker_id)
        except RelierError:
            return
        orphaned = [key for key in owned.items() if key not in self._attempts and key not in self._settler.unsettled]
        found = [key for key in orphaned if self._seen.get(key, answered) < answered]
        self._seen = {key: self._seen.get(key, answered) for key in orphaned if key not in found}
        if found:
            log.warning("%d tasks were claimed, but the store's answer was lost; they are handed back", len(found))
            self.repaired += len(found)
            self._settler.release([Lease(task_id, fence, worker_id) for task_id, fence in found])
