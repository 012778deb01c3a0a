"""Which calls are the same: a digest of the arguments' values. Equal values of the same types have one, in whatever
order their dicts and sets were made, and whether or not a model's defaults were spelled out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from relier.codec import PLAIN, TAG, fields_of, is_model, is_pydantic, pack

_SORTED = msgspec.json.Encoder(order="sorted")


def digest(values: Mapping[str, Any]) -> str:
    """Of what `canonical` made, by name."""
    return hashlib.sha256(_SORTED.encode(values)).hexdigest()


def canonical(value: Any) -> Any:
    """Words of JSON that are the same where values are. A ValueError for what could not travel."""
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
    """All of them: what travels leaves out what nobody set."""
    if not is_pydantic(type(model)) or type(model).__pydantic_root_model__:
        return fields_of(model)
    return {name: getattr(model, name) for name in type(model).model_fields} | (model.model_extra or {})
