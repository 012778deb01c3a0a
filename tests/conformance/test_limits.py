"""Limits at run time, with real workers: how many tasks run at once, how often one starts, and what is left after a
crash."""

from __future__ import annotations

import itertools

import pytest

from relier.cli.audit import audit
from relier.ledger.limit_overview import set_limit
from relier.ledger.limit_records import LimitNumbers
from tests.support.conformance import limited_tasks
from tests.support.conformance.stage import PATIENCE_S, Stage
from tests.support.servers import wait_until

MODULE = "tests.support.conformance.limited_tasks"
SHORT = 1.0


def most_at_once(lines: list[str]) -> int:
    """Return the largest number of tasks that ran at once, from the starts and ends in the order of the notes."""
    running: set[str] = set()
    most = 0
    for line in lines:
        (running.add if line[0] == "+" else running.discard)(line[1:])
        most = max(most, len(running))
    return most


def no_trace_is_left(stage: Stage) -> None:
    for name in ("lanes", "waiting", "pacers", "limited"):
        assert stage.command("EXISTS", stage.key(name)) == 0, name
    assert stage.command("KEYS", stage.key("slots", "*").replace("{", "[{]")) == []
    report = audit(stage.client.sync_store, stage.ledger, pause=0.01)
    assert report.ok, report.findings


@pytest.mark.parametrize("kind", limited_tasks.BRIEFS)
def test_two_workers_together_run_no_more_than_the_limit(stage: Stage, kind: str) -> None:
    receipts = limited_tasks.BRIEFS[kind].push_many([(stage.place,)] * 12)
    for _ in range(2):
        stage.start_worker(MODULE)
    assert [receipt.result(PATIENCE_S) for receipt in receipts] == ["attempt 1"] * 12
    ends = stage.notes("ends")
    assert len(ends) == 24
    assert most_at_once(ends) <= 2
    no_trace_is_left(stage)


def test_keys_do_not_wait_for_each_other(stage: Stage) -> None:
    stage.needs(at_once=4)
    limited_tasks.hold.push_many([(stage.place, "a")] * 50)
    other = limited_tasks.brief.push(stage.place, "b")
    stage.start_worker(MODULE)
    assert other.result(PATIENCE_S) == "attempt 1"
    assert len(stage.wait_for_notes("runs", 2)) == 2
    stage.go()


def test_a_rate_counts_starts(stage: Stage) -> None:
    receipts = limited_tasks.paced.push_many([()] * 6)
    stage.start_worker(MODULE)
    for receipt in receipts:
        receipt.result(PATIENCE_S)
    starts = sorted(int(stage.record(receipt).fence) for receipt in receipts)  # a fence is the time of its claim (µs)
    assert all(later - sooner >= 50_000 for sooner, later in itertools.pairwise(starts))
    no_trace_is_left(stage)


@pytest.mark.parametrize("kind", limited_tasks.HOLDS)
def test_the_slots_of_a_killed_worker_are_free_after_its_lease(stage: Stage, kind: str) -> None:
    stage.needs(at_once=2)
    victim = stage.start_worker(MODULE, heartbeat_ttl=SHORT)
    receipts = [limited_tasks.HOLDS[kind].push(stage.place) for _ in range(3)]
    first = stage.wait_for_notes("runs", 2)
    stage.start_worker(MODULE)
    victim.kill()
    runs = stage.wait_for_notes("runs", 4)
    assert {run.split()[0] for run in runs[2:4]} == {run.split()[0] for run in first}, "the revived ones come first"
    stage.go()
    assert [receipt.result(PATIENCE_S) for receipt in receipts] == ["attempt 2", "attempt 2", "attempt 1"]
    wait_until(lambda: stage.command("EXISTS", stage.key("limited")) == 0, PATIENCE_S, "all have ended")
    no_trace_is_left(stage)


def test_a_raised_limit_applies_to_a_running_worker(stage: Stage) -> None:
    stage.needs(at_once=4)
    stage.start_worker(MODULE)
    limited_tasks.hold.push_many([(stage.place,)] * 4)
    stage.wait_for_notes("runs", 2)
    set_limit(stage.run, stage.ledger, "key:a", LimitNumbers(4))
    assert len(stage.wait_for_notes("runs", 4)) == 4
    stage.go()
