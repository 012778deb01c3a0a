"""A task that fails becomes a dead letter with all its details, or is retried according to its options."""

from __future__ import annotations

import pytest

from relier import HardTimeoutError, MaxResurrectionsExceededError, TaskDeadError, TaskState
from relier.envelope import seal
from relier.errors import IllegalMoveError
from relier.failure import read_failure
from relier.ledger.records import new_task_id
from tests.support.conformance import tasks
from tests.support.conformance.stage import PATIENCE_S, Stage
from tests.support.conformance.tasks import DeclinedError

# --- dead letters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", tasks.DECLINES)
def test_an_exception_is_a_dead_letter_with_reason_message_traceback_and_attempt(shared: Stage, kind: str) -> None:
    receipt = tasks.DECLINES[kind].push("stolen", 5000)
    dead = shared.wait_for_death(receipt)
    assert dead.record.reason == "DeclinedError"
    (entry,) = dead.history
    failure = read_failure(entry.detail)
    assert (entry.move, entry.attempt) == ("bury", 1)
    assert entry.worker_id in shared.boots()
    assert 0 < entry.since_ms <= entry.at_ms
    assert failure.message == "declined: stolen"
    assert "raise DeclinedError(code, cents)" in failure.traceback
    assert dead.payload is not None


@pytest.mark.parametrize("kind", tasks.DECLINES)
def test_the_result_raises_what_the_task_raised(shared: Stage, kind: str) -> None:
    with pytest.raises(DeclinedError) as caught:
        tasks.DECLINES[kind].push("stolen", 5000).result(PATIENCE_S)
    assert (caught.value.code, caught.value.cents) == ("stolen", 5000)
    cause = caught.value.__cause__
    assert isinstance(cause, TaskDeadError)
    assert (cause.reason, cause.message) == ("DeclinedError", "declined: stolen")
    assert "raise DeclinedError(code, cents)" in cause.traceback


@pytest.mark.anyio
async def test_an_awaited_result_raises_the_same(shared: Stage) -> None:
    receipt = await tasks.decline.apush("stolen", 5000)
    with pytest.raises(DeclinedError) as caught:
        await receipt.result(timeout=PATIENCE_S)
    assert isinstance(caught.value.__cause__, TaskDeadError)


def test_an_unknown_exception_is_reported_as_a_dead_task(shared: Stage) -> None:
    receipt = tasks.fail_strangely.push()
    with pytest.raises(TaskDeadError, match="only I know what this is") as caught:
        receipt.result(PATIENCE_S)
    assert caught.value.reason == "StrangeError"
    assert caught.value.task_id == receipt.id
    assert "StrangeError" in caught.value.traceback


@pytest.mark.core
@pytest.mark.parametrize("task", [tasks.leave, tasks.leave_def], ids=["async", "def"])
def test_a_task_that_calls_exit_ends_itself_and_not_its_worker(shared: Stage, task: object) -> None:
    receipt = task.push()  # type: ignore[attr-defined]
    assert shared.wait_for_death(receipt).record.reason == "SystemExit"
    with pytest.raises(TaskDeadError):
        receipt.result()
    assert tasks.aadd.push(1).result(PATIENCE_S) == 1


def test_a_dead_task_that_is_replayed_runs_again(shared: Stage) -> None:
    receipt = tasks.needs.push(shared.place, "the thing")
    shared.wait_for_death(receipt)
    shared.go("the thing")
    receipt.replay()
    assert receipt.result(PATIENCE_S) == "found the thing"
    assert shared.notes("runs") == ["1", "1"]
    assert [entry.move for entry in shared.task(receipt).history] == ["bury"]


@pytest.mark.anyio
async def test_an_awaited_receipt_replays_too_and_only_what_is_dead(shared: Stage) -> None:
    receipt = await tasks.needs.apush(shared.place, "the thing")
    shared.wait_for_death(receipt)
    shared.go("the thing")
    await receipt.replay()
    assert await receipt.result(timeout=PATIENCE_S) == "found the thing"
    with pytest.raises(IllegalMoveError):
        await receipt.replay()


