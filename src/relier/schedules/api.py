"""Change and read schedules at run time. `Schedules` blocks; `AsyncSchedules` has the same methods for event loops.

Both use ScheduleOperations, whose methods are coroutines. submit/ledger_access.py explains how blocking callers run
them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from relier.codec.keyring import Keyring
from relier.envelope import seal
from relier.errors import ScheduleConflictError
from relier.ledger.ledger import Ledger
from relier.ledger.records import Accepted, Admission, Submission, new_task_id
from relier.ledger.schedule_records import NATIVE
from relier.schedules.changes import ScheduleChanges
from relier.schedules.declared import read_all
from relier.schedules.definition import read_definition
from relier.schedules.firing import FireContext
from relier.schedules.spec import ScheduleOptions, ScheduleSpec, spec_of
from relier.schedules.views import ScheduleInfo, info_of, moment, next_times
from relier.settings import Settings
from relier.settings.shards import drawn, shard_of
from relier.store.call import Call, Durability
from relier.store.sync_wire import run_sync
from relier.submit.client import Client, default_client
from relier.submit.receipt import SyncTaskReceipt, TaskReceipt

if TYPE_CHECKING:
    from relier.task import RlTask


class ScheduleAccess(Protocol):
    """Run calls and submit tasks. `LedgerAccess` implements this, and so do the commands of `rl`."""

    def run(self, call: Call[Any], /) -> Awaitable[Any]: ...
    def submit(
        self, tasks: Sequence[Submission], admission: Admission | None, level: Durability, /
    ) -> Awaitable[Sequence[Accepted]]: ...


class ScheduleOperations:
    """Implement the methods of Schedules and AsyncSchedules, over blocking or awaited calls."""

    def __init__(self, settings: Settings, ledger: Ledger, keyring: Keyring, access: ScheduleAccess) -> None:
        self._settings = settings
        self._keyring = keyring
        self._access = access
        self._context = FireContext.of(settings, ledger, keyring)
        self._changes = ScheduleChanges(self._context, access.run, Durability(settings.durability))

    async def create(self, spec: ScheduleSpec) -> ScheduleInfo:
        name = spec.name
        stored, _ = await self._changes.read(name)
        raw = spec.encoded(self._settings, self._keyring, stored.definition if stored else None)
        await self._changes.put(name, raw, spec.timing)
        return await self.get(name)

    async def get(self, name: str) -> ScheduleInfo:
        return info_of((await self._changes.existing(name))[0])

    async def list_all(self) -> list[ScheduleInfo]:
        found, _ = await read_all(self._access.run, self._context)
        return [info_of(found[name]) for name in sorted(found)]

    async def pause(self, name: str) -> ScheduleInfo:
        await self._changes.pause(name)
        return await self.get(name)

    async def resume(self, name: str) -> ScheduleInfo:
        await self._changes.resume(name)
        return await self.get(name)

    async def remove(self, name: str) -> None:
        await self._changes.remove(name)

    async def run_now(self, name: str) -> str:
        """Submit the schedule's task once, under a new id, and return that id.

        If the task is idempotent and another task already holds the same idempotency key, submit nothing and return
        the id of that other task.
        """
        stored, now_ms = await self._changes.existing(name)
        if stored.group != NATIVE:
            raise ScheduleConflictError(
                f"schedule {name!r} was not run: it is an entry of Celery's beat, which builds the task's message "
                f"task; nothing was pushed; send the task with Celery instead, for example with `celery call`"
            )
        definition = read_definition(name, stored.definition)
        schema_version, body = definition.open_call(name, self._keyring)
        task_id = drawn(new_task_id, self._settings.shard or 0, self._settings.shards)
        payload = seal(
            body,
            schema_version=schema_version,
            pushed_ms=now_ms,
            task_id=task_id,
            name=definition.task,
            keyring=self._keyring,
        )
        run = definition.submission(task_id, payload)
        (accepted,) = await self._access.submit([run], None, definition.durability)
        return accepted.id

    async def next_times(self, name: str, n: int) -> list[datetime]:
        stored, now_ms = await self._changes.existing(name)
        timing = read_definition(name, stored.definition).when()
        zone = getattr(timing, "zone", UTC)
        return [moment(at).astimezone(zone) for at in next_times(timing, stored.next_ms, now_ms, n)]


def operations_of(client: Client, access: ScheduleAccess) -> ScheduleOperations:
    return ScheduleOperations(client.settings, client.ledger, client.keyring, access)


def by_name(found: Sequence[Sequence[ScheduleInfo]]) -> Sequence[ScheduleInfo]:
    """Return the schedules of all shards in one list."""
    return sorted(chain.from_iterable(found), key=attrgetter("name"))


class Schedules:
    """Change and read the schedules of a namespace, blocking: `Schedules().pause("nightly")`."""

    def __init__(self, client: Client | None = None) -> None:
        self._client = client or default_client()
        self._shards = [operations_of(shard, shard.blocking) for shard in self._client.shards]

    def _of(self, name: str) -> ScheduleOperations:
        return self._shards[shard_of(name, len(self._shards))]

    def create(self, name: str, task: RlTask[Any, Any], **options: Unpack[ScheduleOptions]) -> ScheduleInfo:
        """Create a schedule, or edit one that was created at run time. Takes the arguments of `schedule`."""
        return run_sync(self._of(name).create(spec_of(name, task, options)))

    def get(self, name: str) -> ScheduleInfo:
        """Read one schedule with its history. Raises ScheduleNotFoundError."""
        return run_sync(self._of(name).get(name))

    def list(self) -> Sequence[ScheduleInfo]:
        """Read all schedules, by name, each with its last firing."""
        return by_name([run_sync(shard.list_all()) for shard in self._shards])

    def pause(self, name: str) -> ScheduleInfo:
        """Stop firing a schedule until it is resumed. Tasks that it fired continue."""
        return run_sync(self._of(name).pause(name))

    def resume(self, name: str) -> ScheduleInfo:
        """Make a paused or disabled schedule active again, from its next time after now."""
        return run_sync(self._of(name).resume(name))

    def remove(self, name: str) -> None:
        """Remove a schedule and its history. If code declares it, the next worker that starts creates it again."""
        run_sync(self._of(name).remove(name))

    def run_now(self, name: str) -> SyncTaskReceipt[Any]:
        """Run the schedule's task once, now. The schedule's times and history do not change."""
        return SyncTaskReceipt(run_sync(self._of(name).run_now(name)), client=self._client)

    def next_times(self, name: str, n: int = 5) -> Sequence[datetime]:
        """Return the next times at which the schedule is due, or would be if it were active, in its time zone."""
        return run_sync(self._of(name).next_times(name, n))


class AsyncSchedules:
    """Change and read the schedules of a namespace on an event loop. The methods are those of Schedules."""

    def __init__(self, client: Client | None = None) -> None:
        self._client = client or default_client()
        self._shards = [operations_of(shard, shard.awaiting) for shard in self._client.shards]

    def _of(self, name: str) -> ScheduleOperations:
        return self._shards[shard_of(name, len(self._shards))]

    async def create(self, name: str, task: RlTask[Any, Any], **options: Unpack[ScheduleOptions]) -> ScheduleInfo:
        return await self._of(name).create(spec_of(name, task, options))

    async def get(self, name: str) -> ScheduleInfo:
        return await self._of(name).get(name)

    async def list(self) -> Sequence[ScheduleInfo]:
        return by_name([await shard.list_all() for shard in self._shards])

    async def pause(self, name: str) -> ScheduleInfo:
        return await self._of(name).pause(name)

    async def resume(self, name: str) -> ScheduleInfo:
        return await self._of(name).resume(name)

    async def remove(self, name: str) -> None:
        await self._of(name).remove(name)

    async def run_now(self, name: str) -> TaskReceipt[Any]:
        return TaskReceipt(await self._of(name).run_now(name), client=self._client)

    async def next_times(self, name: str, n: int = 5) -> Sequence[datetime]:
        return await self._of(name).next_times(name, n)
