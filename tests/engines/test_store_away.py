"""The store is unreachable for a while: healthy workers keep their processes, their worker ids and their tasks."""

from __future__ import annotations

import signal
import time

import pytest

from relier.states import State
from tests.engines.conftest import NewFleet
from tests.support import PYTHONPATH
from tests.support.fleet import wait_until
from tests.support.jobs import common as jobs
from tests.support.jobs import store_away as away
from tests.support.jobs import trouble
from tests.support.servers import Boot

TROUBLE = ("tests.support.jobs.common", "tests.support.jobs.trouble")
AWAY_S = 13.0


@pytest.mark.slow
def test_a_supervisor_does_not_kill_children_during_an_outage_of_the_store(boot: Boot, fleets: NewFleet) -> None:
    """At their last heartbeat, a task with a hard timeout of 1 s was running. It succeeded long ago."""
    server = boot()
    fleet = fleets(2, on=server)
    member = fleet.worker("--processes", "1", modules=TROUBLE)
    held = [jobs.hold.push("go").id for _ in range(5)]
    brief = [trouble.brief.push("brief").id for _ in range(5)]
    fleet.wait_diary("begin", 10)
    fleet.let_pass(0.5)  # reported with a heartbeat
    server.freeze()
    fleet.open_gate("brief")
    frozen = time.monotonic()
    fleet.wait_diary("end", 5)
    wait_until(lambda: time.monotonic() > frozen + AWAY_S, AWAY_S + 5)
    server.thaw()
    fleet.open_gate("go")
    tasks = fleet.wait_done([*held, *brief], 30)
    assert len(member.started()) == 1, member.said()
    assert [task.result for task in tasks] == [b"1"] * 10


def test_workers_keep_their_tasks_through_an_outage(boot: Boot, fleets: NewFleet) -> None:
    """The store is unreachable for four leases. Afterwards, no worker is declared dead for one more lease."""
    server = boot()
    fleet = fleets(1, on=server)
    member = fleet.worker()
    other = fleet.worker()
    held = [jobs.hold.push("go").id for _ in range(10)]
    fleet.wait_diary("begin", 10)
    server.freeze()
    frozen = time.monotonic()
    wait_until(lambda: time.monotonic() > frozen + 4)
    server.thaw()
    fleet.let_pass(2)
    said = member.wait_said("store reachable again, claiming resumed")
    assert said.count("store unreachable for nearly a lease") == 1  # not one line per heartbeat
    fleet.open_gate("go")
    tasks = fleet.wait_done(held, 30)
    assert [task.result for task in tasks] == [b"1"] * 10
    assert len(member.boots()) == len(other.boots()) == 1
    assert "declared lost" not in member.said() + other.said()
    assert fleet.stats().counts.get("refused", 0) == 0
    assert member.terminate() == 0


@pytest.mark.parametrize("how", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_a_worker_that_starts_first_waits_for_the_store(boot: Boot, fleets: NewFleet, how: tuple[str, ...]) -> None:
    server = boot()
    fleet = fleets(1, on=server)
    server.stop()
    member = fleet.start("worker", "tests.support.jobs.common", *how, RELIER_REDIS_DEADLINE="0.5")
    said = member.wait_said("store unreachable, waiting for it before the start: ")
    assert " started: queues" not in said
    server.start()
    member.wait_said(" started: queues")
    assert member.said().count("store unreachable") == 1  # not one line per attempt
    assert jobs.echo.push(5).result(20) == 5
    assert member.terminate() == 0


@pytest.mark.parametrize("command", [("worker", "tests.support.jobs.common"), ("resurrector",)], ids=lambda it: it[0])
def test_a_process_that_waits_for_the_store_can_be_stopped(
    boot: Boot, fleets: NewFleet, command: tuple[str, ...]
) -> None:
    server = boot()
    fleet = fleets(1, on=server)
    server.stop()
    member = fleet.start(*command, RELIER_REDIS_DEADLINE="0.5")
    member.wait_said("store unreachable, waiting for it before the start: ")
    assert member.terminate(10) == 0
    server.start()


def test_a_store_that_refuses_a_worker_ends_it_at_once(boot: Boot, fleets: NewFleet) -> None:
    server = boot()
    fleet = fleets(1, on=server)
    wrong = server.tcp_url.replace("://", "://nobody:wrong@")
    member = fleet.start("worker", "tests.support.jobs.common", RELIER_REDIS_URL=wrong)
    assert member.wait(20) == 2
    assert "waiting for it" not in member.said()


@pytest.mark.slow
def test_a_pause_of_the_whole_host_counts_against_no_process(fleets: NewFleet) -> None:
    """Supervisor and child are frozen together, until more than ten seconds past a hard timeout. This counts against
    neither."""
    fleet = fleets(60)
    member = fleet.worker("--processes", "1", modules=TROUBLE)
    held = [jobs.hold.push("go").id for _ in range(5)]
    fleet.wait_diary("begin", 5)
    late = trouble.brief.push("never").id
    fleet.wait_diary("begin", 6)
    processes = list(member.session())
    for pid in processes:
        member.signal(signal.SIGSTOP, pid)
    fleet.let_pass(AWAY_S)
    for pid in processes:
        member.signal(signal.SIGCONT, pid)
    (task,) = fleet.wait_ended([late], 10)
    assert task.record.reason == "TimeoutError"
    fleet.let_pass(1)
    fleet.open_gate("go")
    assert [task.result for task in fleet.wait_done(held)] == [b"1"] * 5
    assert len(member.boots()) == 1, member.said()


def test_the_heartbeat_thread_continues_after_an_error(fleets: NewFleet) -> None:
    """Finding out what blocks the loop fails. Heartbeats must continue."""
    fleet = fleets(1)
    folder = fleet.folder / "stumble"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import traceback\n\ndef stumble(*_):\n    raise RuntimeError('no stack today')\n\n"
        "traceback.format_stack = stumble\n"
    )
    member = fleet.worker(PYTHONPATH=f"{folder}:{PYTHONPATH}")
    fleet.worker("--queues", "other")
    task_id = jobs.block.push("go").id
    member.wait_said("no stack today")
    fleet.let_pass(3)
    fleet.open_gate("go")
    (task,) = fleet.wait_done([task_id])
    assert task.result == b"1"
    assert len(member.boots()) == 1


