"""The content of an outbox row: the submission that a push made, and the admission limits that apply to it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from relier.errors import InvalidSubmissionError, PayloadIntegrityError
from relier.ledger.records import Admission, Submission

TOMB_MS = 7 * 86_400_000  # how long the ledger remembers an ended id, so that a row sent again is not a second task
LEDGER, CELERY = "ledger", "celery"  # the target of a row
AT_ONCE = 500  # rows in one insert: databases limit the number of values
LIMITS_BYTES = 1024  # a claim looks for limits in this many bytes of a body: PostgreSQL reads a long one piece by piece
BYTES_AT_ONCE = 4 * 1024 * 1024  # MariaDB's default limit is 16 MiB for a statement, and quoting may double the size
LONGEST = {
    "task_id": 64,
    "name": 255,
    "queue": 255,
    "order_key": 255,
}  # the width of the columns; the ledger accepts more


class RowBody(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The body of a row whose target is the ledger. The limits come first, where a claim looks for them."""

    admission: Admission | None = None
    task: Submission


class NewRow(msgspec.Struct, frozen=True):
    """A row as a push writes it. The database adds the times."""

    task_id: str
    kind: str
    name: str
    queue: str
    order_key: str
    body: bytes

    def __post_init__(self) -> None:
        for what, most in LONGEST.items():
            found = len(getattr(self, what))
            if found > most:
                raise InvalidSubmissionError(
                    f"{what} has {found} characters, but an outbox row holds at most {most}, so the database would "
                    f"refuse the whole transaction at its commit; nothing was written; choose a shorter {what}"
                )
            if storable(getattr(self, what)) != getattr(self, what):
                raise InvalidSubmissionError(
                    f"{what} {getattr(self, what)!r:.80} contains a NUL or an unpaired surrogate, so the database "
                    f"would refuse the whole transaction at its commit; nothing was written; choose another {what}"
                )


class Row(msgspec.Struct, frozen=True):
    """A row that a relay has claimed. `claims` includes this claim. Times are in ms; `due_at` is the database's
    time."""

    id: int
    task_id: str
    kind: str
    name: str
    queue: str
    body: bytes
    age_ms: int
    claims: int
    retries: int
    due_at: int = 0
    order_key: str = ""


def new_row(task: Submission, admission: Admission | None, order_key: str = "") -> NewRow:
    """Return the row for a submission. Its times count from now, and its id is remembered longer than its record."""
    now_ms = time.time_ns() // 1_000_000
    eta = now_ms + task.delay_ms if task.delay_ms else task.eta_ms
    expires = now_ms + task.expires_in_ms if task.expires_in_ms else task.expires_at_ms
    tomb = max(TOMB_MS, task.tomb_ttl_ms or 0)
    kept = replace(task, delay_ms=0, eta_ms=eta, expires_in_ms=0, expires_at_ms=expires, tomb_ttl_ms=tomb, nonce="")
    body = msgspec.msgpack.encode(RowBody(task=kept, admission=admission))
    return NewRow(task.id, LEDGER, task.name, task.queue, order_key, body)


def inserts_of(rows: Sequence[NewRow]) -> Iterator[list[NewRow]]:
    """Split rows into those that one statement inserts, by their number and size."""
    some: list[NewRow] = []
    size = 0
    for row in rows:
        if some and (len(some) == AT_ONCE or size + len(row.body) > BYTES_AT_ONCE):
            yield some
            some, size = [], 0
        some.append(row)
        size += len(row.body)
    if some:
        yield some


def limit_in_body(limit: str) -> bytes:
    """Return the bytes that represent a limit in the bodies of its rows. They begin with the length of the name, so one
    name does not match another that begins with it."""
    return msgspec.msgpack.encode(limit)


def has_limit(row: Row, limit: str) -> bool:
    """Return whether a claim can see that a limit applies to a row. By chance, the arguments of another row may look
    like the limit; then that row waits, too."""
    return bool(limit) and limit_in_body(limit) in row.body[:LIMITS_BYTES]


def storable(text: str) -> str:
    """Return a text that every database stores. PostgreSQL refuses NUL, and no driver encodes an unpaired surrogate."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def body_of(row: Row) -> RowBody:
    """Decode the body of a row. A row whose body cannot be decoded is dead."""
    try:
        return msgspec.msgpack.decode(row.body, type=RowBody)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PayloadIntegrityError(
            f"row {row.id} of the outbox cannot be read: {error}; it was written by another version of Relier, or "
            f"by another program; nothing was sent; replay it with the release that wrote it, or purge it"
        ) from error
