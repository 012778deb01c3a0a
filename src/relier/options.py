"""The options of a task and of one push: frozen, and validated when they are created."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from relier.errors import ConfigurationError, InvalidSubmissionError
from relier.ledger.checks import MAX_LIMITS, PRIORITIES, check_name
from relier.limits import Limit
from relier.store.call import Durability

if TYPE_CHECKING:
    from relier.engines.task_events import TaskEvent
    from relier.schedules.timings import Timing

OnLost = Literal["retry", "bury", "hold"]
OnDuplicate = Literal["return", "raise", "replace"]
DurabilityName = Literal["memory", "fsync", "replicated"]
# `async def (call_next, ctx) -> result` and `async def (call_next, push) -> receipts`
RunMiddleware = Callable[[Callable[[Any], Coroutine[Any, Any, Any]], Any], Coroutine[Any, Any, Any]]
PushMiddleware = Callable[[Callable[[Any], Coroutine[Any, Any, list[Any]]], Any], Coroutine[Any, Any, list[Any]]]
EventHook = Callable[["TaskEvent"], Any]  # may be `async def`
Span = float | timedelta
LONGEST_S = 100 * 365 * 86_400.0
SHORTEST_WINDOW_S = 0.001


@dataclass(frozen=True, slots=True)
class Retries:
    """When to retry a failed task: up to `attempts` times, first after `backoff` seconds, then each time after a wait
    `factor` times as long.

    `attempts` counts retries, without the first run: `retries=3` and `retries=Retries(attempts=3)` are the same.
    `jitter` shortens each wait by a random share of up to this size, so that tasks that failed together are not retried
    together. An exception is retried if it is one of `retry_on` and none of `never_on`.
    """

    attempts: int = 3
    backoff: float = 1.0
    factor: float = 2.0
    max_backoff: float = 300.0
    jitter: float = 0.5
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = (Exception,)
    never_on: type[BaseException] | tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        for what in ("retry_on", "never_on"):
            given = getattr(self, what)
            kinds = (given,) if isinstance(given, type) else tuple(given)
            if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
                raise ConfigurationError(f"{what} must be exception classes, not {given!r:.80}")
            object.__setattr__(self, what, kinds)
        if not is_whole(self.attempts):
            raise ConfigurationError(
                f"Retries(attempts={self.attempts!r:.60}) is invalid: attempts must be a whole number"
            )
        for what in ("backoff", "factor", "max_backoff", "jitter"):
            span = getattr(self, what)
            if not is_number(span) or not 0 <= span <= LONGEST_S:
                raise ConfigurationError(
                    f"Retries({what}={span!r:.60}) is invalid: {what} must be a number ≥ 0; times are in seconds"
                )
        if self.attempts < 0 or self.factor < 1 or self.jitter > 1:
            raise ConfigurationError(
                f"{self!r:.200} is invalid: attempts must be at least 0, factor at least 1, and jitter from 0 to 1"
            )

    def covers(self, error: BaseException) -> bool:
        """Return whether this exception is retried."""
        return isinstance(error, self.retry_on) and not isinstance(error, self.never_on)

    def delay_ms(self, failures: int, error: BaseException, covered: bool | None = None) -> int | None:
        """Return the wait after the nth failure, or None after the last. `covered` overrides `covers`."""
        if failures > self.attempts or not (self.covers(error) if covered is None else covered):
            return None
        growth = math.exp(min(500.0, (failures - 1) * math.log(self.factor)))
        wait = min(self.max_backoff, self.backoff * growth)
        return round(1000 * wait * (1 - self.jitter * random.random()))


@dataclass(frozen=True, slots=True)
class Admit:
    """An admission limit of one task: at most `limit` pushes at once per key, refilled over `window` seconds.

    `key` is a template over the arguments, such as `tenant:{tenant_id}`. Two tasks with the same key share the limit.
    `limit` and `window` default to RELIER_ADMISSION_LIMIT and RELIER_ADMISSION_WINDOW.
    """

    key: str
    limit: int | None = None
    window: Span | None = None

    def __post_init__(self) -> None:
        if isinstance(self.window, timedelta):
            object.__setattr__(self, "window", self.window.total_seconds())
        limit = 1 if self.limit is None else self.limit
        window: Any = 1.0 if self.window is None else self.window
        if not isinstance(self.key, str) or not self.key or not is_whole(limit) or not is_number(window):
            raise ConfigurationError(
                f"{self!r:.120} is invalid: key must be non-empty text, limit a whole number, and window a "
                f"number of seconds"
            )
        if limit < 1 or not SHORTEST_WINDOW_S <= window <= LONGEST_S or limit > 1_000_000 * window:
            raise ConfigurationError(
                f"{self!r:.120} is invalid: limit must be at least 1, window at least {SHORTEST_WINDOW_S:g} s, and the "
                f"rate at most one task per µs; omit the limit if you need none"
            )

    @property
    def window_s(self) -> float | None:
        return None if self.window is None else float(self.window)  # type: ignore[arg-type]  # __post_init__ converted a timedelta


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The options of `@rl_task`."""

    name: str
    queue: str = "default"
    priority: int = 0
    soft_timeout: float | None = None
    hard_timeout: float | None = None
    on_soft_timeout: Callable[[Any], Any] | None = None
    max_resurrections: int | None = None
    retries: Retries | None = None
    on_lost: OnLost = "retry"
    durability: Durability | None = None
    result_ttl: float | None = None
    dead_ttl: float | None = None
    isolate: bool = False
    schema_version: int = 1
    admission: tuple[Admit, ...] = ()
    admission_weight: int = 1
    limits: tuple[Limit, ...] = ()
    idempotent: bool = False
    idempotency_key: str | Callable[..., str] | None = None
    idempotency_ttl: float = 3600.0
    on_duplicate: OnDuplicate = "return"
    middleware: tuple[RunMiddleware, ...] = ()
    push_middleware: tuple[PushMiddleware, ...] = ()
    on_start: EventHook | None = None
    on_success: EventHook | None = None
    on_retry: EventHook | None = None
    on_dead: EventHook | None = None
    on_revived: EventHook | None = None
    schedule: Any = None  # a cron expression, Cron(…), Every(…) or At(…): schedules/spec.py reads it

    def __post_init__(self) -> None:
        check_name("the name of a task", self.name)
        check_name("the queue", self.queue)
        again: Any = self.retries
        if is_whole(again):
            object.__setattr__(self, "retries", Retries(attempts=again) if again else None)
        if self.durability is not None:
            object.__setattr__(self, "durability", durability_of(self.durability))
        for what in ("soft_timeout", "hard_timeout", "result_ttl", "dead_ttl", "idempotency_ttl"):
            span = getattr(self, what)
            if span is not None:
                object.__setattr__(self, what, seconds_of(what, span))
        object.__setattr__(self, "admission", self._admits(self.admission))
        object.__setattr__(self, "limits", self._limits(self.limits))
        for what in ("middleware", "push_middleware"):
            object.__setattr__(self, what, self._functions(what, getattr(self, what)))
        self._check_types()
        self._check_ranges()
        self._check_guards()

    def _limits(self, given: Any) -> tuple[Limit, ...]:
        limits = tuple(given) if isinstance(given, tuple | list) else () if given is None else (given,)
        if not all(isinstance(one, Limit) for one in limits):
            raise self._wrong(f"limits must be Limit(…) or several of them, not {given!r:.60}")
        shared = [one.per for one in limits]
        if len(limits) > MAX_LIMITS or len(set(shared)) < len(shared):
            raise self._wrong(
                f"a task has at most {MAX_LIMITS} limits, each with a different `per`; put concurrency and rate of the "
                f"same key into one Limit(…)"
            )
        return limits

    def _admits(self, given: Any) -> tuple[Admit, ...]:
        each = given if isinstance(given, tuple | list) else () if given is None else (given,)
        limits = tuple(Admit(one) if isinstance(one, str) else one for one in each)
        if not all(isinstance(one, Admit) for one in limits):
            raise self._wrong(f"admission must be a template, Admit(…) or several of them, not {given!r:.60}")
        return limits

    def _functions(self, what: str, given: Any) -> tuple[Any, ...]:
        functions = tuple(given) if isinstance(given, tuple | list) else (given,)
        for each in functions:
            check_middleware(f"task {self.name}: {what}", each)
        return functions

    def _check_types(self) -> None:
        if not (self.retries is None or isinstance(self.retries, Retries)):
            raise self._wrong(f"retries must be a whole number or Retries(…), not {self.retries!r:.60}")
        for what in ("isolate", "idempotent"):
            if not isinstance(getattr(self, what), bool):
                raise self._wrong(f"{what} must be True or False, not {getattr(self, what)!r:.60}")
        for what in ("priority", "schema_version", "max_resurrections", "admission_weight"):
            value = getattr(self, what)
            if not is_whole(value) and not (what == "max_resurrections" and value is None):
                raise self._wrong(f"{what} must be a whole number, not {value!r:.60}")
        for what in ("on_soft_timeout", "on_start", "on_success", "on_retry", "on_dead", "on_revived"):
            hook = getattr(self, what)
            if hook is not None and not callable(hook):
                raise self._wrong(f"{what} must be a function, not {hook!r:.60}")

    def _check_ranges(self) -> None:
        if self.priority not in PRIORITIES:
            raise self._wrong(f"priority must be from {PRIORITIES[0]} to {PRIORITIES[-1]}, not {self.priority!r}")
        if self.on_lost not in ("retry", "bury", "hold"):
            raise self._wrong(f"on_lost must be retry, bury or hold, not {self.on_lost!r:.60}")
        if 0 in (self.soft_timeout, self.hard_timeout):
            raise self._wrong("a timeout of 0 would stop the task before it starts; omit it for no timeout")
        if self.soft_timeout and self.hard_timeout and self.soft_timeout >= self.hard_timeout:
            soft, hard = self.soft_timeout, self.hard_timeout
            raise self._wrong(f"soft_timeout ({soft:g} s) must be shorter than hard_timeout ({hard:g} s)")
        if self.max_resurrections is not None and self.max_resurrections < 0:
            raise self._wrong("max_resurrections must not be negative")
        if self.schema_version < 1:
            raise self._wrong("schema_version must be at least 1")

    def _check_guards(self) -> None:
        if self.on_duplicate not in ("return", "raise", "replace"):
            raise self._wrong(f"on_duplicate must be return, raise or replace, not {self.on_duplicate!r}")
        if self.admission_weight < 1:
            raise self._wrong("admission_weight must be at least 1")
        for one in self.admission:
            if one.limit is not None and self.admission_weight > one.limit:
                raise self._wrong(
                    f"admission_weight is {self.admission_weight}, but the limit {one.key!r} accepts only "
                    f"{one.limit} at once"
                )
        key = self.idempotency_key
        if key == "" or not (key is None or isinstance(key, str) or callable(key)):
            raise self._wrong(f"idempotency_key must be a template or a function, not {key!r:.60}")
        if inspect.iscoroutinefunction(key):
            raise self._wrong("idempotency_key must be a plain function, because push cannot await an async one")

    def _wrong(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"task {self.name}: {what}")


