"""The known ways in which task systems lose a running task, with real processes and signals. Each test is named after
one of them and says what other systems do. Relier must not lose the task."""

from __future__ import annotations

import signal
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from relier.errors import UnknownTaskError
from relier.ledger import keys
from relier.ledger.records import Claimed, Lease, Submission, new_task_id
from relier.options import TaskOptions
from relier.run.outcome import PutBack, plan_of
from relier.settings import DEFAULTS
from relier.states import State
from tests.support import PYTHONPATH
from tests.support.fleet import LEASE_S, Fleet, Member, wait_until
from tests.support.jobs import common as jobs
from tests.support.jobs import more as more_jobs

TASKS = 12
BACK_S = LEASE_S + 10.0  # lease + sweep, and what a busy machine takes to start a process


def began(fleet: Fleet, task_id: str) -> int:
    return sum(line.task_id == task_id for line in fleet.diary("begin"))


def orphans(fleet: Fleet, member: Member, count: int = TASKS) -> list[str]:
    """Start `count` tasks on this member, then kill it with all its processes."""
    ids = [jobs.hold.push("go").id for _ in range(count)]
    fleet.wait_diary("begin", count)
    member.kill_all()
    return ids


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["one process", "a supervisor and two"])
def test_kill_9_of_the_worker_group_12_tasks(fleet: Fleet, processes: tuple[str, ...]) -> None:
    """Celery: 2 lost for good, 8 hidden for up to an hour (also with acks_late); public relier: 7 stuck, 4 twice."""
    ids = orphans(fleet, fleet.worker(*processes))
    fleet.open_gate("go")
    fleet.worker()
    tasks = fleet.wait_done(ids, BACK_S)
    assert [task.result for task in tasks] == [b"2"] * TASKS
    assert sorted(line.task_id for line in fleet.diary("end")) == sorted(ids), "each comes to an end once"
    assert fleet.stats().counts["done"] == TASKS


@pytest.mark.slow
def test_pop_to_unacked_is_two_round_trips(fleet: Fleet) -> None:
    """Celery: 70 messages lost in 200 kills of a busy consumer. Here a claim is one script: 10 kills, nothing lost."""
    ids: list[str] = []
    for _ in range(10):
        before = len(fleet.diary("begin"))
        ids += [
            receipt.id for receipt in jobs.quick.push_many([()] * 300)
        ]  # however fast the worker is, there are tasks left
        member = fleet.worker("--concurrency", "20")
        wait_until(lambda before=before: len(fleet.diary("begin")) > before, what="a busy worker")
        member.kill_all()
    fleet.worker("--processes", "2")
    fleet.wait_done(ids, 60)
    assert fleet.stats().counts["done"] == len(ids)


def test_child_oom_killed(fleet: Fleet) -> None:
    """Celery: acked and lost, or an endless loop; public relier: 19 runs in 60 s, never dead-lettered. Here it dies as
    often as it may (max_resurrections=2), and becomes a dead letter that lists every death."""
    fleet.worker("--processes", "1")
    (task,) = fleet.wait_ended([jobs.suicide.push().id], 40)
    assert (task.record.state, task.record.reason) == (State.DEAD, "max_resurrections_exceeded")
    assert len(fleet.diary("begin")) == 3
    deaths = [entry for entry in task.history if entry.move == "revive"]
    assert len(deaths) == 3
    assert all("SIGKILL" in entry.detail and entry.worker_id and entry.since_ms for entry in deaths)
    assert task.payload is not None, "it can be replayed"


def test_isolated_child_oom_killed(fleet: Fleet) -> None:
    """The worker survives the death of the isolated process: one run, and max_resurrections (5) more."""
    member = fleet.worker()
    (task,) = fleet.wait_ended([jobs.suicide_isolated.push().id], 60)
    assert (task.record.state, task.record.reason) == (State.DEAD, "max_resurrections_exceeded")
    assert len(fleet.diary("begin")) == 6
    assert len(member.boots()) == 1


