"""What a row of the outbox holds: a submission as it was made at the push, and what it must pass to be let in."""

from __future__ import annotations

import time

import msgspec
from msgspec.structs import replace

from relier.errors import InvalidSubmissionError, PayloadIntegrityError
from relier.ledger.records import Admission, Submission

TOMB_MS = 7 * 86_400_000  # so long an id that has ended is remembered: a row that is sent again is no second task
LEDGER, CELERY = "ledger", "celery"  # where a row goes
LONGEST = {"task_id": 64, "name": 255, "queue": 255, "order_key": 255}  # as the table has them; the ledger takes more


class RowBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a row for the ledger."""

    task: Submission
    admission: Admission | None = None


class NewRow(msgspec.Struct, frozen=True):
    """What a push writes. The database adds the times."""

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
                    f"{what} has {found} characters, and a row of the outbox holds {most}: the database would refuse "
                    f"it at the commit, with all the rest; nothing was written; choose a shorter one"
                )


class Row(msgspec.Struct, frozen=True):
    """A row a relay has claimed. `claims` counts them, this one too; times in ms, `due_at` by the database's clock."""

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
    """A submission that is to be made later: its times count from now, and its id is remembered beyond its record."""
    now_ms = time.time_ns() // 1_000_000
    eta = now_ms + task.delay_ms if task.delay_ms else task.eta_ms
    expires = now_ms + task.expires_in_ms if task.expires_in_ms else task.expires_at_ms
    tomb = max(TOMB_MS, task.tomb_ttl_ms or 0)
    kept = replace(task, delay_ms=0, eta_ms=eta, expires_in_ms=0, expires_at_ms=expires, tomb_ttl_ms=tomb, nonce="")
    body = msgspec.msgpack.encode(RowBody(kept, admission))
    return NewRow(task.id, LEDGER, task.name, task.queue, order_key, body)


def body_of(row: Row) -> RowBody:
    """What a row holds. It is dead where that cannot be read."""
    try:
        return msgspec.msgpack.decode(row.body, type=RowBody)
    except (msgspec.MsgspecError, ValueError) as error:
        raise PayloadIntegrityError(
            f"row {row.id} of the outbox cannot be read: {error}; it was not written by this version of relier, or by "
            f"something else; nothing was sent"
        ) from error
