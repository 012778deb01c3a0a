"""Every statement on the outbox table, for PostgreSQL, MySQL / MariaDB and SQLite.

A `Database` runs them: an engine of SQLAlchemy or a connection of Django. Times are the database's own, in ms, so that
two clocks are never compared. Every write that closes a row names the relay that must still hold it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from relier.errors import ConfigurationError, OutboxDatabaseError
from relier.outbox.row import CELERY, LEDGER, LIMITS_BYTES, Row, limit_in_body, storable
from relier.outbox.table.claims import (
    CLAIMED,
    FORCED,
    RowClaims,
    among_values,
    as_number,
    as_text,
    exact,
    id_chunks,
    row_of,
)
from relier.outbox.table.contention import is_undone
from relier.outbox.table.names import quoted

NOW_MS = {
    "postgresql": "CAST(extract(epoch FROM now()) * 1000 AS bigint)",
    # From UTC: UNIX_TIMESTAMP(NOW()) goes back an hour when daylight saving time ends in the session's time zone.
    "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
}
SEEN = "r.id, r.task_id, r.kind, r.name, r.queue, {now}, r.created_at, r.claims, r.retries, r.error, r.died_at"
# MySQL does not use the index for a comparison of pairs; the others do.
AFTER = dict.fromkeys(("postgresql", "sqlite"), " AND (r.due_at, r.id) > (:after_due, :after_id)")
AFTER["mysql"] = " AND (r.due_at > :after_due OR (r.due_at = :after_due AND r.id > :after_id))"
HAS_LIMIT = {
    "postgresql": f"position(CAST(:{{name}} AS bytea) IN substring(r.body FROM 1 FOR {LIMITS_BYTES})) > 0",
    "mysql": f"LOCATE(:{{name}}, SUBSTRING(r.body, 1, {LIMITS_BYTES})) > 0",
    "sqlite": f"instr(substr(r.body, 1, {LIMITS_BYTES}), :{{name}}) > 0",
}
KINDS = (LEDGER, CELERY)
COUNT_MOST = 10_000  # the limit of a relay's count for its metrics; commands may count further
ERROR_CHARS = 8_000
BEFORE_ERROR = "relier_error"  # the savepoint before an error is stored
# PostgreSQL: a prepared statement is missing, or exists already, because it was prepared on another connection.
OTHERS_STATEMENT = {"26000", "42P05"}
TURN_OFF = (
    "a pooler such as PgBouncer in transaction mode may give each transaction a different connection: turn prepared "
    "statements off in the engine's connect_args, as docs/how-to/outbox.md says under PgBouncer"
)


class Transaction(Protocol):
    """One transaction of a relay or a command. Parameters in a statement are written `:name`."""

    def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
        """Run a statement and return its rows, if it has any."""

    def change(self, sql: str, values: Mapping[str, Any]) -> int:
        """Run a statement and return the number of rows that it changed."""


class Database(Protocol):
    """The database of an outbox table. `dialect`: postgresql, mysql (also for MariaDB) or sqlite."""

    dialect: str

    def begin(self) -> AbstractContextManager[Transaction]: ...

    def leave_thread(self) -> None:
        """Close what belongs to the calling thread alone, which does not use the database again."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LiveRelays:
    """The relays that were alive `age_ms` ago. `known`: a LIKE pattern for the relays that the list would contain."""

    ids: frozenset[str]
    age_ms: int
    known: str = "%"


@dataclass(frozen=True, slots=True)
class Depth:
    """`waiting`: rows to be sent, a lower bound unless `exact`. `oldest_age_ms`: the age of the oldest of them."""

    waiting: int
    exact: bool
    oldest_age_ms: int
    dead: int


@dataclass(frozen=True, slots=True)
class KindBacklog:
    """The rows of one kind that are to be sent."""

    kind: str
    rows: int
    oldest_age_ms: int


@dataclass(frozen=True, slots=True)
class DeadRow:
    """A dead row, as commands show it."""

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
class DeadRowFilter:
    """Selects dead rows. A row must match every field that is set."""

    task_id: str = ""
    name: str = ""
    queue: str = ""
    older_than_ms: int = 0

    def sql(self, dialect: str) -> tuple[str, dict[str, Any]]:
        words = {"task_id": self.task_id, "name": self.name, "queue": self.queue}
        given = {column: word for column, word in words.items() if word}
        clauses = [f"{exact(dialect, column)} = {exact(dialect, f':want_{column}')}" for column in given]
        values: dict[str, Any] = {f"want_{column}": word for column, word in given.items()}
        if self.older_than_ms:
            clauses.append("created_at <= {now} - :want_age")
            values["want_age"] = self.older_than_ms
        return "".join(f" AND {clause}" for clause in clauses), values


