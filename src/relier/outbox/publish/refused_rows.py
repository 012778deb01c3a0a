"""Rows that a limit has refused. A relay keeps them in memory, under its lease, until the limit allows another try. If
they were deferred in the table instead, the relay would rewrite all of them each time the limit admits one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relier.outbox.publish.target import Deferred, Outcome
from relier.outbox.row import Row

Group = tuple[str, str]  # a task's name and queue: rows that most likely have the same limits
MOST_GROUPS = 20  # each has at most one batch in memory; rows of further groups are deferred in the table


@dataclass(slots=True)
class RefusedGroup:
    """The refused rows of one group, and when they may be tried again."""

    relay_id: str
    ready_at: float
    rows: list[Row] = field(default_factory=list)


class RefusedRows:
    """Refused rows by group. No more rows of a waiting group are claimed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._groups: dict[Group, RefusedGroup] = {}
        self._renewed_at = 0.0

    def may_keep(self, rows: Sequence[Row], outcomes: dict[int, Outcome]) -> list[Row]:
        """Return the refused rows to keep in memory.

        If a row must stay in the table, later rows with its order key stay there too. Otherwise they would be tried
        first.
        """
        refused = [row for row in rows if isinstance(outcomes.get(row.id), Deferred)]
        groups = dict.fromkeys([*self._groups, *(group_of(row) for row in refused)])
        room = set(list(groups)[:MOST_GROUPS])
        kept: list[Row] = []
        behind: set[str] = set()  # keys
        for row in sorted(refused, key=lambda row: row.id):
            if group_of(row) in room and row.order_key not in behind:
                kept.append(row)
            elif row.order_key:
                behind.add(row.order_key)
        return kept

    def keep(self, relay_id: str, rows: Sequence[Row], outcomes: dict[int, Outcome]) -> None:
        now = self._clock()
        if not self._groups:
            self._renewed_at = now
        for row in rows:
            outcome = outcomes[row.id]
            seconds = outcome.seconds if isinstance(outcome, Deferred) else 0.0
            kept = self._groups.setdefault(group_of(row), RefusedGroup(relay_id, now + seconds))
            kept.rows.append(row)

    def groups_with(self, rows: Sequence[Row]) -> list[Group]:
        """Return the waiting groups, and the groups of rows that are about to wait."""
        return sorted({*self._groups, *(group_of(row) for row in rows)})

    def ready(self, relay_id: str) -> list[Row]:
        """Remove and return the rows to try again now.

        Rows claimed under another relay id are dropped, because this relay no longer holds them. While an earlier row
        with the same order key waits, a row keeps waiting, too.
        """
        now = self._clock()
        self._groups = {group: kept for group, kept in self._groups.items() if kept.relay_id == relay_id}
        firsts = self._firsts_that_wait(now)
        ready: list[Row] = []
        for group, kept in list(self._groups.items()):
            if kept.ready_at > now:
                continue
            behind: list[Row] = []
            for row in kept.rows:
                (behind if row.id > firsts.get(row.order_key, (row.id, now))[0] else ready).append(row)
            kept.rows, kept.ready_at = behind, min((firsts[row.order_key][1] for row in behind), default=now)
            if not behind:
                del self._groups[group]
        return sorted(ready, key=lambda row: row.id)

    def _firsts_that_wait(self, now: float) -> dict[str, tuple[int, float]]:
        """Return, by order key, the first row that still waits, and when it is ready."""
        firsts: dict[str, tuple[int, float]] = {}
        for kept in self._groups.values():
            for row in kept.rows if kept.ready_at > now else ():
                if row.order_key and row.id < firsts.get(row.order_key, (row.id + 1, 0.0))[0]:
                    firsts[row.order_key] = row.id, kept.ready_at
        return firsts

    def all(self, relay_id: str) -> list[tuple[Row, float]]:
        """Remove and return every row, with the time it still has to wait (s)."""
        now = self._clock()
        groups, self._groups = self._groups, {}
        mine = [group for group in groups.values() if group.relay_id == relay_id]
        return [(row, max(0.0, group.ready_at - now)) for group in mine for row in group.rows]

    def ids(self) -> list[int]:
        return [row.id for kept in self._groups.values() for row in kept.rows]

    def must_renew(self, every: float) -> bool:
        """Return whether to renew the leases of the waiting rows now: once in `every` seconds."""
        now = self._clock()
        if not self._groups or now < self._renewed_at + every:
            return False
        self._renewed_at = now
        return True

    def pause(self, longest: float) -> float:
        """Return how long until a group is ready (s), at most `longest`."""
        now = self._clock()
        return min([longest, *(max(0.0, kept.ready_at - now) for kept in self._groups.values())])


def group_of(row: Row) -> Group:
    return row.name, row.queue
