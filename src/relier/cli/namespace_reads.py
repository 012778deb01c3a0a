"""Reads that only tools need, as scripts of their own beside the ledger's: lua/<name>.lua. They change nothing.

They use the ledger's own libraries, so that a record is understood here as the ledger understands it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import relier.ledger.ledger
from relier.ledger import defaults, keys
from relier.store.scripts import Scripts

if TYPE_CHECKING:
    from relier.ledger.ledger import Ledger
    from relier.store.sync_store import SyncStore

T = TypeVar("T")
AT_ONCE = 100  # keys one script looks at: one to two milliseconds of a busy server's time
SCAN_COUNT = 500


@cache
def load_read_scripts() -> Scripts:
    own, theirs = Path(__file__).parent / "lua", Path(relier.ledger.ledger.__file__).parent / "lua"
    libraries = {f"lib/{path.stem}": path.read_text(encoding="utf-8") for path in (theirs / "lib").glob("*.lua")}
    return Scripts(own, keys.SPELLED | defaults.SPELLED, replace=libraries)


class Reads:
    """Small, quick looks at a namespace; each is atomic, and none holds the server up."""

    def __init__(self, store: SyncStore, ledger: Ledger) -> None:
        self._store = store
        self.prefix = ledger.prefix.encode()

    def script(self, name: str, *args: bytes | str | int) -> Any:
        # Sent whole: the store was opened with the ledger's scripts, and these are few.
        return self._store.command("EVAL", load_read_scripts()[name].text, 1, self.prefix, *args, retry=True)

    def scan(self) -> Iterator[list[bytes]]:
        """The keys of the namespace, some at a time. One that is there all the while is seen at least once."""
        pattern = b"".join(b"\\" + bytes([c]) if c in b"*?[]\\^" else bytes([c]) for c in self.prefix) + b"*"
        cursor = b"0"
        while True:
            cursor, found = self._store.command("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT, retry=True)
            yield from chunks(found)
            if cursor == b"0":
                return

    def members(self, index: bytes) -> Iterator[list[bytes]]:
        """The members of a sorted set, some at a time."""
        cursor = b"0"
        while True:
            cursor, flat = self._store.command("ZSCAN", index, cursor, "COUNT", SCAN_COUNT, retry=True)
            yield from chunks(flat[::2])
            if cursor == b"0":
                return

    def keys(self, asked: Sequence[tuple[str, bytes, bytes]]) -> list[list[Any]]:
        """Per (kind, per, key): its type, its time to live and the facts of its kind."""
        found: list[list[Any]] = self.script("keys", *(word for item in asked for word in item))
        return found

    def entries(self, index: bytes, ids: Sequence[bytes]) -> tuple[int, list[tuple[bytes, bytes, bytes]]]:
        """TIME, and per id its score in the index, what its task is, and the index it belongs into."""
        now, *found = self.script("entries", index, *ids)
        return int(now), [(score, what, home) for score, what, home in found]

    def last_words(self, ids: Sequence[str]) -> list[bytes]:
        """The last line of each task's history, empty where it has none."""
        return [line for some in chunks(ids) for line in self.script("last", *some)]


def chunks(items: Iterable[T], size: int = AT_ONCE) -> Iterator[list[T]]:
    whole = list(items)
    return (whole[at : at + size] for at in range(0, len(whole), size))
