"""Define the outcomes of an attempt, and the one move that reports each of them to the ledger.

Done      the task returned       commit
Failed    the task raised         retry while the task's options allow it, else bury as a dead letter. A task that met
                                  a lock held by another is put back for a while first
PutBack   not for this worker     retry without using up an attempt, for at most ten minutes; then bury
Crowded   no process is free      retry without using up an attempt, after some seconds (up to half a minute while no
                                  process becomes idle), on any worker
Died      its own process died    forfeit: the task is revived at once, and the death counts
HandBack  asked to stop           release: no attempt is used up; a task whose cancellation was requested ends here
Gone      the lease is lost       no move: another attempt has the task
Again     asks to run again       retry, with another call if the outcome names one
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relier.codec.keyring import NO_KEYS, Keyring
from relier.errors import (
    HardTimeoutError,
    IdempotencyInFlightError,
    MaxResurrectionsExceededError,
    PayloadEncodingError,
    PayloadTooLargeError,
    TaskInFlightError,
)
from relier.failure import Failure, failure_of, message_of, redacted, write_failure
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
MOST_SHOWN = 500  # characters of a message in the log and in events
MOST_TRACEBACK_SHOWN = 8_000


@dataclass(frozen=True, slots=True)
class Done:
    """Report a result. `follow_ups` are tasks that are submitted together with the commit, or not at all."""

    result: bytes | None
    follow_ups: tuple[Submission, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """Report a failure.

    `final`: a retry cannot help. `failure`: the failure's description, if the exception itself is in another process.
    `follow_ups`: tasks to submit if the task ends here. `part`: the value that tasks waiting for this one get instead
    of a result. `retryable`: whether the task's retries cover the error, if that was decided where the exception was
    raised; the error rebuilt from another process may have a different class.
    """

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
    """Report a lost lease. `emptied`: the store was emptied, which the worker has logged once for all its tasks."""

    emptied: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """Ask for another run. `call`: the call to run instead, if not the same. `quiet`: the task did not run at all, so
    nothing is counted.
    """

    delay_ms: int
    why: str = ""
    call: Submission | None = None
    quiet: bool = False


Outcome = Done | Failed | PutBack | Crowded | Died | HandBack | Gone | Again


def returned(
    task: RlTask[Any, Any], value: Any, most_bytes: int, task_id: str = "", keyring: Keyring = NO_KEYS
) -> Done | Failed:
    """Return the outcome for a task's return value: the encoded result, or a final failure if it cannot be stored."""
    try:
        raw = task.arguments.encode_result(value)
    except PayloadEncodingError as error:
        return Failed(error, final=True)
    except BaseException as error:  # noqa: BLE001 - encoding a value may run user code
        unfit = PayloadEncodingError(
            f"the result cannot be encoded: reading it raised {type(error).__name__}: {message_of(error)}; return "
            f"plain data, or a complete model"
        )
        unfit.__cause__ = error
        return Failed(unfit, final=True)
    if raw is not None and keyring.encrypts:  # without encryption the result stays plain JSON
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
    """Return the dead letter's reason: the name of the exception's class, or TimeoutError for a hard timeout."""
    if isinstance(failed.error, HardTimeoutError):
        return "TimeoutError"
    name = failed.failure.name if failed.failure is not None else type(failed.error).__name__
    if isinstance(failed.error, MaxResurrectionsExceededError):
        name = failed.error.reason
    return "".join(name.split())[:100] or "Exception"  # a class may have any name, but a reason is one short word


def in_flight_delay_ms(claimed: Claimed) -> int | None:
    """Return how long a task that met a held lock waits (ms), or None if it has been put back for long enough.

    Like every put-back this uses up no attempt, so the limit is a time: from the first put-back to this run's claim.
    """
    waited = claimed.record.moved_ms - claimed.locked_since_ms if claimed.locked_since_ms else 0
    return IN_FLIGHT_MS if waited < IN_FLIGHT_TIMES * IN_FLIGHT_MS else None


@dataclass(frozen=True, slots=True)
class Plan:
    """Hold the move for the ledger, and what its event reports once the ledger has confirmed the move.

    words           a log line for a plan that has no event, such as a put-back
    again           the event of a task that will run again: "retried", "revived", or "" for none
    reason, error   why the attempt failed: one word, and a redacted message
    delay_s         after how many seconds the task runs again
    traceback       the end of the redacted traceback, for the log line of a dead task
    """

    call: Call[Any] | None
    words: str = ""
    again: str = ""
    reason: str = ""
    error: str = ""
    delay_s: float | None = None
    traceback: str = ""


def plan_of(
    ledger: Ledger,
    claimed: Claimed,
    outcome: Outcome,
    retries: Retries | None,
    now_ms: int,
    show: Show | None = None,
) -> Plan:
    """Return the plan for an outcome. `now_ms`: the store's time of the claim; `show`: redacts the stored failure."""
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
            return Plan(ledger.forfeit(lease, cause), again="revived", error=cause)
        case HandBack():
            return Plan(ledger.release([lease]))
        case Again(delay_ms, why, call, quiet):
            move = ledger.retry(lease, delay_ms, why, quiet=quiet, replace=call)
            reason, _, message = why.partition(": ")
            said = message if show is None else str(show(message))
            return Plan(move, "", "" if quiet else "retried", reason, said[:MOST_SHOWN], delay_ms / 1000)
        case Gone(emptied):
            return Plan(None, "" if emptied else "was taken over by another attempt: its lease is lost")


def _after_failure(
    ledger: Ledger, claimed: Claimed, failed: Failed, retries: Retries | None, show: Show | None
) -> Plan:
    failure = redacted(failed.failure or failure_of(failed.error), show)
    failures = claimed.retries + 1
    reason, error = reason_of(failed), failure.message[:MOST_SHOWN]
    if _met_a_lock(failed.error) and not failed.final:
        wait = in_flight_delay_ms(claimed)
        if wait is not None:
            call = ledger.retry(claimed.lease, wait, write_failure(failure), locked=True)
            return Plan(call, f"was put back for {wait / 1000:g} s: {error}", "", reason, error, wait / 1000)
        retries = None
    delay = None
    if retries is not None and not failed.final:
        delay = retries.delay_ms(failures, failed.error, failed.retryable)
    if delay is None or retries is None:
        call = ledger.bury(claimed.lease, reason, write_failure(failure), failed.follow_ups, failed.part)
        traceback = failure.traceback.rstrip()[-MOST_TRACEBACK_SHOWN:]
        return Plan(call, reason=reason, error=error, traceback=traceback)
    call = ledger.retry(claimed.lease, delay, write_failure(failure))
    return Plan(call, "", "retried", reason, error, delay / 1000)


def _met_a_lock(error: BaseException) -> bool:
    return isinstance(error, IdempotencyInFlightError) and not isinstance(error, TaskInFlightError)


def _after_put_back(ledger: Ledger, claimed: Claimed, raised: BaseException, now_ms: int, show: Show | None) -> Plan:
    failure = redacted(failure_of(raised), show)
    reason, error, detail = type(raised).__name__, failure.message[:MOST_SHOWN], write_failure(failure)
    waited = now_ms - claimed.since_ms if claimed.since_ms else 0
    if waited >= PUT_BACK_LIMIT_MS:
        return Plan(ledger.bury(claimed.lease, reason, detail), reason=reason, error=error)
    delay = min(PUT_BACK_MOST_MS, max(PUT_BACK_FIRST_MS, waited))
    call = ledger.retry(claimed.lease, delay, detail, putback=True)
    return Plan(call, f"was put back for {delay / 1000:g} s: {error}", "", reason, error, delay / 1000)
