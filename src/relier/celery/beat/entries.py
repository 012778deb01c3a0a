"""Convert an entry of beat to a definition in the ledger, and a definition back to an entry.

The call in a definition is `[args, kwargs, options]` of the entry, as kombu's JSON, sealed like every call. So any node
can fire any entry, even one that another release of the code declared. There are two exceptions: arguments that JSON
cannot express, and arguments that are computed when the task is sent (`BeatLazyFunc`). Such an entry is stored as
`["own"]`, and nodes send it with the arguments of their own configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from celery.beat import BeatLazyFunc, ScheduleEntry
from kombu.utils.json import dumps, loads

from relier.celery.beat.timings import BeatTiming, timing_of_schedule
from relier.codec.keyring import Keyring
from relier.envelope import seal
from relier.errors import ScheduleDefinitionError
from relier.schedules.definition import Definition, sealed_as
from relier.schedules.spec import is_same_definition
from relier.settings import Settings
from relier.store.call import Durability

OWN = b'["own"]'
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class BeatSpec:
    """An entry of this process's configuration, to be declared. `name`: the schedule's name, with the app's name."""

    name: str
    entry: Any
    timing: BeatTiming
    grace_ms: int | None = None

    @property
    def task_name(self) -> str:
        return str(self.entry.task)

    def encoded(self, settings: Settings, keyring: Keyring, stored: bytes | None) -> bytes:
        """Return the definition to store. If `stored` is the same definition, return `stored`."""
        fresh = Definition(
            self.timing.stored(),
            self.task_name,
            seal(
                call_of(self.entry),
                schema_version=SCHEMA,
                pushed_ms=0,
                task_id=sealed_as(self.name),
                name=self.task_name,
                keyring=keyring,
            ).decode(),
            grace_ms=self.grace_ms,
            queue=shown_queue(self.entry.options),
            durability=Durability(settings.durability),
        )
        if stored is not None and is_same_definition(self.name, fresh, stored, keyring):
            return stored
        return fresh.encoded()


def spec_of_entry(app: Any, entry: Any, timing: BeatTiming | None = None) -> BeatSpec:
    """Return the schedule of an entry. `beat_cron_starting_deadline` applies to crontabs only, as in Celery."""
    timing = timing or timing_of_schedule(entry.name, entry.schedule, app.timezone)
    deadline = app.conf.beat_cron_starting_deadline
    stored = timing.stored()
    is_crontab = stored.get("inner", stored)["kind"] == "celery-crontab"
    grace_ms = round(1000 * deadline) if is_crontab and deadline is not None else None
    return BeatSpec(schedule_name(app, entry.name), entry, timing, grace_ms)


def origin_of(app: Any) -> str:
    return str(app.main or "celery")


def schedule_name(app: Any, entry_name: str) -> str:
    """Return the name of an entry's schedule.

    It contains the app's name, because several apps may have entries of the same name (`celery.backend_cleanup`).
    """
    return f"{origin_of(app)}:{entry_name}"


def entry_name(app: Any, name: str) -> str:
    return name.removeprefix(f"{origin_of(app)}:")


def shown_queue(options: dict[str, Any]) -> str:
    """Return the queue that an entry names. It is only displayed: routes may send the task to another queue."""
    queue = options.get("queue") or options.get("routing_key") or ""
    return str(getattr(queue, "name", queue)) or "default"


def call_of(entry: Any) -> bytes:
    """Return the call of an entry as a definition stores it."""
    args, kwargs = list(entry.args or ()), dict(entry.kwargs or {})
    if any(isinstance(value, BeatLazyFunc) for value in [*args, *kwargs.values()]):
        return OWN
    try:
        return str(dumps([args, kwargs, dict(entry.options or {})])).encode()
    except (TypeError, ValueError, RecursionError):
        return OWN


def stored_entry(app: Any, name: str, definition: Definition, keyring: Keyring) -> Any:
    """Return the entry of a definition. Raise ScheduleDefinitionError if the ledger does not hold its arguments."""
    _, body = definition.open_call(name, keyring)
    if body == OWN:
        raise ScheduleDefinitionError(
            f"the arguments of {name!r} are not in the ledger, because JSON cannot express them or they are computed "
            f"when the task is sent; only a beat whose `beat_schedule` has this entry can send it"
        )
    args, kwargs, options = loads(body)
    return plain_entry(app, entry_name(app, name), definition.task, args, kwargs, options)


def plain_entry(app: Any, name: str, task: str, args: Any, kwargs: Any, options: Any) -> Any:
    """Return an entry that can be sent. It has no schedule, because the ledger decides when it is due."""
    return ScheduleEntry(name, task, None, None, None, args, kwargs, options, app=app)
