"""Check that events report exactly the changes of a call, once and in order, and that readers get all or an error.

The changes of a call are found by comparing the ledger's state before and after it, without looking at how the call
works. The checker gives each entry a serial number that no rollback takes back. So an entry of a lost history is never
confused with the entry that has its number now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from proof.checker.ghost import EventMemory, Memory, Violation, WrittenEntry
from proof.model.events import EVENTS_KEPT, EVENTS_STEP
from proof.model.state import Entry, Rec, TaskChange
from relier.states import BY_WORD, MOVES
from relier.store.call import Call

if TYPE_CHECKING:
    from proof.checker.checker import Checker
    from proof.model.model import Model

TOPICS = ("tasks", "batches", "schedules", "cluster")
NOTHING: dict[str, tuple[Any, ...]] = dict.fromkeys(TOPICS, ())
NEW = ("-", 0, "-")
FIRED = frozenset({"fired", "duplicate", "skipped_overlap", "missed"})


def check_events(checker: Checker, call: Call[Any], raw: Any) -> tuple[TaskChange, ...]:
    """Check the events after a call. Return the changes of tasks that they report."""
    memory, model = checker.memory.events, checker.world.backend.model
    written: dict[str, tuple[Any, ...]] = NOTHING
    if model.streams != memory.entries:  # most calls write nothing
        written = {topic: _written(checker, memory, topic, call.script) for topic in TOPICS}
    _check_tasks(checker, memory, call.script, written["tasks"])
    if written["batches"] or model.batches or memory.batches:
        _check_batches(checker, memory, written["batches"])
    if written["schedules"] or model.timetables or memory.schedules:
        _check_schedules(checker, memory, call, written["schedules"])
    if written["cluster"] or not _is_same_cluster(model, memory):
        _check_cluster(checker, memory, call.script, written["cluster"])
    if call.script == "events":
        _check_page(checker, memory, call, raw)
    return written["tasks"]


def forget_events(model: Model, memory: Memory) -> None:
    """Forget the entries, so that two paths to one state count as the same case. The reported changes stay."""
    model.streams, model.event_numbers = {}, {}
    memory.events.log, memory.events.trimmed, memory.events.entries = {}, {}, {}


# --- streams --------------------------------------------------------------------------------------------------------


def _written(checker: Checker, memory: EventMemory, topic: str, script: str) -> tuple[Any, ...]:
    """Return what the call wrote on a topic. Check that the rest is unchanged, except for trimmed old entries."""
    stream: list[Entry] = checker.world.backend.model.streams.get(topic, [])
    log = memory.log.setdefault(topic, [])
    entries = memory.entries.get(topic, [])
    if stream == entries:  # the usual case: the call wrote nothing on this topic
        return ()
    known = len(log) - memory.trimmed.get(topic, 0)
    number = log[-1].last if log else 0
    new = [entry for entry in stream if entry.last > number]
    kept = stream[: len(stream) - len(new)]
    if len(new) > 1:
        raise Violation("one-entry-per-call", f"{script} wrote {len(new)} entries of {topic}")
    for entry in new:
        if entry.first != number + 1 or entry.move != script:
            raise Violation("events-are-numbered", f"{script} wrote {entry.id} of {topic} after {number}")
        checker.serial += 1
        log.append(WrittenEntry(entry.id, checker.serial, entry.last, len(entry.rows)))
        number = entry.last
    if kept != entries[len(entries) - len(kept) :]:
        raise Violation("streams-only-grow", f"{script} changed what {topic} had")
    memory.entries[topic] = list(stream)
    gone = known - len(kept)
    memory.trimmed[topic] = memory.trimmed.get(topic, 0) + gone
    if gone and log[memory.trimmed[topic] - 1].last > number - EVENTS_KEPT:
        raise Violation("trims-what-is-old", f"{script} trimmed {topic} up to {log[memory.trimmed[topic] - 1].last}")
    if stream and stream[0].last <= number - EVENTS_KEPT - max(EVENTS_STEP, len(new[0].rows) if new else 0):
        raise Violation("streams-are-trimmed", f"{topic} still has {stream[0].id} at {number}")
    return new[0].rows if new else ()


# --- what a call changed --------------------------------------------------------------------------------------------


def _check_tasks(checker: Checker, memory: EventMemory, script: str, rows: tuple[TaskChange, ...]) -> None:
    tasks, seen = checker.world.backend.model.tasks, memory.tasks
    for row in rows:
        was, version, owner = seen.get(row.id, NEW)
        if row.was != was or row.version != version + (row.state != "-"):
            raise Violation("events-are-changes", f"{script} told {row}, it was {was} of version {version}")
        pair = (BY_WORD.get(row.was), BY_WORD.get(row.state))
        if row.was != row.state and pair not in MOVES[script].pairs:
            raise Violation("events-are-legal", f"{script} told {row}")
        _check_words(checker, row, owner)
        if row.state == "-":
            del seen[row.id]
        else:
            seen[row.id] = (row.state, row.version, row.worker if row.state == "running" else "-")
    if not _is_seen(tasks, seen):
        differ = {i for i, rec in tasks.items() if seen.get(i, NEW)[:2] != (rec.state, rec.version)}
        differ |= {i for i in seen if i not in tasks}
        told = {i: (seen.get(i), tasks.get(i)) for i in differ}
        raise Violation("changes-are-told", f"{script} changed {told}, and told {rows}")


def _is_seen(tasks: dict[str, Rec], seen: dict[str, tuple[str, int, str]]) -> bool:
    """Return whether events told of all tasks what they are now. Every record is compared, after every call."""
    for task_id, rec in tasks.items():
        state, version, _ = seen.get(task_id, NEW)
        if state != rec.state or version != rec.version:
            return False
    return len(seen) == len(tasks)


def _check_words(checker: Checker, row: TaskChange, owner: str) -> None:
    """Check that the last event of a task in a call has the fields of the record as it is now."""
    rec = checker.world.backend.model.tasks.get(row.id)
    if rec is None or rec.version != row.version:
        return
    worker = rec.owner if row.state == "running" else owner if row.was == "running" else "-"
    why = "cancel_requested" if row.was == row.state else ""
    why = rec.more.get("reason", "") if row.state in {"dead", "cancelled"} else why
    told = (row.attempt, row.fence, row.queue, row.name, row.worker, row.reason)
    if told != (rec.attempt, rec.fence, rec.queue, rec.name, worker, why):
        raise Violation("events-have-the-fields", f"{row} of {rec.text()!r} {owner} {why!r}")


def _check_batches(checker: Checker, memory: EventMemory, rows: Iterable[tuple[str, ...]]) -> None:
    batches, seen = checker.world.backend.model.batches, memory.batches
    for kind, batch_id, name, was, state, _, _ in rows:
        before = seen.get(batch_id, ("", False, False))
        flags = (before[1] or kind == "cancelled", before[2] or kind == "abandoned")
        same = kind in {"cancelled", "abandoned"}
        if before[0] != was or same != (was == state) or (same and flags == before[1:]):
            raise Violation("events-are-changes", f"told {kind} of batch {batch_id}: {was} to {state}, it was {before}")
        if batch_id in batches and batches[batch_id].name != name:
            raise Violation("events-have-the-fields", f"{batch_id} is {batches[batch_id].name}, told {name}")
        seen[batch_id] = (state, *flags)
        if not state:
            del seen[batch_id]
    now = {i: (group.state, group.stopped, group.abandoned) for i, group in batches.items()}
    if now != seen:
        raise Violation("changes-are-told", f"batches are {now}, told {seen}")


def _check_schedules(checker: Checker, memory: EventMemory, call: Call[Any], rows: Iterable[tuple[str, ...]]) -> None:
    tables, seen = checker.world.backend.model.timetables, memory.schedules
    fires: list[list[str]] = []
    for kind, name, task_id, was, state, version, reason in rows:
        before = seen.get(name, ("", 0))
        if before[0] != was or (kind in FIRED) != (was == state and str(before[1]) == version):
            raise Violation("events-are-changes", f"told {kind} of {name}: {was} to {state}, it was {before}")
        if kind in FIRED:
            fires.insert(0, [kind, task_id, reason])
        seen[name] = (state, int(version))
        if not state:
            del seen[name]
    now = {name: (table.state, table.version) for name, table in tables.items()}
    if now != seen:
        raise Violation("changes-are-told", f"schedules are {now}, told {seen}")
    if call.script == "fire":
        table = tables.get(str(call.args[0]))
        latest = table.fires[: len(fires)] if table else []
        ran = int(call.args[6]) + (int(call.args[4]) > 0) if fires else 0
        told = [[kind, task_id, left if kind == "missed" else at] for kind, at, _, task_id, left in latest]
        if len(fires) != ran or fires != told:
            raise Violation("changes-are-told", f"{fires} were told as firings, there are {told}")


def _is_same_cluster(model: Model, memory: EventMemory) -> bool:
    """Return whether nodes, pauses and limits are as they were when they were last compared with the events."""
    nodes = [*model.boots], [name for name, boot in model.boots.items() if boot.lease_end == 0]
    return memory.compared == (*nodes, model.pauses, model.limits)


def _check_cluster(checker: Checker, memory: EventMemory, script: str, rows: Iterable[tuple[str, ...]]) -> None:
    model = checker.world.backend.model
    now = {("worker", name): "lost" if boot.lease_end == 0 else "registered" for name, boot in model.boots.items()}
    now |= {("queue", name): "paused" for name, (paused, _) in model.pauses.items() if paused}
    now |= {("limit", name): f"limit_set {' '.join(map(str, row[:3]))}" for name, row in model.limits.items()}
    before, seen = memory.cluster, dict(memory.cluster)
    for kind, name, _, _, _, _, reason in rows:
        what = ("limit" if "limit" in kind else "queue" if kind in {"paused", "resumed"} else "worker", name)
        word = f"{kind} {reason}" if kind == "limit_set" else kind
        if seen.get(what) == word:
            raise Violation("events-are-changes", f"{script} told {kind} of {name}, which it was")
        seen[what] = word
        if kind in {"retired", "resumed", "limit_cleared"}:
            del seen[what]
    removed = {what for what, word in seen.items() if word == "lost" and what not in now and script == "revive"}
    for what in removed:
        del seen[what]
    if seen != now:
        raise Violation("changes-are-told", f"{script}: the cluster was {before}, is {now}, told {seen}")
    memory.cluster = now
    lost = [name for name, boot in model.boots.items() if boot.lease_end == 0]
    memory.compared = ([*model.boots], lost, dict(model.pauses), dict(model.limits))


# --- readers --------------------------------------------------------------------------------------------------------


def _check_page(checker: Checker, memory: EventMemory, call: Call[Any], raw: Any) -> None:
    """Check that a page continues right after the reader's position, or reports a gap."""
    topic, position = str(call.args[0]), str(call.args[1])
    said, base, ids = raw[0].decode(), raw[2].decode(), [row[0].decode() for row in raw[3:]]
    log, there = memory.log.get(topic, []), {e.id for e in checker.world.backend.model.streams.get(topic, [])}
    places = {each.serial: i for i, each in enumerate(log)}
    if position not in {"now", "start"} and not position.endswith("-0"):
        at = places.get(checker.positions[topic, position])
        gone = at is None or position not in there
        if gone != (said == "missed"):
            raise Violation("contiguous-or-told", f"a reader at {position} of {topic} was told {said}")
        if at is not None and not gone:
            first = at if call.args[3] else at + 1
            if ids != [each.id for each in log[first : first + len(ids)]]:
                raise Violation("contiguous-or-told", f"a reader at {position} of {topic} got {ids}")
            if not ids and len(log) > first:
                raise Violation("contiguous-or-told", f"a reader at {position} of {topic} got none of {log[first:]}")
    _check_base(topic, base, ids, log)
    for each in log:
        if each.id in ids or each.id == base:
            checker.positions[topic, each.id] = each.serial


def _check_base(topic: str, base: str, ids: list[str], log: list[WrittenEntry]) -> None:
    """Check that entries are consecutive, and that a position without an entry stands right before the first one."""
    slots = [i for i, each in enumerate(log) if each.id in ids]
    if slots != list(range(slots[0], slots[0] + len(ids))) if ids else slots:
        raise Violation("contiguous-or-told", f"{ids} of {topic} do not follow one another")
    if ids and base.endswith("-0") and int(base[:-2]) != log[slots[0]].last - log[slots[0]].changes:
        raise Violation("contiguous-or-told", f"{ids[0]} of {topic} does not follow {base}")
