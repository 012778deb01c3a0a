"""Decisions about time and failure, on a clock moved by hand; and what error replies mean."""

from __future__ import annotations

import pytest
from hiredis import ReplyError
from toys import Hands, echo

from relier.errors import (
    ConfigurationError,
    RedisConnectionError,
    RelierError,
    StoreDiskError,
    StoreFullError,
    StoreReadOnlyError,
    StoreReplyError,
)
from relier.store.batch import MOST_BYTES, MOST_REQUESTS, Request, pipelines
from relier.store.call import Durability
from relier.store.policy import AttemptError, Breaker, Deadline, more_telling, pause_before_retry
from relier.store.replies import final_error, trouble_of


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
    breaker = Breaker(clock, failures=3, cooldown=2)
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


def test_a_probe_that_never_came_back_blocks_nobody_for_longer_than_a_cooldown() -> None:
    clock = Hands()
    breaker = Breaker(clock, failures=1, cooldown=2)
    breaker.failed()
    clock.now += 2
    assert breaker.refuses() == 0
    clock.now += 2
    assert breaker.refuses() == 0


def test_a_success_forgets_failures() -> None:
    breaker = Breaker(Hands(), failures=2, cooldown=2)
    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    assert breaker.refuses() == 0


def test_pauses_grow_and_end_with_retries_or_time() -> None:
    lost = AttemptError("lost")
    assert pause_before_retry(lost, 1, 5, 10) == 0
    second, fourth = pause_before_retry(lost, 2, 5, 10), pause_before_retry(lost, 4, 5, 10)
    assert second is not None
    assert fourth is not None
    assert 0.05 <= second <= 0.1 < 0.2 <= fourth <= 0.4
    assert pause_before_retry(lost, 6, 5, 10) is None
    assert pause_before_retry(lost, 2, 5, 0.01) is None
    assert pause_before_retry(lost, 1, 5, 0) is None
    assert pause_before_retry(AttemptError("no", again=False), 1, 5, 10) is None
    assert pause_before_retry(AttemptError("NOSCRIPT", at_once=True), 4, 5, 10) == 0


def test_an_attempt_cut_short_by_the_deadline_hides_nothing() -> None:
    garbage, late, missing = AttemptError("garbage"), AttemptError("late"), AttemptError("NOSCRIPT", at_once=True)
    assert more_telling(None, late, 0) is late
    assert more_telling(garbage, late, 1) is late
    assert more_telling(garbage, late, 0) is garbage
    assert more_telling(missing, late, 0) is late


@pytest.mark.parametrize(
    ("reply", "error", "again", "elsewhere"),
    [
        ("NOSCRIPT No matching script", StoreReplyError, True, False),
        ("READONLY You can't write against a read only replica.", StoreReadOnlyError, True, True),
        ("MASTERDOWN Link with MASTER is down", RedisConnectionError, True, True),
        ("LOADING Redis is loading the dataset in memory", RedisConnectionError, True, True),
        ("MOVED 3999 127.0.0.1:6381", StoreReplyError, True, True),
        ("BUSY Redis is busy running a script", RedisConnectionError, True, False),
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreFullError, False, False),
        ("MISCONF Redis is configured to save RDB snapshots", StoreDiskError, False, False),
        ("NOAUTH Authentication required.", ConfigurationError, False, False),
        ("WRONGPASS invalid username-password pair", ConfigurationError, False, False),
        ("NOPERM this user has no permissions", ConfigurationError, False, False),
        ("ERR max number of clients reached", RedisConnectionError, True, False),
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
    ],
)
def test_what_an_error_reply_means(reply: str, error: type[RelierError], again: bool, elsewhere: bool) -> None:
    trouble = trouble_of(ReplyError(reply))
    assert (trouble.error, trouble.again, trouble.elsewhere) == (error, again, elsewhere)
    final = final_error(trouble, "redis://***@host", 2)
    assert type(final) is error
    assert str(final).startswith("the store at redis://***@host ")
    assert reply[:10] in str(final)
    assert ";" in str(final), "what to do"


def test_levels_never_share_a_pipeline() -> None:
    levels = [Durability.MEMORY, Durability.FSYNC, Durability.MEMORY, Durability.REPLICATED, Durability.FSYNC]
    shared = pipelines([Request(b"x", None, echo("x", level)) for level in levels])
    assert [[request.level for request in pipeline] for pipeline in shared] == [
        [Durability.MEMORY] * 2,
        [Durability.FSYNC] * 2,
        [Durability.REPLICATED],
    ]


def test_pipelines_are_bounded() -> None:
    assert [len(part) for part in pipelines([Request(b"x")] * (MOST_REQUESTS + 1))] == [MOST_REQUESTS, 1]
    large = Request(b"x" * (MOST_BYTES // 2))
    assert [len(part) for part in pipelines([large] * 5)] == [2, 2, 1]
    assert pipelines([]) == []
