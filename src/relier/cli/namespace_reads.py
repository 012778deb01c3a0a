"""Read-only scripts that only `rl` needs: lua/<name>.lua.

They use the libraries of the ledger's own scripts, so that both read a record in the same way.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import relier.ledger.ledger
from relier.ledger import defaults, keys
from relier.ledger.events.writing import EventWriting
from relier.ledger.outcomes.writing import OutcomeCounting
from relier.ledger.records import Record
from relier.ledger.replies import pairs, read_record, text
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
    silent = EventWriting("never").spelled() | OutcomeCounting(on=False).spelled()
    return Scripts(own, keys.SPELLED | defaults.SPELLED | silent, replace=libraries)


class Place(NamedTuple):
    """The position of a task in an index. Places compare in the order of the index."""

    score: float
    id: str


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One task in an index. `score` is as the store writes it; `record` is None if it cannot be read."""

    place: Place
    score: str
    record: Record | None

    @property
    def cursor(self) -> str:
        return f"{self.score} {self.place.id}"


@dataclass(frozen=True, slots=True)
class IndexPage:
    """One page of an index. `cursor`: where the next one begins, empty at the end."""

    entries: tuple[IndexEntry, ...]
    cursor: str


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
        return (chunk for found in self.scan_for(self.prefix) for chunk in chunks(found))

    def scan_for(self, beginning: bytes, count: int = SCAN_COUNT) -> Iterator[list[bytes]]:
        """Yield the keys with this prefix, in chunks: those among the next `count` keys of the store, maybe none."""
        cursor = b"0"
        while True:
            pattern = keys.matching(beginning)
            cursor, found = self._store.command("SCAN", cursor, "MATCH", pattern, "COUNT", count, retry=True)
            yield found
            if cursor == b"0":
                return

    def members(self, index: bytes, beginning: bytes = b"") -> Iterator[list[bytes]]:
        """Yield, in chunks, the members of a sorted set that begin with `beginning`."""
        cursor, pattern = b"0", keys.matching(beginning)
        while True:
            words = (cursor, "MATCH", pattern, "COUNT", SCAN_COUNT) if beginning else (cursor, "COUNT", SCAN_COUNT)
            cursor, flat = self._store.command("ZSCAN", index, *words, retry=True)
            yield from chunks(flat[::2])
            if cursor == b"0":
                return

    def size(self) -> int:
        """Return the number of keys in the store, of all namespaces."""
        return int(self._store.command("DBSIZE", retry=True))

    def page(self, index: str, of: str, cursor: str, most: int, name: str, *, newest_first: bool) -> IndexPage:
        """Return one page of an index (see lua/page.lua). With `name`, only tasks of this name."""
        return index_page(self.script("page", *page_args(index, of, cursor, most, name, newest_first=newest_first)))

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


# --- merging indexes ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IndexReader:
    """An index to merge. No entry scores above `highest`, so it is read only when the others are down to that score."""

    entries: Iterator[IndexEntry]
    highest: float = float("inf")


class _Next:
    """The next entry of an index, or the bound of one that has not been read. The newest sorts first."""

    __slots__ = ("entries", "entry", "place")

    def __init__(self, place: Place, entries: Iterator[IndexEntry], entry: IndexEntry | None = None) -> None:
        self.place = place
        self.entries = entries
        self.entry = entry

    def __lt__(self, other: _Next) -> bool:
        return other.place < self.place


def merge_newest_first(indexes: Sequence[IndexReader]) -> Iterator[IndexEntry]:
    """Yield the entries of all indexes. An index is read when its turn comes: a queue may have thousands of lanes."""
    heap = [_Next(Place(index.highest, chr(0x10FFFF)), index.entries) for index in indexes]
    heapq.heapify(heap)
    while heap:
        first = heap[0]
        if first.entry is not None:
            yield first.entry
        entry = next(first.entries, None)
        if entry is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, _Next(entry.place, first.entries, entry))


# --- small helpers -----------------------------------------------------------------------------------------------


def page_args(index: str, of: str, cursor: str, most: int, name: str, *, newest_first: bool) -> tuple[Any, ...]:
    """Return the arguments of lua/page.lua."""
    return index, of, cursor.encode("utf-8", "surrogateescape"), most, name, "down" if newest_first else "up"


def index_page(raw: Any) -> IndexPage:
    """Read the reply of lua/page.lua."""
    after, *rows = raw
    return IndexPage(tuple(map(_entry, rows)), after.decode("utf-8", "surrogateescape"))


def _entry(row: Sequence[Any]) -> IndexEntry:
    task_id, score, head, more = row
    place, written = Place(float(score), text(task_id)), text(score)
    if head == b"corrupt":
        return IndexEntry(place, written, None)
    words = {field: text(value) for field, value in pairs(more)}
    return IndexEntry(place, written, read_record(place.id, head, words)[0])


def chunks(items: Iterable[T], size: int = AT_ONCE) -> Iterator[list[T]]:
    whole = list(items)
    return (whole[at : at + size] for at in range(0, len(whole), size))
