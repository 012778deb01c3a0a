"""The failures of a public post-mortem of a cluster that was coordinated through Redis. None is possible here.

Its other lines have tests elsewhere: queued work that is never reconciled (tests/ledger/test_reconcile.py), nodes
believed alive while the store is down (tests/ledger/test_outage.py), missed messages (tests/submit/test_events.py),
calls without a timeout (tests/store), keys that leak (bench/cluster.py).
"""

from __future__ import annotations

import threading

import pytest

from relier.ledger.records import new_task_id
from relier.states import State
from relier.submit.client import use_client
from tests.engines.conftest import NewFleet
from tests.support.fleet import Fleet, wait_until
from tests.support.jobs import common as jobs
from tests.support.servers import Boot, Server
from tests.support.wire import Proxy

pytestmark = pytest.mark.slow

TASKS = 20
MOST_CONNECTIONS = 8


def loaded(fleet: Fleet, name: str) -> bytes:
    """Load a script into the store, so that its first call runs. Return its SHA1."""
    return bytes(fleet.store.command("SCRIPT", "LOAD", fleet.client.scripts[name].text))


def test_a_worker_that_dies_between_its_claim_and_the_reply_orphans_nothing(server: Server, fleets: NewFleet) -> None:
    """The store has handed the tasks over, and the worker never learns of it."""
    fleet, claimed = fleets(1), threading.Event()
    claim = loaded(fleet, "claim")
    with Proxy(server.port) as proxy:

        def lose_claims(request: bytes) -> str | None:
            if claim not in request:
                return None
            claimed.set()
            return "lose"

        ids = [jobs.quick.push().id for _ in range(TASKS)]
        proxy.disturb = lose_claims
        victim = fleet.start("worker", "tests.support.jobs.common", RELIER_REDIS_URL=proxy.url)
        assert claimed.wait(30)
        wait_until(lambda: any(worker.owned for worker in fleet.stats().workers), 20, "a claim in the store")
        victim.kill_all()
    fleet.worker()
    assert {task.record.state for task in fleet.wait_ended(ids)} == {State.DONE}


def test_tasks_run_although_every_wake_up_is_lost(server: Server, fleets: NewFleet) -> None:
    """A doorbell saves time. No task depends on it."""
    fleet = fleets(5)
    with Proxy(server.port) as proxy:
        proxy.disturb = lambda request: "silent" if b"BLPOP" in request else None
        fleet.worker(RELIER_REDIS_URL=proxy.url)
        for _ in range(3):
            fleet.wait_done([jobs.quick.push().id for _ in range(TASKS)])
        assert any(b"BLPOP" in request for request in proxy.requests)


def test_a_worker_shares_a_few_connections(boot: Boot, fleets: NewFleet) -> None:
    """Claims, settling, heartbeats, sweeps, schedules and running tasks do not open a client each."""
    server = boot()
    fleet = fleets(5, on=server)
    before = int(server.info("clients")["connected_clients"])
    fleet.worker("--concurrency", "50")
    ids = [jobs.hold.push("go").id for _ in range(50)]
    fleet.wait_diary("begin", 50)
    opened = int(server.info("clients")["connected_clients"]) - before
    fleet.open_gate("go")
    fleet.wait_done(ids)
    assert 1 <= opened <= MOST_CONNECTIONS


def test_two_namespaces_on_one_server_share_nothing(fleets: NewFleet) -> None:
    """The same queue, the same task, even the same id: each namespace runs and keeps its own."""
    first, second = fleets(1), fleets(1)
    task_id = new_task_id()
    for fleet, value in ((first, "one"), (second, "two")):
        use_client(fleet.client)
        jobs.echo.with_options(task_id=task_id).push(value)
    first.worker()
    assert [task.result for task in first.wait_done([task_id])] == [b'"one"']
    assert second.get(task_id).record.state is State.QUEUED
    assert not second.stats().workers
    second.worker()
    assert [task.result for task in second.wait_done([task_id])] == [b'"two"']
    assert first.get(task_id).result == b'"one"'
