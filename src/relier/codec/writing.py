"""Encode values as JSON, and say why a value cannot be encoded."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag
from math import isfinite
from types import NoneType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from relier.codec.foreign import foreign_advice
from relier.codec.models import enum_address, fields_of, is_model
from relier.codec.unfit import Unfit, type_name
from relier.errors import PayloadEncodingError

MAX_DEPTH = 200
TAG = "~"
PLAIN = frozenset({str, int, bool, NoneType})
ENCODER = msgspec.json.Encoder()
_STR = frozenset({str})
_COPIED = frozenset({str, int, float, bytes, list, dict, tuple, set, frozenset})  # calling the class copies a value
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep, or contains itself: flatten it, or pass an id instead"
# Types inside models that pydantic writes as text and reads back. No others: pydantic would also consume generators.
_TEXTUAL = frozenset({"pydantic", "pydantic_core", "pathlib", "ipaddress"})


def encode(value: Any, what: str = "the value", models: bool = False) -> bytes:
    """Return the value as JSON. A PayloadEncodingError names `what`, the place inside it, and what to do."""
    try:
        return ENCODER.encode(pack(value, models))
    except (ValueError, RecursionError):
        raise refusal(value, what, models) from None


def pack(value: Any, models: bool = False, depth: int = 0) -> Any:
    """Return the value in JSON types, unchanged if it already is. Raise Unfit if it cannot be encoded."""
    kind = type(value)
    nest = _NESTS.get(kind)
    if nest is None:
        if kind in PLAIN:
            return value
        leaf = _LEAVES.get(kind)
        if leaf:
            return leaf(value)
        nest = _pack_other
    if depth >= MAX_DEPTH:
        raise Unfit(_TOO_DEEP)
    return nest(value, models, depth + 1)


def _pack_list(value: list[Any], models: bool, depth: int) -> list[Any]:
    kinds = set(map(type, value))
    if kinds <= PLAIN or (kinds == {float} and all(map(isfinite, value))):
        return value
    return [item if type(item) in PLAIN else pack(item, models, depth) for item in value]


def _pack_dict(value: dict[Any, Any], models: bool, depth: int) -> dict[str, Any]:
    if not _STR.issuperset(map(type, value)) or TAG in value:
        pairs = [[pack(key, models, depth), pack(item, models, depth)] for key, item in value.items()]
        return {TAG: "dict", "v": pairs}
    if PLAIN.issuperset(map(type, value.values())):
        return value
    return {key: item if type(item) in PLAIN else pack(item, models, depth) for key, item in value.items()}


def _pack_set(value: set[Any] | frozenset[Any], models: bool, depth: int) -> Any:
    items = sorted((pack(item, models, depth) for item in value), key=ENCODER.encode)
    if models and any(is_model(type(item)) for item in value):
        return items  # a set cannot hold dicts; the annotation that rebuilds the models also rebuilds the set
    return {TAG: type(value).__name__, "v": items}


def _pack_other(value: Any, models: bool, depth: int) -> Any:
    if isinstance(value, Enum):
        return _pack_enum(value)
    if isinstance(value, UUID):  # a database driver's own class, equal to the plain one
        return {TAG: "uuid", "v": str(value)}
    if models:
        if is_model(type(value)):
            return pack(fields_of(value), models, depth)
        if type(value).__module__.partition(".")[0] in _TEXTUAL:
            from pydantic_core import to_jsonable_python  # imported only for models with such fields

            return to_jsonable_python(value)
    raise Unfit(_advice(value))


def _pack_enum(value: Enum) -> dict[str, Any]:
    kind, named = type(value), type(value).__members__.get(value.name) is value
    if not named and not isinstance(value, Flag):
        raise Unfit(f"{type_name(kind)} has no member named {value.name!r}: pass one of its members")
    return {TAG: "enum", "t": enum_address(kind), "v": value.name if named else value.value}


def _pack_moment(value: datetime | time) -> dict[str, Any]:
    zone = value.tzinfo
    tag: dict[str, Any] = {TAG: type(value).__name__, "v": value.isoformat()}
    if zone is not None and zone is not UTC:
        tag |= _zoned(value, zone)
    return tag | {"fold": 1} if value.fold else tag


def _zoned(value: datetime | time, zone: tzinfo) -> dict[str, Any]:
    """Return the tag's fields for a time zone: local time and zone key, or the custom name of a fixed offset."""
    if type(zone) is ZoneInfo:
        if zone.key is None:
            raise Unfit("its ZoneInfo was made from a file and has no key: use ZoneInfo('Area/City')")
        return {"v": value.replace(tzinfo=None).isoformat(), "zone": zone.key}
    if type(zone) is timezone:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        if offset.microseconds:  # Python reads -00:00:00.5 as UTC
            raise Unfit(f"its offset {offset!r} is not in whole seconds: use an offset of whole seconds")
        return {} if name == timezone(offset).tzname(None) else {"name": name}
    if type(zone).__module__.startswith("pydantic_core"):  # the fixed offset of every datetime that pydantic parsed
        return {}
    raise Unfit(f"its time zone is a {type_name(type(zone))}: use zoneinfo.ZoneInfo or datetime.timezone")