@pytest.mark.parametrize("job", [jobs.hold, jobs.hold_thread], ids=["async def", "def"])
def test_task_longer_than_visibility_timeout(fleet: Fleet, job: Any) -> None:
    """Celery: 3–4 concurrent runs; public relier: completed twice. Here the lease is renewed: one run."""
    fleet.worker()
    fleet.worker()
    ids = [job.push("go").id for _ in range(4)]
    fleet.wait_diary("begin", 4)
    fleet.let_pass(3 * LEASE_S)
    fleet.open_gate("go")
    tasks = fleet.wait_done(ids)
    assert [task.result for task in tasks] == [b"1"] * 4
    assert len(fleet.diary("begin")) == 4


def test_first_run_zombie_commits_late(fleet: Fleet) -> None:
    """Public relier accepts the late commit: its fence exists only after the first resurrection. Here the commit is
    refused while the second attempt runs, and the second attempt's result stands."""
    zombie = fleet.worker()
    ids = [jobs.stubborn.push("go").id for _ in range(TASKS)]
    fleet.wait_diary("begin", TASKS)
    zombie.signal(signal.SIGSTOP)
    fleet.worker()
    fleet.wait_diary("begin", 2 * TASKS)
    fleet.open_gate("go1")
    zombie.signal(signal.SIGCONT)
    zombie.wait_said("zombie commit rejected", TASKS)
    assert {line.attempt for line in fleet.diary("end")} == {1}
    assert all(fleet.get(task_id).record.state is State.RUNNING for task_id in ids)
    fleet.open_gate("go2")
    assert [task.result for task in fleet.wait_done(ids)] == [b"2"] * TASKS
    zombie.wait_said(f"worker {zombie.boots()[0]} was declared lost")
    assert fleet.stats().counts["refused"] == TASKS


@pytest.mark.parametrize("skew", [1.0, -1.0, 3600.0])
def test_1_s_clock_skew_between_worker_and_scanner(fleet: Fleet, skew: float) -> None:
    """Public relier: 18 of 24 orphans never resurrected. Here the store's clock decides, so not even an hour matters:
    neither for orphans, nor for a delay, nor for the leases of live workers."""
    ids = orphans(fleet, fleet.worker(**wrong_clock(fleet, skew)))
    fleet.open_gate("go")
    fleet.worker(**wrong_clock(fleet, -skew))
    assert [task.result for task in fleet.wait_done(ids, BACK_S)] == [b"2"] * TASKS
    pushed = fleet.now()
    late = jobs.quick.with_options(delay=0.5).push()
    (task,) = fleet.wait_done([late.id], 10)
    assert 0.5 <= task.record.moved_ms / 1000 - pushed < 5
    assert len(fleet.members[-1].boots()) == 1


def wrong_clock(fleet: Fleet, skew: float) -> dict[str, str]:
    """Return the environment of a process whose wall clock is wrong by this much. Its monotonic clock is not
    affected."""
    folder = fleet.folder / f"skew{skew:g}"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        f"import time\nt, ns = time.time, time.time_ns\n"
        f"time.time = lambda: t() + {skew}\ntime.time_ns = lambda: ns() + {round(skew * 1e9)}\n"
    )
    return {"PYTHONPATH": f"{folder}:{PYTHONPATH}"}


def test_fleet_down_for_over_180_s(fleet: Fleet) -> None:
    """Public relier: 3 of 12 stuck, all 12 results read SUCCESS. Here it does not matter how long no worker runs. The
    test takes only four leases, in which all tasks keep their state."""
    ids = orphans(fleet, fleet.worker("--processes", "2"))
    fleet.let_pass(4 * LEASE_S)
    assert {fleet.get(task_id).record.state for task_id in ids} == {State.RUNNING}
    assert len(fleet.diary("begin")) == TASKS
    fleet.open_gate("go")
    fleet.worker()
    assert [task.result for task in fleet.wait_done(ids, BACK_S)] == [b"2"] * TASKS


