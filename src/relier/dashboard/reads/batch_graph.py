"""A batch as a graph: rows of members that run side by side, links of a chain one after the other, then callbacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from relier.ledger.batches.records import BatchMember, BatchRecord, BatchState, Stage
from relier.ledger.records import Record, Task
from relier.ledger.replies import text

MOST_ROWS = 20
CALLBACKS = {"then": "once all are done", "on_failure": "once one has failed", "on_complete": "once all have ended"}
STATES = {Stage.DONE: "done", Stage.DEAD: "dead", Stage.CANCELLED: "cancelled"}

Details = Mapping[str, Task | BatchRecord]
Node = dict[str, Any]


def graph_of(found: BatchRecord, members: Sequence[BatchMember], details: Details, plans: Iterable[Any]) -> Node:
    """Return rows of nodes, the callbacks, and how many rows are left out.

    `plans`: (plan, the plan that follows it, id, name, id, name, …) for tasks that enter later.
    """
    planned = {text(plan): (text(after), [*map(text, flat)]) for plan, after, *flat in plans}
    by_place: dict[int, list[BatchMember]] = {}
    for member in sorted(members, key=lambda one: one.place):
        by_place.setdefault(member.place, []).append(member)
    rows = [_row(some, details, planned) for some in by_place.values()]
    rows.sort(key=lambda row: row[-1]["state"] not in ("dead", "running"))  # what matters first
    return {
        "rows": rows[:MOST_ROWS],
        "chains": any(len(row) > 1 for row in rows),
        "left_out": max(0, found.size - min(len(rows), MOST_ROWS)),
        "callbacks": [_callback(found, name, planned, details) for name in CALLBACKS if _has(found, name, planned)],
    }


def _row(members: Sequence[BatchMember], details: Details, planned: Mapping[str, tuple[str, list[str]]]) -> list[Node]:
    """Return the members at one place, in the order in which they ran, and the links that follow them."""
    nodes = sorted((_node(one, details.get(one.id)) for one in members), key=lambda node: node["began_ms"])
    following = next((node["next"] for node in reversed(nodes) if node["next"] in planned), "")
    seen = set[str]()
    while following in planned and following not in seen:
        seen.add(following)
        after, flat = planned[following]
        nodes.append(_planned(flat))
        following = after
    return nodes


def _node(member: BatchMember, detail: Task | BatchRecord | None) -> Node:
    state = STATES.get(member.stage, "waiting")
    node = {"id": member.id, "batch": member.inner, "state": state, "label": "", "began_ms": 0, "next": ""}
    match detail:
        case BatchRecord():
            words = f"{detail.name or ('chain' if detail.is_chain else 'batch')}: {detail.done:,} of {detail.size:,}"
            running = "running" if detail.state is not BatchState.ENDED else state
            return node | {"label": words, "state": running, "began_ms": detail.created_ms}
        case Task(record=Record() as record):
            following = (*record.more.get("batch", "").split(" "), "", "", "")[2]
            began = record.spec.at_us // 1000
            return node | {
                "label": record.name,
                "state": record.state.value,
                "began_ms": began,
                "next": following.strip("-"),
            }
    return node


def _planned(flat: Sequence[str]) -> Node:
    names = list(dict.fromkeys(flat[1::2]))
    label = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return {"id": "", "batch": False, "state": "planned", "label": label or "planned", "began_ms": 0, "next": ""}


def _has(found: BatchRecord, name: str, planned: Mapping[str, Any]) -> bool:
    return name in found.callbacks or name in found.fired or name in planned


def _callback(found: BatchRecord, name: str, planned: Mapping[str, tuple[str, list[str]]], details: Details) -> Node:
    """Return a callback: its task with its state, or that it waits or will not run."""
    node = {"name": name, "when": CALLBACKS[name], "id": found.callbacks.get(name, "")}
    match details.get(node["id"]):
        case Task(record=Record() as record):
            return node | {"state": record.state.value, "label": record.name}
    ended = found.state is BatchState.ENDED
    state = "queued" if name in found.fired else "not run" if ended else "planned"
    return node | {"state": state, "label": ", ".join(dict.fromkeys(planned.get(name, ("", []))[1][1::2]))}
