"""Build the task of a due entry as Celery would send it, and fire it.

Celery's own `apply_async` builds the message, so options of the task, routes and signals apply. A collector intercepts
the submission (sending/collect.py), and `fire` submits it. Several nodes may build a task for the same occurrence. All
of these tasks have the same id, and the script accepts one of them.

Some tasks do not go to the ledger: the task is not adopted, its queue is a broadcast, or `task_always_eager` is set.
The node that advances the schedule sends such a task afterwards, with Celery: at most once, as without Relier.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from relier.celery.adoption import Adoption
from relier.celery.beat.entries import BeatSpec, entry_name, stored_entry
from relier.celery.sending.collect import Collector, collecting
from relier.errors import ScheduleDefinitionError
from relier.ledger.records import Submission
from relier.ledger.schedule_records import DueSchedule, FireAnswer, ScheduleVerdict
from relier.schedules.definition import Definition, read_definition, run_id
from relier.schedules.firing import FireContext
from relier.schedules.planning import plan_fire
from relier.store.call import Call

log = logging.getLogger("relier.celery")


class BrokerProbe:
    """Replace a producer. Do not send the message, but note that it would go to the broker."""

    def __init__(self, producer: Callable[[], Any]) -> None:
        self._producer = producer
        self.is_used = False

    def publish(self, *_: Any, **__: Any) -> None:
        self.is_used = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer(), name)


@dataclass(frozen=True, slots=True)
class BeatContext(FireContext):
    """Hold everything that a beat needs to fire entries.

    apply     sends an entry through a producer, as Celery's scheduler does; raises if that fails
    producer  returns the producer of beat's own connection
    sent      called with the name of a schedule whose task this node submitted or sent
    own       the schedules of this process's configuration
    unsent    entries to send to the broker once their schedule has advanced
    verdicts  the verdicts of `fire` calls since the last pause
    """

    adoption: Adoption
    apply: Callable[[Any, Any], None]
    producer: Callable[[], Any]
    sent: Callable[[str], None]
    own: dict[str, BeatSpec] = field(default_factory=dict)
    unsent: dict[str, Any] = field(default_factory=dict)
    verdicts: list[ScheduleVerdict] = field(default_factory=list)

    def call(self, due: DueSchedule, now_ms: int) -> Call[FireAnswer]:
        definition = read_definition(due.name, due.definition)
        timing: Any = definition.when()
        plan = plan_fire(timing.following(due.intended_ms), definition.rule(), due.intended_ms, now_ms)
        runs = []
        self.unsent.pop(due.name, None)
        for at in plan.runs:
            task_id = run_id(self.namespace, due.name, due.version, at)
            entry = self._entry(due, definition, task_id)
            task = self._submission(entry)
            if task is None:
                self.unsent[due.name] = entry
            else:
                runs.append((at, task))
        return self.ledger.fire(due.name, due.version, due.intended_ms, plan.next_ms, runs, missed=plan.missed)

    def fired(self, due: DueSchedule, answer: FireAnswer) -> None:
        FireContext.fired(self, due, answer)
        self.verdicts.append(answer.verdict)
        entry = self.unsent.pop(due.name, None)
        if answer.verdict is not ScheduleVerdict.OK:
            return
        if entry is not None:
            try:
                self.apply(entry, self.producer())
            except Exception:
                log.exception("entry %s was not sent to the broker; this occurrence is lost", due.name)
        if entry is not None or answer.outcomes:
            self.sent(due.name)

    def _entry(self, due: DueSchedule, definition: Definition, task_id: str) -> Any:
        """Return the entry to send, under the id of this occurrence.

        If this process's own entry matches the stored one, prefer it: its arguments were not converted to JSON.
        """
        own, settings = self.own.get(due.name), self.adoption.client.settings
        if own is not None and own.encoded(settings, self.keyring, due.definition) == due.definition:
            entry = own.entry
        else:
            entry = stored_entry(self.adoption.app, due.name, definition, self.keyring)
        sent = type(entry)(**dict(entry))
        sent.options = {**entry.options, "headers": dict(entry.options.get("headers") or {}), "task_id": task_id}
        return sent

    def _submission(self, entry: Any) -> Submission | None:
        """Return the submission that Celery would make for an entry, or None if the task does not go to the ledger."""
        app = self.adoption.app
        if not self.adoption.covers(entry.task) or app.conf.task_always_eager:
            return None
        probe, collector = BrokerProbe(self.producer), Collector(record_id="", queue="", settling=True)
        with collecting(collector):
            self.apply(entry, probe)
        if probe.is_used:
            return None
        if len(collector.follow_ups) != 1:
            raise ScheduleDefinitionError(
                f"the entry {entry_name(app, entry.name)!r} sent {len(collector.follow_ups)} tasks instead of one; "
                f"check the task's own `apply_async` and handlers of `before_task_publish`"
            )
        return collector.follow_ups[0]
