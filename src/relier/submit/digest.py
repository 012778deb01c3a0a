"""Compute a digest of a call's arguments, to recognize equal calls.

Equal values of the same types have the same digest, whatever the order of their dicts and sets, and whether or not a
model's defaults were given explicitly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from relier.codec import PLAIN, TAG, fields_of, is_model, is_pydantic, pack

_SORTED = msgspec.json.Encoder(order="sorted")


def digest(values: Mapping[str, Any]) -> str:
    """Return the digest of canonical values, by name."""
    return hashlib.sha256(_SORTED.encode(values)).hexdigest()


def canonical(value: Any) -> Any:
    """Return JSON values that are equal if the given values are. Raise ValueError if a value cannot be encoded."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is list:
        return [canonical(item) for item in value]
    if kind is dict:
        return _dict(value)
    if kind is tuple or kind is set or kind is frozenset:
        items = [canonical(item) for item in value]
        return {TAG: kind.__name__, "v": items if kind is tuple else sorted(items, key=_SORTED.encode)}
    if is_model(kind):
        return {TAG: "model", "t": kind.__name__, "v": canonical(_fields(value))}
    return pack(value, models=True)


def _dict(value: dict[Any, Any]) -> dict[str, Any]:
    if TAG not in value and all(type(key) is str for key in value):
        return {key: canonical(item) for key, item in value.items()}
    pairs = [[canonical(key), canonical(item)] for key, item in value.items()]
    return {TAG: "dict", "v": sorted(pairs, key=_SORTED.encode)}


def _fields(model: Any) -> Any:
    """Return all fields of a model. The encoded form, unlike this, leaves out fields that were not set."""
    if not is_pydantic(type(model)) or type(model).__pydantic_root_model__:
        return fields_of(model)
    return {name: getattr(model, name) for name in type(model).model_fields} | (model.model_extra or {})
