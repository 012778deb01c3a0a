"""Where rows go. A target publishes, and says of each row what came of it; it never touches the database.

The ledger takes an id once, so what is sent again is no second task. A Celery broker is at least once: relier.celery.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from relier.errors import (
    AdmissionRejectedError,
    CorruptRecordError,
    IndeterminateError,
    RedisConnectionError,
    RelierError,
    StoreNotReadyError,
    StoreUnavailableError,
)
from relier.ledger.ledger import CHUNK_TASKS, Ledger
from relier.ledger.records import Accepted, Admission, Submission
from relier.outbox.row import LEDGER, TOMB_MS, Kept, Row, kept_of
from relier.store.call import Durability
from relier.submit.client import Client

DEFER_S = 1.0  # where a limit does not say when it will have room


class MayHaveRunError(RelierError):
    """A row is older than the memory of its id, and was tried before: it may have run. A person decides."""


@dataclass(frozen=True, slots=True)
class Sent:
    """It is there."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """It was refused for now, by a limit: neither its fault nor an outage."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """It could not be sent, by a fault of its own; `final`: nor ever will."""

    error: BaseException
    final: bool = False


@dataclass(frozen=True, slots=True)
class Outage:
    """The other side is away: whatever row it would have been."""

    error: BaseException

    @property
    def silent(self) -> bool:
        """Whether no answer came: then the row itself may be at fault. A store that answers "not now" means any row."""
        return not isinstance(self.error, StoreUnavailableError) or type(self.error) is RedisConnectionError


Outcome = Sent | Deferred | Failed | Outage
SENT = Sent()


class Target(Protocol):
    """`kind`: of the rows it takes. `parcel`: how many it publishes best in one go."""

    kind: str
    parcel: int

    def publish(self, rows: Sequence[Row]) -> list[Outcome]:
        """One outcome per row, in order. Called from several threads; raises nothing."""

    def close(self) -> None: ...


class LedgerTarget:
    """The ledger: effectively once, by id."""

    kind = LEDGER
    parcel = CHUNK_TASKS

    def __init__(self, client: Client) -> None:
        self._client = client

    def publish(self, rows: Sequence[Row]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        readable: list[tuple[Row, Kept]] = []
        for row in rows:
            try:
                readable.append((row, _sendable(row)))
            except RelierError as error:
                outcomes[row.id] = Failed(error, final=True)
        away: Outage | None = None
        for batch, admission, level in _batches(readable):
            found = [away] * len(batch) if away else self._submit([kept.task for _, kept in batch], admission, level)
            outcomes |= {row.id: outcome for (row, _), outcome in zip(batch, found, strict=True)}
            away = away or next((one for one in found if isinstance(one, Outage)), None)
        return [outcomes[row.id] for row in rows]

    def _submit(self, tasks: list[Submission], admission: Admission | None, level: Durability) -> Sequence[Outcome]:
        try:
            return [_judged(answer) for answer in self._client.submit(tasks, admission, level)]
        except AdmissionRejectedError as refused:
            one = Deferred(refused.retry_after or DEFER_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is an outcome; no row may end a relay
            if self._is_away(error):
                return [Outage(error)] * len(tasks)
            if len(tasks) == 1:
                return [Failed(error)]
            return self._one_by_one(tasks, admission, level)
        return [one] if len(tasks) == 1 else self._one_by_one(tasks, admission, level)

    def _one_by_one(self, tasks: list[Submission], admission: Admission | None, level: Durability) -> list[Outcome]:
        """One among them spoils the whole: each for itself. After a limit has refused one, the others wait like it."""
        outcomes: list[Outcome] = []
        for task in tasks:
            last = outcomes[-1] if outcomes else SENT
            stops = isinstance(last, Deferred | Outage)
            outcomes.append(last if stops else self._submit([task], admission, level)[0])
        return outcomes

    def _is_away(self, error: Exception) -> bool:
        """Whether the store is at fault. Silence may be a row's fault: then the store answers other calls."""
        if isinstance(error, RedisConnectionError) and not isinstance(error, StoreNotReadyError):
            try:
                self._client.sync_store.command("PING")
            except RelierError:
                return True
            return False
        return isinstance(error, (StoreUnavailableError, IndeterminateError))

    def close(self) -> None:
        self._client.close()


def _sendable(row: Row) -> Kept:
    if row.age_ms > TOMB_MS and row.claims > 1:
        raise MayHaveRunError(
            f"it is {row.age_ms / 86_400_000:.1f} days old and was tried before: its id may be forgotten, so that "
            f"sending it might run it twice; look at what it does, then replay or purge it"
        )
    return kept_of(row)


def _batches(rows: list[tuple[Row, Kept]]) -> Iterator[tuple[list[tuple[Row, Kept]], Admission | None, Durability]]:
    """What may travel in one script: neighbours under the same limits."""
    for (admission, level), same in groupby(rows, key=lambda pair: (pair[1].admission, pair[1].task.durability)):
        group = list(same)
        start = 0
        for chunk in Ledger.chunks(kept.task for _, kept in group):
            yield group[start : start + len(chunk)], admission, level
            start += len(chunk)


def _judged(answer: Accepted) -> Outcome:
    if answer.status == "corrupt":
        return Failed(
            CorruptRecordError(f"something that is no task holds the key of {answer.id}; nothing was written"),
            final=True,
        )
    return SENT  # new; or here before, under this id or under its idempotency key
