"""Nest the results of a chord whose members are groups, or end in groups.

The body of such a chord gets lists inside the list, as in plain Celery. The result tree of the header says which result
belongs where. The result backend stores that tree, as in plain Celery. If each member's message held the tree instead,
the total size would grow with the square of the number of members. If the backend has lost the tree by the time the
chord joins, the chord fails, because a flat list would be wrong data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from celery.app.task import Context
from celery.canvas import group, maybe_signature
from celery.exceptions import ChordError
from celery.result import GroupResult

from relier.celery.compat import CanvasChain, CanvasChord, count_parts

NESTED = "chord_nested"  # in the body: the result backend holds a result tree for this chord
_NESTING = re.compile(r"\.\d+$")  # the suffix that the record of a replaced task has after its id


def is_group(result: Any) -> bool:
    return getattr(result, "results", None) is not None


def leaves(result: Any) -> Iterator[Any]:
    """Yield the tasks of a result tree, in order. Each of them is one part of the chord."""
    if not is_group(result):
        yield result
        return
    for inner in result.results:
        yield from leaves(inner)


def is_nested(header: Any) -> bool:
    return any(map(is_group, header.results))


def saved_result_tree(app: Any, group_id: str) -> Any:
    """Return the result tree of a header, as it was stored when the chord was sent."""
    header = GroupResult.restore(group_id, app=app)
    if header is None:
        raise ChordError(
            f"the results of chord {group_id} cannot be nested: the result backend has lost their structure; it was "
            f"emptied, or result_expires is shorter than the chord takes; send the chord again"
        )
    return header


def nest_values(header: Any, values: Mapping[str, Any], record_id_of: Callable[[str], str]) -> list[Any]:
    """Return the values in the shape of the result tree.

    `values` maps record ids to values. `record_id_of` returns the record id of a task that was not replaced.
    """
    by_task = {_NESTING.sub("", name): value for name, value in values.items()} | dict(values)

    def place(result: Any) -> Any:
        if is_group(result):
            return [place(inner) for inner in result.results]
        try:
            return by_task[record_id_of(result.id)]
        except KeyError:
            raise ChordError(
                f"chord {header.id} is missing the part of member {result.id}; send the chord again"
            ) from None

    return [place(result) for result in header.results]


def last_task_of(sig: Any) -> Any:
    """Return the task that ends a canvas. A chord around the canvas waits for the end of that task."""
    while isinstance(sig, CanvasChain | CanvasChord):
        sig = maybe_signature(sig.tasks[-1] if isinstance(sig, CanvasChain) else sig.body, app=sig.app)
    return sig


def part_of_outer_chord(sig: Any) -> Context | None:
    """Return, as a request, the part for which a chord around a canvas waits, or None without such a chord.

    For a group, read the chord from its members. The group's own options may name another chord: the one that has
    this group as its body.
    """
    last = leaf = last_task_of(sig)
    while isinstance(leaf, group) and leaf.tasks:
        leaf = last_task_of(maybe_signature(leaf.tasks[0], app=sig.app))
    if not leaf.options.get("chord"):
        return None
    request = Context(last)
    request.update({name: leaf.options.get(name) for name in ("chord", "group_index", "root_id")})
    request.id, request.group = last.options.get("task_id"), leaf.options.get("group_id")
    return request


def count_parts_of(request: Any) -> int:
    """Return how many parts the end of a task delivers: for a group that will not run, one for each member."""
    if getattr(request, "subtask_type", None) != "group":
        return 1
    return max(1, count_parts(request.kwargs["tasks"]))
