"""Decisions about time and failure, on a clock that the test moves; and the meaning of error replies."""

from __future__ import annotations

import re

import pytest
from hiredis import ReplyError

from relier.errors import (
    RelierError,
    StoreDiskError,
    StoreFullError,
    StoreNotReadyError,
    StoreReadOnlyError,
    StoreReplyError,
    StoreSetupError,
    StoreUnavailableError,
)
from relier.store.batch import MOST_BYTES, MOST_REQUESTS, Request, pipelines_of
from relier.store.call import Durability
from relier.store.policy import AttemptError, CircuitBreaker, Deadline, RetrySchedule, more_informative
from relier.store.replies import ADVICE, MEANINGS, Judgement, failure_of, final_error
from tests.support.servers import FLAVOURS, binary_of
from tests.support.toy_scripts import Hands, echo


def test_a_deadline_cuts_timeouts() -> None:
    clock = Hands()
    deadline = Deadline(clock, 5)
    assert (deadline.left(), deadline.within(2)) == (5, 2)
    clock.now += 4
    assert (deadline.left(), deadline.within(2)) == (1, 1)
    clock.now += 4
    assert deadline.left() == 0


def test_the_breaker_opens_probes_and_closes() -> None:
    clock = Hands()
    breaker = CircuitBreaker(clock, failures=3, cooldown=2)
    for _ in range(2):
        breaker.failed()
    assert breaker.refuses() == 0
    breaker.failed()
    assert breaker.refuses() == 2
    clock.now += 1.5
    assert breaker.refuses() == 0.5
    clock.now += 0.5
    assert breaker.refuses() == 0, "half open: one probe"
    assert breaker.refuses() == 2, "the others wait for what becomes of it"
    breaker.failed()
    assert breaker.refuses() == 2
    clock.now += 2
    assert breaker.refuses() == 0
    breaker.succeeded()
    assert breaker.refuses() == breaker.refuses() == 0


def test_a_lost_probe_blocks_callers_for_at_most_one_cooldown() -> None:
    clock = Hands()
    breaker = CircuitBreaker(clock, failures=1, cooldown=2)
    breaker.failed()
    clock.now += 2
    assert breaker.refuses() == 0
    clock.now += 2
    assert breaker.refuses() == 0


def test_a_success_resets_the_count_of_failures() -> None:
    breaker = CircuitBreaker(Hands(), failures=2, cooldown=2)
    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    assert breaker.refuses() == 0


def attempts_after(*troubles: AttemptError, retries: int = 5) -> RetrySchedule:
    attempts = RetrySchedule(retries)
    for failure in troubles:
        attempts.failed(failure)
    return attempts


def test_pauses_grow_and_end_with_retries_or_time() -> None:
    lost = AttemptError("lost")
    assert attempts_after(lost).pause(lost, 10) == 0
    second, fourth = attempts_after(*[lost] * 2).pause(lost, 10), attempts_after(*[lost] * 4).pause(lost, 10)
    assert second is not None
    assert fourth is not None
    assert 0.05 <= second <= 0.1 < 0.2 <= fourth <= 0.4
    assert attempts_after(*[lost] * 6).pause(lost, 10) is None
    assert attempts_after(*[lost] * 2).pause(lost, 0.01) is None
    assert attempts_after(lost).pause(lost, 0) is None
    assert attempts_after(lost).pause(AttemptError("no", retry=False), 10) is None


@pytest.mark.parametrize(
    "failure", [AttemptError("refused", sent=False), failure_of(ReplyError("NOREPLICAS Not enough good replicas"))]
)
def test_only_a_lost_answer_uses_up_a_retry(failure: AttemptError) -> None:
    attempts = attempts_after(*[failure] * 1000, retries=0)
    assert attempts.made == 1000
    pause = attempts.pause(failure, 10)
    assert pause is not None
    assert 0.5 <= pause <= 1
    attempts.failed(AttemptError("lost"))
    assert attempts.pause(failure, 10) is None


def test_the_last_attempts_are_made_close_to_the_deadline() -> None:
    refused = AttemptError("refused", sent=False)
    attempts, left = attempts_after(*[refused] * 8), 0.6
    while (pause := attempts.pause(refused, left)) is not None:
        assert 0 < pause < left
        left -= pause
    assert left < 0.02


def test_loading_a_script_uses_up_no_attempt() -> None:
    missing = failure_of(ReplyError("NOSCRIPT No matching script"))
    attempts = attempts_after(*[missing] * 1000, retries=0)
    assert attempts.made == 0
    assert attempts.pause(missing, 0.001) == 0
    assert attempts.pause(missing, 0) is None


