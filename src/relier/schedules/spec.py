"""Validate a schedule as an application writes it, and build the definition that the ledger stores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

import msgspec

from relier.codec.keyring import NO_KEYS, Keyring
from relier.envelope import seal
from relier.errors import PayloadEncodingError, PayloadIntegrityError, RelierError, ScheduleDefinitionError, ShardsError
from relier.ledger.checks import MAX_LIMITS, PRIORITIES, check_name, encoded_size
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.options import PushOptions, Span, is_whole, milliseconds
from relier.schedules.definition import Definition, read_definition, sealed_as
from relier.schedules.planning import CATCH_UP_LIMIT, MOST_CATCH_UP, CatchUp
from relier.schedules.timings import At, Cron, Every, Timing
from relier.settings import Settings
from relier.store.call import Durability
from relier.submit.push import submission_of
from relier.submit.run_limits import limit_word

if TYPE_CHECKING:
    from relier.task import RlTask

OverlapRule = Literal["allow", "skip", "queue"]
MAX_NAME = 200
ONE = LimitNumbers(1)
_KEY_IDS = re.compile(r'"sig":"hmac-sha256:([^:"]*):|"body":"aes-gcm:([^:"]*):')


def timing_of(what: str, given: Any) -> Timing:
    """Return a timing: the object itself, a cron expression as text, or an interval as a timedelta."""
    if isinstance(given, str):
        return Cron(given)
    if isinstance(given, timedelta):
        return Every(given)
    if isinstance(given, Cron | Every | At) or all(hasattr(given, name) for name in ("after", "newest", "stored")):
        return given  # type: ignore[no-any-return]
    raise ScheduleDefinitionError(
        f"{what} must be a cron expression, Cron(…), Every(…), At(…) or a timedelta, not {given!r:.60}"
    )


def one_timing(
    name: str,
    cron: str | None,
    every: Span | None,
    at: datetime | None,
    when: Timing | str | timedelta | None,
    tz: str | None,
) -> Timing:
    """Return the timing. Raise ScheduleDefinitionError unless exactly one of cron, every, at and when is given."""
    given = {"cron": cron, "every": every, "at": at, "when": when}
    found = [word for word, value in given.items() if value is not None]
    if len(found) != 1:
        raise ScheduleDefinitionError(
            f"schedule {name!r:.80} needs exactly one of cron, every, at or when, not {', '.join(found) or 'none'}"
        )
    if tz is not None and cron is None:
        raise ScheduleDefinitionError(f"schedule {name!r:.80}: tz can only be combined with cron, not with {found[0]}")
    if cron is not None:
        return Cron(cron, "UTC" if tz is None else tz)
    if every is not None:
        return Every(every)
    return timing_of(f"schedule {name!r:.80}: when", when) if at is None else At(at)


class ScheduleOptions(TypedDict, total=False):
    """The arguments of `schedule` and `Schedules.create`, for editors and type checkers."""

    cron: str
    every: Span
    at: datetime
    when: Timing | str | timedelta
    tz: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    catch_up: CatchUp
    catch_up_limit: int
    grace: Span | None
    overlap: OverlapRule
    queue: str | None
    priority: int | None


def spec_of(name: str, task: RlTask[Any, Any], given: Mapping[str, Any]) -> ScheduleSpec:
    """Return the specification for these arguments. If one is unknown, the error suggests the closest name."""
    known = list(ScheduleOptions.__annotations__)
    for word in given:
        if word not in known:
            close = get_close_matches(word, known, 1)
            meant = f"did you mean {close[0]}?" if close else f"the options are: {', '.join(known)}"
            raise ScheduleDefinitionError(f"schedule {name!r:.80}: there is no option {word!r}; {meant}")
    timing = one_timing(name, *(given.get(word) for word in ("cron", "every", "at", "when", "tz")))
    rest = {word: value for word, value in given.items() if word not in {"cron", "every", "at", "when", "tz"}}
    return ScheduleSpec(name, task, timing, **rest | {"kwargs": given.get("kwargs") or {}})


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """Hold a schedule as an application writes it: its times, its call, and its rules for late and overlapping runs."""

    name: str
    task: RlTask[Any, Any]
    timing: Timing
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    catch_up: CatchUp = "latest"
    catch_up_limit: int = CATCH_UP_LIMIT
    grace: Span | None = None
    overlap: OverlapRule = "allow"
    queue: str | None = None
    priority: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= encoded_size(self.name) <= MAX_NAME or not self.name.isprintable():
            raise self._wrong(f"the name must be printable text of 1 to {MAX_NAME} bytes")
        if not hasattr(self.task, "arguments") or not hasattr(self.task, "options"):
            raise self._wrong(f"the task must be a function with @rl_task, not {self.task!r:.60}")
        self._check_rules()
        if not isinstance(self.args, tuple | list) or not isinstance(self.kwargs, Mapping):
            raise self._wrong("args must be a tuple or a list, and kwargs a dict")
        if self.priority is not None and (not is_whole(self.priority) or self.priority not in PRIORITIES):
            raise self._wrong(f"priority must be from {PRIORITIES[0]} to {PRIORITIES[-1]}, not {self.priority!r:.60}")
        if self.queue is not None:
            check_name("the queue", self.queue)
        if self.grace is not None:
            milliseconds("grace", self.grace)

    def _check_rules(self) -> None:
        if self.catch_up not in get_args(CatchUp):
            raise self._wrong(f"catch_up must be skip, latest or all, not {self.catch_up!r:.60}")
        if not is_whole(self.catch_up_limit) or not 1 <= self.catch_up_limit <= MOST_CATCH_UP:
            raise self._wrong(f"catch_up_limit must be from 1 to {MOST_CATCH_UP}, not {self.catch_up_limit!r:.60}")
        if self.overlap not in get_args(OverlapRule):
            raise self._wrong(f"overlap must be allow, skip or queue, not {self.overlap!r:.60}")
        if self.overlap == "queue" and len(self.task.options.limits) >= MAX_LIMITS:
            raise self._wrong(f"overlap='queue' adds a limit, but the task already has {MAX_LIMITS}; remove one")

    @property
    def task_name(self) -> str:
        return str(self.task.name)

    def check_call(self) -> bytes:
        """Return the encoded call. Raise ScheduleDefinitionError if the arguments do not fit the task."""
        try:
            return self.task.arguments.encode(tuple(self.args), dict(self.kwargs))
        except (TypeError, PayloadEncodingError) as error:
            raise self._wrong(f"its arguments do not fit the task {self.task.name}: {error}") from error

    def definition(self, settings: Settings, keyring: Keyring) -> Definition:
        """Return what the ledger stores."""
        body = self.check_call()
        options, push = self.task.options, PushOptions(queue=self.queue, priority=self.priority)
        level = options.durability or Durability(settings.durability)
        if settings.shards > 1 and (options.limits or options.idempotent or options.idempotency_key is not None):
            raise ShardsError(
                f"schedule {self.name!r} was not written: with RELIER_SHARDS its name decides the shard of its tasks, "
                f"but the key of task {options.name} (its idempotency key or a limit) may belong to another shard; let "
                f"the schedule run a task without such a key, which pushes {options.name}"
            )
        run = submission_of(self.task, tuple(self.args), dict(self.kwargs), push, level, settings, NO_KEYS, "id")
        payload = seal(
            body,
            schema_version=options.schema_version,
            pushed_ms=0,
            task_id=sealed_as(self.name),
            name=options.name,
            keyring=keyring,
        )
        return Definition(
            self.timing.stored(),
            options.name,
            payload.decode(),
            catch_up=self.catch_up,
            catch_up_limit=self.catch_up_limit,
            grace_ms=None if self.grace is None else milliseconds("grace", self.grace),
            overlap="skip" if self.overlap == "skip" else "allow",
            queue=run.queue,
            priority=run.priority,
            key=run.key,
            key_ttl_ms=run.key_ttl_ms,
            on_conflict=run.on_conflict,
            max_resurrections=run.max_resurrections,
            on_lost=run.on_lost,
            result_ttl_ms=run.result_ttl_ms,
            dead_ttl_ms=run.dead_ttl_ms,
            durability=run.durability,
            limits=(*run.limits, *self._one_at_a_time()),
        )

    def _one_at_a_time(self) -> tuple[RunLimit, ...]:
        """Return the limit of `overlap="queue"`, which makes runs of this schedule wait for each other, or nothing."""
        return (RunLimit("schedule", limit_word(f"schedule:{self.name}"), ONE),) if self.overlap == "queue" else ()

    def encoded(self, settings: Settings, keyring: Keyring, stored: bytes | None) -> bytes:
        """Return the definition to store.

        If `stored` is the same definition, sealed with the same keys, return `stored`.
        """
        fresh = self.definition(settings, keyring)
        if stored is not None and is_same_definition(self.name, fresh, stored, keyring):
            return stored
        return fresh.encoded()

    def _wrong(self, what: str) -> ScheduleDefinitionError:
        return ScheduleDefinitionError(f"schedule {self.name!r:.80} is not valid: {what}")


def is_same_definition(name: str, fresh: Definition, stored: bytes, keyring: Keyring) -> bool:
    """Return whether two definitions are equal, apart from the random parts of their encryption."""
    try:
        old = read_definition(name, stored)
        if _key_ids(old.payload) != _key_ids(fresh.payload) or old.open_call(name, keyring) != fresh.open_call(
            name, keyring
        ):
            return False
    except (ScheduleDefinitionError, PayloadIntegrityError, RelierError):
        return False
    return msgspec.structs.replace(old, payload="") == msgspec.structs.replace(fresh, payload="")


def _key_ids(payload: str) -> list[tuple[str, str]]:
    return _KEY_IDS.findall(payload)
