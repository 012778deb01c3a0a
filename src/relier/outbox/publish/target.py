"""Targets: where a relay publishes rows. A target returns the outcome of each row. It never touches the database.

One target is the ledger. It accepts an id only once, so a row that is sent twice is still one task. The other is a
Celery broker (relier.celery), which delivers at least once.
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

DEFER_S = 1.0  # if a limit does not say when to retry


class MayHaveRunError(RelierError):
    """The row is so old that the ledger may have forgotten its id, and it was tried before. So the task may have run.

    An operator has to decide.
    """


@dataclass(frozen=True, slots=True)
class Sent:
    """The target has the row."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """A limit refused the row for now. This is neither the row's fault nor an outage. `limit`: the limit's name, if
    other rows of the same task may have another one."""

    seconds: float
    limit: str = ""


@dataclass(frozen=True, slots=True)
class SendFailed:
    """The row could not be sent, and the row itself is at fault. `final`: it can never be sent."""

    error: BaseException
    final: bool = False


@dataclass(frozen=True, slots=True)
class Outage:
    """The target is unreachable, and no row could be sent."""

    error: BaseException

    @property
    def silent(self) -> bool:
        """Return whether no reply came, so that the row may be at fault. A store that replies "not now" would refuse
        any row."""
        return not isinstance(self.error, StoreUnavailableError) or type(self.error) is RedisConnectionError


@dataclass(frozen=True, slots=True)
class HeldBack:
    """The row was not tried, because an earlier row of its order key was not sent."""


Outcome = Sent | Deferred | SendFailed | Outage | HeldBack
RowWithBody = tuple[Row, RowBody]
SENT = Sent()
HELD = HeldBack()


class PublishTarget(Protocol):
    """`kind`: the kind of rows that the target accepts. `chunk_size`: the best number of rows for one publish.

    A target may also have a `limit`, in seconds: a longer publish is an outage, and the relay continues without it. A
    target without a limit enforces a deadline itself.
    """

    kind: str
    chunk_size: int

    def publish(self, rows: Sequence[Row]) -> list[Outcome]:
        """Publish rows and return one outcome per row, in order. Called from several threads; raises nothing.

        If a row with an order key is neither sent nor dead, later rows with that key are not sent.
        """

    def close(self) -> None: ...


class OrderGuard:
    """Keeps the order within order keys: after a row that was not sent, no row of its key is tried."""

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
    """Sends rows to the ledger, which accepts each id once."""

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
        self, pairs: Sequence[RowWithBody], admission: Admission | None, level: Durability, *, is_repeat: bool = False
    ) -> Sequence[Outcome]:
        try:
            return [
                _outcome_of(answer)
                for answer in self._client.submit([body.task for _, body in pairs], admission, level)
            ]
        except AdmissionRejectedError as refused:
            one = Deferred(refused.retry_after or DEFER_S, refused.limit if refused.key else "")
        except Exception as error:  # noqa: BLE001 - every error is an outcome: no row may end a relay
            if self._is_away(error):
                return [Outage(error)] * len(pairs)
            if len(pairs) > 1:
                return self._one_by_one(pairs, admission, level)
            if _had_no_reply(error) and not is_repeat:  # the store may have come back after the call failed
                return self._submit(pairs, admission, level, is_repeat=True)
            return [SendFailed(error)]
        return [one] if len(pairs) == 1 else self._one_by_one(pairs, admission, level)

    def _one_by_one(
        self, pairs: Sequence[RowWithBody], admission: Admission | None, level: Durability
    ) -> list[Outcome]:
        """Submit rows one at a time, because one of them failed the whole call. Once a limit refuses a row, the rest
        wait."""
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
        """Return whether the store is unreachable. If there was no reply but the store answers a PING, either the row
        is at fault or the store has just come back."""
        if _had_no_reply(error):
            try:
                self._client.sync_store.command("PING")
            except RelierError:
                return True
            return False
        return isinstance(error, (StoreUnavailableError, IndeterminateError))

    def close(self) -> None:
        self._client.close()


def _had_no_reply(error: Exception) -> bool:
    return isinstance(error, RedisConnectionError) and not isinstance(error, StoreNotReadyError)


def _sendable(row: Row) -> RowBody:
    if row.age_ms > TOMB_MS and row.claims > 1:
        raise MayHaveRunError(
            f"the row is {row.age_ms / 86_400_000:.1f} days old and was tried before; the ledger may have forgotten "
            "its id, so sending the row could run the task twice; check what the task did, then replay or purge the row"
        )
    return body_of(row)


def _batches(rows: list[RowWithBody]) -> Iterator[tuple[list[RowWithBody], Admission | None, Durability]]:
    """Group neighbouring rows with the same limits and durability, which one script call can take."""
    for (admission, level), same in groupby(rows, key=lambda pair: (pair[1].admission, pair[1].task.durability)):
        group = list(same)
        start = 0
        for chunk in Ledger.chunks(body.task for _, body in group):
            yield group[start : start + len(chunk)], admission, level
            start += len(chunk)


def _outcome_of(answer: Accepted) -> Outcome:
    if answer.status == "corrupt":
        return SendFailed(
            CorruptRecordError(f"the key of task {answer.id} holds a value that is not a task; nothing was written"),
            final=True,
        )
    return SENT  # new, or known already, by this id or by its idempotency key