def test_an_attempt_cut_short_by_the_deadline_does_not_hide_the_cause() -> None:
    garbage, late, missing = AttemptError("garbage"), AttemptError("late"), AttemptError("NOSCRIPT", load_script=True)
    assert more_informative(None, late, 0) is late
    assert more_informative(garbage, late, 1) is late
    assert more_informative(garbage, late, 0) is garbage
    assert more_informative(missing, late, 0) is late


@pytest.mark.parametrize(
    ("reply", "error", "retry", "new_lookup"),
    [
        ("NOSCRIPT No matching script", StoreNotReadyError, True, False),
        ("READONLY You can't write against a read only replica.", StoreReadOnlyError, True, True),
        ("MASTERDOWN Link with MASTER is down", StoreNotReadyError, True, True),
        ("LOADING Redis is loading the dataset in memory", StoreNotReadyError, True, True),
        ("MOVED 3999 127.0.0.1:6381", StoreNotReadyError, True, True),
        ("ASK 3999 127.0.0.1:6381", StoreNotReadyError, True, True),
        ("NOREPLICAS Not enough good replicas to write.", StoreNotReadyError, True, False),
        ("BUSY Redis is busy running a script", StoreNotReadyError, True, False),
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreFullError, False, False),
        ("MISCONF Redis is configured to save RDB snapshots", StoreDiskError, False, False),
        ("NOAUTH Authentication required.", StoreSetupError, False, False),
        ("WRONGPASS invalid username-password pair", StoreSetupError, False, False),
        ("NOPERM this user has no permissions", StoreSetupError, False, False),
        ("ERR max number of clients reached", StoreNotReadyError, True, False),
        ("ERR Error running script: Script killed by user with SCRIPT KILL", StoreNotReadyError, True, False),
        ("ERR Script attempted to access a non local key in a cluster node", StoreNotReadyError, True, True),
        ("ERR something", StoreReplyError, False, False),
        ("BROKEN on purpose", StoreReplyError, False, False),
        (
            "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed",
            StoreFullError,
            False,
            False,
        ),
        (
            "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't write",
            StoreReadOnlyError,
            True,
            True,
        ),
        (
            "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -NOREPLICAS Not enough good",
            StoreNotReadyError,
            True,
            False,
        ),
    ],
)
def test_every_error_reply_is_judged_by_the_table(
    reply: str, error: type[RelierError], retry: bool, new_lookup: bool
) -> None:
    failure = failure_of(ReplyError(reply))
    assert (failure.error, failure.retry, failure.new_lookup) == (error, retry, new_lookup)
    final = final_error(failure, "redis://***@host", 2)
    assert type(final) is error
    assert str(final).startswith("the store at redis://***@host ")
    assert reply[:10] in str(final)
    assert ";" in str(final), "what to do"


def test_callers_that_must_not_give_up_stop_only_at_a_final_reply() -> None:
    for code, (judgement, error) in MEANINGS.items():
        assert issubclass(error, StoreUnavailableError) is (judgement is not Judgement.FINAL), code
        assert error in ADVICE, code


CODE = re.compile(rb"(?<=[\x00\n])-([A-Z]{2,}) (?=[A-Za-z%])")


def test_the_table_lists_every_code_the_servers_can_send() -> None:
    binaries = {name: path for name in FLAVOURS if (path := binary_of(name))}
    assert binaries
    for name, path in binaries.items():
        codes = {found.decode() for found in CODE.findall(path.read_bytes())}
        assert {"NOSCRIPT", "LOADING", "NOREPLICAS"} <= codes, name
        assert codes <= MEANINGS.keys(), name


def test_levels_never_share_a_pipeline() -> None:
    levels = [Durability.MEMORY, Durability.FSYNC, Durability.MEMORY, Durability.REPLICATED, Durability.FSYNC]
    shared = pipelines_of([Request(b"x", None, echo("x", level)) for level in levels])
    assert [[request.level for request in pipeline] for pipeline in shared] == [
        [Durability.MEMORY] * 2,
        [Durability.FSYNC] * 2,
        [Durability.REPLICATED],
    ]


def test_pipelines_are_bounded() -> None:
    assert [len(part) for part in pipelines_of([Request(b"x")] * (MOST_REQUESTS + 1))] == [MOST_REQUESTS, 1]
    large = Request(b"x" * (MOST_BYTES // 2))
    assert [len(part) for part in pipelines_of([large] * 5)] == [2, 2, 1]
    assert pipelines_of([]) == []
