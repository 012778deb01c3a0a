"""Resolve annotations: which classes they name, and which of them is the TaskContext."""

from __future__ import annotations

import inspect
import re
import typing
from contextlib import suppress
from types import SimpleNamespace, UnionType
from typing import Any

from relier.codec import is_model, type_name

_CONTEXT = ("relier.run.context", "TaskContext")
# An annotation imported only for type checkers stays text, so it is recognised by name.
_CONTEXT_TEXT = re.compile(r"(None \| |(\w+\.)*Optional\[)?(\w+\.)*TaskContext( \| None|\])?")
_WRAPPERS = frozenset({typing.Union, UnionType, typing.Annotated})


def hints_of(annotated: Any) -> dict[str, Any]:
    """Return the annotations that can be resolved. An annotation that cannot be resolved is left out."""
    with suppress(Exception):
        return typing.get_type_hints(annotated, include_extras=True)
    hints: dict[str, Any] = {}
    scope = getattr(inspect.unwrap(annotated), "__globals__", {})
    for name, raw in getattr(annotated, "__annotations__", {}).items():
        with suppress(Exception):
            alone: Any = SimpleNamespace(__annotations__={name: raw})
            hints |= typing.get_type_hints(alone, globalns=scope, include_extras=True)
    return hints


def classes_in(hint: Any, seen: set[Any]) -> set[Any]:
    """Return the classes and aliases that an annotation names at any depth, including those of their fields."""
    if hasattr(type(hint), "__value__") and hint not in seen:  # `type X = …` may refer to itself, or to a missing name
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


def is_context(hint: Any) -> bool:
    if isinstance(hint, str):
        return _CONTEXT_TEXT.fullmatch(hint) is not None
    if typing.get_origin(hint) in _WRAPPERS:
        return any(map(is_context, typing.get_args(hint)))
    return (getattr(hint, "__module__", None), getattr(hint, "__name__", None)) == _CONTEXT


def is_task_context(value: Any) -> bool:
    """Return whether a value is a TaskContext, or a proxy for one such as `task_context`."""
    return getattr(type(value), "is_task_context", False) is True


def annotation_name(hint: Any) -> str:
    return type_name(hint) if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
