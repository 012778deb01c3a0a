"""The outcome of an attempt decides the one move that reports it to the ledger."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest

from relier import (
    HardTimeoutError,
    PayloadEncodingError,
    PayloadIntegrityError,
    Retries,
    Settings,
    UnknownTaskError,
    rl_task,
)
from relier.failure import failure_of, read_failure
from relier.ledger.ledger import Ledger
from relier.ledger.records import Claimed, Lease, Record, Spec
from relier.run.outcome import (
    PUT_BACK_LIMIT_MS,
    Crowded,
    Died,
    Done,
    Failed,
    Gone,
    HandBack,
    Outcome,
    PutBack,
    plan_of,
    reason_of,
    returned,
)
from relier.states import State
from relier.store.call import Call, Durability

LEDGER = Ledger(Settings(redis_url="redis://nowhere"))
SPEC = Spec(1, 0, None, None, None, None, None, None, None, "retry", Durability.FSYNC)
RECORD = Record("id", State.RUNNING, 2, "17", "boot", 1, "", 1, SPEC, "default", "task")
NOW = 1_800_000_000_000


def claimed(retries: int = 0, since_ms: int = 0) -> Claimed:
    return Claimed(Lease("id", "17", "boot"), RECORD, b"", retries=retries, since_ms=since_ms)


def settle(outcome: Outcome, retries: Retries | None = None, task: Claimed | None = None) -> Call[Any]:
    call = plan_of(LEDGER, task or claimed(), outcome, retries, NOW).call
    assert call is not None
    return call


def test_done_is_committed_at_the_durability_of_the_push() -> None:
    call = settle(Done(b"5"))
    assert (call.script, call.durability) == ("commit", Durability.FSYNC)
    assert b"5" in call.args


def test_a_failure_without_retries_is_buried_under_its_class_name() -> None:
    call = settle(Failed(KeyError("a")))
    assert (call.script, call.args[4]) == ("bury", "KeyError")
    failure = read_failure(bytes(call.args[5]).decode())  # type: ignore[arg-type]
    assert (failure.kind, failure.message) == ("builtins:KeyError", "'a'")


@pytest.mark.parametrize(("failures", "script"), [(0, "retry"), (1, "retry"), (2, "bury"), (9, "bury")])
def test_a_failure_is_retried_while_the_task_options_allow(failures: int, script: str) -> None:
    retries = Retries(attempts=2, backoff=2, factor=5, jitter=0)
    call = settle(Failed(ValueError()), retries, claimed(failures))
    assert call.script == script
    if script == "retry":
        assert call.args[4:6] == (2000 * 5**failures, "failure")


def test_a_final_failure_is_buried() -> None:
    call = settle(Failed(PayloadIntegrityError("no"), final=True), Retries(attempts=99))
    assert (call.script, call.args[4]) == ("bury", "PayloadIntegrityError")


def test_a_hard_timeout_is_called_timeout_error() -> None:
    assert reason_of(Failed(HardTimeoutError("late"))) == "TimeoutError"
    assert reason_of(Failed(TimeoutError("the task's own"))) == "TimeoutError"


def test_the_failure_reported_by_an_isolated_process_is_the_reason() -> None:
    class SecretError(Exception):
        pass

    told = failure_of(SecretError("hm"))
    assert reason_of(Failed(RuntimeError("stands in"), failure=told)) == "SecretError"
    call = settle(Failed(RuntimeError("stands in"), failure=told))
    assert read_failure(bytes(call.args[5]).decode()).message == "hm"  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 600], ids=["none", "lines", "long"])
def test_an_exception_class_of_any_name_can_be_buried(name: str) -> None:
    """A class made at run time may have any name, and the dead letter must still be written."""
    error: BaseException = type(name, (Exception,), {})("hm")
    assert settle(Failed(error)).script == "bury"


@pytest.mark.parametrize(
    ("waited_ms", "delay_ms"),
    [(None, 1000), (0, 1000), (999, 1000), (5000, 5000), (31_000, 30_000), (PUT_BACK_LIMIT_MS - 1, 30_000)],
)
def test_a_task_for_other_code_is_put_back_with_growing_delays(waited_ms: int | None, delay_ms: int) -> None:
    since = 0 if waited_ms is None else NOW - waited_ms
    call = settle(PutBack(UnknownTaskError("who?")), Retries(), claimed(since_ms=since))
    assert (call.script, call.args[4:6]) == ("retry", (delay_ms, "putback"))


def test_a_task_that_was_put_back_for_ten_minutes_is_buried() -> None:
    call = settle(PutBack(UnknownTaskError("who?")), None, claimed(since_ms=NOW - PUT_BACK_LIMIT_MS))
    assert (call.script, call.args[4]) == ("bury", "UnknownTaskError")


def test_the_death_of_a_process_is_forfeited_with_its_cause() -> None:
    call = settle(Died("killed by signal 9"))
    assert (call.script, call.args[4]) == ("forfeit", b"killed by signal 9")


def test_a_task_without_a_free_process_returns_after_a_random_delay() -> None:
    delays = [settle(Crowded(60_000)).args[4] for _ in range(500)]
    assert all(isinstance(delay, int) and 1_000 <= delay < 60_000 for delay in delays)
    assert len(set(delays)) > 100


def test_an_attempt_that_was_stopped_is_released() -> None:
    assert settle(HandBack(), Retries()).script == "release"


def test_a_lost_attempt_reports_nothing() -> None:
    assert plan_of(LEDGER, claimed(), Gone(), Retries(), NOW).call is None


def test_a_plan_says_what_the_event_will_report() -> None:
    retries = Retries(attempts=2, backoff=2, jitter=0)
    again, dead, done, back = (
        plan_of(LEDGER, claimed(), outcome, retries, NOW)
        for outcome in (Failed(ValueError("hm")), Failed(ValueError("hm"), final=True), Done(None), HandBack())
    )
    assert (again.again, again.reason, again.error, again.delay_s) == ("retried", "ValueError", "hm", 2.0)
    assert (dead.again, dead.reason, dead.error, dead.delay_s) == ("", "ValueError", "hm", None)
    assert (done.again, done.reason, back.again, back.reason) == ("", "", "", "")
    assert [plan.words for plan in (again, dead, done, back)] == ["", "", "", ""], "the event is the log line"


# --- results ---------------------------------------------------------------------------------------------------------


@rl_task(name="tests.run.answer")
def answer() -> Any: ...


def test_a_result_is_stored_as_bytes_and_none_as_no_result() -> None:
    assert returned(answer, {"a": 1}, 100) == Done(b'{"a":1}')
    assert returned(answer, None, 100) == Done(None)


def test_a_result_that_cannot_be_stored_is_a_final_failure() -> None:
    for value in (object(), "x" * 101, {1, object()}):
        outcome = returned(answer, value, 100)
        assert isinstance(outcome, Failed)
        assert outcome.final


class Order(pydantic.BaseModel):
    number: int
    customer: str


@rl_task(name="tests.run.ordered")
def ordered() -> Order: ...  # type: ignore[empty-body]


class Unbound:
    """An object that raises when it is inspected, like a proxy outside its request."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    @property
    def __class__(self) -> type:
        raise self.error


@pytest.mark.parametrize(
    ("task", "value", "why"),
    [
        (ordered, Order.model_construct(number=1), "customer"),
        (answer, Unbound(RuntimeError("working outside of the request")), "working outside"),
        (answer, Unbound(SystemExit(7)), "SystemExit: 7"),
    ],
    ids=["half a model", "proxy", "exit"],
)
def test_a_result_that_raises_during_encoding_is_a_final_failure(task: Any, value: Any, why: str) -> None:
    """The task has finished. If it were put back, it would run again."""
    outcome = returned(task, value, 100)
    assert isinstance(outcome, Failed)
    assert outcome.final
    assert isinstance(outcome.error, PayloadEncodingError)
    assert why in str(outcome.error)
