"""Read what the admin shows from the ledger, in a bounded number of calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from relier.cli.namespace_reads import NamespaceReads
from relier.django.shown import call_text, redacted_text
from relier.errors import RelierError
from relier.failure import read_failure
from relier.ledger.defaults import LIST_PAGE
from relier.ledger.pages import read_lanes, read_stats
from relier.ledger.records import Record, Task, new_task_id
from relier.ledger.stats import Stats
from relier.states import ENDED, State
from relier.submit.client import Client, default_client

MOST_SHOWN = 100  # tasks of one state on a page
MOST_READ = 1_000  # ended tasks of one state, among which a queue or a reason is looked for
MOST_INDEXES = 50  # queues, and workers, whose tasks are read
ORDER = (State.RUNNING, State.QUEUED, State.SCHEDULED, State.DEAD, State.CANCELLED, State.DONE)


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task as a list shows it."""

    id: str
    name: str
    state: str
    queue: str
    attempt: int
    reason: str
    accepted: datetime
    moved: datetime | None

    @classmethod
    def of(cls, record: Record) -> TaskRow:
        moved = moment(record.moved_ms) if record.moved_ms else None
        at = moment(record.spec.at_us // 1000)
        return cls(record.id, record.name, record.state.value, record.queue, record.attempt, record.reason, at, moved)


@dataclass(frozen=True, slots=True)
class TaskList:
    rows: list[TaskRow]
    counts: dict[str, int]
    reasons: dict[str, int]


def recent_tasks(states: Sequence[State], queue: str = "", name: str = "", reason: str = "") -> TaskList:
    """Return tasks of each state: for waiting tasks the next ones, for ended tasks the latest."""
    client = default_client()
    stats = read_stats(client.run, client.ledger)
    rows: list[TaskRow] = []
    reasons: Counter[str] = Counter()
    for state in states:
        found = [
            record
            for record in _in_state(client, stats, state, name)
            if record.state is state and (not queue or record.queue == queue)
        ]
        reasons.update(record.reason for record in found)
        wanted = [record for record in found if not reason or record.reason == reason]
        rows += [TaskRow.of(record) for record in wanted[:MOST_SHOWN]]
    counts = {state.value: stats.by_state().get(state, 0) for state in ORDER}
    return TaskList(rows, counts, dict(reasons.most_common()))


def _in_state(client: Client, stats: Stats, state: State, name: str) -> list[Record]:
    if state in ENDED:
        return _latest(client, state, name)
    indexes = {
        State.RUNNING: [("owned", node.node_id) for node in stats.nodes if node.owned],
        State.QUEUED: _queued(client, stats) if state is State.QUEUED else [],
        State.SCHEDULED: [("due", "")],
    }
    pages = [
        client.run(client.ledger.list(*index, most=MOST_SHOWN, name=name)) for index in indexes[state][:MOST_INDEXES]
    ]
    return [record for page in pages for record in page.records]


def _queued(client: Client, stats: Stats) -> list[tuple[str, str]]:
    """Return the indexes of queued tasks: queues, then some of the lanes that limits hold back."""
    ready = [("ready", queue.queue) for queue in stats.queues if queue.ready]
    if not any(queue.held_back for queue in stats.queues):
        return ready
    lanes = (("lane", lane.name) for lane in read_lanes(client.run, client.ledger) if lane.waiting)
    return [*ready, *islice(lanes, max(0, MOST_INDEXES - len(ready)))]


def _latest(client: Client, state: State, name: str) -> list[Record]:
    """Return the tasks that ended last: those whose records are kept longest."""
    reads, cursor = NamespaceReads(client.sync_store, client.ledger), ""
    found: list[Record] = []
    for _ in range(MOST_READ // LIST_PAGE):
        page = reads.page("ended", state.value, cursor, LIST_PAGE, name, newest_first=True)
        found += [entry.record for entry in page.entries if entry.record is not None]
        if not (cursor := page.cursor):
            break
    return found


def describe(task: Task) -> dict[str, Any]:
    """Return everything a page about one task shows, redacted."""
    record = task.record
    return {
        "row": TaskRow.of(record),
        "priority": record.spec.priority,
        "worker": record.worker_id,
        "progress": redacted_text(record.name, record.progress) if record.progress else "",
        "attempts": list(_attempts(task)),
        "payload": "" if task.payload is None else call_text(task.payload, record.id, record.name),
    }


def _attempts(task: Task) -> Iterator[dict[str, Any]]:
    for entry in task.history:
        failure, name = read_failure(entry.detail), task.record.name
        yield {
            "number": entry.attempt,
            "began": moment(entry.since_ms) if entry.since_ms else None,
            "ended": moment(entry.at_ms),
            "move": entry.move,
            "worker": entry.worker_id,
            "error": failure.name,
            "message": redacted_text(name, failure.message) if failure.message else "",
            "traceback": redacted_text(name, failure.traceback) if failure.traceback else "",
        }


def read_task(task_id: str) -> Task:
    client = default_client()
    return client.run(client.ledger.get(task_id))


def dead_among(task_ids: Sequence[str]) -> list[Record]:
    """Return the tasks that are dead now."""
    client = default_client()
    found = client.sync_store.run_many([client.ledger.get(task_id) for task_id in task_ids])
    return [one.record for one in found if not isinstance(one, RelierError) and one.record.state is State.DEAD]


def replay(records: Sequence[Record]) -> list[Record]:
    """Queue dead tasks again, each at the version that was read. Return the tasks that were queued."""
    ledger = default_client().ledger
    return _moved(records, [ledger.replay(one.id, one.version, new_task_id()) for one in records])


def discard(records: Sequence[Record]) -> list[Record]:
    """Remove dead tasks, each at the version that was read. Return the tasks that were removed."""
    ledger = default_client().ledger
    return _moved(records, [ledger.discard(one.id, one.version) for one in records])


def _moved(records: Sequence[Record], calls: list[Any]) -> list[Record]:
    answers = default_client().sync_store.run_many(calls)
    return [one for one, answer in zip(records, answers, strict=True) if not isinstance(answer, RelierError)]


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
