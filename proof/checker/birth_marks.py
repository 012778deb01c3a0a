"""Check what replies say about a namespace's birth mark, according to the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proof.checker.ghost import Violation

if TYPE_CHECKING:
    from proof.checker.history import History


def heard_open(history: History, raw: Any) -> dict[str, str]:
    """Check that a mark lasts as long as the data, and that the ledger records only callers with a different mark."""
    memory, (_, born), (_, _, remembered) = history.memory, map(bytes.decode, raw), history.args
    if memory.born:
        heard_mark(history, born)
    elif not born or born in history.marks:
        raise Violation("emptied-is-born-anew", f"an empty namespace was opened with mark {born!r}")
    memory.born = born
    history.marks.add(born)
    memory.emptied = memory.emptied or remembered not in {"", born}
    if bool(history.world.backend.model.emptied) != memory.emptied:
        raise Violation("emptied-is-noted", f"one who remembers {remembered!r} opened {born!r}")
    return {}


def heard_mark(history: History, born: str) -> None:
    """Check that the mark in a reply is the mark of the namespace."""
    if born != history.memory.born:
        raise Violation("birth-mark-stands", f"told {born!r}, it is {history.memory.born!r}")


def heard_get(history: History, raw: Any) -> dict[str, str]:
    """Check the mark in a reply without a record. It shows whether the store was emptied."""
    if raw[0] == b"":
        heard_mark(history, raw[6].decode())
    return {}
