"""Values as JSON, and back as what they were: equal, and of the same type.

What JSON can say is plain JSON. For the rest there are tags, objects with the key "~":

    {"~": "datetime", "v": "2026-11-15T05:53:53", "zone": "Europe/Paris"}    also "name" of a fixed offset, "fold"
    {"~": "date", "v": "2026-11-15"}                     {"~": "time", …} is written like a datetime
    {"~": "timedelta", "v": [days, seconds, microseconds]}
    {"~": "uuid", "v": "…"}   {"~": "decimal", "v": "1.50"}   {"~": "float", "v": "nan"}   {"~": "bytes", "v": base64}
    {"~": "tuple", "v": […]}  {"~": "set", "v": […]}          {"~": "frozenset", "v": […]}
    {"~": "dict", "v": [[key, value], …]}                a dict with a key that is no text, or with the key "~"
    {"~": "enum", "t": "shop.models:Colour", "v": "RED"} a member by name; a combination of flags by number

Types are matched exactly: a subclass would come back as something else, so it is refused (a UUID of a driver's own may
come back as a plain one). Models (dataclasses, Structs,
pydantic) are plain objects of their fields and come back only where an annotation says what they were (arguments.py).
Sets are written in the order of their items' bytes: equal sets of one spelling are equal bytes in every process.

Nothing is ever imported or called because a payload says so; enums are looked up among the modules already imported.
"""

from __future__ import annotations

import base64
import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag
from functools import lru_cache
from math import isfinite
from types import ModuleType, NoneType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from relier.errors import PayloadEncodingError
from relier.import_names import name_of_main

MAX_DEPTH = 200
TAG = "~"
PLAIN = frozenset({str, int, bool, NoneType})
ENCODER = msgspec.json.Encoder()

_DECODER = msgspec.json.Decoder()
_MARKER = b'"~"'
_STR = frozenset({str})
_CONTAINERS = frozenset({list, dict})
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep, or it contains itself: flatten it, or pass an id to load it by"
# Leaves of models that pydantic writes as text and reads back. Only these: it would also drain generators.
_TEXTUAL = frozenset({"pydantic", "pydantic_core", "pathlib", "ipaddress"})


class Unfit(ValueError):
    """Why one value cannot travel. Where it stands is looked for afterwards, by `refusal`."""


def encode(value: Any, what: str = "the value", models: bool = False) -> bytes:
    """The value as JSON. PayloadEncodingError names `what`, the place inside it, and what to do."""
    try:
        return ENCODER.encode(pack(value, models))
    except (ValueError, RecursionError):
        raise refusal(value, what, models) from None


def decode(raw: bytes, what: str = "the value") -> Any:
    """What `encode` was given. PayloadEncodingError, and nothing else, for whatever else the bytes are."""
    try:
        value = _DECODER.decode(raw)
        # Our own writer never escapes the tag, so most payloads need no second look.
        return unpack(value) if _MARKER in raw else value
    except PayloadEncodingError as error:
        raise PayloadEncodingError(f"{what} cannot be read: {error}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise PayloadEncodingError(f"{what} cannot be read: {error}; something else wrote it") from error


# --- writing -----------------------------------------------------------------------------------------------------


def pack(value: Any, models: bool = False, depth: int = 0) -> Any:
    """The value in words of JSON; itself where it has no others. Unfit for what cannot travel."""
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
        return items  # plain objects cannot be in a set; the annotation that makes them models makes that too
    return {TAG: type(value).__name__, "v": items}


def _pack_other(value: Any, models: bool, depth: int) -> Any:
    if isinstance(value, Enum):
        return _pack_enum(value)
    if isinstance(value, UUID):  # database drivers have their own, equal to the plain one
        return {TAG: "uuid", "v": str(value)}
    if models:
        if is_model(type(value)):
            return pack(fields_of(value), models, depth)
        if type(value).__module__.partition(".")[0] in _TEXTUAL:
            from pydantic_core import to_jsonable_python  # only for those who have such fields

            return to_jsonable_python(value)
    raise Unfit(_advice(value))


def _pack_enum(value: Enum) -> dict[str, Any]:
    kind, named = type(value), type(value).__members__.get(value.name) is value
    if not named and not isinstance(value, Flag):
        raise Unfit(f"{type_name(kind)} has no member of the name {value.name!r}: pass one of its members")
    return {TAG: "enum", "t": _enum_address(kind), "v": value.name if named else value.value}


def _pack_moment(value: datetime | time) -> dict[str, Any]:
    zone = value.tzinfo
    tag: dict[str, Any] = {TAG: type(value).__name__, "v": value.isoformat()}
    if zone is not None and zone is not UTC:
        tag |= _zoned(value, zone)
    return tag | {"fold": 1} if value.fold else tag


def _zoned(value: datetime | time, zone: tzinfo) -> dict[str, Any]:
    """What the tag says besides: the wall time and its zone's key, or the name somebody gave to a fixed offset."""
    if type(zone) is ZoneInfo:
        if zone.key is None:
            raise Unfit("its ZoneInfo was made from a file and has no key: use ZoneInfo('Area/City')")
        return {"v": value.replace(tzinfo=None).isoformat(), "zone": zone.key}
    if type(zone) is timezone:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        if offset.microseconds:  # Python reads -00:00:00.5 as UTC
            raise Unfit(f"its offset {offset!r} is not in whole seconds: no zone has such a one, use another")
        return {} if name == timezone(offset).tzname(None) else {"name": name}
    if type(zone).__module__.startswith("pydantic_core"):  # its fixed offsets: every datetime it parsed has one
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
    bytearray: lambda value: {TAG: "bytes", "v": base64.b64encode(value).decode()},
}
_NESTS: dict[type, Callable[[Any, bool, int], Any]] = {
    list: _pack_list,
    dict: _pack_dict,
    tuple: lambda value, models, depth: {TAG: "tuple", "v": _pack_list([*value], models, depth)},
    set: _pack_set,
    frozenset: _pack_set,
}


