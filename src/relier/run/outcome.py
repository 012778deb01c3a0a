"""What came of an attempt, and the one move that tells the ledger.

Done      it returned             commit
Failed    it raised               retry, while its task says so; else bury: a dead letter
PutBack   not for this worker     retry without burning an attempt, for ten minutes at the most; then bury
Died      its own process died    forfeit: revived at once, and the death counts
HandBack  told to stop            release: nothing burnt; a task a person cancelled ends there
Gone      the lease is lost       nothing: another attempt has the task
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relier.errors import HardTimeoutError, PayloadEncodingError, PayloadTooLargeError
from relier.failure import Failure, failure_of, write_failure
from relier.keyring import Keyring
from relier.ledger.ledger import Ledger
from relier.ledger.records import Claimed
from relier.options import Retries
from relier.redact import Show
from relier.store.call import Call

if TYPE_CHECKING:
    from relier.task import RlTask

PUT_BACK_FIRST_MS, PUT_BACK_MOST_MS = 1_000, 30_000
PUT_BACK_LIMIT_MS = 10 * 60_000


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
    return _done(raw, most_bytes)


def wrapped(outcome: Outcome, task_id: str, keyring: Keyring, most_bytes: int) -> Outcome:
    """With its result as it is stored, if it still fits then: encryption adds some bytes."""
    if not keyring.encrypts or not isinstance(outcome, Done) or outcome.result is None:
        return outcome
    return _done(keyring.wrap(outcome.result, task_id, "result"), most_bytes)


def _done(raw: bytes | None, most_bytes: int) -> Done | Failed:
    if raw is None or len(raw) <= most_bytes:
        return Done(raw)
    return Failed(
        PayloadTooLargeError(
            f"the result is {len(raw):,} bytes, the limit is {most_bytes:,} (RELIER_MAX_PAYLOAD_BYTES); store it "
            f"elsewhere and return a reference, or raise the limit"
        ),
        final=True,
    )


def reason_of(failed: Failed) -> str:
    """The dead letter's reason: the exception's class, and TimeoutError for a hard timeout."""
    if isinstance(failed.error, HardTimeoutError):
        return "TimeoutError"
    name = failed.failure.name if failed.failure is not None else type(failed.error).__name__
    return "".join(name.split())[:100] or "Exception"  # a class may have any name, a reason is a short word


def settle_call(
    ledger: Ledger,
    claimed: Claimed,
    outcome: Outcome,
    retries: Retries | None,
    now_ms: int,
    show: Show | None = None,
) -> Call[Any] | None:
    """The move that tells the ledger; None where there is nothing to tell. `now_ms`: the store's time of the claim;
    `show`: what may be kept of a failure."""
    lease = claimed.lease
    match outcome:
        case Done(result):
            return ledger.commit([(lease, result, ())], claimed.record.spec.durability)
        case Failed(error, final, failure):
            detail = write_failure(failure or failure_of(error), show)
            delay = None if retries is None or final else retries.delay_ms(claimed.retries + 1, error)
            if delay is None:
                return ledger.bury(lease, reason_of(outcome), detail)
            return ledger.retry(lease, delay, detail)
        case PutBack(error):
            detail = write_failure(failure_of(error), show)
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
