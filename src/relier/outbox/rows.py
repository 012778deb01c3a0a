"""Every statement on the outbox table, for PostgreSQL, MySQL / MariaDB and SQLite.

A `Database` runs them: SQLAlchemy's engines or Django's connections. Times are the database's own, in ms, so that no
two clocks are compared. Every closing write names the relay that must still hold the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from relier.errors import ConfigurationError
from relier.outbox.names import quoted
from relier.outbox.row import CELERY, LEDGER, Row

NOW_MS = {
    "postgresql": "CAST(extract(epoch FROM now()) * 1000 AS bigint)",
    # From UTC: UNIX_TIMESTAMP(NOW()) goes back an hour when the session's summer time ends.
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
}
CLAIMED = "r.id, r.task_id, r.kind, r.name, r.queue, r.body, {now} - r.created_at, r.claims, r.retries"
SEEN = "r.id, r.task_id, r.kind, r.name, r.queue, {now} - r.created_at, r.claims, r.retries, r.error, r.died_at"
# What PostgreSQL believes of a table that fills and empties all the time is wrong most of the time: it would sort all
# rows to find the first. The index has them in order.
IN_ORDER = (
    "SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true), "
    "set_config('enable_sort', 'off', true)"
)
KINDS = (LEDGER, CELERY)
COUNT_MOST = 10_000  # a relay counts no further, for its metrics; people wait for more
ERROR_CHARS = 8_000
# PostgreSQL: a prepared statement is not there, or is there already. Then it was prepared on another connection.
OTHERS_STATEMENT = {"26000", "42P05"}
TURN_OFF = (
    "a pooler such as PgBouncer in transaction mode gives each transaction another connection: turn prepared "
    "statements off in the engine's connect_args, as docs/how-to/outbox.md says under PgBouncer"
)


class Transaction(Protocol):
    """One transaction of a relay's or a tool's. Names in a statement are written `:name`."""

    def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
        """The rows it returns, if it returns any."""

    def change(self, sql: str, values: Mapping[str, Any]) -> int:
        """How many rows it changed."""


class Database(Protocol):
    """How to reach the outbox table. `dialect`: postgresql, mysql (MariaDB too) or sqlite."""

    dialect: str

    def begin(self) -> AbstractContextManager[Transaction]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Members:
    """The relays that live, as they were `age_ms` ago. `known`: which relays would be among them, as a LIKE pattern."""

    boots: frozenset[str]
    age_ms: int
    known: str = "%"


@dataclass(frozen=True, slots=True)
class Depth:
    """`waiting`: rows to be sent, a lower bound where not `exact`; `oldest_age_ms`: the age of the oldest of them."""

    waiting: int
    exact: bool
    oldest_age_ms: int
    dead: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A row as people look at it."""

    id: int
    task_id: str
    kind: str
    name: str
    queue: str
    age_ms: int
    claims: int
    retries: int
    error: str
    died_ms: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows a person means: those that fit everything that is given."""

    task_id: str = ""
    name: str = ""
    queue: str = ""
    older_than_ms: int = 0

    def sql(self) -> tuple[str, dict[str, Any]]:
        words = {"task_id": self.task_id, "name": self.name, "queue": self.queue}
        given = {column: word for column, word in words.items() if word}
        clauses = [f"{column} = :want_{column}" for column in given]
        values: dict[str, Any] = {f"want_{column}": word for column, word in given.items()}
        if self.older_than_ms:
            clauses.append("created_at <= {now} - :want_age")
            values["want_age"] = self.older_than_ms
        return "".join(f" AND {clause}" for clause in clauses), values


class Rows:
    """The table, as a relay and `rl outbox` see it."""

    def __init__(self, dialect: str, table: str, kinds: Iterable[str] = KINDS, *, ordered: bool = False) -> None:
        now = NOW_MS.get(dialect)
        if now is None:
            raise ConfigurationError(
                f"the outbox knows PostgreSQL, MySQL, MariaDB and SQLite, not {dialect!r}; use one of those"
            )
        self._dialect = dialect
        self._table = quoted(dialect, table)
        self._now = now
        self._kinds = tuple(kinds)
        self._ordered = ordered

    def _sql(self, text: str) -> str:
        return text.replace("{t}", self._table).replace("{now}", self._now)

    # --- a relay -------------------------------------------------------------------------------------------------

    def claim(
        self,
        tx: Transaction,
        boot: str,
        most: int,
        stale_ms: int,
        members: Members | None,
        kinds: Sequence[str] | None = None,
    ) -> list[Row]:
        """Rows that are due and that no living relay holds; they are this boot's from now on. What it holds already it
        has forgotten: a claim whose answer was lost. `kinds`: only of these."""
        where, values = self._claimable(boot, stale_ms, members, self._kinds if kinds is None else kinds)
        values |= {"boot": boot, "most": most}
        pick = f"SELECT r.id FROM {{t}} r WHERE {where} ORDER BY r.due_at, r.id LIMIT :most"
        take = "leased_by = :boot, leased_at = {now}, claims = claims + 1"
        if self._dialect == "mysql":
            return self._claim_in_two(tx, pick, take, values)
        if self._dialect == "sqlite":
            sql = f"UPDATE {{t}} SET {take} WHERE id IN ({pick}) RETURNING {CLAIMED.replace('r.', '')}"
        else:  # materialized, or PostgreSQL may pick anew for every row it looks at
            tx.run(IN_ORDER, {})
            sql = (
                f"WITH picked AS MATERIALIZED ({pick} FOR UPDATE SKIP LOCKED) "
                f"UPDATE {{t}} AS r SET {take} FROM picked WHERE r.id = picked.id RETURNING {CLAIMED}"
            )
        return sorted((_row(found) for found in tx.run(self._sql(sql), values)), key=lambda row: row.id)

    def _claim_in_two(self, tx: Transaction, pick: str, take: str, values: dict[str, Any]) -> list[Row]:
        """MySQL cannot update what it selects from, nor return what it updated."""
        ids = [found[0] for found in tx.run(self._sql(f"{pick} FOR UPDATE SKIP LOCKED"), values)]
        if not ids:
            return []
        among, chosen = _among("id", ids)
        tx.change(self._sql(f"UPDATE {{t}} SET {take} WHERE {among}"), {**chosen, "boot": values["boot"]})
        among, chosen = _among("r.id", ids)
        return [
            _row(found)
            for found in tx.run(self._sql(f"SELECT {CLAIMED} FROM {{t}} r WHERE {among} ORDER BY r.id"), chosen)
        ]

    def _claimable(
        self, boot: str, stale_ms: int, members: Members | None, kinds: Sequence[str]
    ) -> tuple[str, dict[str, Any]]:
        """Not dead, due, and free: never held, held for too long, or held by a relay that is gone."""
        free = "r.leased_by IN ('', :boot) OR r.leased_at <= {now} - :stale"
        among_kinds, values = _among("r.kind", kinds, "kind")
        values["stale"] = stale_ms
        if members is not None:
            among, chosen = _among("r.leased_by", sorted(members.boots | {boot}), "live")
            free += f" OR (r.leased_at < {{now}} - :unseen AND r.leased_by LIKE :known AND NOT {among})"
            values |= {**chosen, "unseen": members.age_ms, "known": members.known}
        where = f"r.dead = 0 AND r.due_at <= {{now}} AND ({free}) AND {among_kinds}"
        if self._ordered:
            where += (
                " AND (r.order_key = '' OR NOT EXISTS (SELECT 1 FROM {t} b WHERE b.order_key = r.order_key"
                " AND b.dead = 0 AND b.id < r.id))"
            )
        return where, values

    def renew(self, tx: Transaction, boot: str, ids: Sequence[int]) -> None:
        self._own(tx, boot, ids, "UPDATE {t} SET leased_at = {now}")

    def delete(self, tx: Transaction, boot: str, ids: Sequence[int]) -> int:
        """They were sent. Answers how many were still this boot's."""
        return self._own(tx, boot, ids, "DELETE FROM {t}")

    def release(self, tx: Transaction, boot: str, ids: Sequence[int], later_ms: int = 0) -> None:
        """They were not sent, which is nobody's fault: again, as soon as that."""
        due = "" if not later_ms else ", due_at = {now} + :later"
        self._own(tx, boot, ids, f"UPDATE {{t}} SET leased_by = ''{due}", later=later_ms)

    def fail(self, tx: Transaction, boot: str, row: int, later_ms: int, error: str) -> None:
        """It was not sent by a fault of its own: one retry less."""
        change = "UPDATE {t} SET leased_by = '', retries = retries + 1, due_at = {now} + :later, error = :error"
        self._own(tx, boot, [row], change, later=later_ms, error=error[:ERROR_CHARS])

    def bury(self, tx: Transaction, boot: str, row: int, error: str) -> None:
        """It will not be sent any more, until a person says so."""
        change = "UPDATE {t} SET leased_by = '', dead = 1, died_at = {now}, error = :error"
        self._own(tx, boot, [row], change, error=error[:ERROR_CHARS])

    def _own(self, tx: Transaction, boot: str, ids: Sequence[int], change: str, **values: Any) -> int:
        if not ids:
            return 0
        among, chosen = _among("id", ids)
        used = {name: value for name, value in values.items() if f":{name}" in change}
        return tx.change(self._sql(f"{change} WHERE {among} AND leased_by = :boot"), {**chosen, **used, "boot": boot})

    def look(self, tx: Transaction) -> None:
        """Raises where the table is not there, or lacks a column."""
        rest = "r.order_key, r.due_at, r.leased_by, r.leased_at, r.dead, r.died_at, r.error"
        tx.run(self._sql(f"SELECT {CLAIMED}, {rest} FROM {{t}} r WHERE 1 = 0"), {})

    # --- people --------------------------------------------------------------------------------------------------

    def depth(self, tx: Transaction, most: int = COUNT_MOST) -> Depth:
        """Count the rows, waiting and dead, up to `most` of each: cheap however many there are."""

        def count(dead: int) -> int:
            sql = f"SELECT count(*) FROM (SELECT 1 FROM {{t}} WHERE dead = :dead LIMIT {most}) counted"
            return int(tx.run(self._sql(sql), {"dead": dead})[0][0])

        waiting = count(0)
        oldest = tx.run(self._sql("SELECT {now} - created_at FROM {t} WHERE dead = 0 ORDER BY id LIMIT 1"), {})
        return Depth(waiting, waiting < most, int(oldest[0][0]) if oldest else 0, count(1))

    def dead(self, tx: Transaction, wanted: Wanted, most: int) -> list[Seen]:
        where, values = wanted.sql()
        sql = f"SELECT {SEEN} FROM {{t}} r WHERE dead = 1{where} ORDER BY id LIMIT :most"
        return [_seen(found) for found in tx.run(self._sql(sql), {**values, "most": most})]

    def body(self, tx: Transaction, row: int) -> bytes:
        found = tx.run(self._sql("SELECT body FROM {t} WHERE id = :id"), {"id": row})
        return bytes(found[0][0]) if found else b""

    def waiting(self, tx: Transaction) -> list[Row]:
        """All that is not dead, whoever holds it: for tests."""
        sql = f"SELECT {CLAIMED} FROM {{t}} r WHERE dead = 0 ORDER BY id"
        return [_row(found) for found in tx.run(self._sql(sql), {})]

    def remove(self, tx: Transaction, ids: Sequence[int]) -> None:
        """They go, whoever holds them: for tests."""
        if ids:
            among, chosen = _among("id", ids)
            tx.change(self._sql(f"DELETE FROM {{t}} WHERE {among}"), chosen)

    def replay(self, tx: Transaction, wanted: Wanted) -> int:
        """Dead rows are sent once more, with all their retries."""
        where, values = wanted.sql()
        change = "dead = 0, retries = 0, claims = 0, leased_by = '', due_at = {now}, error = '', died_at = 0"
        return tx.change(self._sql(f"UPDATE {{t}} SET {change} WHERE dead = 1{where}"), values)

    def purge(self, tx: Transaction, wanted: Wanted) -> int:
        """Dead rows go for good."""
        where, values = wanted.sql()
        return tx.change(self._sql(f"DELETE FROM {{t}} WHERE dead = 1{where}"), values)

    def count_dead(self, tx: Transaction, wanted: Wanted) -> int:
        where, values = wanted.sql()
        return int(tx.run(self._sql(f"SELECT count(*) FROM {{t}} WHERE dead = 1{where}"), values)[0][0])


def said_by(error: BaseException) -> str:
    """What the database said, in one line. SQLAlchemy's errors add the whole statement, PostgreSQL's a part of it."""
    driver = getattr(error, "orig", None) or error
    told = " ".join(str(driver).partition("\nLINE ")[0].split())
    return f"{told}; {TURN_OFF}" if getattr(driver, "sqlstate", None) in OTHERS_STATEMENT else told


def _among(column: str, values: Iterable[Any], prefix: str = "id") -> tuple[str, dict[str, Any]]:
    chosen = {f"{prefix}{i}": value for i, value in enumerate(values)}
    return f"{column} IN ({', '.join(f':{name}' for name in chosen)})", chosen


def _row(found: Sequence[Any]) -> Row:
    number, task_id, kind, name, queue, body, age, claims, retries = found
    return Row(int(number), task_id, kind, name, queue, bytes(body), int(age), int(claims), int(retries))


def _seen(found: Sequence[Any]) -> Seen:
    number, task_id, kind, name, queue, age, claims, retries, error, died = found
    return Seen(int(number), task_id, kind, name, queue, int(age), int(claims), int(retries), error or "", int(died))
