"""Check the value of one setting: convert text from the environment, and say what is wrong with a value."""

from __future__ import annotations

import math
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta

WORDS_FOR_BOOL = {"yes": True, "on": True, "y": True, "t": True, "no": False, "off": False, "n": False, "f": False}


class Secret:
    """Hold a text that must not be printed. `get_secret_value` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def get_secret_value(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return f"Secret('{self}')"

    def __str__(self) -> str:
        return "**********" if self._text else ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


NO_SECRET = Secret()


class WrongValueError(ValueError):
    """A setting has an invalid value. The message does not contain the value, because it may be a secret."""


def checked(value: Any, kind: Any) -> Any:
    """Return the value as the type of its setting. Raise WrongValueError if it does not fit."""
    if kind is Secret:
        return _secret(value)
    plain = plain_type(kind)
    if isinstance(value, str) and plain is not str:
        value = _prepared(value, plain)
    try:
        found = msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        raise WrongValueError(requirement(kind)) from None
    odd = isinstance(found, float) and not math.isfinite(found)
    # The $ of a pattern also matches before a final newline.
    odd = odd or (isinstance(found, str) and found.endswith("\n") and _limits(kind).pattern is not None)
    if odd:
        raise WrongValueError(requirement(kind))
    return found


def plain_type(kind: Any) -> Any:
    """Return the type of a setting without its limits and without None: int, float, bool, str, or a Literal."""
    if get_origin(kind) is Annotated:
        return plain_type(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return plain_type(next(one for one in get_args(kind) if one is not NoneType))
    return kind


def _secret(value: Any) -> Secret:
    if hasattr(value, "get_secret_value"):  # ours, or pydantic's SecretStr
        value = value.get_secret_value()
    if not isinstance(value, str):
        raise WrongValueError("must be text")
    return Secret(value)


def _prepared(text: str, plain: Any) -> Any:
    """Return text for a setting that is not text in the form that msgspec reads."""
    text = text.strip()
    if plain is bool:
        return WORDS_FOR_BOOL.get(text.lower(), text)
    return text.lower() if get_origin(plain) is Literal else text


def requirement(kind: Any) -> str:
    """Return what a value of this type must be."""
    limits = _limits(kind)
    plain = plain_type(kind)
    if get_origin(plain) is Literal:
        return f"must be one of {', '.join(map(str, get_args(plain)))}"
    if plain is bool:
        return "must be true or false"
    if plain is str:
        return f"must be text that matches {limits.pattern}" if limits.pattern else "must be text"
    bounds = (("greater than", limits.gt), ("at least", limits.ge), ("less than", limits.lt), ("at most", limits.le))
    words = [f"{how} {limit:,g}" for how, limit in bounds if limit is not None]
    return f"must be a {'whole' if plain is int else 'finite'} number{', ' if words else ''}{' and '.join(words)}"


def _limits(kind: Any) -> Meta:
    """Return the limits of a type, which may be inside an optional one."""
    if get_origin(kind) is Annotated:
        return next(one for one in kind.__metadata__ if isinstance(one, Meta))
    if get_origin(kind) in (Union, UnionType):
        return _limits(next(one for one in get_args(kind) if one is not NoneType))
    return Meta()
