"""rl why: explain what happened to a task, and what it waits for."""

from __future__ import annotations

import click

from relier.cli.find.task_ids import full_id
from relier.cli.node_view import WorkerView
from relier.cli.output import print_json, print_sentences
from relier.cli.payload_view import with_redacted_failures
from relier.cli.pipelined.stats import stats_reading
from relier.cli.pipelined.steps import RawRead, Reading, raw, read_all, together
from relier.cli.session import Exit, Session, with_session
from relier.cli.shards.routes import routed, to_task
from relier.cli.task_list import as_dict
from relier.cli.task_timeline import BehindLimits, LimitedBy, Surroundings, TimelineEntry, timeline
from relier.errors import CorruptRecordError, TaskNotFoundError
from relier.ledger import keys
from relier.ledger.ledger import Ledger
from relier.ledger.limit_records import LimitNumbers
from relier.ledger.records import Record, Task
from relier.ledger.schedule_records import GROUPS
from relier.schedules.definition import intended_time_of
from relier.states import State

TRIES = 3
MOST_PAGES = 2  # of schedules that are searched for the one that pushed a task; each is a round trip


@click.command()
@click.argument("task_id", metavar="ID")
@with_session
@routed(to_task())
def why(session: Session, task_id: str) -> Exit:
    """Explain what happened to a task, and what it waits for."""
    task_id = full_id(session, task_id)
    try:
        task, around = look(session, task_id)
    except (TaskNotFoundError, CorruptRecordError) as error:
        return report_unreadable(session, task_id, error)
    lines = timeline(with_redacted_failures(session, task), around)
    if session.as_json:
        story = [{"at_ms": line.at_ms, "says": line.text} for line in lines]
        print_json({"id": task_id, "found": True, "task": as_dict(task.record), "story": story})
    else:
        print_sentences(line.text for line in lines)
    return Exit.OK


def look(session: Session, task_id: str) -> tuple[Task, Surroundings]:
    """Read a task and its position. This takes several reads, repeated if the task changed in between."""
    for left in reversed(range(TRIES)):
        try:
            (found,) = read_all(session.store, session.ledger, _looking(session, task_id))
        except TaskNotFoundError as error:
            raise session.not_here(error) from error
        task, around, version = found
        if version == task.record.version or not left:
            return task, around
    raise AssertionError("unreachable")


def _looking(session: Session, task_id: str) -> Reading[tuple[Task, Surroundings, int]]:
    """Read a task, then the workers and its place, and the task's version after that."""
    (task,) = yield [session.ledger.get(task_id)]
    stats, (before, due_ms, kept_until_ms), held_back, schedule = yield from together(
        stats_reading(session.ledger, queues=[task.record.queue]),
        _place(session.ledger, task.record),
        _held_back(session.ledger, task.record),
        _schedule_of(session.ledger, task.record.id),
    )
    (again,) = yield [session.ledger.get(task_id)]
    workers = WorkerView(stats, session.settings.heartbeat_ttl)
    around = Surroundings(stats, workers, before, due_ms, kept_until_ms, held_back, schedule)
    return task, around, again.record.version


def _place(ledger: Ledger, record: Record) -> Reading[tuple[int | None, int | None, int | None]]:
    """Return the number of tasks ahead, the due time, and the end of retention: whichever applies in this state."""
    prefix, task_id = ledger.prefix, record.id
    match record.state:
        case State.RUNNING:
            return None, None, None
        case State.QUEUED:
            (rank,) = yield [raw("ZRANK", keys.spell(prefix, "ready", record.queue), task_id)]
            return rank, None, None
        case State.SCHEDULED:
            (found,) = yield [raw("ZSCORE", keys.spell(prefix, "due"), task_id)]
            return None, _time(found), None
    (found,) = yield [raw("ZSCORE", keys.spell(prefix, "ended", record.state.value), task_id)]
    return None, None, _time(found)


def _time(score: bytes | None) -> int | None:
    return None if score in (None, b"inf") else int(float(score))


def _held_back(ledger: Ledger, record: Record) -> Reading[BehindLimits | None]:
    """Read how limits hold back a waiting task. Return None if the task has no limits or does not wait."""
    lines = record.more.get("limits", "").splitlines() if "l" in record.flags else []
    if not lines or record.state not in {State.QUEUED, State.SCHEDULED}:
        return None

    def read(command: str, name: str, *args: str, of: str = "") -> RawRead:
        return raw(command, keys.spell(ledger.prefix, name, of), *args)

    said = [line.split() for line in lines]
    lane = f"{','.join(key for _, key, *_ in said)} {record.queue}"
    lane_state, before, *found = yield [
        read("HGET", "lanes", lane),
        read("ZRANK", "lane", record.id, of=lane),
        *(read("HMGET", "limits", key, name) for name, key, *_ in said),
        *(read("HGET", "pacers", f"{key} {record.queue}") for _, key, *_ in said),
        *(read("ZCARD", "slots", of=key) for _, key, *_ in said),
    ]
    size, uses = len(said), []
    for nth, (_, key, *words) in enumerate(said):
        chosen, first, running = found[nth], found[size + nth], found[2 * size + nth]
        by_operator = next((numbers for numbers in chosen if numbers), None)
        numbers = LimitNumbers(*map(int, by_operator.split()[:3] if by_operator else words))
        uses.append(LimitedBy(key, numbers, running, first.decode() if first else ""))
    state = (lane_state or b"").decode()
    asleep_on = state[1:] if state[:1] == "-" else ""
    head = state[1:] if state[:1] == "+" else ""
    others = 0
    if asleep_on:
        (others,) = yield [read("ZRANK", "sleepers", lane, of=f"{asleep_on} {record.queue}")]
    return BehindLimits(tuple(uses), before, head, asleep_on, others or 0)


def _schedule_of(ledger: Ledger, task_id: str) -> Reading[tuple[str, int] | None]:
    """Find the schedule that pushed a task, and the intended time (ms). Only the first schedules are searched."""
    intended_ms = intended_time_of(task_id)
    cursors = {} if intended_ms is None else dict.fromkeys(GROUPS, "")
    for _ in range(MOST_PAGES if cursors else 0):
        pages = yield [ledger.schedules(group=group, cursor=cursor) for group, cursor in cursors.items()]
        for each in (each for page in pages for each in page.schedules):
            if task_id == each.last or any(firing.task_id == task_id for firing in each.fires):
                return each.name, intended_ms or 0
        cursors = {group: page.cursor for group, page in zip(cursors, pages, strict=True) if page.cursor}
        if not cursors:
            break
    return None


def report_unreadable(session: Session, task_id: str, error: TaskNotFoundError | CorruptRecordError) -> Exit:
    corrupt = isinstance(error, CorruptRecordError)
    says = [f"{part[0].upper()}{part[1:]}." for part in str(error).split("; ")]
    if corrupt:
        key = keys.spell(session.ledger.prefix, "task", task_id)
        kind = session.store.command("TYPE", key, retry=True)
        says.append(f"Its key is {key}, a value of type {kind.decode() if isinstance(kind, bytes) else kind}.")
        says.append("A worker that finds it in a queue moves it to the dead letters, with its text as the payload.")
    if session.as_json:
        story = [TimelineEntry(text) for text in says]
        rows = [{"at_ms": line.at_ms, "says": line.text} for line in story]
        print_json({"id": task_id, "found": False, "corrupt": corrupt, "task": None, "story": rows})
    else:
        print_sentences(says)
    return Exit.PROBLEM
