"""Describe a task in words: what happened, in order, and what it waits for now. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relier.cli.node_view import NodeStatus, WorkerView
from relier.cli.output import ago, clock, one_line, plural, span, when
from relier.failure import read_failure
from relier.ledger.defaults import HISTORY_KEPT
from relier.ledger.limit_records import LimitNumbers
from relier.ledger.records import HistoryEntry, Record, Task
from relier.ledger.stats import Stats
from relier.limits import numbers_in_words
from relier.states import LIVE, State

LONGEST = 300


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One or more sentences. `at_ms` is None for the present state."""

    text: str
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LimitedBy:
    """One limit of a waiting task, and how many tasks it lets run now. `paced`: the id that waits for its rate."""

    key: str
    numbers: LimitNumbers
    running: int
    paced: str


@dataclass(frozen=True, slots=True)
class BehindLimits:
    """How limits hold back a waiting task.

    `before`: the number of tasks ahead of it in its lane; None if it is the head. `head`: the id of the lane's head.
    Without a head, the lane sleeps on the limit `asleep_on`. `other_lanes`: how many lanes wake before this one.
    """

    limits: tuple[LimitedBy, ...]
    before: int | None
    head: str
    asleep_on: str
    other_lanes: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Hold facts about a task that are not in its record.

    `before`: tasks ahead of it in its queue. `due_ms`: when it is due. `kept_until_ms`: when its record expires, or
    None for never. `schedule`: the name of the schedule that pushed it, and the time (ms) for which it did.
    """

    stats: Stats
    workers: WorkerView
    before: int | None = None
    due_ms: int | None = None
    kept_until_ms: int | None = None
    held_back: BehindLimits | None = None
    schedule: tuple[str, int] | None = None

    @property
    def now_ms(self) -> int:
        return self.stats.now_ms


def timeline(task: Task, around: Surroundings) -> list[TimelineEntry]:
    """Return the whole timeline of a task."""
    began = [_accepted(task.record, around.now_ms), *_options(task.record, around)]
    happened = [_attempt_line(task, n, around.now_ms) for n in range(len(task.history))]
    at = replay_position(task)
    happened[at:at] = _replayed(task.record, around.now_ms)
    return [*began, *_cut(task.history), *happened, *_now(task, around)]


# --- how it was accepted -----------------------------------------------------------------------------------------


def _accepted(record: Record, now_ms: int) -> TimelineEntry:
    spec = record.spec
    at = spec.at_us // 1000
    return TimelineEntry(
        f"Accepted {when(at, now_ms)} as {one_line(record.name)} in queue {one_line(record.queue)}, "
        f"priority {spec.priority}, durability {spec.durability}.",
        at,
    )


def _options(record: Record, around: Surroundings) -> Iterator[TimelineEntry]:
    spec, at, now_ms = record.spec, record.spec.at_us // 1000, around.now_ms
    if around.schedule is not None:
        name, intended_ms = around.schedule
        yield TimelineEntry(f"Schedule {one_line(name)!r} pushed it, for {when(intended_ms, now_ms)}.", at)
    if key := record.more.get("key"):
        yield TimelineEntry(f"It holds idempotency key {one_line(key)!r}.", at)
    if batch := record.more.get("batch"):
        yield TimelineEntry(f"It belongs to batch {batch.partition(' ')[0]}: see `rl batches show`.", at)
    if spec.expires_ms is not None and record.state in LIVE:
        yield TimelineEntry(f"It is cancelled if it has not started by {when(spec.expires_ms, now_ms)}.", at)
    if spec.on_lost != "retry":
        yield TimelineEntry("If its worker dies, it is not run again but becomes a dead letter.", at)


# --- what happened -----------------------------------------------------------------------------------------------


def _cut(history: Sequence[HistoryEntry]) -> Iterator[TimelineEntry]:
    if len(history) >= HISTORY_KEPT:
        yield TimelineEntry(f"(Only the last {HISTORY_KEPT} failed attempts are kept.)")


def _attempt_line(task: Task, n: int, now_ms: int) -> TimelineEntry:
    entry = task.history[n]
    after = task.history[n + 1] if n + 1 < len(task.history) else None
    return TimelineEntry(_attempt(entry, after, task.record, now_ms), entry.at_ms)


def _attempt(entry: HistoryEntry, after: HistoryEntry | None, record: Record, now_ms: int) -> str:
    if entry.move == "corrupt":
        return f"At {when(entry.at_ms, now_ms)} its record was found corrupt and became a dead letter."
    if entry.move == "unreadable":
        return f"An attempt has an unreadable history entry: {one_line(entry.detail)}"
    began = f" started {when(entry.since_ms, now_ms)}" if entry.since_ms else ""
    where = f" on worker {entry.worker_id}" if entry.worker_id not in {"", "-"} else ""
    return f"Attempt {entry.attempt}{began}{where}; {_end(entry, after, record, now_ms)}"


def _end(entry: HistoryEntry, after: HistoryEntry | None, record: Record, now_ms: int) -> str:
    lasted = f"after {span(entry.at_ms - entry.since_ms)}" if entry.since_ms else f"at {clock(entry.at_ms, now_ms)}"
    failure = read_failure(entry.detail)
    said = one_line(": ".join(part for part in (failure.name, failure.message) if part), LONGEST)
    match entry.move:
        case "bury":
            return f"{lasted} it failed permanently" + (f" with {said}." if said else ".")
        case "retry" if _was_put_back(entry, after, record):
            return f"{lasted} it was put back, which does not count as an attempt" + (f": {said}." if said else ".")
        case "retry":
            return f"{lasted} it failed" + (f" with {said}," if said else ",") + " and will be retried."
        case "revive":
            # The last entry reports the death of the task; after any other it was queued again.
            dead = after is None and record.state is State.DEAD
            return f"{lasted} its worker was lost: {said or 'cause unknown'}. " + (
                "It was not run again." if dead else f"It was revived at {clock(entry.at_ms, now_ms)}."
            )
    return f"{lasted} it ended by {entry.move}" + (f": {said}." if said else ".")


def _was_put_back(entry: HistoryEntry, after: HistoryEntry | None, record: Record) -> bool:
    """Return whether a retry used up no attempt: then the next one has the same number."""
    if after is not None:
        return after.attempt == entry.attempt
    if record.state is State.RUNNING:
        return record.attempt == entry.attempt
    return record.attempt < entry.attempt and bool({"since", "locked_since"} & record.more.keys())


def _replayed(record: Record, now_ms: int) -> list[TimelineEntry]:
    """Describe the last replay. Its time is not stored, but a nonce made by `rl` begins with it."""
    nonce = record.more.get("replayed")
    if not nonce:
        return []
    edits = int(record.more.get("revision") or 0)
    changed = f", {'once' if edits == 1 else f'{edits} times'} with a changed payload" if edits else ""
    at = time_of_id(nonce)
    return [TimelineEntry(f"It was replayed {when(at, now_ms) if at else 'at an unknown time'}{changed}.", at)]


def replay_position(task: Task) -> int:
    """Return how many history entries precede the last replay.

    A replay is recognised by two signs: attempts count from 1 again, or an entry follows a burial. Times are not a
    sign, because many entries may share a millisecond.
    """
    record, history = task.record, task.history
    begun = record.state in {State.RUNNING, State.DONE}
    nexts = [*(entry.attempt for entry in history[1:]), record.attempt if begun else record.attempt + 1]
    last = len(history) - 1 if record.state is State.DEAD else len(history)  # its last entry is its last death
    for n in range(last, 0, -1):
        ended = history[n - 1].move
        if ended in {"bury", "corrupt"} or (ended == "revive" and nexts[n - 1] <= history[n - 1].attempt):
            return n
    return 0 if record.state is State.DEAD else len(history)


def time_of_id(text: str) -> int | None:
    """Return the time in an id made by new_task_id (UUID version 7), or None for any other text."""
    return int(text[:12], 16) if re.fullmatch(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", text) else None


# --- its present state -------------------------------------------------------------------------------------------


def _now(task: Task, around: Surroundings) -> Iterator[TimelineEntry]:
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
        yield TimelineEntry("It was running when several processes died, so it now runs alone in an isolated process.")
    if record.state in LIVE and (task.checkpoint is not None or task.steps):
        yield TimelineEntry(
            "Checkpoints and steps of earlier attempts are kept; the next attempt continues from there."
        )


def _scheduled(record: Record, around: Surroundings) -> Iterator[TimelineEntry]:
    now, due, held = around.now_ms, around.due_ms, around.held_back
    rate = next((limit for limit in held.limits if limit.paced == record.id), None) if held else None
    if due is not None and rate is not None:
        allowed = numbers_in_words(LimitNumbers(0, rate.numbers.interval_us, rate.numbers.tolerance_us))
        yield TimelineEntry(
            f"It waits for the rate of limit {rate.key!r}, {allowed}. It may start at {when(due, now)}."
        )
    elif due is None:
        yield TimelineEntry("It is scheduled, but missing from the schedule: run `rl audit`.")
    elif due > now:
        again = " for its retry" if record.attempt else ""
        yield TimelineEntry(f"It is scheduled{again}, due at {when(due, now)}.")
    elif around.workers.alive:
        yield TimelineEntry(f"It was due at {when(due, now)} and enters its queue at the next sweep.")
    else:
        yield TimelineEntry(
            f"It was due at {when(due, now)}, but no worker is alive to queue it. Start one with `rl worker`."
        )


def _queued(record: Record, around: Surroundings) -> Iterator[TimelineEntry]:
    before, held = around.before, around.held_back
    if before is None and held is not None and held.before is not None:
        yield from _behind_limits(record, held, held.before)
        yield from _attention(record.queue, around.workers)
        return
    if before is None:
        yield TimelineEntry("It is queued, but missing from its queue: run `rl audit`.")
        return
    line = (
        "it is next in its queue"
        if before == 0
        else f"{plural(before, 'task is', 'tasks are')} ahead of it in its queue"
    )
    queue = next((found for found in around.stats.queues if found.queue == record.queue), None)
    paused = ", and the queue is paused" if queue is not None and queue.paused else ""
    yield TimelineEntry(f"It waits: {line}{paused}.")
    name = one_line(record.queue)
    if paused:
        yield TimelineEntry(f"Resume the queue with `rl queues resume {name}`.")
    yield from _attention(record.queue, around.workers)


def _behind_limits(record: Record, held: BehindLimits, before: int) -> Iterator[TimelineEntry]:
    """Yield which limit a task waits for, how many tasks run under it, and which tasks are ahead."""
    ahead = (
        f"{plural(before, 'task')} with the same limits {'is' if before == 1 else 'are'} ahead of it" if before else ""
    )
    for limit in held.limits:
        full = 0 < limit.numbers.concurrency <= limit.running
        if limit.key == held.asleep_on or (held.head and (full or limit.paced)):
            yield TimelineEntry(
                f"It waits for limit {limit.key!r}, which allows {numbers_in_words(limit.numbers)}: "
                f"{plural(limit.running, 'task is', 'tasks are')} running"
                + (f", and task {limit.paced} waits for the rate" if limit.paced else "")
                + "."
            )
    if held.head:
        behind = f", and {ahead}" if ahead else ""
        yield TimelineEntry(f"It waits in queue {one_line(record.queue)} behind task {held.head}{behind}.")
    elif ahead or held.other_lanes:
        others = f"tasks of {plural(held.other_lanes, 'other key')} come first" if held.other_lanes else ""
        both = ", and ".join(part for part in (ahead, others) if part)
        yield TimelineEntry(f"{both[0].upper()}{both[1:]}.")
    yield TimelineEntry("See all limits with `rl limits`; change one with `rl limits set`.")


def _attention(queue: str, workers: WorkerView) -> Iterator[TimelineEntry]:
    """Describe which workers could run the task."""
    listening = workers.listening(queue)
    if not workers.alive:
        yield TimelineEntry("No worker is alive. Start one with `rl worker`.")
    elif workers.unattended(queue):
        yield TimelineEntry(
            f"No worker serves this queue: {plural(len(workers.alive), 'is alive, for', 'are alive, for')} "
            f"{_queues_of(workers)}. Start a worker for queue {one_line(queue)}."
        )
    elif listening and all(worker.draining for worker in listening):
        yield TimelineEntry(
            f"{plural(len(listening), 'worker serves', 'workers serve')} the queue, and all are drained or stopping. "
            f"Resume one with `rl nodes resume`, or start another."
        )
    elif listening and all(worker.full for worker in listening):
        slots = sum(worker.concurrency or 0 for worker in listening)
        yield TimelineEntry(
            f"{plural(len(listening), 'worker serves', 'workers serve')} the queue, and all {slots:,} slots are "
            f"busy. Start another worker, or raise --concurrency."
        )
    elif listening:
        yield TimelineEntry(f"{plural(len(listening), 'worker serves', 'workers serve')} the queue.")
    else:
        yield TimelineEntry("It is unknown whether a worker serves the queue: not all workers report their queues.")


def _queues_of(workers: WorkerView) -> str:
    names = sorted({queue for worker in workers.alive for queue in worker.queues or ()})
    return one_line(", ".join(names)) or "none"


def _running(record: Record, around: Surroundings) -> Iterator[TimelineEntry]:
    now = around.now_ms
    worker = around.workers.get(record.worker_id)
    started, named = when(record.moved_ms, now), _named(worker, record.worker_id)
    yield TimelineEntry(f"Attempt {record.attempt} started {started} on worker {named} and is running.")
    if record.progress:
        yield TimelineEntry(f"Progress: {one_line(record.progress, LONGEST)}.")
    if worker is None:
        yield TimelineEntry("That worker is no longer registered: run `rl audit`.")
    elif worker.health == "alive":
        yield TimelineEntry(f"The worker is alive: its last heartbeat was {ago(worker.beat_ms, now)}.")
    else:
        sweep = (
            "the next sweep returns the task"
            if around.workers.alive
            else "no worker is alive to return the task; start one"
        )
        yield TimelineEntry(f"The worker has sent no heartbeat since {when(worker.beat_ms, now)}: {sweep}.")
    if "c" in record.flags:
        yield TimelineEntry(
            "Cancellation was requested: it ends when its worker reacts, or when the worker's lease runs out."
        )


def _named(worker: NodeStatus | None, worker_id: str) -> str:
    if worker is None or not worker.host:
        return worker_id
    return f"{worker_id} (host {one_line(worker.host)}{f', process {worker.pid}' if worker.pid else ''})"


def _done(task: Task, around: Surroundings) -> Iterator[TimelineEntry]:
    record = task.record
    worker = f" on worker {record.worker_id}" if record.worker_id else ""
    result = f"a result of {plural(len(task.result), 'byte')}" if task.result is not None else "no result"
    yield TimelineEntry(
        f"It was done at {when(record.moved_ms, around.now_ms)}: attempt {record.attempt}{worker}, with {result}."
    )
    yield from _kept(around)


def _dead(task: Task, around: Surroundings) -> Iterator[TimelineEntry]:
    record = task.record
    last = read_failure(task.history[-1].detail).message if task.history else ""
    why = one_line(f"{record.reason or 'an unknown reason'}{f': {last}' if last else ''}", LONGEST)
    yield TimelineEntry(f"It died at {when(record.moved_ms, around.now_ms)}: {why}")
    yield from _kept(around)
    yield TimelineEntry(f"See the details with `rl dlq show {record.id}`; replay it with `rl dlq replay {record.id}`.")


def _cancelled(record: Record, around: Surroundings) -> Iterator[TimelineEntry]:
    at = when(record.moved_ms, around.now_ms)
    why = {
        "cancelled": f"It was cancelled on request, {at}.",
        "expired": f"It expired before a worker started it, and was cancelled {at}.",
        "replaced": f"A later push with the same idempotency key replaced it, {at}.",
    }
    yield TimelineEntry(
        why.get(record.reason, f"It was cancelled {at}: {one_line(record.reason) or 'reason unknown'}.")
    )
    yield from _kept(around)


def _kept(around: Surroundings) -> Iterator[TimelineEntry]:
    if around.kept_until_ms is None:
        yield TimelineEntry("Its record is kept until it is discarded.")
    elif around.kept_until_ms > around.now_ms:
        yield TimelineEntry(f"Its record is kept until {when(around.kept_until_ms, around.now_ms)}.")
    else:
        yield TimelineEntry("Its record has expired, and is removed at the next sweep.")
