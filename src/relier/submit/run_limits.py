"""Compute the limits of one call from those of its task (`Limit`). The ledger checks them at every claim."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from relier.ledger.limit_records import RunLimit
from relier.limits import Limit
from relier.submit.templates import Template

if TYPE_CHECKING:
    from relier.arguments import Arguments

MAX_KEY_CHARACTERS = 100
SAFE = "!\"#$&'()*+-./:;<=>?@[\\]^_`{|}~"  # all printable ASCII punctuation except for comma and %


class CallLimits:
    """Compute the limits of each call of one task. Templates are parsed when the task is defined."""

    def __init__(self, name: str, limits: tuple[Limit, ...], arguments: Arguments) -> None:
        self._parts = [_PerCall(name, limit, arguments) for limit in limits]

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any], queue: str) -> tuple[RunLimit, ...]:
        """Return the limits of one call that is pushed to this queue."""
        return tuple(part.of(args, kwargs, queue) for part in self._parts)


class _PerCall:
    def __init__(self, name: str, limit: Limit, arguments: Arguments) -> None:
        self._per = limit.per
        self._numbers = limit.numbers()
        self._fixed = (
            limit_word(f"task:{name}") if limit.per is None else "namespace" if limit.per == "namespace" else ""
        )
        self._name = self._fixed or limit_word(limit.per or "")
        self._template: Template | None = None
        if not self._fixed and limit.per != "queue":
            self._template = Template(limit.per or "", arguments, f"task {name}: limit per")

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any], queue: str) -> RunLimit:
        key = self._fixed or (self._template.render(args, kwargs) if self._template else f"queue:{queue}")
        return RunLimit(self._name, limit_word(key), self._numbers)


def limit_word(text: str) -> str:
    """Percent-encode a text to one word without commas. A long text is cut and gets its digest as the end."""
    word = quote(text, safe=SAFE, errors="surrogatepass")
    if len(word) <= MAX_KEY_CHARACTERS:
        return word
    return word[:60] + "~" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