class GivenTaskOptions(TypedDict, total=False):
    """The options of `@rl_task` as applications write them, for editors and type checkers (docs/reference/tasks.md)."""

    name: str
    queue: str
    priority: int
    soft_timeout: Span | None
    hard_timeout: Span | None
    on_soft_timeout: Callable[[Any], Any] | None
    max_resurrections: int | None
    retries: int | Retries | None
    on_lost: OnLost
    durability: Durability | DurabilityName | None
    result_ttl: Span | None
    dead_ttl: Span | None
    isolate: bool
    schema_version: int
    admission: str | Admit | Sequence[str | Admit]
    admission_weight: int
    limits: Limit | Sequence[Limit]
    idempotent: bool
    idempotency_key: str | Callable[..., str] | None
    idempotency_ttl: Span
    on_duplicate: OnDuplicate
    middleware: RunMiddleware | Sequence[RunMiddleware]
    push_middleware: PushMiddleware | Sequence[PushMiddleware]
    on_start: EventHook | None
    on_success: EventHook | None
    on_retry: EventHook | None
    on_dead: EventHook | None
    on_revived: EventHook | None
    schedule: Timing | str | timedelta | None


def task_options(name: str, given: Mapping[str, Any]) -> TaskOptions:
    """Return the options given to the decorator. For an unknown one, the error suggests the closest name."""
    known = [field.name for field in fields(TaskOptions)]
    for option in given:
        if option not in known:
            close = sorted(get_close_matches(option, known, 3), key=lambda one: one[:1] != option[:1])
            meant = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}"
            raise ConfigurationError(f"task {name}: there is no option {option!r}; {meant}")
    return TaskOptions(**{"name": name, **given})


