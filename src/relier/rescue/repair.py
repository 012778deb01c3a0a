"""Repair: workers scan the namespace and repair damage from outside.

Scripts are atomic, so Relier itself never leaves a task between two indexes. A person, an eviction, an incomplete
restore or a bug may. `rl audit` finds such damage; the scan here also repairs it (lua/reconcile.lua).

No index lists all records, so this reads the keyspace with SCAN. All workers share one cursor, which the store
holds together with the pace: a page every eighth of a second, however many workers there are. Members of
indexes are read in pages too. Each page is judged and repaired by one script.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from relier.ledger import keys
from relier.ledger.ledger import Ledger
from relier.ledger.moves.repair import REPAIR_SUBJECTS, Subject
from relier.store import AsyncStore

log = logging.getLogger("relier.phoenix")

# Keys whose members are looked at one by one, and how they are read. Lists of ended tasks are not among them: the
# reaper removes each of their entries at its end of life.
SORTED_SETS = frozenset({"due", "ready", "lane", "owned", "slots", "sleepers", "members", "batches"})
HASHES = frozenset({"lanes", "pacers", "waiting"})
TYPES = {b"zset": "ZSCAN", b"hash": "HSCAN"}
NOT_WALKED = b"0"


class Repairer:
    """Walks through the namespace, page by page, when it is this worker's turn."""

    def __init__(self, store: AsyncStore, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger
        self._prefix = ledger.prefix.encode()
        self._cursor = "0"
        self._walks: dict[bytes, bytes] = {}  # key whose members are to be read -> cursor
        self._members_next = False
        self.repaired: Counter[str] = Counter()

    async def turn(self) -> Counter[str]:
        """Check as many pages as the store assigns to this worker now, often none. Return what was repaired."""
        assigned = await self._store.run(self._ledger.reconcile())
        self._cursor = assigned.cursor
        return await self.pages(assigned.pages)

    async def pages(self, n: int) -> Counter[str]:
        """Check the next n pages. Pages of keys and pages of members alternate, so that a long index does not delay
        the rest."""
        found: Counter[str] = Counter()
        for _ in range(n):
            self._members_next = not self._members_next and bool(self._walks)
            found += await (self._members_page() if self._members_next else self._keys_page())
        self.repaired += found
        for kind, count in sorted(found.items()):
            log.warning("repaired kind=%s count=%d", kind, count)
        return found

    async def _keys_page(self) -> Counter[str]:
        begin = self._cursor
        words = ("MATCH", keys.matching(self._prefix), "COUNT", REPAIR_SUBJECTS)
        after, found = await self._store.command("SCAN", begin, *words, retry=True)
        subjects = []
        for key in found:
            kind, of = keys.kind_of(self._prefix, key)
            if kind in SORTED_SETS or kind in HASHES:
                self._walks.setdefault(key, NOT_WALKED)
            if kind and of:
                subjects.append(Subject(kind, of))
        return await self._reconcile(subjects, begin, after.decode())

    async def _members_page(self) -> Counter[str]:
        """Read the next page of members of the key that has waited longest for its turn."""
        key = next(iter(self._walks))
        cursor = self._walks.pop(key)
        kind, of = keys.kind_of(self._prefix, key)
        scan = TYPES.get(await self._store.command("TYPE", key, retry=True))
        if scan != ("HSCAN" if kind in HASHES else "ZSCAN"):  # gone, or of the wrong type, which `rl audit` reports
            return Counter()
        after, flat = await self._store.command(scan, key, cursor, "COUNT", REPAIR_SUBJECTS, retry=True)
        if after != NOT_WALKED:
            self._walks[key] = after
        return await self._reconcile([Subject(kind, of, member) for member in flat[::2]], self._cursor, self._cursor)

    async def _reconcile(self, subjects: list[Subject], cursor: str, after: str) -> Counter[str]:
        """Repair the damaged ones among these. One call checks a bounded number of them; the rest is sent again."""
        found: Counter[str] = Counter()
        while True:
            last = len(subjects) <= REPAIR_SUBJECTS
            answer: Any = await self._store.run(
                self._ledger.reconcile(subjects, cursor, after if last else cursor),
            )
            found.update(answer.counts)
            subjects = subjects[answer.looked :]
            if not subjects:
                self._cursor = answer.cursor
                return found
