"""The reason why a value cannot be encoded."""

from __future__ import annotations

from typing import Any


class Unfit(ValueError):
    """Raised with the reason why one value cannot be encoded. `refusal` then finds its place inside the argument."""


def type_name(kind: Any) -> str:
    """Return a class name with its module, as error messages show it."""
    name: str = getattr(kind, "__qualname__", str(kind))
    module = getattr(kind, "__module__", "builtins")
    return name if module == "builtins" else f"{module}.{name}"