# --- reading -----------------------------------------------------------------------------------------------------


def unpack(value: Any) -> Any:
    """What `pack` was given, built in place. Without recursion: what was deep when written is up to three times deeper.
    PayloadEncodingError for a tag that cannot be read."""
    whole = [value]
    found: list[tuple[Any, Any, Any]] = [(whole, 0, value)] if type(value) in _CONTAINERS else []
    for _, _, parent in found:  # grows under way: parents stand before their children
        children = parent if type(parent) is list else parent.values()
        if not _CONTAINERS.isdisjoint(map(type, children)):
            steps = enumerate(parent) if type(parent) is list else parent.items()
            found += [(parent, step, child) for step, child in steps if type(child) in _CONTAINERS]
    for parent, step, child in reversed(found):
        if type(child) is dict and TAG in child:
            parent[step] = _untag(child)
    return whole[0]


def _untag(tag: dict[str, Any]) -> Any:
    reader = _READERS.get(tag[TAG]) if isinstance(tag[TAG], str) else None
    if reader is None:
        raise PayloadEncodingError(f"the tag {tag[TAG]!r:.60} is not known here; a newer Relier may have written it")
    try:
        return reader(tag)
    except PayloadEncodingError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, OSError) as error:
        why = f"{type(error).__name__}: {error}"
        raise PayloadEncodingError(f"the tag {tag!r:.120} makes no sense ({why:.200})") from error


def _read_zone(moment: Any, tag: dict[str, Any]) -> Any:
    if "zone" in tag:
        try:
            moment = moment.replace(tzinfo=ZoneInfo(tag["zone"]))
        except (KeyError, OSError) as error:
            raise PayloadEncodingError(
                f"the time zone {tag['zone']!r:.60} is not known on this machine; install the package tzdata"
            ) from error
    elif "name" in tag:
        moment = moment.replace(tzinfo=timezone(moment.utcoffset(), tag["name"]))
    return moment.replace(fold=1) if tag.get("fold") == 1 else moment


def _read_items(tag: dict[str, Any]) -> list[Any]:
    if type(tag["v"]) is list:
        return tag["v"]
    raise TypeError("its items are no list")


def _read_enum(tag: dict[str, Any]) -> Enum:
    kind, member = _find_enum(tag["t"]), tag["v"]
    if kind is None:
        raise PayloadEncodingError(f"the enum {tag['t']!r:.99} is not imported here; import its module in the worker")
    if isinstance(member, str) and member in kind.__members__:
        return kind.__members__[member]
    if issubclass(kind, Flag) and type(member) is int:
        return kind(member)
    raise PayloadEncodingError(f"the enum {tag['t']!r:.99} has no member {member!r:.60}; it had one at the push")


_READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "datetime": lambda tag: _read_zone(datetime.fromisoformat(tag["v"]), tag),
    "time": lambda tag: _read_zone(time.fromisoformat(tag["v"]), tag),
    "date": lambda tag: date.fromisoformat(tag["v"]),
    "timedelta": lambda tag: timedelta(*tag["v"]),
    "uuid": lambda tag: UUID(tag["v"]),
    "decimal": lambda tag: Decimal(tag["v"]),
    "float": lambda tag: float(tag["v"]),
    "bytes": lambda tag: base64.b64decode(tag["v"], validate=True),
    "tuple": lambda tag: tuple(_read_items(tag)),
    "set": lambda tag: set(_read_items(tag)),
    "frozenset": lambda tag: frozenset(_read_items(tag)),
    "dict": lambda tag: dict(_read_items(tag)),
    "enum": _read_enum,
}


