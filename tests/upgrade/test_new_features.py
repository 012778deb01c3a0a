"""What happens to tasks that use features the previous release does not know, if one of its workers takes them.

No task may be lost. What such a worker leaves undone, workers of this release repair (decision 15).
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from relier import Schedules, batch, chain
from relier.cli.audit import audit
from relier.errors import WorkflowFailedError
from tests.support.fleet import Fleet, Member, wait_until
from tests.upgrade import new_shop
from tests.upgrade.previous import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
TASKS = 20
REPAIRED_S = 60.0
OLD_SWEEPS_S = 3.0  # several sweeps of a worker


def worker(fleet: Fleet, *arguments: str, **env: str) -> Member:
    return fleet.worker(*arguments, modules=("tests.upgrade.new_shop",), **env)


def leave_to_the_previous_release(fleet: Fleet, count: int) -> None:
    """Let a worker of the previous release run until this many tasks have ended, then kill it."""
    member = worker(fleet, **environment())
    wait_until(lambda: sum(fleet.stats().counts.get(how, 0) for how in ("done", "dead")) >= count, 30, f"{count} ends")
    member.kill_all()


def test_a_batch_whose_members_the_previous_release_ran_still_ends(fleet: Fleet) -> None:
    """The old worker commits the members without counting them. This release counts them, and queues the callback."""
    members = [new_shop.member.s(n) for n in range(TASKS)]
    receipt = batch(members, then=new_shop.add.s(), collect=True).push()
    leave_to_the_previous_release(fleet, TASKS)
    assert fleet.stats().counts["submitted"] == TASKS, "no callback yet"
    worker(fleet)
    assert receipt.result(timeout=REPAIRED_S) == list(range(TASKS))
    wait_until(lambda: fleet.stats().counts["done"] == TASKS + 1, what="the callback's end")


def test_limited_tasks_behind_one_that_the_previous_release_ran_still_run(fleet: Fleet) -> None:
    """The old worker ends the first task of the lane without waking the next one. This release wakes it."""
    ids = [new_shop.limited.push(n).id for n in range(TASKS)]
    leave_to_the_previous_release(fleet, 1)
    worker(fleet)
    fleet.wait_done(ids, REPAIRED_S)


def test_a_link_that_needs_a_result_dies_in_the_previous_release_and_can_be_replayed(fleet: Fleet) -> None:
    """The old worker does not know the argument that comes from the task before. That is a dead letter, not a loss."""
    receipt = chain(new_shop.member.s(4), new_shop.double.s()).push()
    worker(fleet)  # serves the default queue, and so the first link
    wait_until(lambda: fleet.stats().counts.get("done", 0) == 1, what="the end of the first link")
    old = worker(fleet, "--queues", "doubles", **environment())
    with pytest.raises(WorkflowFailedError, match=r"TypeError.*replay"):
        receipt.result(timeout=REPAIRED_S)
    old.kill_all()
    assert fleet.start("dlq", "replay", "--all", "--yes").wait() == 0
    worker(fleet, "--queues", "doubles")
    assert receipt.result(timeout=REPAIRED_S) == 8


def test_a_schedule_stands_still_in_a_fleet_of_the_previous_release_and_its_tasks_run_there(fleet: Fleet) -> None:
    """Old workers run the tasks of a schedule, but only this release fires it: here, a scheduler beside them."""
    worker(fleet, **environment())
    schedules = Schedules(fleet.client)
    schedules.create("often", new_shop.member, every=1, args=(1,))
    scheduler = fleet.start("scheduler")
    wait_until(lambda: fleet.stats().counts.get("done", 0) >= 2, 60, "two runs in the old worker")
    scheduler.kill_all()
    schedules.pause("often")
    wait_until(lambda: all_done(fleet), what="the end of the last run")
    fired, next_due = fleet.stats().counts["submitted"], schedules.resume("often").next
    assert next_due is not None
    fleet.let_pass(next_due.timestamp() - fleet.now() + OLD_SWEEPS_S)
    assert fleet.stats().counts["submitted"] == fired, "the old worker swept, and did not fire"
    fleet.start("scheduler")
    wait_until(lambda: fleet.stats().counts["done"] > fired, 60, "a run after the scheduler was back")
    worker(fleet)  # the old one knows no helpers, and left a part of the killed scheduler's registration
    wait_until(lambda: audit(fleet.store, fleet.ledger).ok, REPAIRED_S, "the repair")


def test_old_workers_count_no_outcomes_and_take_no_orders(fleet: Fleet) -> None:
    old = worker(fleet, **environment())
    fleet.wait_done([new_shop.member.push(n).id for n in range(TASKS)], REPAIRED_S)
    report = json.loads(subprocess.check_output(rl(fleet, "slo", "report", "--json")))
    assert report["tasks"] == []
    (node,) = json.loads(subprocess.check_output(rl(fleet, "nodes", "list", "--json")))["nodes"]
    subprocess.run(rl(fleet, "nodes", "stop", node["boot"]), check=False, stdout=subprocess.DEVNULL)
    fleet.wait_done([new_shop.member.push(n).id for n in range(TASKS)], REPAIRED_S)
    assert old.process.poll() is None
    worker(fleet)
    assert json.loads(subprocess.check_output(rl(fleet, "slo", "report", "--json")))["tasks"] == []


def all_done(fleet: Fleet) -> bool:
    counts = fleet.stats().counts
    return counts["done"] == counts["submitted"]


def rl(fleet: Fleet, *arguments: str) -> list[str]:
    where = ["--url", fleet.settings.redis_url, "--namespace", fleet.settings.namespace]
    return [sys.executable, "-m", "relier.cli", *arguments, *where]
