"""Compute the guards of a push: its idempotency key, and the admission limits it must pass.

The submit script checks both. A task without guards costs nothing here. Templates are parsed when the task is defined,
and one that names an unknown argument is refused then.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from relier.errors import InvalidSubmissionError
from relier.ledger.limit_records import RunLimit
from relier.ledger.records import Admission, AdmissionLimit
from relier.options import Admit
from relier.settings import Settings
from relier.submit.digest import canonical, digest
from relier.submit.run_limits import CallLimits
from relier.submit.templates import Template

if TYPE_CHECKING:
    from relier.task import RlTask

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
MakeKey = Callable[[Args, Kwargs, bytes], str]
LONGEST_KEY, SHOWN_OF_KEY = 100, 60  # characters


class Load(msgspec.Struct, frozen=True):
    """Hold how much some calls use of the admission limits: per limit, in number, and in bytes if bytes are limited."""

    costs: Counter[AdmissionLimit]
    calls: int
    bytes: int = 0

    def __add__(self, other: Load) -> Load:
        return Load(self.costs + other.costs, self.calls + other.calls, self.bytes + other.bytes)

    def __sub__(self, other: Load) -> Load:
        return Load(self.costs - other.costs, self.calls - other.calls, self.bytes - other.bytes)


NOTHING = Load(Counter(), 0)


class Guards:
    """Compute the idempotency key and the limits for pushes of one task."""

    def __init__(self, task: RlTask[Any, Any]) -> None:
        options = task.options
        self._name = task.name
        self._prefix = task.name.replace("%", "%25").replace(":", "%3A")  # so that the name ends at the first colon
        self._arguments = task.arguments
        self._weight = options.admission_weight
        self._key = self._key_of(options.idempotency_key, options.idempotent)
        self._run_limits = CallLimits(task.name, options.limits, task.arguments) if options.limits else None
        self._limits: list[tuple[Template, Admit]] = [
            (Template(admit.key, task.arguments, f"task {task.name}: admission"), admit) for admit in options.admission
        ]

    def _key_of(self, given: str | Callable[..., str] | None, idempotent: bool) -> MakeKey | None:
        if isinstance(given, str):
            template = Template(given, self._arguments, f"task {self._name}: idempotency_key")
            return lambda args, kwargs, _: template.render(args, kwargs)
        if given is not None:
            return lambda args, kwargs, _: given(*args, **kwargs)
        return (lambda _, __, body: self._by_arguments(body)) if idempotent else None

    def key(self, args: Args, kwargs: Kwargs, body: bytes, own: str | None = None) -> str:
        """Return the idempotency key of one call of this task, or "" if it has none.

        `body`: the encoded call; `own`: a key given with this push.
        """
        if own is None and self._key is None:
            return ""
        key = self._key(args, kwargs, body) if own is None and self._key is not None else own
        if not isinstance(key, str) or not key:
            raise InvalidSubmissionError(
                f"the idempotency key of {self._name} must be a non-empty string, not {key!r:.60}; nothing was pushed"
            )
        return f"{self._prefix}:{key}"

    def limits(self, args: Args, kwargs: Kwargs, queue: str) -> tuple[RunLimit, ...]:
        """Return the limits at run time of one call that is pushed to this queue."""
        return self._run_limits.of(args, kwargs, queue) if self._run_limits else ()

    def _by_arguments(self, body: bytes) -> str:
        """Return a digest of the arguments. Equal calls have the same digest, however they were written."""
        args, kwargs = self._arguments.decode(body)
        given = self._arguments.signature.bind(*args, **kwargs).arguments
        return digest(self._defaults | {name: canonical(value) for name, value in given.items()})

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        parameters = self._arguments.signature.parameters.values()
        return {each.name: _plain(each.default) for each in parameters if each.default is not each.empty}

    def load(self, settings: Settings, calls: Sequence[tuple[Args, Kwargs]], held: int = 0) -> Load:
        """Return how much these calls use up of each admission limit. `held`: their payload in bytes."""
        costs: Counter[AdmissionLimit] = Counter()
        for call in calls if self._limits else ():
            for template, admit in self._limits:
                limit = self._limit(settings, template.render(*call), admit)
                if limit is not None:
                    costs[limit] += self._weight
        return Load(costs, len(calls), held)

    def admission(self, settings: Settings, load: Load, later: Load = NOTHING) -> Admission | None:
        """Return the limits that a submit must pass to admit all of `load`, or None if there are none.

        These are the limit of the namespace and the limits of the calls' own keys. `later`: the part of `load` that
        later submits will send.
        """
        if not load.costs and load.calls == self._weight == 1 and not settings.admission_max_bytes:
            return usual_admission(settings)
        costs, whole = load.costs.copy(), self._weight * load.calls
        if settings.admission_limit:
            costs[overall(settings)] = whole
        for limit, cost in costs.items():
            self._check_fits(limit, cost, load.calls)
        depth, most_bytes = _room_for(settings, load, later)
        if not costs and not depth and not most_bytes:
            return None
        if all(cost == whole for cost in costs.values()):  # every call costs the same: only new ones are charged
            limits = tuple(limit.weighing(self._weight) for limit in costs)
            return Admission(limits, depth, most_bytes, self._weight * later.calls)
        return Admission(tuple(limit.of(cost) for limit, cost in costs.items()), depth, most_bytes, 1)

    def _limit(self, settings: Settings, key: str, admit: Admit) -> AdmissionLimit | None:
        """Return the limit, or None if it sets no number and RELIER_ADMISSION_LIMIT turns it off with 0."""
        limit = admit.limit or settings.admission_limit
        return _per_window(_name_of(key), limit, admit.window_s or settings.admission_window) if limit else None

    def _check_fits(self, limit: AdmissionLimit, cost: int, calls: int) -> None:
        """Raise if the limit could never admit the calls: that is a mistake of the caller, and waiting cannot help."""
        if cost * limit.interval_us <= limit.tolerance_us:
            return
        tasks = f"{calls} task{'s' * (calls != 1)}{f' of weight {self._weight}' if self._weight > 1 else ''}"
        raise InvalidSubmissionError(
            f"{tasks} never fit{'s' * (calls == 1)} into admission limit {limit.name!r}, which admits "
            f"{limit.tolerance_us // limit.interval_us} at once; nothing was pushed; push fewer at once, or raise the "
            f"limit{' (RELIER_ADMISSION_LIMIT)' if limit.name == 'all' else ''}"
        )


def _room_for(settings: Settings, load: Load, later: Load) -> tuple[int, int]:
    """Return the depth and the bytes that this submit may reach, so that later submits still fit."""
    depth, most_bytes = settings.admission_max_depth, settings.admission_max_bytes
    if depth and load.calls > depth:
        raise InvalidSubmissionError(
            f"{load.calls} tasks never fit into a queue that may hold {depth} (RELIER_ADMISSION_MAX_DEPTH); nothing "
            f"was pushed; push fewer at once, or raise the limit"
        )
    if most_bytes and load.bytes > most_bytes:
        raise InvalidSubmissionError(
            f"{load.bytes:,} bytes of payload never fit into the {most_bytes:,} allowed by RELIER_ADMISSION_MAX_BYTES; "
            f"nothing was pushed; push less at once, or raise the limit"
        )
    return depth and depth - later.calls, most_bytes and most_bytes - later.bytes


def _name_of(key: str) -> str:
    """Return a limit's name: the key, or, if the key is long or not printable, its beginning and its digest."""
    if len(key) <= LONGEST_KEY and key.isprintable():
        return f"key:{key}"
    begin = "".join(letter if letter.isprintable() else "?" for letter in key[:SHOWN_OF_KEY])
    return f"key:{begin}…{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"


@lru_cache
def _per_window(name: str, limit: int, window: float) -> AdmissionLimit:
    return AdmissionLimit.per_window(name, limit, round(1000 * window))


def overall(settings: Settings) -> AdmissionLimit:
    """Return the limit of the whole namespace."""
    return _per_window("all", settings.admission_limit, settings.admission_window)


def usual_admission(settings: Settings) -> Admission | None:
    """Return the limits that one plain push must pass if bytes are not limited."""
    return _usual(settings.admission_limit, settings.admission_window, settings.admission_max_depth)


@lru_cache
def _usual(limit: int, window: float, depth: int) -> Admission | None:
    if not (limit or depth):
        return None
    return Admission((_per_window("all", limit, window),) if limit else (), depth)


def _plain(default: Any) -> Any:
    try:
        return canonical(default)
    except (ValueError, RecursionError):  # a sentinel that means "not given"
        return None