# --- enums and models --------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _enum_address(kind: type[Enum]) -> str:
    module, name = kind.__module__, kind.__qualname__
    if _find_enum(f"{module}:{name}") is not kind:
        raise Unfit(f"the enum '{module}:{name}' cannot be found by its name: define it at the top of a module")
    return f"{name_of_main(sys.modules[module]) if module == '__main__' else module}:{name}"


def _find_enum(address: Any) -> type[Enum] | None:
    if not isinstance(address, str):
        return None
    module, _, path = address.partition(":")
    for home in modules_named(module):
        found: Any = home
        for name in path.split("."):
            # Not getattr: a module's __getattr__ may import.
            found = vars(found).get(name) if isinstance(found, ModuleType | type) else None
        if isinstance(found, type) and issubclass(found, Enum):
            return found
    return None


def modules_named(name: str) -> Iterator[ModuleType]:
    """The imported modules that go by a name: first the script that runs here, by the name others import it under."""
    main = sys.modules["__main__"]
    if name == name_of_main(main):
        yield main
    if name in sys.modules:
        yield sys.modules[name]


def is_model(kind: type) -> bool:
    return hasattr(kind, "__dataclass_fields__") or issubclass(kind, msgspec.Struct) or is_pydantic(kind)


def is_pydantic(kind: type) -> bool:
    pydantic = sys.modules.get("pydantic")  # without it nobody can have made such a class
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def fields_of(model: Any) -> Any:
    """A model's fields as its own reader wants them: mostly an object by name."""
    if isinstance(model, msgspec.Struct):
        return _struct_fields(model)
    if is_pydantic(type(model)):
        return _pydantic_fields(model)
    names = (field.name for field in dataclasses.fields(model))
    return {name: getattr(model, name) for name in names if hasattr(model, name)}


def _struct_fields(model: msgspec.Struct) -> Any:
    config = model.__struct_config__
    values = (getattr(model, name) for name in model.__struct_fields__)
    if config.array_like:
        return [*([] if config.tag is None else [config.tag]), *values]
    pairs = zip(model.__struct_encode_fields__, values, strict=True)
    fields = {name: value for name, value in pairs if value is not msgspec.UNSET}
    return fields if config.tag is None else {str(config.tag_field): config.tag, **fields}


def _pydantic_fields(model: Any) -> Any:
    """By the names its validation takes. A field nobody set stays unset, so that `exclude_unset` means the same."""
    if type(model).__pydantic_root_model__:
        return model.root
    by_name = model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name")
    fields: dict[str, Any] = {}
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        unset = name not in model.model_fields_set and info.default_factory is None
        if unset and type(value) is type(info.default) and value == info.default:
            continue
        alias = info.validation_alias or info.alias
        fields[alias if isinstance(alias, str) and not by_name else name] = value
    return fields | (model.model_extra or {})


# --- refusing ----------------------------------------------------------------------------------------------------


def refusal(value: Any, what: str, models: bool = False) -> PayloadEncodingError:
    """Why this value cannot travel, and where in it: from the top, always into the first child that cannot either."""
    path, why = "", _why_not(value, models)
    while why != _TOO_DEEP:  # that one is the fault of the whole
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
        return "text with a lone surrogate is not Unicode: clean it, or pass it as bytes"
    except ValueError as error:
        return f"{type_name(type(value))} cannot be written: {error}"
    return ""


def parts_of(value: Any, models: bool = False) -> Iterator[tuple[str, Any]]:
    """What a value is made of, each with its step in a path: `[3]`, `.items`, `['a key']`."""
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
    with suppress(Exception):  # a repr may be anyone's code
        return f"{value!r:.60}"
    return f"<{type_name(type(value))}>"


def type_name(kind: Any) -> str:
    name: str = getattr(kind, "__qualname__", str(kind))
    module = getattr(kind, "__module__", "builtins")
    return name if module == "builtins" else f"{module}.{name}"


def _advice(value: Any) -> str:
    name = type_name(type(value))
    if is_model(type(value)):
        return (
            f"{name} is a model, and models come back only by annotation: annotate the parameter or the return value "
            f"with it, or pass a dict of its fields"
        )
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"{name} is a namedtuple and would lose its names: pass tuple(…), its _asdict(), or a dataclass"
    base = next((known for known in type(value).__mro__ if known in PLAIN or known in _LEAVES or known in _NESTS), None)
    if base is not None:
        return f"{name} is a subclass of {type_name(base)} and would come back as that: pass a plain {type_name(base)}"
    return f"{name} cannot travel: pass text, numbers, lists, dicts and the like, or an id to load it by"
