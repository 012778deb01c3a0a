"""Rebuild the values of annotated parameters, and check that they survive encoding unchanged."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import Enum, Flag
from functools import lru_cache, partial
from typing import Any

import msgspec

from relier.arguments.annotations import annotation_name, classes_in
from relier.codec import PLAIN, decode, encode, fields_of, is_model, parts_of, shown, type_name
from relier.errors import PayloadEncodingError

_SEQUENCES = frozenset({list, tuple, set, frozenset})


class Reader(msgspec.Struct, frozen=True):
    """Rebuilds the values of one annotation from plain data. `convert` is None if that is impossible: see `trouble`."""

    hint: Any
    convert: Callable[[Any], Any] | None
    trouble: str = ""

    def __call__(self, value: Any, what: str) -> Any:
        if self.convert is None or value is None:  # `item: Item = None` is common
            return value
        try:
            return self.convert(value)
        except Exception as error:  # validators and __post_init__ are user code and may raise anything
            raise PayloadEncodingError(
                f"{what} does not fit {annotation_name(self.hint)}: {one_line(error)}"
            ) from error


def reader_of(hint: Any) -> Reader | None:
    """Return the reader for an annotation, or None where decoding alone restores its values."""
    kinds = [kind for kind in classes_in(hint, set()) if isinstance(kind, type)]
    if not any(is_model(kind) or issubclass(kind, Enum) for kind in kinds):
        return None
    structs = any(issubclass(kind, msgspec.Struct) for kind in kinds)
    # msgspec cannot decode combined flags, and pydantic cannot decode Structs.
    foreign = any(issubclass(kind, Flag) or hasattr(kind, "__pydantic_validator__") for kind in kinds)
    trouble = ""
    if structs or not foreign:
        try:
            msgspec.json.Decoder(hint)  # raises now what msgspec.convert would raise for each value
            convert = partial(msgspec.convert, type=hint, dec_hook=_rebuild_inner)
            numbers = frozenset(filter(_is_number, kinds))
            return Reader(hint, (lambda value: convert(_numbered(value, numbers))) if numbers else convert)
        except TypeError as error:
            trouble = str(error)
    if not structs:
        try:
            return Reader(hint, _adapter(hint).validate_python)
        except (TypeError, RuntimeError, NameError, ValueError, AttributeError) as error:
            trouble = trouble or one_line(error)
    return Reader(hint, None, trouble)


def _is_number(kind: type) -> bool:
    """Return whether this is an enum with int values that is not an int itself: msgspec decodes it by number only."""
    members = getattr(kind, "__members__", {}).values() if issubclass(kind, Enum) else ()
    return not issubclass(kind, int) and any(isinstance(member.value, int) for member in members)


def _numbered(value: Any, kinds: frozenset[type]) -> Any:
    """Replace the members of these enums with their numbers, at any depth."""
    kind = type(value)
    if kind in kinds:
        return value.value
    if kind is dict:
        return {_numbered(key, kinds): _numbered(item, kinds) for key, item in value.items()}
    return kind(_numbered(item, kinds) for item in value) if kind in _SEQUENCES else value


def _adapter(hint: Any) -> Any:
    from pydantic import TypeAdapter  # imported only where an annotation needs it

    return TypeAdapter(hint)


_known_adapter = lru_cache(maxsize=256)(_adapter)


def _rebuild_inner(kind: type, value: Any) -> Any:
    """Rebuild an inner value that msgspec cannot rebuild: a pydantic model in a Struct, a Path in a dataclass."""
    return _known_adapter(kind).validate_python(value)


def one_line(error: Exception) -> str:
    """Return an error as one line. Pydantic's own text has many lines, with a link in each."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return str(error) or type(error).__name__
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'value'}: {each['msg']}" for each in errors())


def encode_one(value: Any, what: str, reader: Reader | None) -> bytes:
    if reader is None:
        return encode(value, what)
    if reader.convert is None:
        return encode(value, f"{what} ({annotation_name(reader.hint)} cannot rebuild models: {reader.trouble})")
    raw = encode(value, what, models=True)
    changed = difference(value, reader(decode(raw, what), what))
    if changed:
        place, how = changed
        raise PayloadEncodingError(
            f"{what}{' → ' if place else ''}{place.lstrip('. ')}: {how}, by the annotation "
            f"{annotation_name(reader.hint)}; annotate the actual type, or pass the annotated one; nothing was written"
        )
    return raw


def difference(sent: Any, got: Any) -> tuple[str, str] | None:
    """Return where and how the decoded value differs from the one sent, or None."""
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
    """Return whether two values are equal and of the same types at every level."""
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
    """Accept plain data for a model or an enum, an int for a float, and a bytearray for bytes."""
    if isinstance(got, Enum):
        return bool(got.value == sent)
    if is_model(type(got)):
        return isinstance(sent, dict) or type(sent) is type(fields_of(got))
    return (type(sent), type(got)) in {(int, float), (bytearray, bytes)} and bool(sent == got)


def _equal(sent: Any, got: Any) -> bool:
    if isinstance(sent, Decimal):
        return str(sent) == str(got)  # exact digits; comparing a signalling NaN raises
    return bool(sent == got) or bool(sent != sent and got != got)  # NaN stays NaN
