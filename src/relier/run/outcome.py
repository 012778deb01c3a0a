"""What came of an attempt, and the one move that tells the ledger.

Done      it returned             commit
Failed    it raised               retry, while its task says so; else bury: a dead letter. Where it met a key that
                                  another works on, it is put back for a while first
PutBack   not for this worker     retry without burning an attempt, for ten minutes at the most; then bury
Died      its own process died    forfeit: revived at once, and the death counts
HandBack  told to stop            release: nothing burnt; a task a person cancelled ends there
Gone      the lease is lost       nothing: another attempt has the task
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relier.errors import HardTimeoutError, IdempotencyInFlightError, PayloadEncodingError, PayloadTooLargeError
from relier.failure import Failure, failure_of, write_failure
from relier.ledger.ledger import Ledger
from relier.ledger.records import Claimed
from relier.options import Retries
from relier.store.call import Call

if TYPE_CHECKING:
    from relier.task import RlTask

PUT_BACK_FIRST_MS, PUT_BACK_MOST_MS = 1_000, 30_000
PUT_BACK_LIMIT_MS = 10 * 60_000
IN_FLIGHT_MS, IN_FLIGHT_TIMES = 5_000, 10


@dataclass(frozen=True, slots=True)
class Done:
    result: bytes | None


@dataclass(frozen=True, slots=True)
class Failed:
    """`final`: trying again cannot help. `failure`: what is known of it, where the exception itself is elsewhere."""

    error: BaseException
    final: bool = False
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class PutBack:
    error: BaseException


@dataclass(frozen=True, slots=True)
class Died:
    cause: str


@dataclass(frozen=True, slots=True)
class HandBack:
    pass


@dataclass(frozen=True, slots=True)
class Gone:
    pass


Outcome = Done | Failed | PutBack | Died | HandBack | Gone


def returned(task: RlTask[Any, Any], value: Any, most_bytes: int) -> Done | Failed:
    """What a task returned, if it can be kept; else a dead letter that says so."""
    try:
        raw = task.arguments.encode_result(value)
    except PayloadEncodingError as error:
        return Failed(error, final=True)
    if raw is not None and len(raw) > most_bytes:
        return Failed(
            PayloadTooLargeError(
                f"the result is {len(raw):,} bytes, the limit is {most_bytes:,} (RELIER_MAX_PAYLOAD_BYTES); store it "
                f"elsewhere and return a reference, or raise the limit"
            ),
            final=True,
        )
    return Done(raw)


def reason_of(failed: Failed) -> str:
    """The dead letter's reason: the exception's class, and TimeoutError for a hard timeout."""
    if isinstance(failed.error, HardTimeoutError):
        return "TimeoutError"
    name = failed.failure.name if failed.failure is not None else type(failed.error).__name__
    return "".join(name.split())[:100] or "Exception"  # a class may have any name, a reason is a short word


def in_flight_delay_ms(claimed: Claimed) -> int | None:
    """How long a task waits that met an idempotency key in flight; None: it has been put back often enough.

    Like every put-back it burns no attempt, so its limit is time: since the first one, up to the claim of this run.
    """
    waited = claimed.record.moved_ms - claimed.since_ms if claimed.since_ms else 0
    return IN_FLIGHT_MS if waited < IN_FLIGHT_TIMES * IN_FLIGHT_MS else None


def _failed_call(ledger: Ledger, claimed: Claimed, failed: Failed, retries: Retries | None) -> Call[Any]:
    error, lease = failed.error, claimed.lease
    detail = write_failure(failed.failure or failure_of(error))
    in_flight = isinstance(error, IdempotencyInFlightError)
    if failed.final:
        delay = None
    elif in_flight:
        delay = in_flight_delay_ms(claimed)
    else:
        delay = None if retries is None else retries.delay_ms(claimed.retries + 1, error)
    if delay is None:
        return ledger.bury(lease, reason_of(failed), detail)
    return ledger.retry(lease, delay, detail, putback=in_flight)


def settle_call(
    ledger: Ledger, claimed: Claimed, outcome: Outcome, retries: Retries | None, now_ms: int
) -> Call[Any] | None:
    """The move that tells the ledger; None where there is nothing to tell. `now_ms`: the store's time of the claim."""
    lease = claimed.lease
    match outcome:
        case Done(result):
            return ledger.commit([(lease, result, ())], claimed.record.spec.durability)
        case Failed():
            return _failed_call(ledger, claimed, outcome, retries)
        case PutBack(error):
            detail = write_failure(failure_of(error))
            waited = now_ms - claimed.since_ms if claimed.since_ms else 0
            if waited >= PUT_BACK_LIMIT_MS:
                return ledger.bury(lease, type(error).__name__, detail)
            delay = min(PUT_BACK_MOST_MS, max(PUT_BACK_FIRST_MS, waited))
            return ledger.retry(lease, delay, detail, putback=True)
        case Died(cause):
            return ledger.forfeit(lease, cause)
        case HandBack():
            return ledger.release([lease])
        case Gone():
            return None
