"""Remember the birth mark of a namespace, to notice when its store was emptied or replaced.

A namespace gets a random mark when it is first opened, and keeps the mark as long as its data: through restarts,
failovers and restored backups. Another mark under the same name means that the store was emptied (FLUSHALL, a lost
volume) or that another store answers in its place. All tasks accepted before are then gone. A namespace made by an
earlier release has no mark until this release opens it; that does not count as a change.

The mark does not reveal a store that was reset to an earlier state of its own, nor a store that was emptied while no
process ran that remembers the mark. A copy of a store has the mark of the original.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

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
