"""What came of an attempt, and the one move that tells the ledger.

Done      it returned             commit
Failed    it raised               retry, while its task says so; else bury: a dead letter. Where it met a lock that
                                  another holds, it is put back for a while first
PutBack   not for this worker     retry without burning an attempt, for ten minutes at the most; then bury
Crowded   no process is free      retry without burning an attempt, a moment later (or half a minute, where none is
                                  ever free), by whoever is free then
Died      its own process died    forfeit: revived at once, and the death counts
HandBack  told to stop            release: nothing burnt; a task a person cancelled ends there
Gone      the lease is lost       nothing: another attempt has the task
Again     it asks to be run again retry, as another call where it says so
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relier.errors import (
    HardTimeoutError,
    IdempotencyInFlightError,
    MaxResurrectionsExceededError,
    PayloadEncodingError,
    PayloadTooLargeError,
    TaskInFlightError,
)
from relier.failure import Failure, failure_of, message_of, redacted, write_failure
from relier.keyring import NO_KEYS, Keyring
from relier.ledger.ledger import Ledger
from relier.ledger.records import Claimed, Submission
from relier.options import Retries
from relier.redact import Show
from relier.store.call import Call

if TYPE_CHECKING:
    from relier.task import RlTask

PUT_BACK_FIRST_MS, PUT_BACK_MOST_MS = 1_000, 30_000
PUT_BACK_LIMIT_MS = 10 * 60_000
CROWDED_MS = (1_000, 5_000)
IN_FLIGHT_MS, IN_FLIGHT_TIMES = 5_000, 10


@dataclass(frozen=True, slots=True)
class Done:
    """`follow_ups`: the tasks that follow from it, and enter with the commit or not at all."""

    result: bytes | None
    follow_ups: tuple[Submission, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """`final`: trying again cannot help. `failure`: what is known of it, where the exception itself is elsewhere.
    `follow_ups`: the tasks that follow if that is its end, and `part` what those who wait for it get instead of a
    result. `retryable`: whether its task's retries cover it, where that was judged by the exception itself: what comes
    out of another process may be of another class."""

    error: BaseException
    final: bool = False
    failure: Failure | None = None
    follow_ups: tuple[Submission, ...] = ()
    part: bytes = b""
    retryable: bool | None = None


@dataclass(frozen=True, slots=True)
class PutBack:
    error: BaseException


@dataclass(frozen=True, slots=True)
class Crowded:
    most_ms: int = CROWDED_MS[1]


@dataclass(frozen=True, slots=True)
class Died:
    cause: str


@dataclass(frozen=True, slots=True)
class HandBack:
    pass


@dataclass(frozen=True, slots=True)
class Gone:
    """`emptied`: with its record, when the store was emptied. The worker has logged that, once for all its tasks."""

    emptied: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """`call`: what to run then, if not the same. `quiet`: it was not run at all, so nothing is counted."""

    delay_ms: int
    why: str = ""
    call: Submission | None = None
    quiet: bool = False


Outcome = Done | Failed | PutBack | Crowded | Died | HandBack | Gone | Again


def returned(
    task: RlTask[Any, Any], value: Any, most_bytes: int, task_id: str = "", keyring: Keyring = NO_KEYS
) -> Done | Failed:
    """What a task returned, as it is stored, if it can be kept; else a dead letter that says so."""
    try:
        raw = task.arguments.encode_result(value)
    except PayloadEncodingError as error:
        return Failed(error, final=True)
    except BaseException as error:  # noqa: BLE001 - to look at a value may run code of the user's
        unfit = PayloadEncodingError(
            f"the result cannot be encoded: to look at it raised {type(error).__name__}: {message_of(error)}; return "
            f"plain data, or a model that is whole"
        )
        unfit.__cause__ = error
        return Failed(unfit, final=True)
    if raw is not None and keyring.encrypts:  # what is no secret is JSON, and needs no wrapping
        raw = keyring.wrap(raw, task_id, "result")
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
    if isinstance(failed.error, MaxResurrectionsExceededError):
        name = failed.error.reason
    return "".join(name.split())[:100] or "Exception"  # a class may have any name, a reason is a short word


def in_flight_delay_ms(claimed: Claimed) -> int | None:
    """How long a task waits that met a lock in flight; None: it has been put back often enough.

    Like every put-back it burns no attempt, so its limit is time: since the first one, up to the claim of this run.
    """
    waited = claimed.record.moved_ms - claimed.locked_since_ms if claimed.locked_since_ms else 0
    return IN_FLIGHT_MS if waited < IN_FLIGHT_TIMES * IN_FLIGHT_MS else None


@dataclass(frozen=True, slots=True)
class Plan:
    """The move that tells the ledger, and the words that tell people; either may be missing."""

    call: Call[Any] | None
    words: str = ""


def plan_of(
    ledger: Ledger,
    claimed: Claimed,
    outcome: Outcome,
    retries: Retries | None,
    now_ms: int,
    show: Show | None = None,
) -> Plan:
    """What follows from an outcome. `now_ms`: the store's time of the claim; `show`: what may be kept of a failure."""
    lease = claimed.lease
    match outcome:
        case Done(result, follow_ups):
            return Plan(ledger.commit([(lease, result, follow_ups)], claimed.record.spec.durability))
        case Failed():
            return _after_failure(ledger, claimed, outcome, retries, show)
        case PutBack(error):
            return _after_put_back(ledger, claimed, error, now_ms, show)
        case Crowded(most_ms):
            return Plan(ledger.retry(lease, random.randrange(CROWDED_MS[0], most_ms), quiet=True))
        case Died(cause):
            return Plan(
                ledger.forfeit(lease, cause), f"ended: {cause}; it is revived, or dead if that was once too often"
            )
        case HandBack():
            return Plan(ledger.release([lease]))
        case Again(delay_ms, why, call, quiet):
            return Plan(ledger.retry(lease, delay_ms, why, quiet=quiet, replace=call))
        case Gone(emptied):
            return Plan(None, "" if emptied else "was taken over by another attempt: its lease is lost")