_LEAVES: dict[type, Callable[[Any], Any]] = {
    float: lambda value: value if isfinite(value) else {TAG: "float", "v": repr(value)},
    datetime: _pack_moment,
    time: _pack_moment,
    date: lambda value: {TAG: "date", "v": value.isoformat()},
    timedelta: lambda value: {TAG: "timedelta", "v": [value.days, value.seconds, value.microseconds]},
    UUID: lambda value: {TAG: "uuid", "v": str(value)},
    Decimal: lambda value: {TAG: "decimal", "v": str(value)},
    bytes: lambda value: {TAG: "bytes", "v": base64.b64encode(value).decode()},
    # Not a tag of its own: a release that does not know bytearrays reads it as bytes.
    bytearray: lambda value: {TAG: "bytes", "v": base64.b64encode(value).decode(), "mutable": True},
}


_NESTS: dict[type, Callable[[Any, bool, int], Any]] = {
    list: _pack_list,
    dict: _pack_dict,
    tuple: lambda value, models, depth: {TAG: "tuple", "v": _pack_list([*value], models, depth)},
    set: _pack_set,
    frozenset: _pack_set,
}


def refusal(value: Any, what: str, models: bool = False) -> PayloadEncodingError:
    """Return the error for a value that cannot be encoded. Its path leads to the first part that is at fault."""
    path, why = "", _why_not(value, models)
    while why != _TOO_DEEP:  # the fault of the whole value
        found = next(((step, part) for step, part in parts_of(value, models) if _why_not(part, models)), None)
        if found is None:
            break
        path, value, why = path + found[0], found[1], _why_not(found[1], models)
    return PayloadEncodingError(f"{what}{' → ' if path else ''}{path.lstrip('. ')}: {why}; nothing was written")


def _why_not(value: Any, models: bool) -> str:
    try:
        ENCODER.encode(pack(value, models))
    except Unfit as error:
        return str(error)
    except RecursionError:
        return _TOO_DEEP
    except UnicodeEncodeError:
        return "text with a lone surrogate is not valid Unicode: clean it, or pass it as bytes"
    except ValueError as error:
        return f"{type_name(type(value))} cannot be encoded: {error}"
    return ""


def parts_of(value: Any, models: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value, each with its step in a path: `[3]`, `.items`, `['a key']`."""
    if models and is_model(type(value)):
        value = fields_of(value)
    if isinstance(value, dict):
        yield from ((f" key {shown(key)}", key) for key in value)
        for key, item in value.items():
            yield (f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{shown(key)}]"), item
    elif isinstance(value, list | tuple):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield from ((f" item {shown(item)}", item) for item in value)


def shown(value: Any) -> str:
    with suppress(Exception):  # __repr__ may be user code
        return f"{value!r:.60}"
    return f"<{type_name(type(value))}>"


def _advice(value: Any) -> str:
    name = type_name(type(value))
    if foreign := foreign_advice(value):
        return foreign
    if is_model(type(value)):
        return (
            f"{name} is a model, and models are rebuilt only by annotation: annotate the parameter or the return value "
            f"with it, or pass a dict of its fields"
        )
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"{name} is a namedtuple and would lose its names: pass tuple(…), its _asdict(), or a dataclass"
    base = next((known for known in type(value).__mro__ if known in PLAIN or known in _LEAVES or known in _NESTS), None)
    if base is not None:
        plain = f"{type_name(base)}(value)" if base in _COPIED else f"a plain {type_name(base)}"
        return f"{name} is a subclass of {type_name(base)} and would come back as that: pass {plain}"
    return f"{name} cannot be encoded: pass text, numbers, lists, dicts and the like, or an id instead"
