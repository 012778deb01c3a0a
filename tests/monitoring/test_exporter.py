"""rl exporter: what it reads from the ledger, and what it says when the store is unreachable."""

from __future__ import annotations

import json

import pytest

from relier import Limit, rl_task
from relier.monitoring import series
from tests.engines.conftest import NewFleet
from tests.monitoring.test_metrics import has, samples, value
from tests.support.fleet import Fleet, wait_until
from tests.support.jobs import common as jobs
from tests.support.jobs import counted
from tests.support.probing import metrics_of, reasons, wait_for
from tests.support.servers import Boot, free_port

BOTH = ("tests.support.jobs.common", "tests.support.jobs.counted")


@rl_task(queue="narrow", limits=Limit(concurrency=1))
async def narrow() -> None:
    """Nobody serves its queue."""


def test_the_exporter_shows_the_whole_namespace(fleet: Fleet) -> None:
    port = free_port()
    exporter = fleet.start("exporter", "--metrics-port", str(port))
    fleet.worker("--concurrency", "5", modules=BOTH)
    jobs.hold.push("go")
    counted.fails.push()
    jobs.echo.with_options(queue="unserved").push(1)
    jobs.echo.with_options(delay=3600).push(1)
    for _ in range(3):
        narrow.push()
    wait_until(lambda: reasons(port) == [])
    fleet.start("queues", "pause", "narrow").wait()
    page = wait_until(has(port, "rl_ledger_tasks", 1, state="dead"))
    assert value(page, "rl_ledger_up") == 1
    assert {state: value(page, "rl_ledger_tasks", state=state) for state in ("scheduled", "queued", "running")} == {
        "scheduled": 1,
        "queued": 4,
        "running": 1,
    }
    assert value(page, "rl_ledger_moves_total", kind="submitted") == 7
    assert value(page, "rl_queue_ready", queue="unserved") == value(page, "rl_queue_unserved", queue="unserved") == 1
    assert value(page, "rl_queue_unserved", queue="default") == 0
    assert value(page, "rl_queue_held_back", queue="narrow") == 2
    assert value(page, "rl_limit_tasks") == 3
    assert value(page, "rl_queue_paused", queue="narrow") == 1
    assert 0 < value(page, "rl_queue_oldest_age_seconds", queue="unserved") < 120
    assert value(page, "rl_nodes", role="worker", health="alive") == 1
    assert (value(page, "rl_cluster_slots"), value(page, "rl_cluster_running")) == (5, 1)
    assert value(page, "rl_lost_tasks") == value(page, "rl_due_late_seconds") == 0
    fleet.open_gate("go")
    assert exporter.terminate() == 0


def test_the_exporter_shows_objectives_and_events(fleet: Fleet) -> None:
    port = free_port()
    objectives = json.dumps([{"target": 0.9}, {"task": jobs.echo.name, "run_within": 5, "name": "fast"}])
    fleet.worker(modules=BOTH, RELIER_EVENTS="always")
    done, dead = jobs.echo.push(1), counted.fails.push()
    fleet.wait_ended([done.id, dead.id])
    fleet.start("exporter", "--metrics-port", str(port), RELIER_SLO_OBJECTIVES=objectives)
    wait_until(lambda: reasons(port) == [])
    page = samples(metrics_of(port))
    success = {"objective": "all tasks: succeed"}
    assert value(page, "rl_slo_target", **success) == 0.9
    assert value(page, "rl_slo_burn_rate", window="5m", **success) == pytest.approx(5)
    assert value(page, "rl_slo_budget_left", **success) == pytest.approx(-4)
    assert value(page, "rl_slo_alert", severity="ticket", **success) == 1
    assert value(page, "rl_slo_alert", severity="page", **success) == 0
    assert value(page, "rl_slo_burn_rate", objective="fast", window="1h") == 0
    assert value(page, "rl_events_total", topic="tasks") >= 4
    assert 0 < value(page, "rl_event_history_seconds", topic="tasks") < 60
    assert value(page, "rl_event_history_seconds", topic="batches") == 0


def test_an_exporter_needs_objectives_that_it_can_read(fleet: Fleet) -> None:
    member = fleet.start("exporter", "--metrics-port", str(free_port()), RELIER_SLO_OBJECTIVES="[{}, {}]")
    assert member.wait() == 2
    assert "RELIER_SLO_OBJECTIVES has the objective 'all tasks: succeed' twice" in member.said()


def test_the_exporter_serves_every_series_of_the_table(fleet: Fleet) -> None:
    port = free_port()
    fleet.start("exporter", "--metrics-port", str(port))
    wait_until(lambda: reasons(port) == [])
    lines = [line.split() for line in metrics_of(port).splitlines() if line.startswith("# HELP")]
    own = (series.READY, series.BUILD, series.MEMORY)
    assert {words[2].removesuffix("_total") for words in lines} == {one.name for one in (*series.LEDGER_SERIES, *own)}


def test_tasks_of_dead_workers_are_shown_until_they_are_revived(fleet: Fleet) -> None:
    port = free_port()
    fleet.start("exporter", "--metrics-port", str(port))
    worker = fleet.worker("--no-sweep")
    held = [jobs.hold.push("go").id for _ in range(3)]
    fleet.wait_diary("begin", 3)
    worker.kill_all()
    wait_until(has(port, "rl_lost_tasks", 3))
    fleet.open_gate("go")
    fleet.worker()
    fleet.wait_done(held)
    wait_until(lambda: value(samples(metrics_of(port)), "rl_lost_tasks") == 0)


def test_an_unreachable_store_is_shown_as_a_metric(boot: Boot, fleets: NewFleet) -> None:
    server = boot()
    one, port = fleets(1, on=server), free_port()
    member = one.start("exporter", "--metrics-port", str(port), RELIER_REDIS_DEADLINE="0.5")
    wait_until(lambda: reasons(port) == [])
    assert value(samples(metrics_of(port)), "rl_ledger_up") == 1
    server.stop()
    page = samples(metrics_of(port))
    assert value(page, "rl_ledger_up") == 0
    assert not any(name == "rl_ledger_tasks" for name, _ in page), "nothing is made up"
    wait_for(port, "/readyz", "the ledger cannot be read")
    metrics_of(port)
    assert member.said().count("the ledger cannot be read") == 1
    server.start()
    wait_until(has(port, "rl_ledger_up", 1))


def test_an_exporter_needs_a_port(fleet: Fleet) -> None:
    member = fleet.start("exporter")
    assert member.wait() == 2
    assert "an exporter needs a port; add --metrics-port, or set RELIER_METRICS_PORT" in member.said()
