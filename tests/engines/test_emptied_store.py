"""The store is emptied while workers run: they log it once, and continue."""

from __future__ import annotations

import queue
import subprocess
import sys

from relier import Client, Settings
from relier.engines.heartbeat import HeartbeatEvent, HeartbeatThread, Liveness, WorkerLost
from tests.engines.conftest import NewFleet
from tests.support.fleet import wait_until
from tests.support.jobs import common as jobs
from tests.support.servers import Boot


def test_workers_log_once_that_the_store_was_emptied_and_continue(boot: Boot, fleets: NewFleet) -> None:
    server = boot()
    fleet = fleets(1, on=server)
    members = [fleet.worker(), fleet.worker("--processes", "1")]
    for _ in range(30):
        jobs.hold.push("go")
    fleet.wait_diary("begin", 30)
    server.command("FLUSHALL")
    for member in members:
        said = member.wait_said("its running tasks are cancelled")
        assert said.count("the store was emptied or replaced") == 1
        assert "taken over" not in said
        assert "declared lost" not in said
        assert "zombie" not in said
        assert said.count("has no record of the task") <= 1
    fleet.open_gate("go")
    after = [jobs.hold.push("go").id for _ in range(10)]
    assert [task.result for task in fleet.wait_done(after, 30)] == [b"1"] * 10
    wait_until(lambda: server.command("HGET", fleet.ledger.prefix + "counts", "emptied") == b"1")
    doctor = subprocess.run(
        [sys.executable, "-m", "relier.cli", "--url", server.url, "--namespace", fleet.settings.namespace, "doctor"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert doctor.returncode == 1
    assert "✗ The store was emptied or replaced" in doctor.stdout


def test_late_results_are_refused_with_one_log_line(boot: Boot, fleets: NewFleet) -> None:
    """The lease is a minute, so the worker notices only after its tasks have ended."""
    server = boot()
    fleet = fleets(60, on=server)
    member = fleet.worker()
    for _ in range(30):
        jobs.hold.push("go")
    fleet.wait_diary("begin", 30)
    server.command("FLUSHALL")
    fleet.open_gate("go")
    fleet.wait_diary("end", 30)
    said = member.wait_said("has no record of the task")
    fleet.wait_done([jobs.hold.push("go").id], 30)
    said = member.said()
    assert said.count("has no record of the task") <= 1
    assert "zombie" not in said
    assert said.count("the store was emptied or replaced") == 1


def test_a_worker_whose_process_already_knew_the_new_birth_mark_is_not_lost(boot: Boot, namespace: str) -> None:
    """A push from one of its tasks may be the first to notice."""
    server = boot()
    client = Client(Settings(redis_url=server.url, namespace=namespace, heartbeat_ttl=1.0))
    client.open()
    news: queue.Queue[HeartbeatEvent] = queue.Queue()
    heart = HeartbeatThread(
        client.settings, client.scripts, Liveness(), "{}", news.put, lambda: None, birth=client.birth
    )
    heart.join_namespace()
    before = client.birth.mark
    server.command("FLUSHALL")
    other = Client(client.settings)
    other.open()
    client.birth.learn(other.birth.mark)
    while not isinstance(told := news.get(timeout=20), WorkerLost):
        pass
    heart.end()
    heart.join(20)
    assert told.emptied
    assert client.birth.mark == other.birth.mark != before
    for each in (client, other):
        each.close()
