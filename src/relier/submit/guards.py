"""The guards of a push: its idempotency key and the admission limits it must pass. The submit script checks both; here
it is only worked out what to ask for. A task without guards costs nothing here.

Templates are read when the task is defined: one that names an unknown argument is refused there.
"""

from __future__ import annotations

import hashlib
import inspect
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from relier import codec
from relier.errors import ConfigurationError, InvalidSubmissionError, PayloadEncodingError
from relier.ledger.records import Admission, Limit
from relier.options import Admit
from relier.settings import Settings

if TYPE_CHECKING:
    from relier.arguments import Arguments
    from relier.task import RlTask

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
CANONICAL = msgspec.json.Encoder(order="sorted")


class Template:
    """`tenant:{tenant_id}` over the arguments of one function."""

    def __init__(self, text: str, arguments: Arguments, what: str) -> None:
        self._text = text
        self._arguments = arguments
        self._what = what
        known = arguments.signature.parameters
        free = any(each.kind is each.VAR_KEYWORD for each in known.values())
        for name in fields_of(text, what):
            if name not in known and not free:
                raise ConfigurationError(
                    f"{what} {text!r} names {{{name}}}, but the function has no such argument; it has "
                    f"{', '.join(known) or 'none'}"
                )

    def render(self, args: Args, kwargs: Kwargs) -> str:
        try:
            return self._text.format_map(bound(self._arguments, args, kwargs))
        except (LookupError, AttributeError, ValueError, TypeError) as error:
            raise InvalidSubmissionError(
                f"{self._what} {self._text!r} cannot be filled in from these arguments "
                f"({type(error).__name__}: {error}); nothing was pushed"
            ) from error


def fields_of(text: str, what: str) -> list[str]:
    """The argument names a template uses."""
    try:
        parsed = [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]
    except ValueError as error:
        raise ConfigurationError(f"{what} {text!r} is no template: {error}") from error
    names = [field.partition(".")[0].partition("[")[0] for field in parsed]
    if "" in names or any(name.isdigit() for name in names):
        raise ConfigurationError(f"{what} {text!r} must name its arguments: {{tenant_id}}, not {{}} or {{0}}")
    return names


def bound(arguments: Arguments, args: Args, kwargs: Kwargs) -> dict[str, Any]:
    """Every argument by name, defaults included, `**kwargs` opened up."""
    call = arguments.signature.bind(*args, **kwargs)
    call.apply_defaults()
    named = dict(call.arguments)
    for each in arguments.signature.parameters.values():
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            named |= named.pop(each.name)
    return named


class Guards:
    """What the pushes of one task must pass."""

    def __init__(self, task: RlTask[Any, Any]) -> None:
        options = task.options
        self._name = task.name
        self._arguments = task.arguments
        self._weight = options.admission_weight
        self._key = self._key_of(options.idempotency_key, options.idempotent)
        self._limits: list[tuple[Template, Admit]] = [
            (Template(admit.key, task.arguments, f"task {task.name}: admission"), admit) for admit in options.admission
        ]

    def _key_of(self, given: str | Callable[..., str] | None, idempotent: bool) -> Callable[[Args, Kwargs], str] | None:
        if isinstance(given, str):
            return Template(given, self._arguments, f"task {self._name}: idempotency_key").render
        if given is not None:
            return lambda args, kwargs: given(*args, **kwargs)
        return self._by_arguments if idempotent else None

    def key(self, args: Args, kwargs: Kwargs) -> str:
        """The idempotency key of one call: of this task alone. Empty: it has none."""
        if self._key is None:
            return ""
        key = self._key(args, kwargs)
        if not isinstance(key, str) or not key:
            raise InvalidSubmissionError(
                f"the idempotency key of {self._name} must be text, not {key!r:.60}; nothing was pushed"
            )
        return f"{self._name}:{key}"

    def _by_arguments(self, args: Args, kwargs: Kwargs) -> str:
        """A digest of the arguments: equal calls have one, however they were written."""
        raw_args, raw_kwargs = msgspec.json.decode(self._arguments.encode(args, kwargs))
        call = self._arguments.signature.bind(*raw_args, **raw_kwargs).arguments
        for each in self._arguments.signature.parameters.values():
            if each.name not in call and each.default is not each.empty:
                call[each.name] = _plain(each.default)
        return hashlib.sha256(CANONICAL.encode(call)).hexdigest()

    def admission(self, settings: Settings, calls: Sequence[tuple[Args, Kwargs]]) -> Admission | None:
        """What this push must pass as a whole: the namespace's limit, and those of its own keys."""
        costs: Counter[Limit] = Counter()
        for call in calls:
            for template, admit in self._limits:
                costs[self._limit(settings, template.render(*call), admit)] += self._weight
        if not costs and len(calls) == self._weight == 1:
            return usual_admission(settings)
        if settings.admission_limit:
            costs[overall(settings)] = self._weight * len(calls)
        if not costs and not settings.admission_max_depth and not settings.admission_max_bytes:
            return None
        limits = tuple(limit.of(cost) for limit, cost in costs.items())
        return Admission(limits, settings.admission_max_depth, settings.admission_max_bytes, 1)

    def _limit(self, settings: Settings, key: str, admit: Admit) -> Limit:
        limit = admit.limit or settings.admission_limit
        if not limit:
            raise ConfigurationError(
                f"task {self._name}: admission {admit.key!r} has no limit of its own, and RELIER_ADMISSION_LIMIT is 0"
            )
        return _per_window(f"key:{key}", limit, admit.window or settings.admission_window)


@lru_cache
def _per_window(name: str, limit: int, window: float) -> Limit:
    return Limit.per_window(name, limit, round(1000 * window))


def overall(settings: Settings) -> Limit:
    """The limit of the whole namespace."""
    return _per_window("all", settings.admission_limit, settings.admission_window)


def usual_admission(settings: Settings) -> Admission | None:
    """What one plain push must pass."""
    return _usual(
        settings.admission_limit, settings.admission_window, settings.admission_max_depth, settings.admission_max_bytes
    )


@lru_cache
def _usual(limit: int, window: float, depth: int, most_bytes: int) -> Admission | None:
    if not (limit or depth or most_bytes):
        return None
    return Admission((_per_window("all", limit, window),) if limit else (), depth, most_bytes)


def _plain(default: Any) -> Any:
    try:
        return msgspec.json.decode(codec.encode(default))
    except PayloadEncodingError:  # an object that stands for "not given"
        return None
