"""When Celery's pool is flushed, it forgets tasks that no process has confirmed. Relier waits for the confirmations
first."""

from __future__ import annotations

import pytest

from tests.celery.conftest import Shop

POOL = """
import os
from celery.concurrency.prefork import TaskPool
from kombu.asynchronous import Hub, set_event_loop
from relier.celery.compat import confirm_before_flush
from relier.celery.working.bootsteps import make_turn

hub = Hub()
set_event_loop(hub)
pool = TaskPool(1, app=app, initargs=(app, 'shop'), threads=False, putlocks=False, lost_worker_timeout=10.0)
pool.start()
pool.register_with_event_loop(hub)
{hears}
turn, told = make_turn(hub), []
pool.apply_async(os.getpid, accept_callback=lambda pid, _: told.append(pid), callback=told.append)
(job,) = pool._pool._cache.values()
while job._write_to is None:
    turn()
pool.flush()
while job._job in pool._pool._cache:
    turn()
print("told", len(told), "times")
os._exit(0)
"""


@pytest.mark.parametrize(
    ("hears", "told"),
    [("confirm_before_flush(pool, lambda: make_turn(hub), 5.0)", 2), ("", 0)],
    ids=["ours", "as Celery has it"],
)
def test_flush_waits_for_the_reports_of_a_busy_process(shop: Shop, hears: str, told: int) -> None:
    """Both reports count: that the task has started, and that it has ended."""
    assert f"told {told} times" in shop.run(POOL.format(hears=hears))
