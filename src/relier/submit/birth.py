"""Remember the birth mark of a namespace, to notice when its store was emptied or replaced.

A namespace gets a random mark when it is first opened, and keeps the mark as long as its data: through restarts,
failovers and restored backups. Another mark under the same name means that the store was emptied (FLUSHALL, a lost
volume) or that another store answers in its place. All tasks accepted before are then gone. A namespace made by an
earlier release has no mark until this release opens it; that does not count as a change.

The mark does not reveal a store that was reset to an earlier state of its own, nor a store that was emptied while no
process ran that remembers the mark. A copy of a store has the mark of the original.

With RELIER_SHARDS, a mark also records which shard of how many it was made for, and opening a namespace under another
number of shards is refused. Processes with shards and processes without use no common namespace. So those with shards
also open the root, the namespace without a number, which the others use.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from relier.ledger.ledger import Ledger
from relier.settings import Settings

log = logging.getLogger("relier.store")


class BirthMark:
    """Hold the mark this process saw last. All users of one client share it, so that a change is logged once."""

    def __init__(self, where: Callable[[], str]) -> None:
        self.mark = ""  # not known yet
        self.where = where
        self._lock = threading.Lock()

    def learn(self, mark: str) -> bool:
        """Remember the mark that the store has now. Return whether it had another one before."""
        with self._lock:
            before, self.mark = self.mark, mark
        if before in {"", mark}:
            return False
        log.error(
            "the store was emptied or replaced: %s has birth mark %s now, and had %s before; every task accepted "
            "before is lost unless a backup or an outbox has it, and results of earlier attempts are refused; this "
            "process continues with what the store holds now; find out who emptied the store, and see `rl doctor`",
            self.where(),
            mark,
            before,
        )
        return True


class RootCheck:
    """Check once per process that nobody uses the namespace without shards, or under another number of shards.

    `settings`: those of the root. While its server is unreachable, the check is left to a later opening: the other
    shards must go on.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ledger = Ledger(settings)
        self.done = False
