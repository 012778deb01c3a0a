"""What callers hand to a task function and what it answers, as bytes, by the function's own signature and annotations.

The body of a call is JSON: `[[positional…], {keyword: …}]`, each value as in codec.py.

A parameter whose annotation names a model (dataclass, msgspec.Struct, pydantic) or an enum has a Reader, which rebuilds
the value from plain data: by msgspec, or by pydantic where one of its classes is involved or msgspec cannot tell the
members of a union apart. What is pushed to such a parameter is rebuilt once at the push and compared: what would come
back as something else is refused there, in the caller's face. The guard sees this process's classes only; a worker
with other code may still refuse what was pushed.

The parameter annotated with TaskContext belongs to the worker. Callers do not pass it; `with_context` puts it in.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from enum import Enum, Flag
from functools import cached_property, lru_cache, partial
from itertools import takewhile
from types import SimpleNamespace, UnionType
from typing import Any

import msgspec

from relier.codec import ENCODER, PLAIN, TAG, decode, encode, fields_of, is_model, pack, parts_of, shown, type_name
from relier.errors import PayloadEncodingError

_CONTEXT = ("relier.run.context", "TaskContext")
# An annotation that is only imported for type checkers stays text; its name has to do.
_CONTEXT_TEXT = re.compile(r"(None \| |(\w+\.)*Optional\[)?(\w+\.)*TaskContext( \| None|\])?")
_WRAPPERS = frozenset({typing.Union, UnionType, typing.Annotated})
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SEQUENCES = frozenset({list, tuple, set, frozenset})
_NEVER = 1 << 30


class Arguments:
    """One function's arguments and result. Annotations are looked at on first use: they may name what comes later."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn
        self._name = getattr(fn, "__qualname__", repr(fn))

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> Arguments:
        return cls(fn)

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The callers' parameters by name, as far as one can tell without a look at what annotations stand for."""
        every = self._whole.parameters.values()
        return {each.name: each for each in every if not _is_context(each.annotation)}

    @cached_property
    def context_parameter(self) -> str | None:
        """The parameter that takes the TaskContext, if there is one."""
        every = self._whole.parameters.values()
        return next((each.name for each in every if _is_context(self._hints.get(each.name, each.annotation))), None)

    @cached_property
    def signature(self) -> inspect.Signature:
        """The function's signature as callers see it: without the context."""
        every = self._whole.parameters.values()
        return self._whole.replace(parameters=[each for each in every if each.name != self.context_parameter])

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """TypeError, as a direct call would raise it, where the function cannot be called so."""
        if self._fits(len(args), kwargs) if kwargs else self._least <= len(args) <= self._most:
            return
        trouble = self._misfit(args, kwargs)
        if trouble:
            raise TypeError(f"{self._name}() {trouble}")

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """A call's body. TypeError where it does not fit the signature, PayloadEncodingError where it cannot travel."""
        self.check(args, kwargs)
        if not self._readers:
            try:
                return ENCODER.encode((args if PLAIN.issuperset(map(type, args)) else pack([*args]), pack(kwargs)))
            except (ValueError, RecursionError):
                pass  # some argument is at fault: one by one they say which
        return self._encode_each(args, kwargs)

    def decode(self, body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, models rebuilt. PayloadEncodingError: it cannot be read, or does not fit its annotation."""
        args, kwargs = call_in(decode(body, "the payload"))
        if self._readers:
            places = zip(args, self._places(), strict=False)
            args = [read(value, what) if read else value for value, (what, read) in places]
            for key, value in kwargs.items():
                what, read = self._keyword(key)
                kwargs[key] = read(value, what) if read else value
        return tuple(args), kwargs

    def encode_result(self, value: Any) -> bytes | None:
        """None stands for None: no result is stored."""
        try:
            return None if value is None else _encode_one(value, "the result", self._result)
        except PayloadEncodingError as error:  # at a push nothing has happened yet; here it has
            why = str(error).removesuffix("; nothing was written")
            raise PayloadEncodingError(f"{why}; the function has run, and what it returned is not kept") from error

    def decode_result(self, raw: bytes | None) -> Any:
        if raw is None:
            return None
        value = decode(raw, "the result")
        return self._result(value, "the result") if self._result else value

    def with_context(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], context: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What to call the function with: the caller's arguments, and the context where the signature wants it."""
        name, before = self.context_parameter, self._before_context
        if name is None:
            return args, kwargs
        kind = self._whole.parameters[name].kind
        if kind is inspect.Parameter.POSITIONAL_ONLY:
            args += tuple(each.default for each in before[len(args) :])  # no keyword could skip over these
        elif kind is inspect.Parameter.KEYWORD_ONLY or len(args) <= len(before):
            return args, {**kwargs, name: context}
        return (*args[: len(before)], context, *args[len(before) :]), kwargs

    # --- what the signature says ---------------------------------------------------------------------------------

    @cached_property
    def _whole(self) -> inspect.Signature:
        return inspect.signature(self._fn)

    @cached_property
    def _before_context(self) -> list[inspect.Parameter]:
        return [*takewhile(lambda each: each.name != self.context_parameter, self._whole.parameters.values())]

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return hints_of(self._fn)

    @cached_property
    def _readers(self) -> dict[str, Reader]:
        found = {name: reader_of(self._hints.get(name)) for name in self.signature.parameters}
        return {name: reader for name, reader in found.items() if reader is not None}

    @cached_property
    def _result(self) -> Reader | None:
        return reader_of(self._hints.get("return"))

    @cached_property
    def _positional(self) -> list[inspect.Parameter]:
        return [each for each in self.signature.parameters.values() if each.kind in _POSITIONAL]

    @cached_property
    def _names(self) -> tuple[tuple[str, ...], frozenset[str], frozenset[str]]:
        """Of the parameters: those one may give by position, those by name, and those one must give."""
        every = [each for each in self.signature.parameters.values() if each.name not in self._rest.values()]
        return (
            tuple(each.name for each in self._positional),
            frozenset(each.name for each in every if each.kind is not each.POSITIONAL_ONLY),
            frozenset(each.name for each in every if each.default is each.empty),
        )

    def _fits(self, count: int, kwargs: Mapping[str, Any]) -> bool:
        """Whether a call fits for sure. Signature.bind, which is slow, has the last word and the message."""
        positional, by_name, needed = self._names
        given = positional[:count]
        return (
            count <= len(positional)
            and by_name.issuperset(kwargs)
            and kwargs.keys().isdisjoint(given)
            and needed.issubset((*given, *kwargs))
        )

    @cached_property
    def _rest(self) -> dict[Any, str]:
        """The names of `*args` and `**kwargs`, by kind."""
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return {each.kind: each.name for each in self.signature.parameters.values() if each.kind in kinds}

    @cached_property
    def _least(self) -> int:
        """The fewest positional arguments that are enough alone."""
        needed = [each for each in self.signature.parameters.values() if each.default is each.empty]
        if any(each.kind is each.KEYWORD_ONLY for each in needed):
            return _NEVER
        return sum(each.kind in _POSITIONAL for each in needed)

    @cached_property
    def _most(self) -> int:
        return _NEVER if inspect.Parameter.VAR_POSITIONAL in self._rest else len(self._positional)

    def _places(self) -> Iterator[tuple[str, Reader | None]]:
        """Each place for a positional argument: how messages call it, and its reader."""
        for each in self._positional:
            yield f"argument {each.name!r}", self._readers.get(each.name)
        rest, index = self._rest.get(inspect.Parameter.VAR_POSITIONAL, "?"), 0
        while True:
            yield f"argument '*{rest}' → [{index}]", self._readers.get(rest)
            index += 1

    def _keyword(self, key: str) -> tuple[str, Reader | None]:
        known = key in self.signature.parameters and key not in self._rest.values()
        owner = key if known else self._rest.get(inspect.Parameter.VAR_KEYWORD, key)
        return f"argument {key!r}", self._readers.get(owner)

    def _misfit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Why the call does not fit, as Python says it; empty if it does."""
        if self.context_parameter in kwargs:
            return f"got an unexpected keyword argument {self.context_parameter!r}"
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            message = str(error)
        else:
            return ""
        if message != "too many positional arguments":
            return f"got {message}" if message.startswith("multiple values") else message
        least, most = sum(each.default is each.empty for each in self._positional), len(self._positional)
        takes = f"from {least} to {most}" if least < most else str(most)
        were = "was" if len(args) == 1 else "were"
        return f"takes {takes} positional argument{'' if takes == '1' else 's'} but {len(args)} {were} given"

    def _encode_each(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        places = zip(args, self._places(), strict=False)
        items = [msgspec.Raw(_encode_one(value, what, reader)) for value, (what, reader) in places]
        named = {}
        for key, value in kwargs.items():
            encode(key, f"the name of argument {key!r}")
            named[key] = msgspec.Raw(_encode_one(value, *self._keyword(key)))
        return ENCODER.encode((items, {TAG: "dict", "v": [*named.items()]} if TAG in named else named))


class Reader(msgspec.Struct, frozen=True):
    """Rebuilds the values of one annotation from plain data. Without `convert` it could not be built: `trouble`."""

    hint: Any
    convert: Callable[[Any], Any] | None
    trouble: str = ""

    def __call__(self, value: Any, what: str) -> Any:
        if self.convert is None or value is None:  # `item: Item = None` is common
            return value
        try:
            return self.convert(value)
        except Exception as error:  # validators and __post_init__ are the user's and may raise anything
            raise PayloadEncodingError(f"{what} does not fit {_shown(self.hint)}: {_told(error)}") from error


def reader_of(hint: Any) -> Reader | None:
    """None: values of this annotation come back without help."""
    kinds = [kind for kind in classes_in(hint, set()) if isinstance(kind, type)]
    if not any(is_model(kind) or issubclass(kind, Enum) for kind in kinds):
        return None
    structs = any(issubclass(kind, msgspec.Struct) for kind in kinds)
    # msgspec knows no combined flags, and pydantic no Structs.
    foreign = any(issubclass(kind, Flag) or hasattr(kind, "__pydantic_validator__") for kind in kinds)
    trouble = ""
    if structs or not foreign:
        try:
            msgspec.json.Decoder(hint)  # says at once what msgspec.convert would say at each value
            convert = partial(msgspec.convert, type=hint, dec_hook=_rebuild_inner)
            numbers = frozenset(filter(_is_number, kinds))
            return Reader(hint, (lambda value: convert(_numbered(value, numbers))) if numbers else convert)
        except TypeError as error:
            trouble = str(error)
    if not structs:
        try:
            return Reader(hint, _adapter(hint).validate_python)
        except (TypeError, RuntimeError, NameError, ValueError, AttributeError) as error:
            trouble = trouble or _told(error)
    return Reader(hint, None, trouble)


def _is_number(kind: type) -> bool:
    """An enum of numbers that are no int themselves: msgspec knows its members by number only."""
    members = getattr(kind, "__members__", {}).values() if issubclass(kind, Enum) else ()
    return not issubclass(kind, int) and any(isinstance(member.value, int) for member in members)


def _numbered(value: Any, kinds: frozenset[type]) -> Any:
    """The members of these enums as their numbers, at any depth."""
    kind = type(value)
    if kind in kinds:
        return value.value
    if kind is dict:
        return {_numbered(key, kinds): _numbered(item, kinds) for key, item in value.items()}
    return kind(_numbered(item, kinds) for item in value) if kind in _SEQUENCES else value


def _adapter(hint: Any) -> Any:
    from pydantic import TypeAdapter  # only for those whose annotations need it

    return TypeAdapter(hint)


_known_adapter = lru_cache(maxsize=256)(_adapter)


def _rebuild_inner(kind: type, value: Any) -> Any:
    """What msgspec does not know inside what it knows: a pydantic model in a Struct, a Path in a dataclass."""
    return _known_adapter(kind).validate_python(value)


def classes_in(hint: Any, seen: set[Any]) -> set[Any]:
    """The classes (and aliases) an annotation names, at any depth, and those their fields name."""
    if hasattr(type(hint), "__value__") and hint not in seen:  # `type X = …` may name itself, or what is not there
        seen.add(hint)
        with suppress(NameError):
            return classes_in(hint.__value__, seen)
    hint = getattr(hint, "__supertype__", hint)  # NewType
    for part in (typing.get_origin(hint), *typing.get_args(hint)):
        if part is not None:
            classes_in(part, seen)
    if isinstance(hint, type) and hint not in seen:
        seen.add(hint)
        if is_model(hint) or typing.is_typeddict(hint):
            for field in hints_of(hint).values():
                classes_in(field, seen)
    return seen


def hints_of(owner: Any) -> dict[str, Any]:
    """The annotations that can be resolved. One that cannot does not take the others with it."""
    with suppress(Exception):
        return typing.get_type_hints(owner, include_extras=True)
    hints: dict[str, Any] = {}
    scope = getattr(inspect.unwrap(owner), "__globals__", {})
    for name, raw in getattr(owner, "__annotations__", {}).items():
        with suppress(Exception):
            alone: Any = SimpleNamespace(__annotations__={name: raw})
            hints |= typing.get_type_hints(alone, globalns=scope, include_extras=True)
    return hints


def _is_context(hint: Any) -> bool:
    if isinstance(hint, str):
        return _CONTEXT_TEXT.fullmatch(hint) is not None
    if typing.get_origin(hint) in _WRAPPERS:
        return any(map(_is_context, typing.get_args(hint)))
    return (getattr(hint, "__module__", None), getattr(hint, "__name__", None)) == _CONTEXT


def call_in(body: Any) -> tuple[list[Any], dict[str, Any]]:
    """The arguments in a decoded body. PayloadEncodingError for one that is no call."""
    match body:
        case [list() as args, dict() as kwargs] if all(isinstance(key, str) for key in kwargs):
            return args, kwargs
    raise PayloadEncodingError("the payload is no call, [[arguments…], {keyword: argument…}]; something else wrote it")


def _encode_one(value: Any, what: str, reader: Reader | None) -> bytes:
    if reader is None:
        return encode(value, what)
    if reader.convert is None:
        return encode(value, f"{what} ({_shown(reader.hint)} cannot rebuild models: {reader.trouble})")
    raw = encode(value, what, models=True)
    changed = difference(value, reader(decode(raw, what), what))
    if changed:
        place, how = changed
        raise PayloadEncodingError(
            f"{what}{' → ' if place else ''}{place.lstrip('. ')}: {how}, by the annotation {_shown(reader.hint)}; "
            f"annotate it with what it is, or pass what the annotation says; nothing was written"
        )
    return raw


def difference(sent: Any, got: Any) -> tuple[str, str] | None:
    """Where, and how, what came back is not what was sent."""
    if alike(sent, got):
        return None
    path = ""
    while type(sent) is type(got):
        pairs = zip(parts_of(sent, models=True), parts_of(got, models=True), strict=False)
        found = next(((step, one, other) for (step, one), (_, other) in pairs if not alike(one, other)), None)
        if found is None:
            return path, f"{shown(sent)} would come back as {shown(got)}"
        path, sent, got = path + found[0], found[1], found[2]
    return path, f"{type_name(type(sent))} would come back as {type_name(type(got))}"


def alike(sent: Any, got: Any) -> bool:
    """Equal, and of the same types all through."""
    kind = type(sent)
    if kind is not type(got):
        return _stands_for(sent, got)
    if kind in PLAIN:
        return bool(sent == got)
    if is_model(kind):
        return alike(fields_of(sent), fields_of(got))
    if kind is dict:
        return alike([*sent], [*got]) and alike([*sent.values()], [*got.values()])
    if kind is list or kind is tuple:
        return len(sent) == len(got) and all(map(alike, sent, got))
    return _equal(sent, got)


def _stands_for(sent: Any, got: Any) -> bool:
    """Plain data in the place of a model or an enum is welcome, an int counts as a float, a bytearray becomes bytes."""
    if isinstance(got, Enum):
        return bool(got.value == sent)
    if is_model(type(got)):
        return isinstance(sent, dict) or type(sent) is type(fields_of(got))
    return (type(sent), type(got)) in {(int, float), (bytearray, bytes)} and bool(sent == got)


def _equal(sent: Any, got: Any) -> bool:
    if isinstance(sent, Decimal):
        return str(sent) == str(got)  # its exact digits; a signalling NaN cannot even be compared
    return bool(sent == got) or bool(sent != sent and got != got)  # NaN comes back as NaN


def _shown(hint: Any) -> str:
    return type_name(hint) if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _told(error: Exception) -> str:
    """An error in one line. Pydantic's own text has many, and a link in each."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return str(error) or type(error).__name__
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in errors())
