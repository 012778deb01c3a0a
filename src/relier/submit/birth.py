"""The birth mark of a namespace, as one process knows it.

A namespace gets a random mark when it is first opened, and keeps it as long as its data: through restarts, failovers
and backups that are restored. Another mark under the same name means that the store was emptied (FLUSHALL, a lost
volume) or that another store answers in its place. All tasks that were accepted before are then gone. A namespace that
an earlier release made has no mark until this release opens it, which is no change.

What the mark does not show: a store that was set back to an earlier state of its own, and one that was emptied while
no process was running that remembers it. A copy of a store has the mark of the original.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("relier.store")


class BirthMark:
    """The mark this process saw last. Shared by all who use one client, so that a change is logged once."""

    def __init__(self, where: Callable[[], str]) -> None:
        self.mark = ""  # not known yet
        self._where = where
        self._lock = threading.Lock()

    def learn(self, mark: str) -> bool:
        """Remember the mark that the store has now. True: the store had another one before."""
        with self._lock:
            before, self.mark = self.mark, mark
        if before in {"", mark}:
            return False
        log.error(
            "the store was emptied or replaced: %s has birth mark %s now, and had %s before; every task that was "
            "accepted before then is lost unless a backup or an outbox has it; results of attempts from before are "
            "refused; this process goes on with what the store holds now; find out who emptied it, and see `rl doctor`",
            self._where(),
            mark,
            before,
        )
        return True
