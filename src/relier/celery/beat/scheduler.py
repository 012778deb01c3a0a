"""The scheduler class of `celery beat -S relier.celery:Beat`."""

from __future__ import annotations

import logging
import random
from functools import cached_property
from typing import Any

from celery.beat import Scheduler

from relier.celery.adoption import adoption_of, find_adoption
from relier.celery.beat.entries import BeatSpec, origin_of, schedule_name, spec_of_entry
from relier.celery.beat.firing import BeatContext
from relier.celery.sending.producers import connect_lazily
from relier.errors import ConfigurationError, IndeterminateError, StoreError
from relier.ledger.schedule_records import CELERY, ScheduleVerdict
from relier.schedules.declared import declare_all
from relier.schedules.firing import DueSchedules
from relier.store.sync_wire import run_sync

log = logging.getLogger("relier.celery")

DEFAULT_FILE = "celerybeat-schedule"
MOST_ROUNDS = 100  # per tick; each round fires at most DUE_SCHEDULES schedules
AGAIN_S = 1.0  # the pause after an error of the store
LAG_S = (0.1, 0.3)  # the delay of a node that came second, at random in this range


class BeatScheduler(Scheduler):
    """Run the app's `beat_schedule` from the ledger. Any number of nodes may run this scheduler."""

    max_interval = 5  # seconds between two reads of the ledger, because entries may change there

    def __init__(self, app: Any, *args: Any, schedule_filename: str | None = None, **kwargs: Any) -> None:
        self._is_declared = False
        self._trouble = ""
        self._lag_s = 0.0
        self._error: Exception | None = None
        super().__init__(app, *args, **kwargs)
        if schedule_filename not in (None, DEFAULT_FILE, app.conf.beat_schedule_filename) and not kwargs.get("lazy"):
            log.warning("beat does not use the schedule file %s: the ledger holds the schedules", schedule_filename)

    # --- called by Celery ----------------------------------------------------------------------------------------

    def setup_schedule(self) -> None:
        """Read the entries of the app's configuration. The first tick writes them to the ledger."""
        self.prepare()
        self.merge_inplace(self.app.conf.beat_schedule)
        self.install_default_entries(self.schedule)
        self.specs()  # raises if an entry cannot be stored

    def prepare(self) -> None:
        """Refuse an app without Relier, and do not connect to the broker before a task needs it."""
        if find_adoption(self.app) is None:
            raise ConfigurationError(
                f"beat did not start: Relier is not installed in {self.app!r}, so its tasks do not go to the ledger; "
                f"call relier.celery.install(app, adopt=True) where the app is created, or run beat without -S"
            )
        connect_lazily(self)

    def tick(self, *_: Any, **__: Any) -> float:
        """Fire the entries that are due by the store's time. Return the seconds until the next one."""
        try:
            self._declare()
            pause = self._fire_due()
        except (StoreError, IndeterminateError) as error:
            if type(error).__name__ != self._trouble:
                self._trouble = type(error).__name__
                log.warning("beat cannot reach the ledger, will retry: %s", error)
            return min(AGAIN_S, self.max_interval)
        if self._trouble:
            self._trouble = ""
            log.info("beat resumed")
        return min(self.max_interval, pause)

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **kwargs: Any) -> Any:
        """Send an entry, and keep the error if that fails.

        Celery's `apply_entry`, which calls this, only logs errors.
        """
        try:
            return super().apply_async(entry, producer=producer, advance=advance, **kwargs)
        except Exception as error:
            self._error = error
            raise

    @property
    def info(self) -> str:
        found = find_adoption(self.app)
        return "" if found is None else f"    . ledger -> namespace {found.client.settings.namespace}"

    # --- the ledger ----------------------------------------------------------------------------------------------

    def specs(self) -> list[BeatSpec]:
        """Return the schedules of this process's entries."""
        return [spec_of_entry(self.app, entry) for entry in self.schedule.values()]

    @cached_property
    def context(self) -> BeatContext:
        adoption = adoption_of(self.app)
        client = adoption.client
        namespace, ways = client.settings.namespace, (self._apply, lambda: self.producer, self.sent)
        return BeatContext(client.ledger, namespace, client.keyring, adoption, *ways)

    def sent(self, name: str) -> None:
        """Record that this node sent an entry. Subclasses override this."""

    @cached_property
    def _due(self) -> DueSchedules:
        return DueSchedules(self.context, self.context.adoption.client.blocking.run)

    def _declare(self) -> None:
        """Write this process's entries to the ledger, once.

        Disable entries of this app that are no longer configured.
        """
        if self._is_declared:
            return
        client = self.context.adoption.client
        specs = self.specs()
        self.context.own.clear()
        self.context.own.update({spec.name: spec for spec in specs})
        run, origin = client.blocking.run, origin_of(self.app)
        run_sync(declare_all(client, run, origin, specs, group=CELERY, context=self.context))
        self._is_declared = True
        log.info("beat started: entries=%d namespace=%s", len(specs), client.settings.namespace)

    def _fire_due(self) -> float:
        """Fire the due entries of this app. Other apps in the namespace have their own beats. Return the pause."""
        client, skipped, mine = self.context.adoption.client, 0, schedule_name(self.app, "")
        for _ in range(MOST_ROUNDS):
            found = client.run(client.ledger.promote(0, skip_schedules=skipped, group=CELERY))
            if not found.schedules:
                return self._pause(found.next_in_s)
            own = [due for due in found.schedules if due.name.startswith(mine)]
            stuck = run_sync(self._due.fire(own, found.now_ms))
            skipped += stuck + len(found.schedules) - len(own)
        return 0.0

    def _pause(self, next_in_s: float | None) -> float:
        """Return how long to wait. A node that lost the race last time waits a little longer than the others.

        It is safe if several nodes fire at the same moment, but each of them builds the message and emits Celery's
        signals.
        """
        verdicts = self.context.verdicts
        if verdicts:
            self._lag_s = 0.0 if ScheduleVerdict.OK in verdicts else random.uniform(*LAG_S)
            verdicts.clear()
        longest = max(self.max_interval - self._lag_s, self.max_interval / 2)
        return longest if next_in_s is None or next_in_s >= longest else next_in_s + self._lag_s

    def _apply(self, entry: Any, producer: Any) -> None:
        """Send an entry through Celery's `apply_entry`, which monitoring tools patch. Raise if that failed."""
        self._error = None
        self.apply_entry(entry, producer=producer)
        error, self._error = self._error, None
        if error is not None:
            raise error
