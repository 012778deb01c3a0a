"""The schedules that this process's code declares: `schedule(…)`, and `@rl_task(schedule=…)`.

Both only register a schedule in this process. When a worker starts, it writes the registered schedules to the ledger.
Their origin is the list of modules on the worker's command line. The worker disables schedules of the same origin that
its code no longer declares. In a rolling deploy the last start wins.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from relier.codec.keyring import Keyring
from relier.errors import RelierError, ScheduleConflictError, ScheduleDefinitionError, StoreError
from relier.ledger.schedule_records import GROUPS, NATIVE, ScheduleState, ScheduleVerdict, StoredSchedule
from relier.schedules.changes import ScheduleChanges
from relier.schedules.firing import FireContext, RunCall
from relier.schedules.spec import ScheduleOptions, ScheduleSpec, spec_of, timing_of
from relier.schedules.timings import Timing
from relier.settings import Settings
from relier.settings.shards import shard_of
from relier.store.call import Durability
from relier.submit.client import Client

if TYPE_CHECKING:
    from relier.task import RlTask

log = logging.getLogger("relier.schedules")

_declared: dict[str, ScheduleSpec] = {}


def schedule(name: str, task: RlTask[Any, Any], **options: Unpack[ScheduleOptions]) -> ScheduleSpec:
    """Declare a schedule in code: `schedule("nightly", report, cron="0 3 * * *", tz="Europe/Paris")`.

    Give exactly one of: cron (with tz, default UTC), every (seconds or a timedelta), at (a datetime with a zone), or
    when (Cron(…), Every(…), At(…)).

    args, kwargs                      the arguments of the call
    catch_up, catch_up_limit, grace   which late occurrences run; catch_up is "skip", "latest" or "all"
    overlap                           what happens while the previous run has not ended: "allow", "skip" or "queue"
    queue, priority                   override those of the task

    Workers that import this module write the schedule to the ledger when they start. `Schedules.create` takes the same
    arguments and writes at once. Raises ScheduleDefinitionError if an argument is invalid.
    """
    spec = spec_of(name, task, options)
    spec.check_call()
    return register(spec)


def schedule_task(task: RlTask[Any, Any], given: Any) -> ScheduleSpec:
    """Declare the schedule of `@rl_task(schedule=…)`, under the task's name.

    The call is checked when a worker starts, not here: while the module is still being imported, the task's annotations
    may refer to classes that are defined further down.
    """
    return register(ScheduleSpec(task.name, task, timing_of(f"task {task.name}: schedule", given)))


def register(spec: ScheduleSpec) -> ScheduleSpec:
    """Register a schedule. A module that is imported again replaces its own schedules."""
    other = _declared.get(spec.name)
    if other is not None and other.task.name != spec.task.name:
        raise ScheduleDefinitionError(
            f"two schedules have the name {spec.name!r}: one runs {other.task.name}, the other {spec.task.name}; "
            f"rename one of them"
        )
    _declared[spec.name] = spec
    return spec


def declared_schedules() -> list[ScheduleSpec]:
    """Return the schedules that the code imported by this process declares."""
    return list(_declared.values())


async def read_all(run: RunCall, context: FireContext, fires: int = 1) -> tuple[dict[str, StoredSchedule], int]:
    """Read all schedules by name, and the store's time (ms)."""
    found: dict[str, StoredSchedule] = {}
    now_ms = 0
    for group in GROUPS:
        cursor = "0"
        while cursor:
            page = await run(context.ledger.schedules(group=group, cursor=cursor, fires=fires))
            found |= {stored.name: stored for stored in page.schedules}
            cursor, now_ms = page.cursor, page.now_ms
    return found, now_ms


class DeclaredSchedule(Protocol):
    """Describe a schedule that code declares."""

    @property
    def name(self) -> str: ...
    @property
    def task_name(self) -> str: ...
    @property
    def timing(self) -> Timing: ...
    def encoded(self, settings: Settings, keyring: Keyring, stored: bytes | None) -> bytes: ...


async def declare_all(
    client: Client,
    run: RunCall,
    origin: str,
    specs: Sequence[DeclaredSchedule],
    *,
    group: str = NATIVE,
    context: FireContext | None = None,
) -> list[str]:
    """Write these schedules to the ledger under `origin`. Disable its other schedules, and return their names.

    `context`: fires a schedule that is due when it is edited.

    If one schedule cannot be written, log a warning and write the others. Raise errors of the store. With shards,
    `client` is that of one shard, and only the schedules of this shard are written.
    """
    settings = client.settings
    specs = [spec for spec in specs if shard_of(spec.name, settings.shards) == (settings.shard or 0)]
    context = context or FireContext.of(client.settings, client.ledger, client.keyring)
    changes = ScheduleChanges(context, run, Durability(client.settings.durability))
    stored, now_ms = await read_all(run, context)
    for spec in specs:
        known = stored.get(spec.name)
        try:
            raw = spec.encoded(client.settings, client.keyring, known.definition if known else None)
            answer = await changes.declare(spec.name, raw, spec.timing, origin, now_ms, group)
        except StoreError:
            raise
        except RelierError as error:
            log.warning("%s", error)
            continue
        _report(spec, answer.verdict, answer.state)
    gone = [each for each in stored.values() if each.origin == origin and each.group == group]
    return await _disable(changes, gone, {spec.name for spec in specs}, origin)


def _report(spec: DeclaredSchedule, verdict: ScheduleVerdict, state: str) -> None:
    if verdict is ScheduleVerdict.OK:
        log.info("schedule %s declared: %s, task %s", spec.name, spec.timing, spec.task_name)
    if state == ScheduleState.PAUSED:
        log.warning("schedule %s is paused and does not run; resume it with `rl schedules resume`", spec.name)
    elif state == ScheduleState.ENDED and verdict is ScheduleVerdict.OK:
        log.warning("schedule %s has no time after now (%s), so it does not run", spec.name, spec.timing)


async def _disable(
    changes: ScheduleChanges, stored: Sequence[StoredSchedule], kept: set[str], origin: str
) -> list[str]:
    names = []
    for each in stored:
        # A paused schedule stays paused, so that it is still paused if another release declares it again.
        if each.name in kept or each.state is not ScheduleState.ACTIVE:
            continue
        try:
            await changes.switch(each.name, ScheduleState.DISABLED)
        except (ScheduleConflictError, ScheduleDefinitionError):  # another worker was faster
            continue
        names.append(each.name)
    if names:
        log.warning(
            "disabled schedules that the code of %s no longer declares: %s; `rl schedules remove` removes them",
            origin,
            ", ".join(sorted(names)),
        )
    return names
