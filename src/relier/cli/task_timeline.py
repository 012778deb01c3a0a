"""The life of one task in plain words: what happened, in order of time, and what it waits for now. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relier.cli.output import ago, clock, many, one_line, span, when
from relier.cli.worker_view import Staff, Worker
from relier.failure import read_failure
from relier.ledger.defaults import HISTORY_KEPT
from relier.ledger.records import HistoryEntry, Record, Task
from relier.ledger.stats import Stats
from relier.states import LIVE, State

LONGEST = 300


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence, or a few. `at_ms` is when; None for what is so now."""

    text: str
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of a task beside its record. `before`: tasks in line before it; `due_ms`: when its time comes;
    `kept_until_ms`: when its record is removed, None for never."""

    stats: Stats
    staff: Staff
    before: int | None = None
    due_ms: int | None = None
    kept_until_ms: int | None = None

    @property
    def now_ms(self) -> int:
        return self.stats.now_ms


def tell(task: Task, around: Surroundings) -> list[Line]:
    """The whole story."""
    began = [_accepted(task.record, around.now_ms), *_options(task.record, around.now_ms)]
    happened = [_attempt_line(task, n, around.now_ms) for n in range(len(task.history))]
    at = replay_place(task)
    happened[at:at] = _replayed(task.record, around.now_ms)
    return [*began, *_cut(task.history), *happened, *_now(task, around)]


# --- how it came -------------------------------------------------------------------------------------------------


def _accepted(record: Record, now_ms: int) -> Line:
    spec = record.spec
    at = spec.at_us // 1000
    return Line(
        f"Accepted {when(at, now_ms)} as {one_line(record.name)} for queue {one_line(record.queue)}, "
        f"priority {spec.priority}, at durability {spec.durability}.",
        at,
    )


def _options(record: Record, now_ms: int) -> Iterator[Line]:
    spec, at = record.spec, record.spec.at_us // 1000
    if key := record.more.get("key"):
        yield Line(f"It holds the idempotency key {one_line(key)!r}.", at)
    if spec.expires_ms is not None and record.state in LIVE:
        yield Line(f"It is cancelled if it has not begun by {when(spec.expires_ms, now_ms)}.", at)
    if spec.on_lost != "retry":
        yield Line("If its worker is lost, it is not run again, but buried.", at)


# --- what happened -----------------------------------------------------------------------------------------------


def _cut(history: Sequence[HistoryEntry]) -> Iterator[Line]:
    if len(history) >= HISTORY_KEPT:
        yield Line(f"(Only the last {HISTORY_KEPT} attempts that failed are kept.)")


def _attempt_line(task: Task, n: int, now_ms: int) -> Line:
    entry = task.history[n]
    after = task.history[n + 1] if n + 1 < len(task.history) else None
    return Line(_attempt(entry, after, task.record, now_ms), entry.at_ms)


def _attempt(entry: HistoryEntry, after: HistoryEntry | None, record: Record, now_ms: int) -> str:
    if entry.move == "corrupt":
        return f"At {when(entry.at_ms, now_ms)} its record was found broken, and was buried."
    if entry.move == "unreadable":
        return f"An attempt left a line that cannot be read: {one_line(entry.detail)}"
    began = f" began {when(entry.since_ms, now_ms)}" if entry.since_ms else ""
    where = f" on worker {entry.worker_id}" if entry.worker_id not in {"", "-"} else ""
    return f"Attempt {entry.attempt}{began}{where}; {_end(entry, after, record, now_ms)}"


def _end(entry: HistoryEntry, after: HistoryEntry | None, record: Record, now_ms: int) -> str:
    lasted = f"after {span(entry.at_ms - entry.since_ms)}" if entry.since_ms else f"at {clock(entry.at_ms, now_ms)}"
    failure = read_failure(entry.detail)
    said = one_line(": ".join(part for part in (failure.name, failure.message) if part), LONGEST)
    match entry.move:
        case "bury":
            return f"{lasted} it failed for good" + (f" with {said}." if said else ".")
        case "retry" if _was_put_back(entry, after, record):
            return f"{lasted} it was put back, and counts as no attempt" + (f": {said}." if said else ".")
        case "retry":
            return f"{lasted} it failed" + (f" with {said}," if said else ",") + " to be tried again."
        case "revive":
            # The task's death is told by the last line; after any other it was put in line again.
            dead = after is None and record.state is State.DEAD
            return f"{lasted} its worker was lost: {said or 'nobody knows why'}. " + (
                "It was not to run again." if dead else f"It was revived at {clock(entry.at_ms, now_ms)}."
            )
    return f"{lasted} it ended by {entry.move}" + (f": {said}." if said else ".")


def _was_put_back(entry: HistoryEntry, after: HistoryEntry | None, record: Record) -> bool:
    """A retry that burns no attempt: the next one has the same number."""
    if after is not None:
        return after.attempt == entry.attempt
    if record.state is State.RUNNING:
        return record.attempt == entry.attempt
    return record.attempt < entry.attempt and bool({"since", "locked_since"} & record.more.keys())


def _replayed(record: Record, now_ms: int) -> list[Line]:
    """When the last replay was is not kept; a nonce that `rl` made tells, being an id that begins with its time."""
    nonce = record.more.get("replayed")
    if not nonce:
        return []
    edits = int(record.more.get("revision") or 0)
    changed = f", {'once' if edits == 1 else f'{edits} times'} with another payload" if edits else ""
    at = time_of_id(nonce)
    return [Line(f"A person replayed it {when(at, now_ms) if at else 'at some time'}{changed}.", at)]


def replay_place(task: Task) -> int:
    """How many lines of the history were there before the last replay. Attempts count from 1 again after it, and what
    comes after a burial comes after a replay. (Times would not do: a whole life fits into one millisecond.)"""
    record, history = task.record, task.history
    begun = record.state in {State.RUNNING, State.DONE}
    nexts = [*(entry.attempt for entry in history[1:]), record.attempt if begun else record.attempt + 1]
    last = len(history) - 1 if record.state is State.DEAD else len(history)  # its last line is its last death
    for n in range(last, 0, -1):
        ended = history[n - 1].move
        if ended in {"bury", "corrupt"} or (ended == "revive" and nexts[n - 1] <= history[n - 1].attempt):
            return n
    return 0 if record.state is State.DEAD else len(history)


def time_of_id(text: str) -> int | None:
    """The time in an id of new_task_id (UUID version 7); None for any other text."""
    return int(text[:12], 16) if re.fullmatch(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", text) else None


# --- what is so now ----------------------------------------------------------------------------------------------


def _now(task: Task, around: Surroundings) -> Iterator[Line]:
    record = task.record
    match record.state:
        case State.SCHEDULED:
            yield from _scheduled(record, around)
        case State.QUEUED:
            yield from _queued(record, around)
        case State.RUNNING:
            yield from _running(record, around)
        case State.DONE:
            yield from _done(task, around)
        case State.DEAD:
            yield from _dead(task, around)
        case State.CANCELLED:
            yield from _cancelled(record, around)
    if record.state in LIVE and "a" in record.flags:
        yield Line("It was there when processes died more than once, so it runs alone in a process of its own.")
    if record.state in LIVE and (task.checkpoint is not None or task.steps):
        yield Line("What earlier attempts saved (checkpoint, steps) is kept: the next one goes on from there.")


def _scheduled(record: Record, around: Surroundings) -> Iterator[Line]:
    now, due = around.now_ms, around.due_ms
    if due is None:
        yield Line("It is scheduled, but the schedule does not hold it: run `rl audit`.")
    elif due > now:
        again = " to be tried again" if record.attempt else ""
        yield Line(f"It waits for its time{again}: it is due at {when(due, now)}.")
    elif around.staff.alive:
        yield Line(f"It was due at {when(due, now)} and enters its queue with the next sweep.")
    else:
        yield Line(
            f"It was due at {when(due, now)}, but nobody moves due tasks on: no worker is alive. "
            f"Start one with `rl worker`."
        )


def _queued(record: Record, around: Surroundings) -> Iterator[Line]:
    before = around.before
    if before is None:
        yield Line("It is queued, but its queue does not hold it: run `rl audit`.")
        return
    line = (
        "it is the next in its queue"
        if before == 0
        else f"{many(before, 'task is', 'tasks are')} before it in its queue"
    )
    queue = next((found for found in around.stats.queues if found.queue == record.queue), None)
    paused = ", and the queue is paused" if queue is not None and queue.paused else ""
    yield Line(f"It waits: {line}{paused}.")
    name = one_line(record.queue)
    if paused:
        yield Line(f"Let the queue go on with `rl queues resume {name}`.")
    yield from _attention(record.queue, around.staff)


def _attention(queue: str, staff: Staff) -> Iterator[Line]:
    """Who could take it."""
    listening = staff.listening(queue)
    if not staff.alive:
        yield Line("No worker is alive. Start one with `rl worker`.")
    elif staff.unattended(queue):
        yield Line(
            f"No worker listens to this queue: {many(len(staff.alive), 'is alive, for', 'are alive, for')} "
            f"{_queues_of(staff)}. Start a worker for queue {one_line(queue)}."
        )
    elif listening and all(worker.full for worker in listening):
        slots = sum(worker.concurrency or 0 for worker in listening)
        yield Line(
            f"{many(len(listening), 'worker listens', 'workers listen')} to the queue, and all {slots:,} slots are "
            f"taken. Start another, or give them more slots."
        )
    elif listening:
        yield Line(f"{many(len(listening), 'worker listens', 'workers listen')} to the queue.")
    else:
        yield Line("Whether a worker listens to the queue is not known: not all say which they listen to.")


def _queues_of(staff: Staff) -> str:
    names = sorted({queue for worker in staff.alive for queue in worker.queues or ()})
    return one_line(", ".join(names)) or "none"


def _running(record: Record, around: Surroundings) -> Iterator[Line]:
    now = around.now_ms
    worker = around.staff.get(record.worker_id)
    named = _named(worker, record.worker_id)
    yield Line(f"Attempt {record.attempt} runs since {when(record.moved_ms, now)} on worker {named}.")
    if record.progress:
        yield Line(f"It says how far it is: {one_line(record.progress, LONGEST)}.")
    if worker is None:
        yield Line("That worker is not registered any more: run `rl audit`.")
    elif worker.health == "alive":
        yield Line(f"The worker is alive: it beat {ago(worker.beat_ms, now)}.")
    else:
        sweep = (
            "the next sweep returns the task"
            if around.staff.alive
            else "no worker is alive to return the task; start one"
        )
        yield Line(f"The worker gave no sign of life since {when(worker.beat_ms, now)}: {sweep}.")
    if "c" in record.flags:
        yield Line("A person asked it to end: it does when its worker answers, or when the worker's lease runs out.")


def _named(worker: Worker | None, worker_id: str) -> str:
    if worker is None or not worker.host:
        return worker_id
    return f"{worker_id} (host {one_line(worker.host)}{f', process {worker.pid}' if worker.pid else ''})"


def _done(task: Task, around: Surroundings) -> Iterator[Line]:
    record = task.record
    worker = f" on worker {record.worker_id}" if record.worker_id else ""
    result = f"a result of {many(len(task.result), 'byte')}" if task.result is not None else "no result"
    yield Line(
        f"It is done since {when(record.moved_ms, around.now_ms)}: attempt {record.attempt}{worker}, with {result}."
    )
    yield from _kept(around)


def _dead(task: Task, around: Surroundings) -> Iterator[Line]:
    record = task.record
    last = read_failure(task.history[-1].detail).message if task.history else ""
    why = one_line(f"{record.reason or 'an unknown reason'}{f': {last}' if last else ''}", LONGEST)
    yield Line(f"It is dead since {when(record.moved_ms, around.now_ms)} of {why}")
    yield from _kept(around)
    yield Line(f"See all of it with `rl dlq show {record.id}`; replay it with `rl dlq replay {record.id}`.")


def _cancelled(record: Record, around: Surroundings) -> Iterator[Line]:
    at = when(record.moved_ms, around.now_ms)
    why = {
        "cancelled": f"A person cancelled it; it ended {at}.",
        "expired": f"It expired before any worker began it, and was cancelled {at}.",
        "replaced": f"A later push with the same idempotency key took its place, and it was cancelled {at}.",
    }
    yield Line(why.get(record.reason, f"It was cancelled {at}: {one_line(record.reason) or 'nobody knows why'}."))
    yield from _kept(around)


def _kept(around: Surroundings) -> Iterator[Line]:
    if around.kept_until_ms is None:
        yield Line("Its record is kept until a person discards it.")
    elif around.kept_until_ms > around.now_ms:
        yield Line(f"Its record is kept until {when(around.kept_until_ms, around.now_ms)}.")
    else:
        yield Line("Its record is past its end of life, and is removed with the next sweep.")
