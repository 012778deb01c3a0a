"""Lists of tasks: by state, queue, name or the beginning of an id. Each looks at a bounded part of its indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relier.cli.namespace_reads import NamespaceReads
from relier.cli.task_list import ORDER, as_dict
from relier.dashboard.reads.query import Query
from relier.dashboard.session import DashboardSession
from relier.errors import RelierError
from relier.ledger import keys
from relier.ledger.pages import read_lanes
from relier.ledger.records import Record, Task
from relier.ledger.stats import Stats
from relier.states import ENDED, State

MOST_SHOWN = 50
MOST_LOOKED = 500  # entries of one index per page, when a filter leaves some out
MOST_INDEXES = 20  # queues, lanes or workers whose tasks one page shows
SCAN_COUNT = 5_000
MOST_SCANS = 40
MOST_FOUND = 50
STATES = tuple(state.value for state in ORDER)


def tasks(session: DashboardSession, query: Query) -> dict[str, Any]:
    state, queue, name = query.one_of("state", STATES), query.text("queue"), query.text("name")
    reason, prefix = query.text("reason"), query.text("id")
    stats = session.stats()
    by_state = stats.by_state()
    page = {
        "now_ms": stats.now_ms,
        "state": state,
        "queue": queue,
        "name": name,
        "reason": reason,
        "id": prefix,
        "counts": {one.value: by_state.get(one, 0) for one in ORDER},
    }
    if prefix:
        records, complete = find_by_prefix(session, prefix)
        found = [one for one in records if state in ("", one.state.value)]
        return page | {"tasks": list(map(as_dict, found)), "cursor": "", "complete": complete, "looked_at": None}
    chosen = State(state) if state else _most_urgent(by_state)
    listed = list_in_state(session, stats, chosen, queue, name, query.cursor(), filtered=bool(reason))
    records = [one for one in listed["records"] if queue in ("", one.queue) and reason in ("", one.reason)]
    return page | {
        "state": chosen.value,
        "tasks": list(map(as_dict, records)),
        "cursor": listed["cursor"],
        "complete": listed["complete"],
        "looked_at": MOST_LOOKED if name or queue or reason else None,
    }


def _most_urgent(by_state: dict[State, int]) -> State:
    """Return the first state that has tasks, in the order in which operators care."""
    return next((state for state in ORDER if by_state.get(state)), State.RUNNING)


def list_in_state(
    session: DashboardSession, stats: Stats, state: State, queue: str, name: str, cursor: str, *, filtered: bool
) -> dict[str, Any]:
    """Return some tasks in one state: next ones of those that wait, latest of those that have ended."""
    most = MOST_LOOKED if name or queue or filtered else MOST_SHOWN
    indexes, complete = _indexes(session, stats, state, queue)
    if len(indexes) != 1:
        return _from_several(session, indexes, name, complete)
    reads = NamespaceReads(session.store, session.ledger)
    page = reads.page(*indexes[0], cursor, most, name, newest_first=state in ENDED)
    records = [entry.record for entry in page.entries if entry.record is not None]
    return {"records": records, "cursor": page.cursor, "complete": complete and not page.cursor}


def _from_several(
    session: DashboardSession, indexes: Sequence[tuple[str, str]], name: str, complete: bool
) -> dict[str, Any]:
    """Return the first tasks of several queues or workers, read in one round trip, oldest first."""
    calls = [session.ledger.list(index, of, most=MOST_SHOWN) for index, of in indexes]
    pages = [page for page in session.store.run_many(calls) if not isinstance(page, RelierError)]
    found = [one for page in pages for one in page.records if not name or f".{one.name}".endswith(f".{name}")]
    found.sort(key=lambda one: one.moved_ms or one.spec.at_us // 1000)
    whole = complete and len(found) <= 2 * MOST_SHOWN and not any(page.cursor for page in pages)
    return {"records": found[: 2 * MOST_SHOWN], "cursor": "", "complete": whole and len(pages) == len(calls)}


def _indexes(session: DashboardSession, stats: Stats, state: State, queue: str) -> tuple[list[tuple[str, str]], bool]:
    """Return the indexes that hold the tasks of a state, and whether these are all of them."""
    if state in ENDED:
        return [("ended", state.value)], True
    if state is State.SCHEDULED:
        return [("due", "")], True
    if state is State.RUNNING:
        found = [("owned", node.node_id) for node in stats.nodes if node.owned]
        return found[:MOST_INDEXES], len(found) <= MOST_INDEXES
    chosen = [one for one in stats.queues if queue in ("", one.queue)]
    found = [("ready", one.queue) for one in sorted(chosen, key=lambda one: -one.ready) if one.ready]
    if any(one.held_back for one in chosen) and len(found) < MOST_INDEXES:
        for lane in read_lanes(session.run, session.ledger, queue):
            found += [("lane", lane.name)] if lane.waiting else []
            if len(found) > MOST_INDEXES:
                break
    return found[:MOST_INDEXES], len(found) <= MOST_INDEXES


# --- by id -------------------------------------------------------------------------------------------------------


def find_by_prefix(session: DashboardSession, prefix: str) -> tuple[list[Record], bool]:
    """Return the tasks whose ids begin with a text, and whether the search saw every key of the store.

    A whole id is found at once. No index is ordered by id, so the beginning of one is searched among some of the keys.
    """
    exact = read_some(session, [prefix])
    if exact:
        return exact, True
    begins = keys.spell(session.ledger.prefix, "task")
    found: dict[str, None] = {}
    scans = NamespaceReads(session.store, session.ledger).scan_for((begins + prefix).encode(), SCAN_COUNT)
    for n, page in enumerate(scans, 1):
        found |= dict.fromkeys(key.decode("utf-8", "replace").removeprefix(begins) for key in page)
        if n >= MOST_SCANS or len(found) >= MOST_FOUND:
            return read_some(session, list(found)[:MOST_FOUND]), False
    return read_some(session, list(found)[:MOST_FOUND]), True


def read_some(session: DashboardSession, ids: Sequence[str]) -> list[Record]:
    """Return the records of these tasks, without those that do not exist or cannot be read."""
    return [task.record for task in read_tasks(session, ids)]


def read_tasks(session: DashboardSession, ids: Sequence[str]) -> list[Task]:
    try:
        calls = [session.ledger.get(task_id) for task_id in ids]
    except RelierError:  # no text that could be an id
        return []
    return [one for one in session.store.run_many(calls) if not isinstance(one, RelierError)]
