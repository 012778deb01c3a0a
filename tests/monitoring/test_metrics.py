"""The metrics of real workers: what they count, and that every series is in the table."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from relier.errors import AdmissionRejectedError
from relier.ledger.replies import accepted
from relier.monitoring import series
from relier.monitoring.admission import refusals
from relier.monitoring.meter import BOUNDS, MOST_LABELS, OTHER, Meter
from tests.support.fleet import Fleet, wait_until
from tests.support.jobs import common as jobs
from tests.support.jobs import counted
from tests.support.probing import metrics_of
from tests.support.servers import free_port

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
BOTH = ("tests.support.jobs.common", "tests.support.jobs.counted")


def samples(page: str) -> Samples:
    families = list(text_string_to_metric_families(page))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "each family is described once"
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def value(page: Samples, name: str, **labels: str) -> float:
    """Return the sum of the samples of this name that have these labels."""
    return sum(n for (found, has), n in page.items() if found == name and labels.items() <= dict(has).items())


def has(port: int, name: str, at_least: float, **labels: str) -> Callable[[], Samples | None]:
    """Return a function that returns the page once a sample has grown to a value."""

    def look() -> Samples | None:
        page = samples(metrics_of(port))
        return page if value(page, name, **labels) >= at_least else None

    return look


# --- the meter ---------------------------------------------------------------------------------------------------


def test_a_histogram_counts_what_lies_below_each_bound() -> None:
    meter = Meter()
    numbers = meter.histogram(series.RUN_TIME)
    for seconds in (0.001, 0.0011, 7, 5000):
        numbers.observe(seconds, "a", "q")
    page = samples(meter.text().decode())
    labels = {"task": "a", "queue": "q"}
    name = series.RUN_TIME.name
    below = {bound: value(page, f"{name}_bucket", le=bound, **labels) for bound in ("0.001", "0.005", "10.0", "+Inf")}
    assert below == {"0.001": 1, "0.005": 2, "10.0": 3, "+Inf": 4}
    assert value(page, f"{name}_sum") == pytest.approx(5007.0021)
    assert len([key for key in page if key[0] == f"{name}_bucket"]) == len(BOUNDS) + 1


def test_labels_cannot_grow_without_bound() -> None:
    meter = Meter()
    deaths, timed = meter.counts(series.DEATHS), meter.histogram(series.RUN_TIME)
    for i in range(MOST_LABELS + 5):
        deaths.add(f"task{i}", "q", "ValueError")
        timed.observe(1.0, f"task{i}", "q")
    assert len(deaths.rows) == len(timed.rows) == MOST_LABELS + 1
    assert deaths.rows[OTHER, OTHER, OTHER] == 5
    assert sum(timed.rows[OTHER, OTHER][:-1]) == 5


def test_a_label_may_hold_any_text() -> None:
    meter = Meter()
    meter.counts(series.TASKS).add('a"b\\c\n{}', "q q", "dead")
    page = samples(meter.text().decode())
    assert value(page, "rl_tasks_total", task='a"b\\c\n{}', queue="q q") == 1


@pytest.mark.parametrize(("retry_after_us", "reason"), [(b"2000000", "rate"), (b"0", "full")])
def test_refused_pushes_are_counted_without_the_name_of_the_limit(retry_after_us: bytes, reason: str) -> None:
    before = refusals[reason]
    with pytest.raises(AdmissionRejectedError):
        accepted(["a"], [b"refused", b"key:tenant-42", retry_after_us])
    assert refusals[reason] == before + 1
    assert refusals.keys() <= {"rate", "full"}


def test_every_series_has_one_name_and_known_labels() -> None:
    every = [one for one in vars(series).values() if isinstance(one, series.MetricSeries)]
    assert len({one.name for one in every}) == len(every)
    assert all(one.name.startswith("rl_") and not one.name.endswith("_total") for one in every)
    known = {"task", "queue", "outcome", "role", "reason", "kind", "state", "version", "health", "limit", "topic"}
    known |= {"objective", "window", "severity"}
    assert {label for one in every for label in one.labels} <= known, "an id is no label"


# --- workers -----------------------------------------------------------------------------------------------------


def test_a_worker_counts_what_happens_to_tasks(fleet: Fleet) -> None:
    port = free_port()
    fleet.worker("--metrics-port", str(port), "--concurrency", "7", modules=BOTH)
    for i in range(20):
        jobs.echo.push(i)
    jobs.hold.push("go")
    delayed = jobs.echo.with_options(delay=0.3).push(1)
    assert delayed.result(20) == 1
    page = wait_until(has(port, "rl_tasks_total", 21, task=jobs.echo.name, outcome="succeeded"))
    assert value(page, "rl_task_run_seconds_count", task=jobs.echo.name, queue="default") == 21
    assert value(page, "rl_task_queue_seconds_count", task=jobs.echo.name) == 20, "a delay is no time in the queue"
    assert value(page, "rl_worker_running") == 1
    assert value(page, "rl_worker_slots") == 7
    assert value(page, "rl_claimed_tasks_total") == 22
    assert value(page, "rl_claims_total", outcome="tasks") >= 2
    assert value(page, "rl_store_call_seconds_count") > 3
    assert value(page, "rl_ready", role="worker") == 1
    assert 0 <= value(page, "rl_heartbeat_age_seconds") < 60
    assert value(page, "rl_store_breaker_open") == value(page, "rl_stale_commits_total") == 0
    assert value(page, "rl_process_resident_bytes") > 1e6
    fleet.open_gate("go")


def test_a_worker_serves_every_series_of_the_table(fleet: Fleet) -> None:
    port = free_port()
    fleet.worker("--processes", "1", "--metrics-port", str(port))
    wait_until(has(port, "rl_ready", 1))
    lines = [line.split() for line in metrics_of(port).splitlines() if line.startswith("# HELP")]
    described = {words[2].removesuffix("_total") for words in lines}
    groups = (series.NODE_SERIES, series.TASK_SERIES, series.WORKER_SERIES, series.SUPERVISOR_SERIES)
    assert described == {one.name for group in groups for one in group}


def test_deaths_have_a_reason(fleet: Fleet) -> None:
    port = free_port()
    fleet.worker("--metrics-port", str(port), modules=BOTH)
    assert counted.second_time_lucky.push().result(20) == 2
    counted.fails.push()
    page = wait_until(has(port, "rl_task_deaths_total", 1, task=counted.fails.name))
    assert value(page, "rl_tasks_total", task=counted.fails.name, outcome="dead") == 1
    assert value(page, "rl_task_retries_total", task=counted.second_time_lucky.name, reason="LookupError") == 1


def test_a_supervisor_shows_each_process_and_how_it_ended(fleet: Fleet) -> None:
    port = free_port()
    member = fleet.worker("--processes", "2", "--metrics-port", str(port), "--concurrency", "1")
    held = [jobs.hold.push("go").id for _ in range(2)]
    fleet.wait_diary("begin", 2)
    page = wait_until(has(port, "rl_worker_running", 2))
    assert value(page, "rl_worker_running", process="1") == value(page, "rl_worker_running", process="2") == 1
    assert value(page, "rl_supervisor_processes") == 2
    member.signal(signal.SIGKILL, member.started()[0])
    fleet.wait_diary("begin", 3)
    page = wait_until(has(port, "rl_task_resurrections_total", 1, task=jobs.hold.name))
    assert value(page, "rl_shutdowns_total", kind="died") == 1
    fleet.open_gate("go")
    fleet.wait_done(held)


def test_a_supervisor_shows_how_long_a_process_took_to_shut_down(fleet: Fleet) -> None:
    """Also if the supervisor did not ask it to: a signal, an operator's order, or a limit that recycles it."""
    port = free_port()
    member = fleet.worker("--processes", "1", "--metrics-port", str(port), RELIER_GRACEFUL_SHUTDOWN_TIMEOUT="0.3")
    jobs.hold.push("go")
    fleet.wait_diary("begin", 1)
    member.signal(signal.SIGTERM, member.started()[0])
    page = wait_until(has(port, "rl_shutdown_seconds_count", 1, kind="forced"))
    assert 0.3 <= value(page, "rl_shutdown_seconds_sum", kind="forced") < 15
    fleet.open_gate("go")


def test_a_resurrector_counts_the_tasks_that_it_revives(fleet: Fleet) -> None:
    port = free_port()
    worker = fleet.worker("--no-sweep")
    ids = [jobs.hold.push("go").id for _ in range(3)]
    fleet.wait_diary("begin", 3)
    worker.kill_all()
    fleet.start("resurrector", "--metrics-port", str(port))
    wait_until(lambda: fleet.stats().counts.get("revived") == 3)
    page = wait_until(has(port, "rl_task_resurrections_total", 3, task=jobs.hold.name))
    assert value(page, "rl_ready", role="resurrector") == 1
    fleet.open_gate("go")
    fleet.worker("--no-sweep")
    fleet.wait_done(ids)
