"""Claim rows for a relay without blocking transactions that push, or other relays.

PostgreSQL, SQLite   one statement selects the next rows and claims them
MySQL, MariaDB       a plain read selects rows, which are then locked by primary key alone
ordered relays       a plain read selects rows and the predecessor of each under its order key; they are claimed by id

InnoDB: a statement that scans an index with FOR UPDATE, or that changes rows by anything but their primary key, touches
rows that other transactions have inserted and not committed. A relay then waits for those transactions, and those
transactions get locks that they never asked for. At REPEATABLE READ, a transaction that rolls back a savepoint keeps a
lock on the gap where all others insert, and two such transactions deadlock. A plain read touches none of these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relier.outbox.row import Row

if TYPE_CHECKING:
    from relier.outbox.table.statements import Transaction

# Ages are computed in Python, and claims are counted up to a limit: an overflow in one row would fail the whole claim.
CLAIMED = (
    "r.id, r.task_id, r.kind, r.name, r.queue, r.body, {now}, r.created_at, r.claims, r.retries, r.due_at, r.order_key"
)
MOST_CLAIMS = 1_000_000_000
TAKE = (
    f"leased_by = :relay_id, leased_at = {{now}}, claims = CASE WHEN claims < {MOST_CLAIMS} THEN claims + 1 "
    f"ELSE {MOST_CLAIMS} END"
)
# PostgreSQL's statistics of a table that fills and empties all the time are usually wrong, and the planner would sort
# all rows to find the first. The index already has them in order.
IN_ORDER = (
    "SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true), "
    "set_config('enable_sort', 'off', true)"
)
# The preceding row of the same key, if it is still to be sent. This is one step in the index, except on MySQL, which
# would read the whole key.
BEFORE = (
    "CASE WHEN r.order_key = '' THEN NULL ELSE (SELECT b.id FROM {t} b WHERE b.order_key = r.order_key AND b.dead = 0 "
    "AND b.id < r.id ORDER BY b.id DESC LIMIT 1) END"
)
FIRST = "({key} = '' OR NOT EXISTS (SELECT 1 FROM {t} b WHERE {same} AND b.dead = 0 AND b.id < r.id))"
WIDEN_FACTOR = 4  # MySQL: read this many times more rows when other relays have locked the next ones
IDS_PER_STATEMENT = 500  # MariaDB turns a thousand ids into a join, and reads the whole table
KEYS_AT_ONCE = 100  # order keys in one statement
MAX_PASSES = 4  # an ordered claim skips keys that must wait in this many passes; the last reads first rows of keys only
NOT_YET = -1  # not the id of any row: the predecessor exists, but was not found
FORCED = {"mysql": " FORCE INDEX (PRIMARY)"}  # without this, MySQL scans a table that it believes to be small


class RowClaims:
    """Claims rows that match `where`, in which `r` is the table. `sql` completes a statement."""

    def __init__(self, dialect: str, sql: Callable[[str], str], *, ordered: bool) -> None:
        self._dialect = dialect
        self._sql = sql
        self._ordered = ordered
        self._what = CLAIMED if ordered else CLAIMED.replace("r.order_key", "''")

    def claim(self, tx: Transaction, most: int, where: str, values: Mapping[str, Any]) -> list[Row]:
        """Claim at most `most` rows, sorted by id. `values`: the parameters of `where`, and the `relay_id`."""
        if self._dialect == "postgresql":
            tx.run(IN_ORDER, {})
        if self._ordered:
            return self._in_order(tx, most, where, values)
        if self._dialect == "mysql":
            return self._take_locked(tx, self._lock_next(tx, most, where, values), values)
        return self._take(tx, f"{where} ORDER BY r.due_at, r.id LIMIT :most", {**values, "most": most})

    def _pick(self, tx: Transaction, what: str, where: str, values: Mapping[str, Any], most: int) -> Sequence[Any]:
        """Select rows with a plain read, which takes no locks and sees only committed rows."""
        sql = f"SELECT {what} FROM {{t}} r WHERE {where} ORDER BY r.due_at, r.id LIMIT :most"
        chosen = {name: value for name, value in values.items() if name != "relay_id" or ":relay_id" in where}
        return tx.run(self._sql(sql), {**chosen, "most": most})

    # --- ordered claims ----------------------------------------------------------------------------------------------

    def _in_order(self, tx: Transaction, most: int, where: str, values: Mapping[str, Any]) -> list[Row]:
        """Claim a row only together with all preceding rows of its key. A row that another relay holds, or that is not
        due, holds back the rest of its key."""
        predecessors = self._next_in_order(tx, most, where, values)
        ids = sorted(predecessors)[:most]
        if self._dialect == "mysql":
            locked = self._lock(tx, ids, most, where, values)
            return self._take_locked(tx, _unbroken(locked, predecessors), values)
        if not ids:
            return []
        among, chosen = among_values("r.id", ids, "one")
        taken = self._take(tx, f"{among} AND {where}", {**values, **chosen})
        kept = _unbroken(taken, predecessors)
        self._give_back(tx, [row.id for row in taken if row not in kept], values["relay_id"])
        return kept

    def _next_in_order(
        self, tx: Transaction, most: int, where: str, values: Mapping[str, Any]
    ) -> dict[int, int | None]:
        """Return the ids that may be sent now if they are free, each with the id of its predecessor."""
        predecessors: dict[int, int | None] = {}
        waiting: set[str] = set()  # keys
        for look in range(MAX_PASSES):
            among, chosen = among_values("r.order_key", sorted(waiting), "key", self._exact)
            others = f"{where} AND NOT ({among})" if waiting else where
            if look == MAX_PASSES - 1:
                first = FIRST.replace("{key}", self._exact("r.order_key"))
                others += f" AND {first.replace('{same}', self._has_key('r.order_key'))}"
            found = self._with_predecessors(tx, most, others, {**values, **chosen})
            for number, key, predecessor in sorted(found, key=lambda one: one[0]):
                if predecessor is None or predecessor in predecessors:
                    predecessors[number] = predecessor
                else:
                    waiting.add(key)
            if len(found) < most or len(predecessors) > most // 2:
                break
        if len(predecessors) < most:
            predecessors = dict.fromkeys(self._heads(tx, sorted(waiting)), None) | predecessors
        return predecessors

    def _heads(self, tx: Transaction, keys: Sequence[str]) -> Iterator[int]:
        """Return the first row of each key. It may be due long after the rows behind it, which then wait for it."""
        head = "(SELECT b.id FROM {t} b WHERE %s AND b.dead = 0 ORDER BY b.order_key, b.id LIMIT 1)"
        for start in range(0, len(keys), KEYS_AT_ONCE):
            some = keys[start : start + KEYS_AT_ONCE]
            sql = "SELECT " + ", ".join(head % self._has_key(f":key{i}") for i in range(len(some)))
            (found,) = tx.run(self._sql(sql), {f"key{i}": key for i, key in enumerate(some)})
            yield from (int(number) for number in found if number is not None)

    def _with_predecessors(
        self, tx: Transaction, most: int, where: str, values: Mapping[str, Any]
    ) -> Sequence[tuple[int, str, int | None]]:
        """Return ids and order keys, each with the id of its predecessor."""
        if self._dialect != "mysql":
            return self._pick(tx, f"r.id, r.order_key, {BEFORE}", where, values, most)
        found = [(int(number), key) for number, key in self._pick(tx, "r.id, r.order_key", where, values, most)]
        by_key: dict[str, list[int]] = {}
        for number, key in found:
            if key:
                by_key.setdefault(key, []).append(number)
        predecessors: dict[int, int | None] = {}
        keys = list(by_key.items())
        for start in range(0, len(keys), KEYS_AT_ONCE):
            predecessors |= self._first_of_keys(tx, keys[start : start + KEYS_AT_ONCE])
        return [(number, key, predecessors.get(number, NOT_YET) if key else None) for number, key in found]

    def _first_of_keys(self, tx: Transaction, keys: Sequence[tuple[str, list[int]]]) -> dict[int, int | None]:
        """Return the predecessor of each row, on MySQL: read as many first rows of each key as were found."""
        parts: list[str] = []
        values: dict[str, Any] = {}
        for i, (key, ids) in enumerate(keys):
            parts.append(
                f"(SELECT {i}, b.id FROM {{t}} b WHERE {self._has_key(f':key{i}')} AND b.dead = 0 AND b.id <= :top{i} "
                f"ORDER BY b.order_key, b.id LIMIT :many{i})"
            )
            values |= {f"key{i}": key, f"top{i}": max(ids), f"many{i}": len(ids)}
        firsts: dict[int, list[int]] = {}
        for i, number in tx.run(self._sql(" UNION ALL ".join(parts)), values):
            firsts.setdefault(i, []).append(int(number))
        predecessors: dict[int, int | None] = {}
        for ids in firsts.values():
            predecessors |= zip(sorted(ids), [None, *sorted(ids)], strict=False)
        return predecessors

    def _has_key(self, key: str) -> str:
        """Return the condition for rows of an order key. On MySQL, the index finds the rows of similar keys, too."""
        similar = f"b.order_key = {key}"
        same = f"{self._exact('b.order_key')} = {self._exact(key)}"
        return similar if similar == same else f"{similar} AND {same}"

    def _exact(self, text: str) -> str:
        return exact(self._dialect, text)

    def _give_back(self, tx: Transaction, ids: Sequence[int], relay_id: str) -> None:
        """Undo the claim of rows."""
        if ids:
            among, chosen = among_values("id", ids)
            back = f"UPDATE {{t}} SET leased_by = '', claims = claims - 1 WHERE {among} AND leased_by = :relay_id"
            tx.change(self._sql(back), {**chosen, "relay_id": relay_id})

    # --- the two ways to claim ---------------------------------------------------------------------------------------

    def _take(self, tx: Transaction, which: str, values: Mapping[str, Any]) -> list[Row]:
        pick = f"SELECT r.id FROM {{t}} r WHERE {which}"
        if self._dialect == "sqlite":
            sql = f"UPDATE {{t}} SET {TAKE} WHERE id IN ({pick}) RETURNING {self._what.replace('r.', '')}"
        else:  # without MATERIALIZED, PostgreSQL may run the selection again for every row; a join may read all rows
            sql = (
                f"WITH picked AS MATERIALIZED ({pick} FOR UPDATE SKIP LOCKED) "
                f"UPDATE {{t}} AS r SET {TAKE} WHERE r.id = ANY (ARRAY(SELECT id FROM picked)) RETURNING {self._what}"
            )
        return sorted((row_of(found) for found in tx.run(self._sql(sql), values)), key=lambda row: row.id)

    def _lock_next(self, tx: Transaction, most: int, where: str, values: Mapping[str, Any]) -> list[Row]:
        """Lock the next rows, or the rows behind them if another relay is claiming the next ones."""
        locked: dict[int, Row] = {}
        for wanted in (most, most * WIDEN_FACTOR):
            picked = [int(found[0]) for found in self._pick(tx, "r.id", where, values, wanted)]
            others = [number for number in picked if number not in locked]
            locked |= {row.id: row for row in self._lock(tx, others, most - len(locked), where, values)}
            if len(picked) < wanted or len(locked) > most // 2:
                break
        return sorted(locked.values(), key=lambda row: row.id)

    def _lock(self, tx: Transaction, ids: Sequence[int], most: int, where: str, values: Mapping[str, Any]) -> list[Row]:
        """Lock and read rows, because MySQL cannot return what it updates. Skip rows that another relay locked or
        claimed."""
        locked: list[Row] = []
        for chunk in id_chunks(ids):
            among, chosen = among_values("r.id", chunk, "one")
            sql = (
                f"SELECT {self._what} FROM {{t}} r{FORCED['mysql']} WHERE {among} AND {where} "
                f"ORDER BY r.id LIMIT :most FOR UPDATE SKIP LOCKED"
            )
            given = {**values, **chosen, "most": most - len(locked)}
            locked += [row_of(found, 1) for found in tx.run(self._sql(sql), given)]
            if len(locked) >= most:
                break
        return sorted(locked, key=lambda row: row.id)

    def _take_locked(self, tx: Transaction, rows: list[Row], values: Mapping[str, Any]) -> list[Row]:
        for chunk in id_chunks([row.id for row in rows]):
            among, chosen = among_values("id", chunk)
            sql = f"UPDATE {{t}}{FORCED['mysql']} SET {TAKE} WHERE {among}"
            tx.change(self._sql(sql), {**chosen, "relay_id": values["relay_id"]})
        return rows


def _unbroken(rows: Iterable[Row], predecessors: Mapping[int, int | None]) -> list[Row]:
    """Return the rows whose predecessors are all among them."""
    kept: dict[int, Row] = {}
    for row in sorted(rows, key=lambda row: row.id):
        predecessor = predecessors[row.id]
        if predecessor is None or predecessor in kept:
            kept[row.id] = row
    return list(kept.values())


def id_chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[start : start + IDS_PER_STATEMENT] for start in range(0, len(ids), IDS_PER_STATEMENT))


def among_values(
    column: str, values: Iterable[Any], prefix: str = "id", compared: Callable[[str], str] = str
) -> tuple[str, dict[str, Any]]:
    """Return the condition that a column has one of these values, and its parameters. `compared`: as in `exact`."""
    chosen = {f"{prefix}{i}": value for i, value in enumerate(values)}
    return f"{compared(column)} IN ({', '.join(compared(f':{name}') for name in chosen)})", chosen


def exact(dialect: str, text: str) -> str:
    """Return the SQL for a text that is compared exactly. MySQL's own comparison ignores case, accents and trailing
    spaces."""
    return f"CAST(CONVERT({text} USING utf8mb4) AS BINARY)" if dialect == "mysql" else text


def row_of(found: Sequence[Any], more_claims: int = 0) -> Row:
    """Build a row from the columns of `CLAIMED`.

    SQLite stores any type in any column. A row with a wrong type must not fail the claim of the others.
    """
    number, task_id, kind, name, queue, body, now, created_at, claims, retries, due_at, order_key = found
    return Row(
        int(number),
        as_text(task_id),
        as_text(kind),
        as_text(name),
        as_text(queue),
        _as_bytes(body),
        int(now) - as_number(created_at),
        as_number(claims) + more_claims,
        as_number(retries),
        as_number(due_at),
        as_text(order_key),
    )


def as_number(found: Any) -> int:
    try:
        return int(found)
    except (TypeError, ValueError, OverflowError):
        return 0


def as_text(found: Any) -> str:
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found)


def _as_bytes(found: Any) -> bytes:
    return bytes(found) if isinstance(found, bytes | bytearray | memoryview) else str(found).encode()