@dataclass(frozen=True, slots=True)
class PushOptions:
    """The options of one push. `delay` is seconds from now; `expires` is that or a point in time."""

    task_id: str | None = None
    delay: Span | None = None
    eta: datetime | None = None
    expires: Span | datetime | None = None
    priority: int | None = None
    queue: str | None = None
    durability: Durability | None = None
    idempotency_key: str | None = None
    order_key: str | None = None

    def __post_init__(self) -> None:
        if self.durability is not None:
            object.__setattr__(self, "durability", durability_of(self.durability))
        if self.order_key is not None and (not isinstance(self.order_key, str) or len(self.order_key) > 255):
            raise InvalidSubmissionError(
                f"order_key must be text of at most 255 characters, not {self.order_key!r:.60}"
            )
        if self.delay is not None and self.eta is not None:
            raise InvalidSubmissionError("give delay or eta, not both; nothing was pushed")

    def times(self) -> dict[str, int]:
        """Return the time fields of a Submission."""
        when: dict[str, int] = {}
        if self.delay is not None:
            when["delay_ms"] = milliseconds("delay", self.delay)
        if self.eta is not None:
            when["eta_ms"] = timestamp_ms("eta", self.eta)
        if isinstance(self.expires, datetime):
            when["expires_at_ms"] = timestamp_ms("expires", self.expires)
        elif self.expires is not None:
            when["expires_in_ms"] = max(1, milliseconds("expires", self.expires))
        return when