def _after_failure(
    ledger: Ledger, claimed: Claimed, failed: Failed, retries: Retries | None, show: Show | None
) -> Plan:
    failure = redacted(failed.failure or failure_of(failed.error), show)
    failures = claimed.retries + 1
    told = f"failed: {failure.name}: {failure.message:.500}"
    if _met_a_lock(failed.error) and not failed.final:
        wait = in_flight_delay_ms(claimed)
        if wait is not None:
            call = ledger.retry(claimed.lease, wait, write_failure(failure), locked=True)
            return Plan(call, f"was put back for {wait / 1000:g} s: {failure.message:.500}")
        retries = None
    delay = None
    if retries is not None and not failed.final:
        delay = retries.delay_ms(failures, failed.error, failed.retryable)
    if delay is None or retries is None:
        call = ledger.bury(claimed.lease, reason_of(failed), write_failure(failure), failed.follow_ups, failed.part)
        return Plan(call, f"{told}; it is a dead letter now")
    call = ledger.retry(claimed.lease, delay, write_failure(failure))
    return Plan(call, f"{told}; it is tried again in {delay / 1000:.1f} s ({failures} of {retries.attempts} failed)")


def _met_a_lock(error: BaseException) -> bool:
    return isinstance(error, IdempotencyInFlightError) and not isinstance(error, TaskInFlightError)


def _after_put_back(ledger: Ledger, claimed: Claimed, error: BaseException, now_ms: int, show: Show | None) -> Plan:
    failure = redacted(failure_of(error), show)
    told, detail = failure.message, write_failure(failure)
    waited = now_ms - claimed.since_ms if claimed.since_ms else 0
    if waited >= PUT_BACK_LIMIT_MS:
        return Plan(ledger.bury(claimed.lease, type(error).__name__, detail), f"{told}; it is a dead letter now")
    delay = min(PUT_BACK_MOST_MS, max(PUT_BACK_FIRST_MS, waited))
    call = ledger.retry(claimed.lease, delay, detail, putback=True)
    return Plan(call, f"was put back for {delay / 1000:g} s: {told}")
