"""The processes of a pool whose worker was killed end by themselves."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.celery.conftest import HERE, Shop
from tests.support.fleet import Member, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process does not hear of its parent's end")

WORKER = ("-m", "celery", "-A", "tests.support.celery_shop_app", "worker", "--without-mingle", "--without-gossip")


def end_of(worker: Member) -> None:
    wait_until(lambda: not worker.session(), 30, "the end of all processes")


@pytest.mark.parametrize("children", [1, 2, 4])
def test_a_worker_that_is_killed_while_it_starts_its_pool_leaves_no_process(shop: Shop, children: int) -> None:
    worker = shop.fleet.python(*WORKER, "-c", "4", cwd=HERE, **shop.env)
    wait_until(lambda: len(worker.session()) > children, 60, "some processes of the pool")
    worker.signal(signal.SIGKILL)
    worker.wait()
    end_of(worker)


def test_an_orphaned_process_exits_after_its_task(shop: Shop) -> None:
    worker = shop.worker("-c", "2")
    shop.run("wait_for_customer.delay()")
    wait_until(lambda: shop.printed() == ["waits"], 20, "the task")
    worker.signal(signal.SIGKILL)
    worker.wait()
    wait_until(lambda: len(worker.session()) == 1, 20, "the end of the idle process")
    shop.fleet.open_gate("customer")
    end_of(worker)
    assert shop.printed() == ["waits", "served"]
