"""The definition of a schedule: when it is due, and the task that it runs. The ledger stores it as JSON.

A definition holds everything that a firing needs, so any process can fire it without the application's code. The call
is sealed (envelope.py) under the schedule's name: with keys, it is signed and encrypted, and cannot be copied to
another schedule. The process that fires the schedule opens the call, and seals it again for each run under the run's
own id. The signature covers the task's name and arguments, but not when or how often the task runs.
"""

from __future__ import annotations

import hashlib
from itertools import count
from typing import Any, Literal

import msgspec

from relier.codec.keyring import Keyring
from relier.envelope import open_envelope, seal
from relier.errors import ScheduleDefinitionError
from relier.ledger.limit_records import RunLimit
from relier.ledger.records import Submission
from relier.schedules.planning import CATCH_UP_LIMIT, CatchUp, CatchUpRule
from relier.schedules.timings import Timing, read_timing
from relier.settings.shards import shard_of
from relier.store.call import Durability

VERSION = 1
HEX = frozenset("0123456789abcdef")


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schedule's definition as stored. `payload` is the sealed call, `timing` the result of `Timing.stored`."""

    timing: dict[str, Any]
    task: str
    payload: str
    v: int = VERSION
    catch_up: CatchUp = "latest"
    catch_up_limit: int = CATCH_UP_LIMIT
    grace_ms: int | None = None
    overlap: Literal["allow", "skip"] = "allow"
    queue: str = "default"
    priority: int = 0
    key: str = ""
    key_ttl_ms: int = 0
    on_conflict: Literal["return", "replace"] = "return"
    max_resurrections: int | None = None
    on_lost: Literal["retry", "bury", "hold"] = "retry"
    result_ttl_ms: int | None = None
    dead_ttl_ms: int | None = None
    durability: Durability = Durability.MEMORY
    limits: tuple[RunLimit, ...] = ()

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)

    def when(self) -> Timing:
        """Return the timing. Raise ScheduleDefinitionError if this process cannot compute it."""
        return read_timing(self.timing)

    def rule(self) -> CatchUpRule:
        return CatchUpRule(self.catch_up, self.catch_up_limit, self.grace_ms)

    def open_call(self, name: str, keyring: Keyring) -> tuple[int, bytes]:
        """Return the schema version and the encoded call. Raise PayloadIntegrityError if it cannot be trusted."""
        opened = open_envelope(self.payload.encode(), task_id=sealed_as(name), name=self.task, keyring=keyring)
        return opened.schema_version, opened.body

    def submission(self, task_id: str, payload: bytes) -> Submission:
        """Return the submission of one run."""
        return Submission(
            id=task_id,
            name=self.task,
            payload=payload,
            queue=self.queue,
            priority=self.priority,
            key=self.key,
            key_ttl_ms=self.key_ttl_ms,
            on_conflict=self.on_conflict,
            max_resurrections=self.max_resurrections,
            on_lost=self.on_lost,
            result_ttl_ms=self.result_ttl_ms,
            dead_ttl_ms=self.dead_ttl_ms,
            durability=self.durability,
            limits=self.limits,
        )

    def runs(
        self,
        name: str,
        namespace: str,
        version: str,
        times: tuple[int, ...],
        keyring: Keyring,
        shard: int = 0,
        shards: int = 1,
    ) -> list[tuple[int, Submission]]:
        """Return each intended time with the submission of its run."""
        schema_version, body = self.open_call(name, keyring)
        found = []
        for at in times:
            task_id = run_id(namespace, name, version, at, shard, shards)
            payload = seal(
                body, schema_version=schema_version, pushed_ms=at, task_id=task_id, name=self.task, keyring=keyring
            )
            found.append((at, self.submission(task_id, payload)))
        return found


_DECODER = msgspec.json.Decoder(Definition)


def read_definition(name: str, raw: bytes) -> Definition:
    """Return a stored definition. Raise ScheduleDefinitionError if this release cannot read it."""
    try:
        found = _DECODER.decode(raw)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ScheduleDefinitionError(
            f"the definition of schedule {name!r} cannot be read: {error}; a newer release or another program wrote "
            f"it; update this process, or remove the schedule"
        ) from error
    if found.v != VERSION:
        raise ScheduleDefinitionError(
            f"the definition of schedule {name!r} has version {found.v}, but this release reads version {VERSION}; "
            f"update this process"
        )
    return found


def sealed_as(name: str) -> str:
    """Return the text under which a definition's call is sealed, in place of a task id."""
    return f"schedule:{name}"


def intended_time_of(task_id: str) -> int | None:
    """Return the intended time (ms) in the id of a run, or None if the id is not of that form."""
    if len(task_id) != 32 or not set(task_id) <= HEX or task_id[12] != "8" or task_id[16] not in "89ab":
        return None
    return int(task_id[:12], 16)


def run_id(namespace: str, name: str, version: str, intended_ms: int, shard: int = 0, shards: int = 1) -> str:
    """Return the id of a run: a UUID of version 8 (32 hex digits). All processes compute the same id for a run.

    Ids sort by intended time. With shards, a number is added to what the id is derived from until the id belongs to the
    schedule's shard.
    """
    text = f"{len(namespace)}:{namespace}{len(name)}:{name}{version}:{intended_ms}"
    numbers = count(1)
    found = _id_from(text, intended_ms)
    while shard_of(found, shards) != shard:
        found = _id_from(f"{text}~{next(numbers)}", intended_ms)
    return found


def _id_from(text: str, intended_ms: int) -> str:
    digest = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:10], "big")
    value = (intended_ms & (1 << 48) - 1) << 80 | digest
    value = value & ~(0xF << 76) | 0x8 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return f"{value:032x}"