def test_scanner_dies_after_taking_the_lease(fleet: Fleet) -> None:
    """Public relier: recovery after 197 s. Here a sweep needs no lease: another worker continues at once."""
    crawling = {"RELIER_RESURRECTION_BATCH_SIZE": "1", "RELIER_RESURRECTION_REQUEUE_DELAY": "0.1"}
    ids = orphans(fleet, fleet.worker("--no-sweep"), 60)
    scanner = fleet.start("resurrector", **crawling)
    wait_until(lambda: fleet.stats().counts.get("revived", 0) >= 2, what="the first scanner at work")
    scanner.kill_all()
    assert fleet.stats().counts["revived"] < 60, "it was killed in the middle"
    fleet.start("resurrector")
    wait_until(lambda: fleet.stats().counts["revived"] == 60, BACK_S, "the rest revived")
    fleet.open_gate("go")
    fleet.worker("--no-sweep")
    assert [task.result for task in fleet.wait_done(ids)] == [b"2"] * 60


def test_datetime_date_decimal_uuid_bytes_argument(fleet: Fleet) -> None:
    """Public relier: accepted by push, then never run and not dead-lettered."""
    values = [
        datetime(2026, 11, 15, 8, 30, 1, 123456, tzinfo=UTC),
        datetime(2026, 11, 15, 8, 30),  # noqa: DTZ001 - a naive one travels, too
        date(2026, 11, 15),
        Decimal("12.340"),
        UUID("12345678-1234-5678-1234-567812345678"),
        b"\x00\xff bytes",
    ]
    fleet.worker()
    receipts = [jobs.echo.push(value) for value in values]
    back = [receipt.result(20) for receipt in receipts]
    assert back == values
    assert [type(value) for value in back] == [type(value) for value in values]
    assert str(back[3]) == "12.340"


def test_same_function_name_in_two_modules(fleet: Fleet) -> None:
    """Public relier: the second returns the first's result."""
    fleet.worker(modules=("tests.support.jobs.common", "tests.support.jobs.more"))
    assert jobs.where.name != more_jobs.where.name
    receipts = [jobs.where.push(), more_jobs.where.push()]
    assert [receipt.result(20) for receipt in receipts] == ["tests.support.jobs.common", "tests.support.jobs.more"]
    assert len(fleet.diary("begin")) == 2


def test_runs_over_300_s_without_a_hard_timeout(fleet: Fleet) -> None:
    """Public relier: FAILURE, nothing in the dead letters. Here there is no time limit unless one is set.
    test_task_longer_than_visibility_timeout shows that a run may outlast its lease."""
    assert (TaskOptions("t").hard_timeout, TaskOptions("t").soft_timeout) == (None, None)
    assert (jobs.hold.options.hard_timeout, jobs.hold.options.soft_timeout) == (None, None)
    limits = [name for name in DEFAULTS if "timeout" in name and not name.startswith("redis_")]
    assert limits == ["graceful_shutdown_timeout"], "no setting ends a task either, but for a worker that leaves"


def claimed_of(fleet: Fleet, task_id: str) -> Claimed:
    """Return a task as a worker would claim it."""
    task = fleet.get(task_id)
    assert task.payload is not None
    return Claimed(Lease(task_id, "1", "nobody"), task.record, task.payload)


def test_unknown_task_name(fleet: Fleet) -> None:
    """Celery: dropped with a log line; public relier: FAILURE, not dead-lettered. Here the task waits up to ten minutes
    for a worker that knows it, and uses up no attempt; then it becomes a dead letter."""
    waits, ends = new_task_id(), new_task_id()
    pushed = [Submission(id=task_id, name="shop.nowhere", payload=b"{}") for task_id in (waits, ends)]
    fleet.store.run(fleet.ledger.submit(pushed))
    member = fleet.worker()
    member.wait_said(f"task {waits} (shop.nowhere) was put back", 2)
    member.wait_said(f"task {ends} (shop.nowhere) was put back", 1)
    wait_until(lambda: fleet.get(ends).record.state is State.SCHEDULED, what="a put back task")
    more = keys.spell(fleet.ledger.prefix, "more", ends)
    fleet.store.command("HSET", more, "since", str(int(fleet.now() * 1000) - 600_001))  # as if it were ten minutes
    (task,) = fleet.wait_ended([ends], 40)
    assert (task.record.state, task.record.reason) == (State.DEAD, "UnknownTaskError")
    assert task.payload == b"{}", "it can be replayed"
    still = fleet.get(waits).record
    assert still.state in {State.SCHEDULED, State.QUEUED, State.RUNNING}
    assert still.attempt <= 1, "only the attempt under way, if there is one"
    fleet.store.run(fleet.ledger.cancel(waits, fleet.get(waits).record.version))


