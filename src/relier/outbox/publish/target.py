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
from relier.ledger.records import Accepted, Admission
from relier.outbox.row import LEDGER, TOMB_MS, Row, RowBody, body_of
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
class SendFailed:
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


@dataclass(frozen=True, slots=True)
class HeldBack:
    """It was not tried, for a row of the same order key before it was not sent."""


Outcome = Sent | Deferred | SendFailed | Outage | HeldBack
RowWithBody = tuple[Row, RowBody]
SENT = Sent()
HELD = HeldBack()


class PublishTarget(Protocol):
    """`kind`: of the rows it takes. `chunk_size`: how many it publishes best in one go.

    A target may also have a `limit`, in seconds: a publish that takes longer is an outage, and the relay goes on
    without it. One without a limit sees to that itself."""

    kind: str
    chunk_size: int

    def publish(self, rows: Sequence[Row]) -> list[Outcome]:
        """One outcome per row, in order. Called from several threads; raises nothing. After a row with an order key
        that is not sent, and not dead, none of the same key is sent."""

    def close(self) -> None: ...


class OrderGuard:
    """Which rows may be tried while some are published: none of an order key after one that was not sent."""

    def __init__(self) -> None:
        self._stopped: set[str] = set()

    def may_go(self, row: Row) -> bool:
        return row.order_key not in self._stopped

    def record(self, row: Row, outcome: Outcome) -> Outcome:
        dead = isinstance(outcome, SendFailed) and outcome.final
        if row.order_key and not isinstance(outcome, Sent) and not dead:
            self._stopped.add(row.order_key)
        return outcome


class LedgerTarget:
    """The ledger: effectively once, by id."""

    kind = LEDGER
    chunk_size = CHUNK_TASKS

    def __init__(self, client: Client) -> None:
        self._client = client

    def publish(self, rows: Sequence[Row]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        readable: list[RowWithBody] = []
        for row in rows:
            try:
                readable.append((row, _sendable(row)))
            except RelierError as error:
                outcomes[row.id] = SendFailed(error, final=True)
        away: Outage | None = None
        order = OrderGuard()
        for batch, admission, level in _batches(readable):
            going = [pair for pair in batch if order.may_go(pair[0])]
            found = [away] * len(going) if away else self._submit(going, admission, level)
            for (row, _), outcome in zip(going, found, strict=True):
                outcomes[row.id] = order.record(row, outcome)
            away = away or next((one for one in found if isinstance(one, Outage)), None)
        return [outcomes.get(row.id, HELD) for row in rows]

    def _submit(
        self, pairs: Sequence[RowWithBody], admission: Admission | None, level: Durability
    ) -> Sequence[Outcome]:
        try:
            return [
                _outcome_of(answer)
                for answer in self._client.submit([body.task for _, body in pairs], admission, level)
            ]
        except AdmissionRejectedError as refused:
            one = Deferred(refused.retry_after or DEFER_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is an outcome; no row may end a relay
            if self._is_away(error):
                return [Outage(error)] * len(pairs)
            if len(pairs) == 1:
                return [SendFailed(error)]
            return self._one_by_one(pairs, admission, level)
        return [one] if len(pairs) == 1 else self._one_by_one(pairs, admission, level)

    def _one_by_one(
        self, pairs: Sequence[RowWithBody], admission: Admission | None, level: Durability
    ) -> list[Outcome]:
        """One among them spoils the whole: each for itself. After a limit has refused one, the others wait like it."""
        outcomes: list[Outcome] = []
        order = OrderGuard()
        for pair in pairs:
            last = outcomes[-1] if outcomes else SENT
            if isinstance(last, Deferred | Outage):
                outcomes.append(last)
            elif order.may_go(pair[0]):
                outcomes.append(order.record(pair[0], self._submit([pair], admission, level)[0]))
            else:
                outcomes.append(HELD)
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


def _sendable(row: Row) -> RowBody:
    if row.age_ms > TOMB_MS and row.claims > 1:
        raise MayHaveRunError(
            f"it is {row.age_ms / 86_400_000:.1f} days old and was tried before: its id may be forgotten, so that "
            f"sending it might run it twice; look at what it does, then replay or purge it"
        )
    return body_of(row)


def _batches(rows: list[RowWithBody]) -> Iterator[tuple[list[RowWithBody], Admission | None, Durability]]:
    """What may travel in one script: neighbours under the same limits."""
    for (admission, level), same in groupby(rows, key=lambda pair: (pair[1].admission, pair[1].task.durability)):
        group = list(same)
        start = 0
        for chunk in Ledger.chunks(body.task for _, body in group):
            yield group[start : start + len(chunk)], admission, level
            start += len(chunk)


def _outcome_of(answer: Accepted) -> Outcome:
    if answer.status == "corrupt":
        return SendFailed(
            CorruptRecordError(f"something that is no task holds the key of {answer.id}; nothing was written"),
            final=True,
        )
    return SENT  # new; or here before, under this id or under its idempotency key
