"""A chord whose members are groups, or end in some: its body gets lists inside the list, as plain Celery gives it.

Who belongs where is in the result tree of the header. Plain Celery keeps that tree in the result backend, and so do we:
in each member's message it would grow with the square of the members. If the backend has lost it by the time the chord
joins, the chord fails: a flat list would be wrong data.
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

NESTED = "chord_nested"  # in the body: there is a tree to look for
_NESTING = re.compile(r"\.\d+$")  # what a replaced task has behind its id


def is_group(result: Any) -> bool:
    return getattr(result, "results", None) is not None


def leaves(result: Any) -> Iterator[Any]:
    """The tasks of a result tree, in order. Each of them is one part of the chord."""
    if not is_group(result):
        yield result
        return
    for inner in result.results:
        yield from leaves(inner)


def is_nested(header: Any) -> bool:
    return any(map(is_group, header.results))


def kept_tree(app: Any, group_id: str) -> Any:
    """The result tree of a header, as it was kept when the chord was sent."""
    header = GroupResult.restore(group_id, app=app)
    if header is None:
        raise ChordError(
            f"the members of chord {group_id} are nested, and the result backend has lost how: it was emptied, or "
            f"result_expires is shorter than the chord takes; send the chord again"
        )
    return header


def arranged(header: Any, values: Mapping[str, Any], name_of: Callable[[str], str]) -> list[Any]:
    """The values as the tree has them. `values`: by record; `name_of`: the record of a task that was not replaced."""
    by_task = {_NESTING.sub("", name): value for name, value in values.items()} | dict(values)

    def place(result: Any) -> Any:
        if is_group(result):
            return [place(inner) for inner in result.results]
        try:
            return by_task[name_of(result.id)]
        except KeyError:
            raise ChordError(f"{result.id} is a member of chord {header.id} and has brought no part") from None

    return [place(result) for result in header.results]


def last_of(sig: Any) -> Any:
    """Whose end is the end of a canvas: that is the one that a chord around it waits for."""
    while isinstance(sig, CanvasChain | CanvasChord):
        sig = maybe_signature(sig.tasks[-1] if isinstance(sig, CanvasChain) else sig.body, app=sig.app)
    return sig


def awaited_by(sig: Any) -> Context | None:
    """The part that a chord around a canvas waits for, as a request; None where there is no such chord. Of a group, its
    members know which chord that is: its own options may name the chord whose body it is."""
    last = leaf = last_of(sig)
    while isinstance(leaf, group) and leaf.tasks:
        leaf = last_of(maybe_signature(leaf.tasks[0], app=sig.app))
    if not leaf.options.get("chord"):
        return None
    request = Context(last)
    request.update({name: leaf.options.get(name) for name in ("chord", "group_index", "root_id")})
    request.id, request.group = last.options.get("task_id"), leaf.options.get("group_id")
    return request


def parts_of(request: Any) -> int:
    """For how many parts of its chord an end stands: of a group that will not run, for those of all its members."""
    if getattr(request, "subtask_type", None) != "group":
        return 1
    return max(1, count_parts(request.kwargs["tasks"]))