class OutboxTable:
    """The outbox table, for relays and for `rl outbox`."""

    def __init__(self, dialect: str, table: str, kinds: Iterable[str] = KINDS, *, ordered: bool = False) -> None:
        now = NOW_MS.get(dialect)
        if now is None:
            raise ConfigurationError(
                f"the outbox does not support {dialect!r}; use PostgreSQL, MySQL, MariaDB or SQLite"
            )
        self._dialect = dialect
        self.table = table
        self._table = quoted(dialect, table)
        self._now = now
        self._kinds = tuple(kinds)
        self._claims = RowClaims(dialect, self._sql, ordered=ordered)

    def _exact(self, text: str) -> str:
        return exact(self._dialect, text)

    def _sql(self, text: str) -> str:
        return text.replace("{t}", self._table).replace("{now}", self._now)

    # --- for a relay -------------------------------------------------------------------------------------------------

    def claim(
        self,
        tx: Transaction,
        relay_id: str,
        most: int,
        stale_ms: int,
        members: LiveRelays | None,
        kinds: Sequence[str] | None = None,
        without: Sequence[tuple[str, str, str]] = (),
        after: tuple[int, int] | None = None,
    ) -> list[Row]:
        """Claim rows that are due and that no live relay holds.

        Rows that this relay already holds are claimed again, because the reply to their claim was lost. `kinds`: only
        rows of these kinds. `without`: no rows of these tasks, by name and queue, that have this limit, or any limit
        if it is "". `after`: only rows after this `due_at` and `id`.
        """
        where, values = self._claimable(relay_id, stale_ms, members, self._kinds if kinds is None else kinds)
        for i, ((name, queue), same_task) in enumerate(groupby(sorted(without), key=lambda one: one[:2])):
            same = [f"{self._exact(f'r.{one}')} = {self._exact(f':{one}{i}')}" for one in ("name", "queue")]
            values |= {f"name{i}": name, f"queue{i}": queue}
            limits = {f"limit{i}_{j}": limit for j, (_, _, limit) in enumerate(same_task)}
            if all(limits.values()):
                has_one = (HAS_LIMIT[self._dialect].format(name=one) for one in limits)
                same.append(f"({' OR '.join(has_one)})")
                values |= {one: limit_in_body(limit) for one, limit in limits.items()}
            where += f" AND NOT ({' AND '.join(same)})"
        if after is not None:
            where += AFTER[self._dialect]
            values |= {"after_due": after[0], "after_id": after[1]}
        return self._claims.claim(tx, most, where, {**values, "relay_id": relay_id})

    def _claimable(
        self, relay_id: str, stale_ms: int, members: LiveRelays | None, kinds: Sequence[str]
    ) -> tuple[str, dict[str, Any]]:
        """Return the condition for rows that are not dead, due, and free: never leased, leased too long ago, or leased
        by a relay that is dead."""
        free = "r.leased_by IN ('', :relay_id) OR r.leased_at <= {now} - :stale"
        among_kinds, values = among_values("r.kind", kinds, "kind", self._exact)
        values["stale"] = stale_ms
        if members is not None:
            among, chosen = among_values("r.leased_by", sorted(members.ids | {relay_id}), "live")
            free += f" OR (r.leased_at < {{now}} - :unseen AND r.leased_by LIKE :known AND NOT ({among}))"
            values |= {**chosen, "unseen": members.age_ms, "known": members.known}
        where = f"r.dead = 0 AND r.due_at <= {{now}} AND ({free}) AND {among_kinds}"
        return where, values

    def renew(self, tx: Transaction, relay_id: str, ids: Sequence[int]) -> None:
        self._own(tx, relay_id, ids, "leased_at = {now}")

    def delete(self, tx: Transaction, relay_id: str, ids: Sequence[int]) -> int:
        """Delete rows that were sent. Return how many of them this relay still held.

        Raise if the database keeps rows without an error: the relay would send them again and again.
        """
        deleted = self._by_id(tx, ids, "DELETE", "leased_by = :relay_id", {"relay_id": relay_id})
        if deleted < len(ids) and (kept := self._held(tx, relay_id, ids)):
            raise OutboxDatabaseError(f"the database kept {kept} rows of {self.table} that this relay had deleted")
        return deleted

    def _held(self, tx: Transaction, relay_id: str, ids: Sequence[int]) -> int:
        held = 0
        for chunk in id_chunks(ids):
            among, chosen = among_values("id", chunk)
            sql = f"SELECT count(*) FROM {{t}} WHERE {among} AND leased_by = :relay_id"
            held += int(tx.run(self._sql(sql), {**chosen, "relay_id": relay_id})[0][0])
        return held

    def release(
        self, tx: Transaction, relay_id: str, ids: Sequence[int], later_ms: int = 0, *, untried: bool = False
    ) -> None:
        """Release rows that were not sent, through no fault of their own. They are due again after `later_ms`.
        `untried`: it is certain that they were not sent, so this claim does not count."""
        change = "leased_by = '', claims = claims - 1" if untried else "leased_by = ''"
        if later_ms:
            self._own(tx, relay_id, ids, f"{change}, due_at = {{now}} + :later", later=later_ms)
        else:
            self._own(tx, relay_id, ids, change)

    def fail(self, tx: Transaction, relay_id: str, row: int, later_ms: int, error: str) -> None:
        """Charge a retry to a row that could not be sent and is itself at fault."""
        change = "leased_by = '', retries = retries + 1, due_at = {now} + :later, error = :error"
        self._with_error(tx, relay_id, row, change, error, later=later_ms)

    def bury(self, tx: Transaction, relay_id: str, row: int, error: str) -> None:
        """Mark a row as dead. It is not sent again unless an operator replays it."""
        change = "leased_by = '', dead = 1, died_at = {now}, error = :error"
        self._with_error(tx, relay_id, row, change, error)

    def _with_error(self, tx: Transaction, relay_id: str, row: int, change: str, error: str, **values: Any) -> None:
        """Store an error with any text: if the database or its driver refused the text, all rows behind this one would
        be delayed.

        The savepoint keeps the transaction usable on PostgreSQL. SQLite stores any text.
        """
        message = storable(error)[:ERROR_CHARS]
        if message.isascii() or self._dialect == "sqlite":
            self._own(tx, relay_id, [row], change, error=message, **values)
            return
        tx.change(f"SAVEPOINT {BEFORE_ERROR}", {})
        try:
            self._own(tx, relay_id, [row], change, error=message, **values)
        except Exception as refused:  # an encoding that the server or the driver does not have, by many names
            if is_undone(refused):  # a deadlock took the savepoint too: the relay repeats the whole transaction
                raise
            tx.change(f"ROLLBACK TO SAVEPOINT {BEFORE_ERROR}", {})
            plain = message.encode("ascii", "backslashreplace").decode()[:ERROR_CHARS]
            self._own(tx, relay_id, [row], change, error=plain, **values)
        tx.change(f"RELEASE SAVEPOINT {BEFORE_ERROR}", {})

    def _own(self, tx: Transaction, relay_id: str, ids: Sequence[int], change: str, **values: Any) -> int:
        return self._by_id(tx, ids, f"UPDATE SET {change}", "leased_by = :relay_id", {**values, "relay_id": relay_id})

    def _by_id(self, tx: Transaction, ids: Sequence[int], change: str, which: str, values: Mapping[str, Any]) -> int:
        """Change rows by primary key alone (claims.py explains why). `change`: `DELETE` or `UPDATE SET …`."""
        verb, _, rest = change.partition(" ")
        forced = FORCED.get(self._dialect, "")
        delete = f"DELETE r FROM {{t}} r{forced}" if forced else "DELETE FROM {t}"
        begin = delete if verb == "DELETE" else f"UPDATE {{t}}{forced} {rest}"
        changed = 0
        for chunk in id_chunks(ids):
            among, chosen = among_values("id", chunk)
            changed += tx.change(self._sql(f"{begin} WHERE {among} AND {which}"), {**values, **chosen})
        return changed

    def check_access(self, tx: Transaction) -> None:
        """Raise if the table is missing or lacks a column, or if we have no right to update or delete its rows.

        The check itself changes nothing.
        """
        rest = "r.order_key, r.due_at, r.leased_by, r.leased_at, r.dead, r.died_at, r.error"
        tx.run(self._sql(f"SELECT {CLAIMED}, {rest} FROM {{t}} r WHERE 1 = 0"), {})
        never = "leased_at < leased_at"  # MySQL does not check a statement whose condition is plainly false
        self._by_id(tx, [0], "UPDATE SET claims = claims", never, {})
        self._by_id(tx, [0], "DELETE", never, {})

    # --- for people --------------------------------------------------------------------------------------------------

    def depth(self, tx: Transaction, most: int = COUNT_MOST) -> Depth:
        """Count the waiting and the dead rows, up to `most` of each, so that the cost is bounded."""

        def count(dead: int) -> int:
            sql = f"SELECT count(*) FROM (SELECT 1 FROM {{t}} WHERE dead = :dead LIMIT {most}) counted"
            return int(tx.run(self._sql(sql), {"dead": dead})[0][0])

        waiting = count(0)
        oldest = tx.run(self._sql("SELECT {now}, created_at FROM {t} WHERE dead = 0 ORDER BY id LIMIT 1"), {})
        return Depth(waiting, waiting < most, _age(*oldest[0]) if oldest else 0, count(1))

    def kinds(self, tx: Transaction, most: int = COUNT_MOST) -> list[KindBacklog]:
        """Count the rows to be sent by kind, among the `most` rows that are due first."""
        first = f"SELECT kind, created_at FROM {{t}} WHERE dead = 0 ORDER BY due_at, id LIMIT {most}"
        exactly = f"kind, {self._exact('kind')}" if self._dialect == "mysql" else "kind"
        sql = f"SELECT min(kind), count(*), {{now}}, min(created_at) FROM ({first}) found GROUP BY {exactly} ORDER BY 1"
        found = tx.run(self._sql(sql), {})
        return [KindBacklog(as_text(kind), int(rows), _age(now, oldest)) for kind, rows, now, oldest in found]

    def dead(self, tx: Transaction, wanted: DeadRowFilter, most: int) -> list[DeadRow]:
        where, values = wanted.sql(self._dialect)
        sql = f"SELECT {SEEN} FROM {{t}} r WHERE dead = 1{where} ORDER BY id LIMIT :most"
        return [_seen(found) for found in tx.run(self._sql(sql), {**values, "most": most})]

    def body(self, tx: Transaction, row: int) -> bytes:
        found = tx.run(self._sql("SELECT body FROM {t} WHERE id = :id"), {"id": row})
        return bytes(found[0][0]) if found else b""

    def waiting(self, tx: Transaction) -> list[Row]:
        """Return every row that is not dead, leased or not. For tests."""
        sql = f"SELECT {CLAIMED} FROM {{t}} r WHERE dead = 0 ORDER BY id"
        return [row_of(found) for found in tx.run(self._sql(sql), {})]

    def remove(self, tx: Transaction, ids: Sequence[int]) -> None:
        """Delete rows, leased or not. For tests."""
        if ids:
            among, chosen = among_values("id", ids)
            tx.change(self._sql(f"DELETE FROM {{t}} WHERE {among}"), chosen)

    def replay(self, tx: Transaction, wanted: DeadRowFilter) -> int:
        """Make dead rows due again, with all their retries."""
        change = "dead = 0, retries = 0, claims = 0, leased_by = '', due_at = {now}, error = '', died_at = 0"
        return self._by_id(tx, self._dead_ids(tx, wanted), f"UPDATE SET {change}", "dead = 1", {})

    def purge(self, tx: Transaction, wanted: DeadRowFilter) -> int:
        """Delete dead rows."""
        return self._by_id(tx, self._dead_ids(tx, wanted), "DELETE", "dead = 1", {})

    def _dead_ids(self, tx: Transaction, wanted: DeadRowFilter) -> list[int]:
        where, values = wanted.sql(self._dialect)
        return [found[0] for found in tx.run(self._sql(f"SELECT id FROM {{t}} WHERE dead = 1{where}"), values)]

    def expire(self, tx: Transaction, kept_ms: int, most: int) -> int:
        """Delete up to `most` rows that died at least `kept_ms` ago."""
        pick = "SELECT id FROM {t} WHERE dead = 1 AND died_at <= {now} - :kept ORDER BY due_at, id LIMIT :most"
        ids = [found[0] for found in tx.run(self._sql(pick), {"kept": kept_ms, "most": most})]
        return self._by_id(tx, ids, "DELETE", "dead = 1", {})

    def count_dead(self, tx: Transaction, wanted: DeadRowFilter) -> int:
        where, values = wanted.sql(self._dialect)
        return int(tx.run(self._sql(f"SELECT count(*) FROM {{t}} WHERE dead = 1{where}"), values)[0][0])


def said_by(error: BaseException) -> str:
    """Return the database's message in one line, without the statement that SQLAlchemy and PostgreSQL add."""
    driver = getattr(error, "orig", None) or error
    message = " ".join(str(driver).partition("\nLINE ")[0].split())
    return f"{message}; {TURN_OFF}" if getattr(driver, "sqlstate", None) in OTHERS_STATEMENT else message


def _age(now: Any, created_at: Any) -> int:
    return int(now) - as_number(created_at)


def _seen(found: Sequence[Any]) -> DeadRow:
    number, task_id, kind, name, queue, now, created_at, claims, retries, error, died_at = found
    return DeadRow(
        int(number),
        as_text(task_id),
        as_text(kind),
        as_text(name),
        as_text(queue),
        _age(now, created_at),
        as_number(claims),
        as_number(retries),
        as_text(error or ""),
        as_number(died_at),
    )