def check_middleware(what: str, function: Any) -> None:
    """Raise ConfigurationError unless this is an async function, or an object that can be called like one."""
    called = type(function).__call__ if callable(function) else None
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
        return
    raise ConfigurationError(
        f"{what} must be an async function that takes call_next and one more argument, not {function!r:.80}; write "
        f"`async def`, and return `await call_next(…)`"
    )


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def durability_of(level: Any) -> Durability:
    try:
        return Durability(level)
    except ValueError:
        raise ConfigurationError(f"durability must be one of {', '.join(Durability)}, not {level!r:.60}") from None


def seconds_of(what: str, span: Span) -> float:
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if not is_number(seconds) or not 0 <= seconds <= LONGEST_S:
        raise InvalidSubmissionError(
            f"{what} must be a number of seconds from 0 to {LONGEST_S:.0f} or a timedelta, not {span!r:.60}"
        )
    return float(seconds)


def milliseconds(what: str, span: Span) -> int:
    return round(1000 * seconds_of(what, span))


def timestamp_ms(what: str, moment: datetime) -> int:
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidSubmissionError(
            f"{what} must be a datetime with a time zone, not {moment!r:.60}: without a zone it means a different "
            f"moment on each machine; use datetime.now(UTC) + timedelta(…), or delay"
        )
    return max(1, round(1000 * moment.timestamp()))
