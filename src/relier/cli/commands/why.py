"""rl why: explain what happened to a task, and what it waits for."""

from __future__ import annotations

from typing import Any

import click

from relier.cli.find.task_ids import full_id
from relier.cli.node_view import WorkerView
from relier.cli.output import print_json, print_sentences
from relier.cli.payload_view import with_redacted_failures
from relier.cli.session import Exit, Session, with_session
from relier.cli.task_list import as_dict
from relier.cli.task_timeline import BehindLimits, LimitedBy, Surroundings, TimelineEntry, timeline
from relier.errors import CorruptRecordError, TaskNotFoundError
from relier.ledger import keys
from relier.ledger.limit_records import LimitNumbers
from relier.ledger.pages import read_stats
from relier.ledger.records import Record, Task
from relier.states import State

TRIES = 3


@click.command()
@click.argument("task_id", metavar="ID")
@with_session
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
        task = session.run(session.ledger.get(task_id))
        stats = read_stats(session.run, session.ledger)
        workers = WorkerView(stats, session.settings.heartbeat_ttl)
        around = Surroundings(stats, workers, *_place(session, task.record), _held_back(session, task.record))
        again = session.run(session.ledger.get(task_id)) if left else task
        if again.record.version == task.record.version:
            return task, around
    raise AssertionError("unreachable")


def _place(session: Session, record: Record) -> tuple[int | None, int | None, int | None]:
    """Return the number of tasks ahead, the due time, and the end of retention: whichever applies in this state."""
    prefix, task_id = session.ledger.prefix, record.id

    def score(name: str, of: str = "") -> int | None:
        found = session.store.command("ZSCORE", keys.spell(prefix, name, of), task_id, retry=True)
        return None if found in (None, b"inf") else int(float(found))

    match record.state:
        case State.QUEUED:
            rank = session.store.command("ZRANK", keys.spell(prefix, "ready", record.queue), task_id, retry=True)
            return rank, None, None
        case State.SCHEDULED:
            return None, score("due"), None
        case State.RUNNING:
            return None, None, None
    return None, None, score("ended", record.state.value)


def _held_back(session: Session, record: Record) -> BehindLimits | None:
    """Read how limits hold back a waiting task. Return None if the task has no limits or does not wait."""
    lines = record.more.get("limits", "").splitlines() if "l" in record.flags else []
    if not lines or record.state not in {State.QUEUED, State.SCHEDULED}:
        return None

    def read(command: str, name: str, *args: str, of: str = "") -> Any:
        return session.store.command(command, keys.spell(session.ledger.prefix, name, of), *args, retry=True)

    uses = []
    for line in lines:
        name, key, *words = line.split()
        chosen = next((found for found in read("HMGET", "limits", key, name) if found), None)
        numbers = LimitNumbers(*map(int, chosen.split()[:3] if chosen else words))
        first = read("HGET", "pacers", f"{key} {record.queue}")
        uses.append(LimitedBy(key, numbers, read("ZCARD", "slots", of=key), first.decode() if first else ""))
    lane = f"{','.join(use.key for use in uses)} {record.queue}"
    state = (read("HGET", "lanes", lane) or b"").decode()
    asleep_on = state[1:] if state[:1] == "-" else ""
    head = state[1:] if state[:1] == "+" else ""
    others = read("ZRANK", "sleepers", lane, of=f"{asleep_on} {record.queue}") if asleep_on else 0
    return BehindLimits(tuple(uses), read("ZRANK", "lane", record.id, of=lane), head, asleep_on, others or 0)


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