def test_guard_does_not_trust_a_later_worker_id(fleets: NewFleet) -> None:
    """The loop is blocked, so the task was not told that it is lost. Meanwhile its worker has registered under a new
    id."""
    fleet = fleets(1)
    zombie = fleet.worker(modules=TROUBLE)
    task_id = trouble.guarded.push().id
    fleet.wait_diary("begin", 1)
    jobs.block.push("unblock")
    fleet.wait_diary("begin", 2)
    zombie.signal(signal.SIGSTOP)
    fleet.worker("--concurrency", "1", modules=TROUBLE)
    wait_until(lambda: fleet.get(task_id).record.attempt == 2, 15, "the second attempt")
    zombie.signal(signal.SIGCONT)
    zombie.wait_said("was declared lost")
    fleet.open_gate("guard")
    fleet.wait_diary("checked1", 1)
    trusted = [line for line in fleet.diary("trusted") if line.attempt == 1]
    fleet.open_gate("unblock")
    fleet.wait_ended([task_id])
    assert trusted == [], "the first attempt believes that it still holds the task"


REFUSALS = {
    "permission": (["ACL", "SETUSER", "default", "-evalsha", "-eval"], ["ACL", "SETUSER", "default", "+@all"]),
    "command": (["ACL", "SETUSER", "default", "-time"], ["ACL", "SETUSER", "default", "+@all"]),  # inside scripts
    "eviction": (
        ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
        ["CONFIG", "SET", "maxmemory-policy", "noeviction"],
    ),
    "password": (["CONFIG", "SET", "requirepass", "changed"], ["CONFIG", "SET", "requirepass", ""]),
}


@pytest.mark.parametrize("change", REFUSALS)
def test_a_store_that_turns_a_worker_away_is_an_outage(boot: Boot, fleets: NewFleet, change: str) -> None:
    """Somebody changes an ACL, the password or the eviction policy while tasks run. No worker ends because of that."""
    server = boot()
    fleet = fleets(2, on=server)
    member = fleet.worker()
    held = [jobs.hold.push("go").id for _ in range(3)]
    fleet.wait_diary("begin", 3)
    refuse, restore = REFUSALS[change]
    with server.connection() as admin:
        admin(*refuse)
        admin("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        fleet.open_gate("go")
        fleet.wait_diary("end", 3)
        member.wait_said("commit will be sent again")
        admin(*restore)
    tasks = fleet.wait_done(held, 30)
    assert [task.result for task in tasks] == [b"1"] * 3
    assert len(member.boots()) == 1
    assert member.terminate() == 0


def test_an_outage_does_not_count_towards_the_hard_timeout(boot: Boot, fleets: NewFleet) -> None:
    """The effect has happened. Its record waits for the store for longer than the hard timeout."""
    server = boot()
    fleet = fleets(2, on=server)
    member = fleet.worker(modules=("tests.support.jobs.common", "tests.support.jobs.store_away"))
    ids = [task.push().id for task in away.PATIENT]
    fleet.wait_diary("begin", len(ids))
    server.freeze()
    frozen = time.monotonic()
    fleet.open_gate("pay")
    fleet.wait_diary("paid", len(ids))
    wait_until(lambda: time.monotonic() > frozen + away.HARD_S + 2)
    server.thaw()
    tasks = fleet.wait_ended(ids, 30)
    assert [(task.record.state, task.record.reason) for task in tasks] == [(State.DONE, "")] * len(ids), member.said()
    assert len(fleet.diary("paid")) == len(ids), "each effect happened once"


def test_an_endless_task_that_always_asks_the_store_is_stopped(fleets: NewFleet) -> None:
    fleet = fleets(60)
    fleet.worker(modules=("tests.support.jobs.common", "tests.support.jobs.store_away"))
    (task,) = fleet.wait_ended([away.endless.push().id], 15)
    assert (task.record.state, task.record.reason) == (State.DEAD, "TimeoutError")


def test_a_push_inside_a_task_waits_for_the_store(boot: Boot, fleets: NewFleet) -> None:
    """It waits longer than a push outside a task would. The task is pushed once, and the pushing task does not fail."""
    server = boot()
    fleet = fleets(2, on=server)
    member = fleet.worker(
        modules=("tests.support.jobs.common", "tests.support.jobs.store_away"),
        RELIER_ADMISSION_LIMIT="0",
        RELIER_REDIS_DEADLINE="3",  # enough for thousands of tasks on a busy machine
    )
    ids = [task.push().id for task in away.PUSHING]
    fleet.wait_diary("begin", len(ids))
    server.freeze()
    fleet.open_gate("pay")
    fleet.wait_diary("paid", len(ids))
    member.wait_said("push from task", len(ids))
    server.thaw()
    tasks = fleet.wait_ended(ids, 60)
    assert [(task.record.state, task.record.reason) for task in tasks] == [(State.DONE, "")] * len(ids), member.said()
    assert len(fleet.diary("paid")) == len(ids), "no task ran twice"
    assert fleet.stats().counts["submitted"] == len(ids) + 2 + 2 * 3000, "each push is one task"