def test_a_dead_task_can_be_replayed_with_another_payload(shared: Stage) -> None:
    receipt = tasks.needs.push(shared.place, "what is not there")
    shared.wait_for_death(receipt)
    shared.go("what is there")
    body = tasks.needs.arguments.encode((shared.place, "what is there"), {})
    payload = seal(body, schema_version=1, pushed_ms=1)
    shared.run(shared.ledger.replay(receipt.id, shared.record(receipt).version, new_task_id(), payload))
    assert receipt.result(PATIENCE_S) == "found what is there"


# --- retries -------------------------------------------------------------------------------------------------------


@pytest.mark.core
def test_a_failed_task_is_retried_until_it_succeeds(shared: Stage) -> None:
    receipt = tasks.flaky.push(shared.place, 3)
    assert receipt.result(PATIENCE_S) == "attempt 3"
    assert shared.notes("runs") == ["1", "2", "3"]
    history = shared.task(receipt).history
    assert [(entry.move, entry.attempt) for entry in history] == [("retry", 1), ("retry", 2)]
    assert {read_failure(entry.detail).name for entry in history} == {"KeyError"}


def test_after_the_last_attempt_the_task_is_dead_with_every_attempt_in_its_history(shared: Stage) -> None:
    receipt = tasks.flaky.push(shared.place, 99)
    dead = shared.wait_for_death(receipt)
    assert dead.record.reason == "KeyError"
    assert dead.record.attempt == 3
    assert [(entry.move, entry.attempt) for entry in dead.history] == [("retry", 1), ("retry", 2), ("bury", 3)]
    assert shared.notes("runs") == ["1", "2", "3"]


def test_a_retry_waits_as_long_as_its_backoff_says(shared: Stage) -> None:
    receipt = tasks.flaky_for_minutes.push(shared.place)
    for wait_ms in (60_000, 180_000):
        waiting = shared.wait_for_state(receipt, TaskState.SCHEDULED)
        due = float(shared.command("ZSCORE", shared.key("due"), receipt.id))
        assert due - waiting.record.moved_ms == wait_ms
        shared.command("ZADD", shared.key("due"), 1, receipt.id)  # let the time pass
        shared.wait_for_notes("runs", waiting.record.attempt + 1)
    assert shared.wait_for_death(receipt).record.attempt == 3


def test_only_exceptions_in_retry_on_are_retried(shared: Stage) -> None:
    subclass, other = (tasks.retried_on_lookup.push(shared.place, error) for error in ("KeyError", "ValueError"))
    assert shared.wait_for_death(subclass).record.attempt == 2
    assert shared.wait_for_death(other).record.attempt == 1


def test_exceptions_in_never_on_are_not_retried(shared: Stage) -> None:
    never, other = (tasks.never_retried_on_key.push(shared.place, error) for error in ("KeyError", "ValueError"))
    assert shared.wait_for_death(never).record.attempt == 1
    assert shared.wait_for_death(other).record.attempt == 2


def test_a_failure_in_an_isolated_process_is_retried(shared: Stage) -> None:
    assert tasks.flaky_alone.push(shared.place, 2).result(PATIENCE_S) == "attempt 2"


def test_an_exception_that_cannot_be_pickled_is_still_judged_by_its_class(shared: Stage) -> None:
    again, never = tasks.retried_on_status_alone.push(), tasks.never_retried_on_status_alone.push()
    assert (dead := shared.wait_for_death(again).record).attempt == 2
    assert dead.reason == "StatusError"
    assert shared.wait_for_death(never).record.attempt == 1


def test_without_retries_a_failure_is_final(shared: Stage) -> None:
    receipt = tasks.needs.push(shared.place, "nothing")
    assert shared.wait_for_death(receipt).record.attempt == 1


# --- processes that die under a task -------------------------------------------------------------------------------


@pytest.mark.core
def test_a_task_whose_own_process_dies_runs_again_at_once(shared: Stage) -> None:
    receipt = tasks.die_once.push(shared.place)
    assert receipt.result(PATIENCE_S) == "attempt 2"
    (entry,) = shared.task(receipt).history
    assert entry.move == "revive"
    assert "exited with code 9" in entry.detail


def test_a_task_that_kills_every_process_it_gets_is_dead_after_max_resurrections(shared: Stage) -> None:
    receipt = tasks.kill_own_process.push(shared.place)
    dead = shared.wait_for_death(receipt)
    assert dead.record.reason == "max_resurrections_exceeded"
    assert shared.notes("runs") == ["1", "2"]
    assert all("signal 9 (SIGKILL)" in entry.detail for entry in dead.history)
    with pytest.raises(MaxResurrectionsExceededError):
        receipt.result()


