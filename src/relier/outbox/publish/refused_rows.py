"""Rows that a limit has refused. A relay keeps them in memory, under its lease, until the limit allows another try. If
they were deferred in the table instead, the relay would rewrite all of them each time the limit admits one."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

from relier.outbox.publish.target import Deferred, Outcome
from relier.outbox.row import Row, has_limit

# A task's name and queue, and the limit that refused its rows: all of a task's rows if the limit is "".
Group = tuple[str, str, str]
KeptRow = tuple[Row, Group]
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

    def may_keep(self, rows: Sequence[Row], outcomes: dict[int, Outcome]) -> list[KeptRow]:
        """Return the refused rows to keep in memory, each with its group.

        If a row must stay in the table, later rows with its order key stay there too. Otherwise they would be tried
        first.
        """
        groups = set(self._groups)
        kept: list[KeptRow] = []
        behind: set[str] = set()  # keys
        for row in sorted(rows, key=lambda row: row.id):
            outcome = outcomes.get(row.id)
            if not isinstance(outcome, Deferred):
                continue
            group = group_among(groups, group_of(row, outcome))
            if group is not None and row.order_key not in behind:
                kept.append((row, group))
                groups.add(group)
            elif row.order_key:
                behind.add(row.order_key)
        return kept

    def keep(self, relay_id: str, rows: Sequence[KeptRow], outcomes: dict[int, Outcome]) -> None:
        now = self._clock()
        if not self._groups:
            self._renewed_at = now
        for row, group in rows:
            outcome = outcomes[row.id]
            seconds = outcome.seconds if isinstance(outcome, Deferred) else 0.0
            kept = self._groups.setdefault(group, RefusedGroup(relay_id, now + seconds))
            kept.rows.append(row)

    def groups_with(self, rows: Sequence[KeptRow]) -> list[Group]:
        """Return the waiting groups, and the groups of rows that are about to wait."""
        return sorted({*self._groups, *(group for _, group in rows)})

    def ready(self, relay_id: str, room: Mapping[str, float]) -> list[Row]:
        """Remove and return the rows to try again now, at most `room` rows of each kind.

        Rows claimed under another relay id are dropped, because this relay no longer holds them. While an earlier row
        with the same order key waits, a row keeps waiting, too.
        """
        now, left = self._clock(), dict(room)
        self._groups = {group: kept for group, kept in self._groups.items() if kept.relay_id == relay_id}
        firsts = self._firsts_that_wait(now)
        ready: dict[int, Row] = {}
        behind: set[str] = set()  # keys
        for row in sorted(self._whose_time_has_come(now), key=lambda row: row.id):
            is_behind = row.order_key in behind or row.id > firsts.get(row.order_key, (row.id, now))[0]
            if not is_behind and left.get(row.kind, 0) >= 1:
                left[row.kind] -= 1
                ready[row.id] = row
            elif row.order_key:
                behind.add(row.order_key)
        for group, kept in list(self._groups.items()):
            if kept.ready_at <= now:
                kept.rows = [row for row in kept.rows if row.id not in ready]
                kept.ready_at = min((firsts.get(row.order_key, (0, now))[1] for row in kept.rows), default=now)
                if not kept.rows:
                    del self._groups[group]
        return list(ready.values())

    def _whose_time_has_come(self, now: float) -> list[Row]:
        return [row for kept in self._groups.values() if kept.ready_at <= now for row in kept.rows]

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

    def pause(self, longest: float, kinds: Container[str]) -> float:
        """Return how long until a group with rows of these kinds is ready (s), at most `longest`."""
        now = self._clock()
        groups = (kept for kept in self._groups.values() if any(row.kind in kinds for row in kept.rows))
        return min([longest, *(max(0.0, kept.ready_at - now) for kept in groups)])


def group_of(row: Row, refused: Deferred) -> Group:
    return row.name, row.queue, refused.limit if has_limit(row, refused.limit) else ""


def group_among(groups: set[Group], group: Group) -> Group | None:
    """Return the group in which to keep a row, or None if there is no room for it.

    If a task has more limits than there is room for, the rest of its rows wait as one group.
    """
    if group in groups or len(groups) < MOST_GROUPS:
        return group
    return (*group[:2], "") if any(one[:2] == group[:2] for one in groups) else None
