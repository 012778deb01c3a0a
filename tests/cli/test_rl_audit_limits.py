"""rl audit of limits at run time: sound slots and lanes have no findings, and every kind of damage is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from relier.cli.audit import audit, limit_counts, limit_rules
from relier.cli.audit.findings import AuditReport
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.records import Lease
from tests.support.cli_desk import Desk

ONE = (RunLimit("tenant", "tenant:1", LimitNumbers(1)),)
RATED = (RunLimit("api", "api", LimitNumbers(0, 3_600_000_000, 3_600_000_000)),)
TWO = (*RATED, RunLimit("tenant", "tenant:2", LimitNumbers(1)))


def look(desk: Desk) -> AuditReport:
    return audit(desk.store, desk.ledger, sleep=lambda _: None)


def kinds(report: AuditReport) -> set[str]:
    return {finding.kind for finding in report.findings}


def furnish(desk: Desk) -> dict[str, str]:
    """Create one running task with two behind it, one that waits for a rate, and a lane that sleeps on that rate."""
    ids = {"runs": desk.start(limits=ONE).task_id}
    ids["second"], ids["third"] = desk.push(limits=ONE), desk.push(limits=ONE)
    ids["other"] = desk.start(limits=RATED, queue="rated").task_id
    ids["paced"], ids["last"] = desk.push(limits=RATED, queue="rated"), desk.push(limits=TWO, queue="rated")
    desk.run(desk.ledger.claim(desk.boot, 100, ["rated"], 10))
    desk.run(desk.ledger.limit("else", 0, LimitNumbers(5)))
    return ids


def test_a_namespace_with_limits_is_sound(desk: Desk) -> None:
    furnish(desk)
    report = look(desk)
    assert report.findings == ()
    expected = {"lanes", "lane", "waiting", "sleepers", "sleeping", "pacers", "slots", "pace", "limited", "limits"}
    assert expected <= set(report.keys)
    assert report.books["queued"] == 3


Damage = Callable[[Desk, dict[str, str]], object]
DAMAGES: dict[str, tuple[str, Damage]] = {
    "a slot of a task that waits": (
        "slot_without_run",
        lambda d, ids: d.command("ZADD", d.key("slots", "tenant:1"), 5, ids["second"]),
    ),
    "a slot of nobody": ("slot_without_run", lambda d, _: d.command("ZADD", d.key("slots", "tenant:1"), 5, "ghost")),
    "a slot of an earlier attempt": (
        "slot_without_run",
        lambda d, ids: d.command("ZADD", d.key("slots", "tenant:1"), 5, ids["runs"]),
    ),
    "a running task without its slot": (
        "run_without_slot",
        lambda d, ids: d.command("ZREM", d.key("slots", "tenant:1"), ids["runs"]),
    ),
    "a head that is in no index": (
        "lane_without_head",
        lambda d, ids: d.command("ZREM", d.key("due"), ids["paced"]),
    ),
    "a lane that no list names": ("lane_unknown", lambda d, _: d.command("HDEL", d.key("lanes"), "tenant:1 default")),
    "a lane that sleeps without a task": (
        "lane_empty",
        lambda d, _: d.command("HSET", d.key("lanes"), "tenant:9 default", "-tenant:9"),
    ),
    "a lane that sleeps and is not listed": (
        "lane_not_asleep",
        lambda d, _: d.command("ZREM", d.key("sleepers", "tenant:1 default"), "tenant:1 default"),
    ),
    "a lane that is listed and does not sleep": (
        "sleeper_awake",
        lambda d, _: d.command("ZADD", d.key("sleepers", "api rated"), 1, "api rated"),
    ),
    "a limit that does not know its queue": (
        "sleepers_unknown",
        lambda d, _: d.command("SREM", d.key("sleeping", "tenant:1"), "default"),
    ),
    "a head that is said to wait for a rate": (
        "pacer_not_scheduled",
        lambda d, _: d.command("HSET", d.key("pacers"), "api default", "ghost"),
    ),
    "a wrong count of waiting tasks": (
        "limits_miscounted",
        lambda d, _: d.command("HSET", d.key("waiting"), "default", 7),
    ),
    "a wrong count of live tasks": (
        "limits_miscounted",
        lambda d, _: d.command("HSET", d.key("limited"), "tenant:1", 1),
    ),
    "a rate that does not expire": ("rate_without_expiry", lambda d, _: d.command("PERSIST", d.key("pace", "api"))),
    "in the queue and in its lane": (
        "record_in_wrong_index",
        lambda d, ids: d.command("ZADD", d.key("ready", "default"), 5, ids["second"]),
    ),
    "queued, but in no lane": (
        "record_in_no_index",
        lambda d, ids: d.command("ZREM", d.key("lane", "tenant:1 default"), ids["third"]),
    ),
}
OF_OTHER_RULES = {"rate_without_expiry", "record_in_wrong_index", "record_in_no_index"}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found(desk: Desk, name: str) -> None:
    kind, damage = DAMAGES[name]
    damage(desk, furnish(desk))
    report = look(desk)
    assert kind in kinds(report)
    assert all(finding.problem.endswith(".") and finding.advice for finding in report.findings)


def test_every_kind_of_finding_is_covered_by_a_test() -> None:
    source = Path(limit_rules.__file__).read_text() + Path(limit_counts.__file__).read_text()
    told = set(re.findall(r'(?:finding|Finding)\(\s*"(\w+)"', source))
    assert told == {kind for kind, _ in DAMAGES.values()} - OF_OTHER_RULES


REPAIRED = ("a slot of nobody", "a slot of a task that waits", "a lane that sleeps without a task")


@pytest.mark.parametrize("name", REPAIRED)
def test_the_sweep_repairs_what_the_audit_says_it_repairs(desk: Desk, name: str) -> None:
    DAMAGES[name][1](desk, furnish(desk))
    desk.run(desk.ledger.reap())
    assert look(desk).ok


def test_a_lane_that_was_listed_again_by_hand_goes_on(desk: Desk) -> None:
    ids = furnish(desk)
    DAMAGES["a lane that no list names"][1](desk, ids)
    (finding,) = [each for each in look(desk).findings if each.kind == "lane_unknown"]
    assert "HSET" in finding.advice
    desk.command("HSET", desk.key("lanes"), "tenant:1 default", "-tenant:1")
    runs = desk.get(ids["runs"]).record
    desk.run(desk.ledger.commit([(Lease(runs.id, runs.fence, runs.worker_id), None, ())]))
    desk.run(desk.ledger.reap())
    assert desk.claim().record.id == ids["second"]
