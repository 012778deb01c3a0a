"""Objectives: how they are written, and which tasks did well."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relier.errors import ConfigurationError
from relier.ledger.outcomes.records import Series
from relier.settings import Settings
from relier.slo import Objective, objectives_of, parse_objectives
from relier.slo.buckets import bucket_of

COUNTS = {
    Series("done", bucket_of(100), "mail", "shop.send"): 90,
    Series("done", bucket_of(40_000), "mail", "shop.send"): 5,
    Series("dead", bucket_of(10), "mail", "shop.send"): 3,
    Series("expired", None, "mail", "shop.send"): 2,
    Series("cancelled", None, "mail", "shop.send"): 50,
    Series("done", bucket_of(7), "default", "shop.charge"): 1000,
    Series("wait", bucket_of(900), "mail", "shop.send"): 60,
    Series("wait", bucket_of(30_000), "mail", "shop.send"): 38,
    Series("wait", bucket_of(1), "default", "shop.charge"): 1000,
    Series("done", bucket_of(7), "", ""): 4,
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (1099, 1104)),
        ({"queue": "mail"}, (95, 100)),
        ({"task": "shop.charge"}, (1000, 1000)),
        ({"queue": "mail", "task": "shop.charge"}, (0, 0)),
        ({"queue": "mail", "start_within": 30}, (60, 100)),  # the expired ones never began
        ({"queue": "mail", "start_within": 31}, (60, 100)),  # in force: 30 s
        ({"queue": "mail", "start_within": 50}, (98, 100)),
        ({"queue": "mail", "run_within": 1}, (90, 95)),  # of the done ones
        ({"queue": "mail", "run_within": 60}, (95, 95)),
        ({"start_within": 1}, (1060, 1100)),
    ],
)
def test_tasks_that_did_well_are_counted(given: dict[str, Any], expected: tuple[int, int]) -> None:
    (objective,) = parse_objectives(json.dumps([given]), 0.999)
    assert objective.good_and_total(COUNTS) == expected


def test_the_default_objective_is_success() -> None:
    (objective,) = objectives_of(Settings(slo_target=0.95))
    assert (objective.kind, objective.target, objective.label) == ("success", 0.95, "all tasks: succeed")


def test_objectives_are_read_from_the_settings() -> None:
    text = """[{"queue": "mail", "start_within": 30, "target": 0.99},
               {"task": "shop.charge", "run_within": 60}, {"name": "everything"}]"""
    first, second, third = objectives_of(Settings(slo_objectives=text))
    assert (first.label, first.target) == ("queue mail: start within 30 s", 0.99)
    assert (second.label, second.target) == ("shop.charge: run within 50 s", 0.999)
    assert (third.label, third.kind) == ("everything", "success")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "RELIER_SLO_OBJECTIVES cannot be read"),
        ('{"queue": "mail"}', "write a JSON list such as"),
        ('[{"queu": "mail"}]', "unknown field `queu`"),
        ('[{}, {"target": 1}]', "objective 2 has the target 1; write a number between 0 and 1"),
        ('[{"start_within": 1, "run_within": 1}]', "make two objectives of it"),
        ('[{"run_within": 0}]', "has the limit 0 s"),
        ('[{"queue": "a"}, {"queue": "a", "target": 0.5}]', "'queue a: succeed' twice"),
    ],
)
def test_wrong_objectives_are_explained(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match="RELIER_SLO_OBJECTIVES") as caught:
        parse_objectives(text, 0.999)
    assert message in str(caught.value)


def test_a_label_describes_the_objective() -> None:
    both = Objective(target=0.9, queue="mail", task="shop.send", start_within=0.5)
    assert both.label == "shop.send, queue mail: start within 0.5 s"


@pytest.mark.parametrize("target", [0, 1, 2])
def test_a_target_is_between_zero_and_one(target: float) -> None:
    with pytest.raises(ConfigurationError, match="greater than 0 and less than 1"):
        Settings(slo_target=target)
