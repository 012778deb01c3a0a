"""Decode JSON into the values that writing.py encoded."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from relier.codec.models import find_enum
from relier.codec.writing import TAG
from relier.errors import PayloadEncodingError

_DECODER = msgspec.json.Decoder()
_MARKER = b'"~"'
_CONTAINERS = frozenset({list, dict})


def decode(raw: bytes, what: str = "the value") -> Any:
    """Return the value that `encode` was given. Raise PayloadEncodingError, and nothing else, for any other bytes."""
    try:
        value = _DECODER.decode(raw)
        # Our encoder never escapes the tag, so most payloads need no second pass.
        return unpack(value) if _MARKER in raw else value
    except PayloadEncodingError as error:
        raise PayloadEncodingError(f"{what} cannot be read: {error}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise PayloadEncodingError(
            f"{what} cannot be read: {error}; its bytes were changed, or another program wrote them; restore or "
            f"discard them"
        ) from error


def unpack(value: Any) -> Any:
    """Return the value that `pack` was given, rebuilt in place. Raise PayloadEncodingError for an unreadable tag.

    This does not recurse, because tags make an encoded value up to three times as deep as the original.
    """
    whole = [value]
    found: list[tuple[Any, Any, Any]] = [(whole, 0, value)] if type(value) in _CONTAINERS else []
    for _, _, parent in found:  # grows while we iterate: parents come before their children
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
        raise PayloadEncodingError(f"the tag {tag[TAG]!r:.60} is unknown; a newer Relier may have written it")
    try:
        return reader(tag)
    except PayloadEncodingError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, OSError) as error:
        why = f"{type(error).__name__}: {error}"
        raise PayloadEncodingError(f"the tag {tag!r:.120} cannot be decoded ({why:.200})") from error


def _read_zone(moment: Any, tag: dict[str, Any]) -> Any:
    if "zone" in tag:
        try:
            moment = moment.replace(tzinfo=ZoneInfo(tag["zone"]))
        except (KeyError, OSError) as error:
            raise PayloadEncodingError(
                f"the time zone {tag['zone']!r:.60} is unknown on this machine; install the tzdata package"
            ) from error
    elif "name" in tag:
        moment = moment.replace(tzinfo=timezone(moment.utcoffset(), tag["name"]))
    return moment.replace(fold=1) if tag.get("fold") == 1 else moment


def _read_items(tag: dict[str, Any]) -> list[Any]:
    if type(tag["v"]) is list:
        return tag["v"]
    raise TypeError("its items are not a list")


def _read_bytes(tag: dict[str, Any]) -> bytes | bytearray:
    raw = base64.b64decode(tag["v"], validate=True)
    return bytearray(raw) if tag.get("mutable") is True else raw


def _read_enum(tag: dict[str, Any]) -> Enum:
    kind, member = find_enum(tag["t"]), tag["v"]
    if kind is None:
        raise PayloadEncodingError(f"the enum {tag['t']!r:.99} is not imported; import its module in the worker")
    if isinstance(member, str) and member in kind.__members__:
        return kind.__members__[member]
    if issubclass(kind, Flag) and type(member) is int:
        return kind(member)
    raise PayloadEncodingError(
        f"the enum {tag['t']!r:.99} has no member {member!r:.60}, but had it when the value was stored; "
        f"add the member again to read the value"
    )


_READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "datetime": lambda tag: _read_zone(datetime.fromisoformat(tag["v"]), tag),
    "time": lambda tag: _read_zone(time.fromisoformat(tag["v"]), tag),
    "date": lambda tag: date.fromisoformat(tag["v"]),
    "timedelta": lambda tag: timedelta(*tag["v"]),
    "uuid": lambda tag: UUID(tag["v"]),
    "decimal": lambda tag: Decimal(tag["v"]),
    "float": lambda tag: float(tag["v"]),
    "bytes": _read_bytes,
    "tuple": lambda tag: tuple(_read_items(tag)),
    "set": lambda tag: set(_read_items(tag)),
    "frozenset": lambda tag: frozenset(_read_items(tag)),
    "dict": lambda tag: dict(_read_items(tag)),
    "enum": _read_enum,
}
