"""Read-only scripts that only `rl` needs: lua/<name>.lua.

They use the libraries of the ledger's own scripts, so that both read a record in the same way.
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
AT_ONCE = 100  # keys per script: one to two milliseconds on a busy server
SCAN_COUNT = 500


@cache
def load_read_scripts() -> Scripts:
    own, theirs = Path(__file__).parent / "lua", Path(relier.ledger.ledger.__file__).parent / "lua"
    libraries = {f"lib/{path.stem}": path.read_text(encoding="utf-8") for path in (theirs / "lib").glob("*.lua")}
    return Scripts(own, keys.SPELLED | defaults.SPELLED, replace=libraries)


class NamespaceReads:
    """Short reads of a namespace. Each is atomic, and none blocks the server for long."""

    def __init__(self, store: SyncStore, ledger: Ledger) -> None:
        self._store = store
        self.prefix = ledger.prefix.encode()

    def script(self, name: str, *args: bytes | str | int) -> Any:
        # Sent with its text: the store has only loaded the ledger's scripts, and these run rarely.
        return self._store.command("EVAL", load_read_scripts()[name].text, 1, self.prefix, *args, retry=True)

    def scan(self) -> Iterator[list[bytes]]:
        """Yield the keys of the namespace in chunks. A key that exists throughout is seen at least once."""
        pattern = b"".join(b"\\" + bytes([c]) if c in b"*?[]\\^" else bytes([c]) for c in self.prefix) + b"*"
        cursor = b"0"
        while True:
            cursor, found = self._store.command("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT, retry=True)
            yield from chunks(found)
            if cursor == b"0":
                return

    def members(self, index: bytes) -> Iterator[list[bytes]]:
        """Yield the members of a sorted set in chunks."""
        cursor = b"0"
        while True:
            cursor, flat = self._store.command("ZSCAN", index, cursor, "COUNT", SCAN_COUNT, retry=True)
            yield from chunks(flat[::2])
            if cursor == b"0":
                return

    def keys(self, asked: Sequence[tuple[str, bytes, bytes]]) -> list[list[Any]]:
        """Return type, time to live and facts (see lua/keys.lua) for each (kind, per, key)."""
        found: list[list[Any]] = self.script("keys", *(word for item in asked for word in item))
        return found

    def entries(self, index: bytes, ids: Sequence[bytes]) -> tuple[int, list[tuple[bytes, bytes, bytes]]]:
        """Return TIME, and for each id its score in the index, the state of its task, and the index it belongs in."""
        now, *found = self.script("entries", index, *ids)
        return int(now), [(score, what, home) for score, what, home in found]

    def last_history_lines(self, ids: Sequence[str]) -> list[bytes]:
        """Return the last history line of each task, empty if it has none."""
        return [line for some in chunks(ids) for line in self.script("last", *some)]


def chunks(items: Iterable[T], size: int = AT_ONCE) -> Iterator[list[T]]:
    whole = list(items)
    return (whole[at : at + size] for at in range(0, len(whole), size))
