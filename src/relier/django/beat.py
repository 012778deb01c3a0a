"""`celery beat -S relier.django.beat:DjangoBeat`: run the tables of django-celery-beat from the ledger.

The tables define the schedules. The ledger decides when they fire, and which node sends the task. Each node reads
changes of the tables within `max_interval`, 5 seconds. If the database is unreachable, the nodes continue with the
schedules in the ledger.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any

from django.db import DatabaseError, InterfaceError, close_old_connections
from django.db.models import F
from django.utils import timezone
from django_celery_beat.models import PeriodicTask, PeriodicTasks
from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry

from relier.celery.beat.bounds import Bounded, Clocked
from relier.celery.beat.entries import BeatSpec, entry_name, plain_entry, spec_of_entry
from relier.celery.beat.scheduler import BeatScheduler
from relier.celery.beat.timings import BeatTiming, in_zone, timing_of_schedule
from relier.errors import ConfigurationError, RelierError
from relier.schedules.changes import ScheduleChanges
from relier.schedules.timings import moment_ms
from relier.store.sync_wire import run_sync

log = logging.getLogger("relier.django")

READ_EVERY_S = 300.0  # read the tables even without a change marker: bulk updates do not set it
_AWAY = (DatabaseError, InterfaceError)


class DjangoBeat(BeatScheduler):
    """Run the enabled rows of `PeriodicTask`. Any number of nodes may run this scheduler."""

    _changed: Any = None
    _read_at = -math.inf

    def setup_schedule(self) -> None:
        """Write the entries of `beat_schedule` to the tables, as django-celery-beat does, and read the rows."""
        self.prepare()
        DatabaseScheduler(app=self.app, lazy=True).setup_schedule()
        self._follow_tables()

    def tick(self, *args: Any, **kwargs: Any) -> float:
        self._follow_tables()
        return super().tick(*args, **kwargs)

    def specs(self) -> list[BeatSpec]:
        return list(self.data.values())

    def sent(self, name: str) -> None:
        """Record a run in its row, and disable a one-off row.

        If this fails, only log it: the ledger does not need it.
        """
        rows = PeriodicTask.objects.filter(name=entry_name(self.app, name))
        try:
            rows.update(last_run_at=timezone.now(), total_run_count=F("total_run_count") + 1)
            if rows.filter(one_off=True).update(enabled=False, last_run_at=None, total_run_count=0):
                PeriodicTasks.update_changed()
                changes = ScheduleChanges(self.context, self.context.adoption.client.blocking.run)
                run_sync(changes.remove(name))  # so that the row can be enabled again
        except (*_AWAY, RelierError) as error:
            log.warning("the run of %s was not recorded in its row: %s", name, error)

    def _follow_tables(self) -> None:
        """Read the rows if they changed. The next tick writes them to the ledger."""
        try:
            close_old_connections()
            changed = PeriodicTasks.last_change()
            if changed == self._changed and time.monotonic() - self._read_at < READ_EVERY_S:
                return
            found = [self._spec(row) for row in PeriodicTask.objects.enabled()]
        except _AWAY as error:
            log.warning("beat cannot read its tables, and continues with the schedules in the ledger: %s", error)
            return
        self.data = {spec.entry.name: spec for spec in found if spec is not None}
        self._changed, self._read_at = changed, time.monotonic()
        self._is_declared = False

    def _spec(self, row: Any) -> BeatSpec | None:
        try:
            read = ModelEntry(row, app=self.app)
            entry = plain_entry(self.app, row.name, row.task, read.args, read.kwargs, read.options)
            return spec_of_entry(self.app, entry, timing_of_row(row, self.app))
        except (ValueError, TypeError, AttributeError, ConfigurationError) as error:
            log.warning("the periodic task %r cannot run: %s; correct its row", row.name, error)
            return None


def timing_of_row(row: Any, app: Any) -> BeatTiming:
    """Return the timing of a row, with its bounds."""
    if row.clocked:
        return Bounded(Clocked(moment_ms("the clocked time", row.clocked.clocked_time)), once=True)
    given = row.schedule
    zone = given.tz if row.crontab else app.timezone
    inner = timing_of_schedule(row.name, in_zone(given) if row.crontab else given, zone)
    start = None if row.start_time is None else moment_ms("start_time", row.start_time)
    end = None if row.expires is None else moment_ms("expires", row.expires)
    return Bounded(inner, start, end, row.one_off) if start or end or row.one_off else inner
