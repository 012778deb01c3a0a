"""A bank that charges a card once per key, as real ones do. It keeps its books in a file."""

from __future__ import annotations

import json
from pathlib import Path

BOOKS = Path("bank.json")


class Declined(Exception):
    """The card was refused. Trying again would not help."""


def charge(key: str, card: str, cents: int) -> str:
    """Charge the card. A second call with the same key changes nothing."""
    if card == "declined":
        raise Declined("the card was declined")
    books = json.loads(BOOKS.read_text()) if BOOKS.exists() else {}
    books.setdefault(key, cents)
    BOOKS.write_text(json.dumps(books))
    return f"charge-{key}"


def total() -> int:
    """Return what was charged so far, in cents."""
    return sum(json.loads(BOOKS.read_text()).values()) if BOOKS.exists() else 0
