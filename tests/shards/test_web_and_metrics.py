"""Web routes find the shard of a task, and the exporter adds up the shards."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from relier.cli.commands.monitoring.ledger_metrics import LedgerCollector
from relier.cli.commands.monitoring.registry import nodes_here
from relier.cli.session import Session
from relier.fastapi import anyone, relier_lifespan, task_routes
from relier.settings import Settings
from relier.submit.client import Client, use_client
from tests.support.jobs import sharded as jobs
from tests.support.servers import Boot


def values(collector: LedgerCollector) -> dict[tuple[str, str], float]:
    """Return (series, last label) -> value."""
    found = {}
    for family in collector.collect():
        for sample in family.samples:
            found[sample.name, [*sample.labels.values(), ""][-1 if not sample.labels else -2]] = sample.value
    return found


def session_for(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("RELIER_SHARDS", str(settings.shards))
    return Session(settings.redis_url, settings.namespace)


def test_the_exporter_adds_up_the_shards(client: Client, sharded: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.add.push_many([(n,) for n in range(50)])
    client.shards[2].run(client.shards[2].ledger.pause("default", 0))
    with session_for(sharded, monkeypatch) as session:
        found = values(LedgerCollector(session))
        assert found["rl_ledger_up", ""] == 1
        assert found["rl_ledger_tasks", "queued"] == 50
        assert found["rl_ledger_moves_total", "submitted"] == 50
        assert found["rl_queue_ready", "default"] == 50
        assert found["rl_queue_paused", "default"] == 1
        assert [nodes_here(each) for each in session.shards] == [[], [], [], []]


def test_the_exporter_goes_on_without_an_unreachable_shard(
    boot: Boot, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, gone = boot(), boot()
    settings = Settings(redis_url=f"{here.url} {gone.url}", namespace=namespace, shards=2)
    client = Client(settings)
    use_client(client)
    try:
        jobs.add.push_many([(1,)] * 6, task_ids=[f"id-{n}" for n in range(6)])  # only id-5 is in the second shard
        gone.kill()
        with session_for(settings, monkeypatch) as session:
            collector = LedgerCollector(session)
            found = values(collector)
            assert (found["rl_ledger_up", ""], found["rl_ledger_tasks", "queued"]) == (0, 5)
            assert collector.error.startswith("shard 1: ")
            gone.start()
            found = values(collector)
            assert (found["rl_ledger_up", ""], found["rl_ledger_tasks", "queued"], collector.error) == (1, 6, "")
    finally:
        use_client(None)
        client.close()


def test_routes_find_the_shard_of_a_task(sharded: Settings) -> None:
    app = Starlette(routes=[*task_routes(may_use=anyone)], lifespan=relier_lifespan(settings=sharded))
    with TestClient(app) as browser:
        ids = [each.id for each in jobs.add.push_many([(n,) for n in range(8)])]
        assert [browser.get(f"/tasks/{each}").json()["state"] for each in ids] == ["queued"] * 8
        assert browser.post(f"/tasks/{ids[0]}/cancel").status_code == 200
        assert browser.get(f"/tasks/{'0' * 32}").status_code == 404
