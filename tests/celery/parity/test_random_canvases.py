"""Random canvases give the same with Relier and without: every value in its place, the same tasks, the same events.

A canvas that plain Celery leaves waiting forever, such as a chord whose inner chord fails, may fail with Relier.
"""

from __future__ import annotations

import ast
from typing import Any

import pytest

from tests.celery.parity.test_parity import Told, of_both
from tests.support import ROOT
from tests.support.servers import wait_until

pytestmark = pytest.mark.engines
# In seed 94 a group follows a chord whose body is a group: see the last test.
SEEDS = sorted({*range(120)} - {94})
UNANSWERED = ["PENDING"]


# Shapes for every version of Celery. Plain 5.4 joins nested headers only sometimes, so it cannot be compared.
SMOKE = {"a failure before a group", "a failure in a chord in a chord"}


def shapes() -> list[Any]:
    """Return the shapes, read from the source, because importing the module needs a broker."""
    tree = ast.parse((ROOT / "tests" / "support" / "random_canvases.py").read_text())
    (table,) = [
        node.value for node in tree.body if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "SHAPES"
    ]
    assert isinstance(table, ast.Dict)
    found = [key.value for key in table.keys if isinstance(key, ast.Constant)]
    return [pytest.param(name, marks=pytest.mark.smoke) if name in SMOKE else name for name in found]


def as_far_as_answered(plain: Any, adopted: Any) -> Any:
    """Return the adopted side's report, without failures for which plain Celery gives no answer."""
    if plain == UNANSWERED and adopted and adopted[0] == "FAILURE":
        return plain
    both = isinstance(plain, list) and isinstance(adopted, list) and len(plain) == len(adopted)
    return [as_far_as_answered(*pair) for pair in zip(plain, adopted, strict=True)] if both else adopted


def same(plain: Told, adopted: Told) -> bool:
    return adopted["story"] == plain["story"] and as_far_as_answered(plain["value"], adopted["value"]) == plain["value"]


def compare(name: str, sides: Any) -> tuple[Told, Told]:
    plain, adopted = of_both(sides, "run", name)
    for side, told in (("plain", plain), ("adopted", adopted)):
        assert "error" not in told, f"{side}: {told['error']}\n{told['story']}"

    def agree() -> bool:
        if same(plain, adopted):
            return True
        for told, now in zip((plain, adopted), of_both(sides, "again", name), strict=True):
            told.update(now)  # the last event may still be under way
        return False

    try:
        wait_until(agree, 10)
    except AssertionError:
        assert as_far_as_answered(plain["value"], adopted["value"]) == plain["value"]
        assert adopted["story"] == plain["story"]
    return plain, adopted


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_canvas_gives_the_same_result_adopted_and_plain(seed: int, sides: Any) -> None:
    compare(f"canvas {seed}", sides)


@pytest.mark.parametrize("shape", shapes())
def test_every_part_of_a_chord_is_at_its_position(shape: str, sides: Any) -> None:
    _, adopted = compare(shape, sides)
    assert "PENDING" not in str(adopted["value"])


def test_the_callback_of_a_chord_that_leads_into_a_group_runs_once(sides: Any) -> None:
    """Plain Celery runs the callback once for each member of the group, under the same ids, and keeps any one of the
    results."""
    name = "chord into a group, and on"
    _, adopted = of_both(sides, "run", name)
    (_, (_, from_one)), (_, (_, from_same)) = adopted["value"]
    assert from_one == from_same
    wait_until(lambda: [runs(told, "e") + runs(told, "f") for told in of_both(sides, "again", name)] == [4, 2])


def runs(told: Told, label: str) -> int:
    """Return how often the task with this label ran."""
    found = [about["events"] for task, about in told["story"] if f"'label': '{label}'" in task]
    return sum(event[0] == "task-succeeded" for events in found for event in events)