# --- timeouts ------------------------------------------------------------------------------------------------------


@pytest.mark.core
@pytest.mark.parametrize("kind", tasks.HANGS)
def test_a_task_past_its_hard_timeout_is_stopped_and_dead_of_a_timeout(shared: Stage, kind: str) -> None:
    tasks.add_alone.push(1).result(PATIENCE_S)  # a process for the isolated one is there
    receipt = tasks.HANGS[kind].push(shared.place)
    dead = shared.wait_for_death(receipt)
    assert dead.record.reason == "TimeoutError"
    assert shared.wait_for_notes("stopped") == ["1"]
    assert dead.history[-1].at_ms - dead.history[-1].since_ms >= 400
    with pytest.raises(HardTimeoutError, match=r"hard timeout of 0\.4 s") as caught:
        receipt.result()
    assert isinstance(caught.value, TimeoutError)


def test_a_result_that_comes_after_the_hard_timeout_does_not_count(shared: Stage) -> None:
    receipt = tasks.returns_when_stopped.push(shared.place)
    assert shared.wait_for_death(receipt).record.reason == "TimeoutError"


def test_a_hard_timeout_can_be_retried_like_other_failures(shared: Stage) -> None:
    receipt = tasks.hang_twice.push(shared.place)
    dead = shared.wait_for_death(receipt)
    assert (dead.record.reason, dead.record.attempt) == ("TimeoutError", 2)


@pytest.mark.core
@pytest.mark.parametrize("kind", tasks.SLOW)
def test_a_soft_timeout_calls_its_hook_once_and_the_task_continues(shared: Stage, kind: str) -> None:
    tasks.add_alone.push(1).result(PATIENCE_S)
    receipt = tasks.SLOW[kind].push(shared.place)
    assert shared.wait_for_notes("soft") == [f"{receipt.id} 1 {receipt.id}"]
    shared.go()
    assert receipt.result(PATIENCE_S) == "attempt 1"
    assert len(shared.notes("soft")) == 1
    assert shared.notes("stopped") == []


def test_the_soft_timeout_of_a_task_whose_process_still_starts_is_not_lost(stage: Stage) -> None:
    stage.start_worker()
    receipt = tasks.slow_alone.push(stage.place)
    assert stage.wait_for_notes("soft") == [f"{receipt.id} 1 {receipt.id}"]
    stage.go()
    assert receipt.result(PATIENCE_S) == "attempt 1"


def test_waiting_for_an_isolated_process_does_not_count_as_running(shared: Stage) -> None:
    """There are more isolated tasks than processes: the time in which a task waits does not count towards its
    timeout."""
    processes = shared.engine.alone
    before = tasks.wait_alone.push_many([(shared.place,)] * (processes + 1))
    shared.wait_for_notes("runs", processes)
    in_line = tasks.hang_alone.push(shared.place)
    if shared.engine.holds_a_line:
        shared.wait_for_state(in_line, TaskState.RUNNING)
    shared.wait_for_beats(2)
    shared.go()
    assert in_line.result(PATIENCE_S) == "attempt 1"
    assert {receipt.result(PATIENCE_S) for receipt in before} == {"attempt 1"}


def test_a_soft_timeout_hook_that_raises_changes_nothing(shared: Stage) -> None:
    receipt = tasks.slow_with_a_failing_hook.push(shared.place)
    shared.wait_for_notes("soft")
    shared.go()
    assert receipt.result(PATIENCE_S) == "attempt 1"


def test_a_soft_timeout_without_a_hook_changes_nothing(shared: Stage) -> None:
    receipt = tasks.slow_without_a_hook.push(shared.place)
    shared.wait_for_notes("runs")
    shared.wait_for_beats(1)
    shared.go()
    assert receipt.result(PATIENCE_S) == "attempt 1"


def test_a_task_that_ends_before_its_soft_timeout_gets_no_warning(shared: Stage) -> None:
    shared.go()
    assert tasks.warned_at_drain.push(shared.place).result(PATIENCE_S) == "attempt 1"
    assert shared.notes("soft") == []
