"""Lists of tasks: by state, queue, name, time or the beginning of an id. Each looks at a part of its indexes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from relier.cli.namespace_reads import IndexPage, index_page, page_args
from relier.cli.pipelined.stats import stats_reading
from relier.cli.pipelined.steps import Reading, TriedRead, raw, script
from relier.cli.task_list import ORDER, as_dict
from relier.dashboard.query import Query
from relier.dashboard.reads.search import by_prefix
from relier.dashboard.session import DashboardSession
from relier.errors import RelierError
from relier.ledger import keys
from relier.ledger.ledger import Ledger
from relier.ledger.records import Record, Task
from relier.ledger.stats import Stats
from relier.states import ENDED, State

MOST_SHOWN = 50
MOST_LOOKED = 200  # entries of one index per page, when a filter leaves some out
MOST_INDEXES = 20  # queues, lanes or workers whose tasks one page shows
MOST_LANES = 500  # lanes that are looked at
STATES = tuple(state.value for state in ORDER)


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which tasks to list. Empty fields match all. `since`, `until`: when the task last changed (ms)."""

    queue: str = ""
    name: str = ""
    reason: str = ""
    since: int | None = None
    until: int | None = None

    @property
    def everything(self) -> bool:
        return self == RecordFilter()

    def matches(self, record: Record) -> bool:
        changed = record.moved_ms or record.spec.at_us // 1000
        return (
            self.queue in ("", record.queue)
            and self.reason in ("", record.reason)
            and (not self.name or f".{record.name}".endswith(f".{self.name}"))
            and (self.since is None or changed >= self.since)
            and (self.until is None or changed <= self.until)
        )

    @classmethod
    def of(cls, query: Query) -> RecordFilter:
        queue, name, reason = (query.text(field) for field in ("queue", "name", "reason"))
        return cls(queue, name, reason, query.moment("since"), query.moment("until"))


@dataclass(frozen=True, slots=True)
class Listed:
    """Some tasks. `complete`: whether these are all. `cursor`: where the next page begins, or empty."""

    records: Sequence[Record]
    cursor: str
    complete: bool


def tasks(session: DashboardSession, query: Query) -> dict[str, Any]:
    state, prefix, wanted = query.one_of("state", STATES), query.text("id"), RecordFilter.of(query)
    if prefix:
        stats, listed = session.read(
            stats_reading(session.ledger), by_prefix(session.ledger, prefix, query.text("cursor"))
        )
        records = [one for one in listed.records if state in ("", one.state.value) and wanted.matches(one)]
        return _page(stats, wanted, state, prefix) | _rows(records, listed)
    (found,) = session.read(_listing(session.ledger, state, wanted, query.cursor()))
    stats, chosen, listed = found
    records = [one for one in listed.records if wanted.matches(one)]
    looked_at = None if wanted.everything else MOST_LOOKED
    return _page(stats, wanted, chosen.value, "") | _rows(records, listed) | {"looked_at": looked_at}


def _page(stats: Stats, wanted: RecordFilter, state: str, prefix: str) -> dict[str, Any]:
    by_state = stats.by_state()
    return {
        "now_ms": stats.now_ms,
        "state": state,
        "queue": wanted.queue,
        "name": wanted.name,
        "reason": wanted.reason,
        "since_ms": wanted.since,
        "until_ms": wanted.until,
        "id": prefix,
        "counts": {one.value: by_state.get(one, 0) for one in ORDER},
    }


def _rows(records: Iterable[Record], listed: Listed) -> dict[str, Any]:
    rows = list(map(as_dict, records))
    return {"tasks": rows, "cursor": listed.cursor, "complete": listed.complete, "looked_at": None}


def _listing(ledger: Ledger, state: str, wanted: RecordFilter, cursor: str) -> Reading[tuple[Stats, State, Listed]]:
    stats = yield from stats_reading(ledger)
    chosen = State(state) if state else _most_urgent(stats.by_state())
    return stats, chosen, (yield from in_state(ledger, stats, chosen, wanted, cursor))


def _most_urgent(by_state: dict[State, int]) -> State:
    """Return the first state that has tasks, in the order in which operators care."""
    return next((state for state in ORDER if by_state.get(state)), State.RUNNING)


def in_state(ledger: Ledger, stats: Stats, state: State, wanted: RecordFilter, cursor: str) -> Reading[Listed]:
    """Read some tasks in one state: the next ones if they wait, the latest ones if they have ended."""
    most = MOST_SHOWN if wanted.everything else MOST_LOOKED
    indexes = _indexes(stats, state, wanted.queue)
    chosen = [queue for queue in stats.queues if wanted.queue in ("", queue.queue)]
    if state is State.QUEUED and any(queue.held_back for queue in chosen) and len(indexes) <= MOST_INDEXES:
        (answer,) = yield [raw("HSCAN", keys.spell(ledger.prefix, "lanes"), 0, "COUNT", MOST_LANES)]
        indexes += [("lane", lane) for lane in map(bytes.decode, answer[1][::2]) if _is_of(lane, wanted.queue)]
    if len(indexes) != 1:
        return (yield from _from_several(ledger, indexes, wanted.name))
    args = page_args(*indexes[0], cursor, most, wanted.name, newest_first=state in ENDED)
    (answer,) = yield [script("page", *args)]
    page = index_page(answer)
    return Listed(records_of(page), page.cursor, not page.cursor)


def records_of(page: IndexPage) -> list[Record]:
    return [entry.record for entry in page.entries if entry.record is not None]


def _is_of(lane: str, queue: str) -> bool:
    return queue in ("", lane.partition(" ")[2])


def _from_several(ledger: Ledger, indexes: Sequence[tuple[str, str]], name: str) -> Reading[Listed]:
    """Read the first tasks of several queues or workers, oldest first."""
    some = indexes[:MOST_INDEXES]
    answers = yield [TriedRead(ledger.list(index, of, most=MOST_SHOWN)) for index, of in some]
    pages = [page for page in answers if not isinstance(page, RelierError)]
    found = [one for page in pages for one in page.records if not name or f".{one.name}".endswith(f".{name}")]
    found.sort(key=lambda one: one.moved_ms or one.spec.at_us // 1000)
    whole = len(found) <= 2 * MOST_SHOWN and len(pages) == len(indexes) and not any(page.cursor for page in pages)
    return Listed(found[: 2 * MOST_SHOWN], "", whole)


def _indexes(stats: Stats, state: State, queue: str) -> list[tuple[str, str]]:
    """Return the indexes that hold the tasks of a state, except for lanes: the fullest first."""
    if state in ENDED:
        return [("ended", state.value)]
    if state is State.SCHEDULED:
        return [("due", "")]
    if state is State.RUNNING:
        return [("owned", node.node_id) for node in stats.nodes if node.owned]
    chosen = [one for one in stats.queues if queue in ("", one.queue) and one.ready]
    return [("ready", one.queue) for one in sorted(chosen, key=lambda one: -one.ready)]


def read_some(session: DashboardSession, ids: Sequence[str]) -> list[Record]:
    """Return the records of these tasks, without those that do not exist or cannot be read."""
    try:
        calls = [session.ledger.get(task_id) for task_id in ids]
    except RelierError:  # no text that could be an id
        return []
    return [one.record for one in session.store.run_many(calls) if isinstance(one, Task)]
