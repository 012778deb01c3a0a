"""What happens to tasks that use features the previous release does not know, if one of its workers takes them.

No task may be lost. What such a worker leaves undone, workers of this release repair (decision 15).
"""

from __future__ import annotations

import pytest

from relier import batch, chain
from relier.errors import WorkflowFailedError
from tests.support.fleet import Fleet, Member, wait_until
from tests.upgrade import new_shop
from tests.upgrade.previous import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
TASKS = 20
REPAIRED_S = 60.0


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