@pytest.mark.parametrize(
    ("waited_ms", "move", "delay_ms"),
    [
        (0, "retry", 1_000),
        (1_500, "retry", 1_500),
        (29_999, "retry", 29_999),
        (60_000, "retry", 30_000),
        (599_999, "retry", 30_000),
        (600_000, "bury", None),
    ],
)
def test_unknown_task_name_is_put_back_with_growing_delays(
    fleet: Fleet, waited_ms: int, move: str, delay_ms: int | None
) -> None:
    """The delay grows from 1 s to 30 s. The limit is a time: ten minutes after the first put-back."""
    since, error = 1_800_000_000_000, UnknownTaskError("no such task")
    claimed = claimed_of(fleet, jobs.quick.push().id)
    claimed = Claimed(claimed.lease, claimed.record, claimed.payload, since_ms=since if waited_ms else 0)
    call = plan_of(fleet.ledger, claimed, PutBack(error), None, since + waited_ms).call
    assert call is not None
    assert call.script == move
    if delay_ms is not None:
        assert call.args[4:6] == (delay_ms, "putback")


def test_checksum_failure(fleet: Fleet) -> None:
    """Public relier: the payload is destroyed. Here the task never runs, and the dead letter holds the original
    bytes."""
    pushed = jobs.quick.with_options(delay=3600).push()
    good = fleet.get(pushed.id).payload
    assert good is not None
    bad = good.replace(b'"body":[[],{}]', b'"body":[[1],{}]')
    assert bad != good
    task_id = new_task_id()
    fleet.store.run(fleet.ledger.submit([Submission(id=task_id, name=jobs.quick.name, payload=bad)]))
    fleet.worker()
    (task,) = fleet.wait_ended([task_id])
    assert (task.record.state, task.record.reason) == (State.DEAD, "PayloadIntegrityError")
    assert task.payload == bad
    assert fleet.diary() == []
    pushed.cancel()


def test_dict_with_int_keys(fleet: Fleet) -> None:
    """Public relier: `{2: …, 10: …}` triggers a checksum failure."""
    fleet.worker()
    value = {2: "two", 10: "ten", -1: {3: [4]}}
    back = jobs.echo.push(value).result(20)
    assert back == value
    assert [*back] == [2, 10, -1]


@pytest.mark.parametrize("loop", ["idle", "turning"])
def test_a_paused_process_has_not_blocked_its_loop(patient: Fleet, loop: str) -> None:
    """SIGSTOP, a frozen container, a suspended host: the heartbeat thread may be the first to run again."""
    member = patient.worker()
    if loop == "turning":
        jobs.spin.push("go")
        patient.wait_diary("begin", 1)
    for _ in range(2):
        member.signal(signal.SIGSTOP)
        patient.let_pass(2)
        member.signal(signal.SIGCONT)
        assert jobs.echo.push("awake").result(20) == "awake"
    patient.open_gate("go")
    assert member.terminate() == 0
    assert "has been blocked" not in member.said()


def test_async_task_blocks_the_loop_25_s(fleet: Fleet) -> None:
    """Public relier: runs twice. Here heartbeats have their own thread: although blocked for three leases, the task
    runs once, and the log names the line that blocked the loop."""
    member = fleet.worker()
    fleet.worker("--queues", "other")
    ids = [jobs.block.push("go").id]
    fleet.wait_diary("begin", 1)
    fleet.let_pass(3 * LEASE_S)
    told = member.wait_said("the event loop has been blocked for")
    fleet.open_gate("go")
    (task,) = fleet.wait_done(ids)
    assert task.result == b"1"
    assert began(fleet, ids[0]) == 1
    assert f"by task tests.support.jobs.common.block {ids[0]}" in told
    assert "jobs/common.py" in told
    assert "in block" in told
