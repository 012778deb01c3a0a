"""Random canvases, the same for a seed on every machine: nested chains, groups and chords, with tasks that fail, retry
or are replaced, and with stamps. All tasks of a canvas have different labels."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

from celery import chain, chord, group
from celery.result import GroupResult
from celery.utils import uuid

from tests.support.canvas_tasks import becomes, broken, mark, twice

DEPTH = 3
STILL_S = 1.5  # a canvas without events for this long has ended
KINDS = ("task", "chain", "group", "chord")


APART = "chord into a group, and on"
# Where the parts of a chord are not simply its members.
SHAPES: dict[str, Callable[[], Any]] = {
    "a chain into a group": lambda: chord([_mark("a"), chain(_mark("b"), group(_mark("c"), _mark("d")))], _mark("e")),
    "a chord into a group": lambda: chord(
        [chord([_mark("a"), _mark("b")], group(_mark("c"), _mark("d"))), _mark("e")], _mark("f")
    ),
    "a group in a chain in a group": lambda: chord(
        [group(chain(_mark("a"), group(_mark("b"), _mark("c"))), _mark("d")), _mark("e")], _mark("f")
    ),
    "a chord into a chain into a group": lambda: chord(
        [_mark("a"), chord([_mark("b")], chain(_mark("c"), group(_mark("d"), _mark("e"))))], _mark("f")
    ),
    "groups in groups at the end": lambda: chord(
        [chain(_mark("a"), group(_mark("b"), chain(_mark("c"), group(_mark("d"), _mark("e")))))] * 2, _mark("f")
    ),
    "one replaced in a group at the end": lambda: chord(
        [_mark("a"), chain(_mark("b"), group(becomes.s(label="c", kind="group"), _mark("d")))], _mark("e")
    ),
    "long ids": lambda: chord(
        [_mark("a"), chain(_mark("b"), group(_mark("c").set(task_id="c" * 70 + uuid()), _mark("d")))], _mark("e")
    ),
    "ids with dots": lambda: chord(
        [chain(_mark("a"), group(_mark(n).set(task_id=f"{uuid()[:8]}.{n}") for n in "12"))], _mark("e")
    ),
    "a failure in a group at the end": lambda: chord(
        [_mark("a"), chain(_mark("b"), group(_mark("c"), broken.s(label="d")))], _mark("e")
    ),
    "a failure before a group": lambda: chord(
        [_mark("a"), chain(broken.s(label="b"), group(_mark("c"), _mark("d")))], _mark("e")
    ),
    "a failure before a large group": lambda: chord(
        [_mark("a"), chain(broken.s(label="b"), group(_mark(f"c{n}") for n in range(250)))], _mark("d")
    ),
    "a failure in a chord in a chord": lambda: chord(
        [_mark("a"), chord([_mark("b"), broken.s(label="c")], _mark("d"))], _mark("e")
    ),
    "a failure in a chord into a group": lambda: chord(
        [_mark("a"), chord([_mark("b"), broken.s(label="c")], group(_mark("d"), _mark("e")))], _mark("f")
    ),
    "a failure under a group": lambda: chord([_mark("a"), broken.s(label="b")], group(_mark("c"), _mark("d"))),
    APART: lambda: chord([_mark("a"), _mark("b")], group(_mark("c"), _mark("d"))) | group(_mark("e"), _mark("f")),
}


def _mark(label: str) -> Any:
    return mark.s(label=label)


def canvas_of(seed: int) -> Any:
    chance = random.Random(seed)
    made = _compound(chance, DEPTH, (f"t{number}" for number in itertools.count()))
    if chance.random() < 0.2:
        made.stamp(release=f"r{seed}")
    return made


def _compound(chance: random.Random, depth: int, labels: Iterator[str]) -> Any:
    kind = chance.choice(("chain", "group", "chord"))
    parts = [_part(chance, depth - 1, labels) for _ in range(chance.choice((2, 2, 3)))]
    if kind == "chain":
        return chain(*parts)
    return group(parts) if kind == "group" else chord(parts, _part(chance, depth - 1, labels))


def _part(chance: random.Random, depth: int, labels: Iterator[str]) -> Any:
    if depth > 0 and chance.random() < 0.55:
        return _compound(chance, depth, labels)
    label, what = next(labels), chance.random()
    if what < 0.03:
        return broken.s(label=label)
    if what < 0.10:
        return becomes.s(label=label, kind=chance.choice((*KINDS, "broken")))
    return twice.s(label=label) if what < 0.15 else mark.s(label=label)


def outcome_of(stage: Any, result: Any) -> Any:
    """Return how the canvas ended: for a group, each of its members. A task that plain Celery leaves waiting forever
    is PENDING."""
    if isinstance(result, GroupResult):
        return [outcome_of(stage, each) for each in result.results]
    return stage.told(result) if result.ready() else [result.state]


def play(canvas: Any, stage: Any) -> Any:
    result = canvas.apply_async()
    stage.outcome = lambda: outcome_of(stage, result)
    stage.wait(lambda: result.ready() or stage.still(STILL_S), "an end")
    return stage.outcome()
