"""A store that goes down and comes back faster than a lease costs no healthy worker its lease."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from relier import Client, Settings
from relier.engines.heartbeat import HeartbeatThread, Liveness
from tests.engines.conftest import NewFleet
from tests.support.fleet import Fleet, wait_until
from tests.support.jobs import common as jobs
from tests.support.jobs import trouble
from tests.support.servers import Boot, Server
from tests.support.wire import Proxy

pytestmark = pytest.mark.slow

TROUBLE = ("tests.support.jobs.common", "tests.support.jobs.trouble")
LEASE_S = 5.0
DOWN_S = UP_S = 1.2
# A breaker that is still open when the store is back: heartbeats must not be held up by it.
TOUCHY = {"RELIER_REDIS_RETRIES": "1", "RELIER_REDIS_BREAKER_FAILURES": "2", "RELIER_REDIS_BREAKER_COOLDOWN": "2"}


def flap(fleet: Fleet, server: Server, times: int) -> None:
    """Kill the server and start it again, `times` times. It loses its connections and scripts, but no data.

    Each time it is down when a regular heartbeat is due: the first time, a quarter of a lease after an observed
    heartbeat.
    """
    seen = beats(fleet)
    wait_until(lambda: beats(fleet) != seen)
    wait_until(past(LEASE_S / 4 - 0.05))
    for _ in range(times):
        server.kill()
        wait_until(past(DOWN_S))
        server.start()
        wait_until(past(UP_S))


def beats(fleet: Fleet) -> list[int]:
    return [worker.beat_ms for worker in fleet.stats().workers]


def past(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until


def test_workers_keep_their_leases_and_their_tasks(boot: Boot, fleets: NewFleet) -> None:
    server = boot()
    fleet = fleets(LEASE_S, on=server)
    members = [fleet.worker(**TOUCHY), fleet.start("resurrector")]
    held = [jobs.hold.push("go").id for _ in range(20)]
    fleet.wait_diary("begin", 20)
    flap(fleet, server, 5)
    fleet.open_gate("go")
    tasks = fleet.wait_done(held, 30)
    said = "".join(member.said() for member in members)
    assert "declared lost" not in said
    assert "revived" not in said
    assert [task.result for task in tasks] == [b"1"] * 20


def test_a_supervisor_keeps_the_lease_of_a_child_that_computes(boot: Boot, fleets: NewFleet) -> None:
    """The child's own heartbeat thread cannot run: a task holds the GIL for longer than three leases."""
    server = boot()
    fleet = fleets(LEASE_S, on=server)
    fleet.worker("--processes", "1", "--queues", "default", modules=TROUBLE, **TOUCHY)
    other = fleet.start("resurrector")
    task_id = trouble.hold_gil.push(12).id
    fleet.wait_diary("begin", 1)
    flap(fleet, server, 5)
    (task,) = fleet.wait_done([task_id], 60)
    assert task.result == b"1"
    assert "revived" not in other.said()


def test_a_worker_registers_although_its_first_calls_are_lost(server: Server, settings: Settings) -> None:
    """A heartbeat waits only briefly for its answer. Registering is retried for as long as any call."""
    client = Client(settings)
    client.open()
    with Proxy(server.port) as proxy:
        register = client.scripts["register"].sha.encode()
        asked: list[bytes] = []

        def disturb(request: bytes) -> str | None:
            if register not in request:
                return None
            asked.append(request)
            return "silent" if len(asked) < 4 else None

        proxy.disturb = disturb
        reached = settings.replace(redis_url=proxy.url, heartbeat_ttl=1.0, redis_retries=0)
        liveness = Liveness()
        heart = HeartbeatThread(reached, client.scripts, liveness, "{}", lambda _: None, lambda: None)
        heart.join_namespace()
        assert liveness.worker_id in {worker.node_id for worker in client.run(client.ledger.stats()).workers}
        heart.end()
        heart.join(10)
    client.close()
