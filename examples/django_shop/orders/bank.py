"""A bank that charges a card once per key, as real ones do. It keeps its books in a file."""

from __future__ import annotations

import json

from django.conf import settings


class Declined(Exception):
    """The card was refused. Trying again would not help."""


def charge(key: str, card: str, cents: int) -> str:
    """Charge the card. A second call with the same key changes nothing."""
    if card == "declined":
        raise Declined("the card was declined")
    books = _read()
    books.setdefault(key, cents)
    settings.BANK_BOOKS.write_text(json.dumps(books))
    return f"charge-{key}"


def total() -> int:
    """Return what was charged so far, in cents."""
    return sum(_read().values())


def _read() -> dict[str, int]:
    return json.loads(settings.BANK_BOOKS.read_text()) if settings.BANK_BOOKS.exists() else {}
