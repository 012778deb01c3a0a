"""What a supervisor writes to one ledger: it revives the tasks of dead children, and sends heartbeats for silent ones.

With shards, each shard has its own ledger, and a child works for one of them. One thread does everything, so calls to a
store must not block for long.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from relier.errors import RelierError
from relier.ledger.ledger import Ledger, scripts_of
from relier.settings import Settings
from relier.store import SyncStore
from relier.store.connect.heartbeat import heartbeat_settings

log = logging.getLogger("relier.supervisor")

MOST_SWEPT = 1000  # revived tasks that wait for a child to report them


class SupervisedShard:
    """The ledger of one shard, or of the only namespace, and what must still be done there."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store = SyncStore(heartbeat_settings(settings, settings.heartbeat_ttl), scripts_of(settings))
        self._ledger = Ledger(settings)
        self._orphaned: list[tuple[str, str]] = []  # worker id and cause; revived when the store can be reached
        self._away = False  # the store could not be reached to revive them
        self.swept: list[tuple[str, str]] = []  # revived or dead tasks that no child has reported yet: id and state

    def close(self) -> None:
        self._store.close()

    def orphaned(self, worker_ids: Sequence[str], cause: str) -> None:
        """Remember workers that have ended, whose tasks are to be revived."""
        self._orphaned += [(worker_id, cause) for worker_id in worker_ids]

    def return_orphans(self) -> None:
        """Revive the tasks of dead workers. The first failure ends the round; its worker is tried last next time."""
        while self._orphaned:
            orphan = self._orphaned.pop(0)
            if not self._revive(*orphan):
                self._orphaned.append(orphan)
                break

    def _revive(self, worker_id: str, cause: str) -> bool:
        """Revive the tasks of one dead worker. Return False if that failed and must be tried again.

        Without this, the sweep of any other worker would revive the tasks later.
        """
        try:
            while True:
                swept = self._store.run(
                    self._ledger.revive(
                        deepest=self._settings.resurrection_max_queue_depth, worker_id=worker_id, cause=cause
                    )
                )
                if swept.outcomes:
                    log.info("the tasks of worker %s were returned (%d)", worker_id, len(swept.outcomes))
                    self.swept = [*self.swept, *swept.outcomes][-MOST_SWEPT:]
                self._away = False
                if not swept.pending or swept.deferred:
                    return True
        except RelierError as error:
            if not self._away:  # log once per outage, however long it lasts
                log.warning("the tasks of worker %s cannot be returned yet: %s", worker_id, error)
            self._away = True
            return False

    def beat_for(self, worker_ids: Sequence[str]) -> list[bool]:
        """Send heartbeats for workers in one pipeline: an outage costs one deadline, not one per worker.

        Return which of them the store answered.
        """
        calls = [self._ledger.beat(each, round(1000 * self._settings.heartbeat_ttl)) for each in worker_ids]
        return [not isinstance(answer, RelierError) for answer in self._store.run_many(calls)]
