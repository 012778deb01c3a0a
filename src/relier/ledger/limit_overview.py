"""Read and change limits at run time. Each operation takes several bounded calls; `run` executes one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from relier.errors import TaskNotFoundError, VersionConflictError
from relier.ledger.ledger import Ledger
from relier.ledger.limit_records import LimitChange, LimitedKey, LimitNumbers
from relier.ledger.pages import read_lanes
from relier.ledger.records import Record

TRIES = 5
Run = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class LimitOverview:
    """All keys that limit live tasks, and the numbers that operators set: name or key -> numbers and version."""

    now_ms: int
    keys: Mapping[str, LimitedKey]
    set: Mapping[str, tuple[LimitNumbers, int]]

    def names(self) -> frozenset[str]:
        """Return every name and key that `set_limit` can change now."""
        return frozenset([*self.set, *self.keys, *(key.name for key in self.keys.values() if key.name)])

    def chosen(self, key: LimitedKey) -> str:
        """Return the name or key under which an operator set the numbers that apply to this key, or an empty string."""
        return key.key if key.key in self.set else key.name if key.name in self.set else ""

    def numbers(self, name: str) -> LimitNumbers | None:
        """Return the numbers that apply now to a name or a key, or None if no live task shows them."""
        if name in self.set:
            return self.set[name][0]
        found = (key.numbers for key in self.keys.values() if name in (key.key, key.name) and key.numbers)
        return next(found, None)


def read_limits(run: Run, ledger: Ledger) -> LimitOverview:
    """Read all limits. The numbers of a key come from a running task or, if there is none, from a waiting task."""
    first = page = run(ledger.limits())
    keys, chosen = {key.key: key for key in first.keys}, dict(first.set)
    while page.cursor:
        page = run(ledger.limits(page.cursor))
        keys |= {key.key: key for key in page.keys}
        chosen |= page.set
    if any(key.numbers is None for key in keys.values()):
        _read_numbers_of_waiting(run, ledger, keys, chosen)
    return LimitOverview(first.now_ms, keys, chosen)


def _version_of(run: Run, ledger: Ledger, name: str) -> int:
    """Return the version of the numbers that an operator set for a name or key, or 0 if there are none."""
    cursor = " 0"  # skip the keys; read operators' numbers from the beginning
    while cursor:
        page = run(ledger.limits(cursor))
        if name in page.set:
            return int(page.set[name][1])
        cursor = page.cursor
    return 0


def _read_numbers_of_waiting(run: Run, ledger: Ledger, keys: dict[str, LimitedKey], chosen: Mapping[str, Any]) -> None:
    for lane in read_lanes(run, ledger):
        if not any(keys[key].numbers is None for key in lane.keys if key in keys):
            continue
        for line in _limit_lines(run, ledger, lane.name, lane.head):
            name, key, *words = line.split()
            known = keys.get(key)
            if known is not None and known.numbers is None:
                numbers, _ = chosen.get(key) or chosen.get(name) or (LimitNumbers(*map(int, words)), 0)
                keys[key] = LimitedKey(key, known.live, known.running, numbers, name)


def _limit_lines(run: Run, ledger: Ledger, lane: str, head: str) -> list[str]:
    records: tuple[Record, ...] = () if head else run(ledger.list("lane", lane, most=1)).records
    if head:
        try:
            records = (run(ledger.get(head)).record,)
        except TaskNotFoundError:
            return []
    return records[0].more.get("limits", "").splitlines() if records else []


def set_limit(run: Run, ledger: Ledger, name: str, numbers: LimitNumbers | None) -> LimitChange:
    """Set the numbers of a limit by name or key, or clear them with None. Wake tasks that may start now.

    If another operator changes the same limit at the same time, try again, up to TRIES times.
    """
    for left in reversed(range(TRIES)):
        try:
            first: LimitChange = run(ledger.limit(name, _version_of(run, ledger, name), numbers))
            break
        except VersionConflictError:
            if not left:
                raise
    change = first
    while change.cursor:
        try:
            change = run(ledger.limit(name, change.version, numbers, change.cursor))
        except VersionConflictError:  # another operator has changed it since, and wakes the rest
            break
    return first
