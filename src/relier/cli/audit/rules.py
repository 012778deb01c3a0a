"""The rules of the audit: pure functions that judge what was read."""

from __future__ import annotations

from relier.cli.audit import limit_rules
from relier.cli.audit.batch_rules import judge_batch, judge_beside_batch, member_without_batch
from relier.cli.audit.findings import Finding, ObservedKey, Subject, command, shown
from relier.cli.audit.schedule_rules import SCHEDULE_JUDGES, judge_planned
from relier.cli.output import plural, span
from relier.ledger import keys
from relier.ledger.stats import Stats
from relier.states import BY_WORD, ENDED, LIVE

LEASE_INDEXES = ("leases", "helpers", "helper_leases")  # beside `boots`: of a worker, and of a helper


def kind_of(prefix: bytes, key: bytes) -> Subject:
    """Return the kind of a key and its subject; the kind is empty if the key is not in the schema."""
    return *keys.kind_of(prefix, key), key


# --- keys --------------------------------------------------------------------------------------------------------


def judge_key(seen: ObservedKey) -> Finding | None:
    """Return what is wrong with a key, or None if it is sound or no longer exists."""
    if seen.kind == "boot":
        return _worker(seen)
    if seen.kind == "planned":
        return judge_planned(seen)
    if seen.kind in limit_rules.MEMBERS:
        return limit_rules.MEMBERS[seen.kind](seen)
    if seen.type == "none":
        return None
    if not seen.kind:
        return seen.finding(
            "unknown_key",
            f"{seen.key} ({seen.type}) is not one of Relier's keys.",
            f"Find out what wrote it, then delete it: {command('UNLINK', seen.key)}",
        )
    expected = keys.BY_NAME[seen.kind].type
    if seen.type != expected:
        return seen.finding(
            "wrong_type",
            f"{seen.key} is a {seen.type} but should be a {expected}: another program wrote to it.",
            f"Inspect it, then delete it: {command('UNLINK', seen.key)}",
        )
    judge = _JUDGES.get(seen.kind)
    return judge(seen) if judge else None


def _task(seen: ObservedKey) -> Finding | None:
    what, home, place = seen.fact(0), seen.fact(1), seen.fact(2)
    if what == "tombstone":
        return _must_expire(seen, "tombstone_without_expiry", f"The tombstone of task {seen.of}")
    if what not in BY_WORD:
        return seen.finding(
            "corrupt_record",
            f"The record of task {seen.of} cannot be read: another program wrote to it.",
            f"Inspect it: {command('GETRANGE', seen.key, '0', '200')}. A worker that finds it in a queue buries it; "
            f"if it is in no queue, delete it.",
        )
    if seen.fact(4) == "1":
        return member_without_batch(seen)
    if not place:
        return _homeless(seen, what, index_in_words(home))
    if int(seen.facts[5]):
        return limit_rules.run_without_slot(seen)
    if BY_WORD[what] in LIVE:
        return _must_stay(seen, f"Task {seen.of} is {what}, but its record")
    if place == "inf":  # kept forever on purpose
        return None
    return _must_expire(seen, "ended_without_expiry", f"The record of task {seen.of}, which is {what},")


def _homeless(seen: ObservedKey, state: str, home: str) -> Finding:
    again = f"Cancel it with `rl tasks cancel {seen.of}` and push it again."
    advice = {
        "scheduled": again,
        "queued": again,
        "running": "If its worker dies, nothing returns it to its queue: push it again under a new id.",
        "dead": f"No list shows it; replay it by id: `rl dlq replay {seen.of}`.",
    }
    end = ": no worker will find it." if BY_WORD[state] in LIVE else "."
    return seen.finding(
        "record_in_no_index",
        f"Task {seen.of} is {state}, but {home} does not hold it{end}",
        advice.get(state, "Nothing to do: it expires."),
    )


def _must_stay(seen: ObservedKey, what: str) -> Finding | None:
    if seen.ttl < 0:
        return None
    return seen.finding(
        "live_with_expiry",
        f"{what} expires in {span(seen.ttl)} and would be lost.",
        f"Remove the expiry: {command('PERSIST', seen.key)}",
    )


def _must_expire(seen: ObservedKey, kind: str, what: str) -> Finding | None:
    if seen.ttl >= 0:
        return None
    return seen.finding(
        kind,
        f"{what} has no expiry: {seen.key} would stay forever if no worker sweeps.",
        f"Set one: {command('PEXPIRE', seen.key, '86400000')}",
    )


def _left_over(seen: ObservedKey, kind: str, problem: str) -> Finding:
    return seen.finding(kind, problem, f"Delete it: {command('UNLINK', seen.key)}")


def _side(seen: ObservedKey) -> Finding | None:
    what = seen.fact(0)
    if what not in BY_WORD and what != "corrupt":
        return _left_over(
            seen, "side_without_record", f"The {seen.kind} of task {seen.of} is left over: the task has no record."
        )
    if seen.kind in {"checkpoint", "steps"} and what in {"done", "cancelled"}:
        return _left_over(seen, "side_of_ended", f"The {seen.kind} of task {seen.of} is left over: the task is {what}.")
    if what in BY_WORD and BY_WORD[what] in LIVE:
        return _must_stay(seen, f"Task {seen.of} is {what}, but its {seen.kind}")
    return None


def _owned(seen: ObservedKey) -> Finding | None:
    if seen.fact(0):
        return None
    return seen.finding(
        "owned_without_boot",
        f"Worker {seen.of} holds tasks but is not registered: no sweep returns them.",
        f"Declare it lost, so that the next sweep returns them: {command('ZADD', seen.spell('boots'), '0', seen.of)}",
    )


def _of_worker(seen: ObservedKey) -> Finding | None:
    if seen.fact(0):
        return None
    return _left_over(seen, "worker_key_without_boot", f"{seen.key} is left over: worker {seen.of} is not registered.")


def _worker(seen: ObservedKey) -> Finding | None:
    lease, length, about, helper_end, helper_length = (seen.fact(n) for n in range(5))
    boots, found = seen.spell("boots"), (length, helper_end, helper_length)
    held = [seen.spell(index) for index, fact in zip(LEASE_INDEXES, found, strict=True) if fact]
    if held and not lease:
        return Finding(
            "lease_without_boot",
            held[0],
            f"Node {seen.of} has a lease but is not registered.",
            f"Remove it: {'; '.join(command('ZREM', index, seen.of) for index in held)}",
        )
    has_lease = length or (helper_end and helper_length)
    if lease not in {"", "0"} and not (has_lease and about):
        return Finding(
            "boot_incomplete",
            boots,
            f"Node {seen.of} is registered, but its {'hash' if has_lease else 'lease'} is gone.",
            f"Restart that node; if it no longer runs, declare it lost: {command('ZADD', boots, '0', seen.of)}",
        )
    return None


def _queue(seen: ObservedKey) -> Finding | None:
    if seen.fact(0):
        return None
    return seen.finding(
        "queue_unknown",
        f"{seen.key} exists, but queue {seen.of!r} is not in the list of queues: no command shows it.",
        f"Add it: {command('SADD', seen.spell('queues'), seen.of)}",
    )


def _bell(seen: ObservedKey) -> Finding | None:
    if int(seen.facts[1]) <= 1:
        return _queue(seen)
    return seen.finding(
        "bell_too_long",
        f"The bell of queue {seen.of!r} holds {seen.facts[1]} entries but should hold at most one.",
        f"Harmless. To clean up: {command('LTRIM', seen.key, '0', '0')}",
    )


def _idem(seen: ObservedKey) -> Finding | None:
    value, what, holds = (seen.fact(n) for n in range(3))
    task_id, _, until = value.partition(" ")
    held = f"Idempotency key {seen.of!r} is held for task {task_id}, which"
    if what not in BY_WORD and what != "corrupt":
        return _left_over(seen, "key_without_record", f"{held} has no record.")
    if holds != seen.of and what != "corrupt":
        return _left_over(seen, "key_without_record", f"{held} does not hold it.")
    if until:
        return _must_expire(seen, "key_without_expiry", f"Idempotency key {seen.of!r}, whose task is done,")
    return _must_stay(seen, f"Idempotency key {seen.of!r}")


def _ended(seen: ObservedKey) -> Finding | None:
    if seen.of in BY_WORD and BY_WORD[seen.of] in ENDED:
        return None
    return _left_over(seen, "unknown_key", f"{seen.key} lists ended tasks of a state that does not exist.")


def _outcomes(seen: ObservedKey) -> Finding | None:
    return _must_expire(seen, "statistics_without_expiry", f"The outcomes of {seen.of}")


def _rate(seen: ObservedKey) -> Finding | None:
    return _must_expire(seen, "rate_without_expiry", f"The mark of limit {seen.of!r}")


_JUDGES = {
    "task": _task,
    **dict.fromkeys(("more", "history", "checkpoint", "steps"), _side),
    "batch": judge_batch,
    **dict.fromkeys(("members", "plans", "results"), judge_beside_batch),
    "owned": _owned,
    "worker": _of_worker,
    "asked": _of_worker,
    "ready": _queue,
    "bell": _bell,
    "ended": _ended,
    "idem": _idem,
    "rate": _rate,
    **SCHEDULE_JUDGES,
    "pace": _rate,
    "outcomes": _outcomes,
    "lane": limit_rules.lane,
    "sleepers": limit_rules.sleepers,
}


# --- entries of an index -----------------------------------------------------------------------------------------


def judge_entry(prefix: str, subject: Subject, score: bytes, what: bytes, home: bytes) -> Finding | None:
    """Return what is wrong with an index entry, or None if it is sound or no longer exists."""
    _, raw_id, raw_index = subject
    index, task_id, state = shown(raw_index), shown(raw_id), shown(what)
    if not score or prefix + shown(home) == index:
        return None
    place = index_in_words(index.removeprefix(prefix))
    if state in BY_WORD:
        return Finding(
            "record_in_wrong_index",
            index,
            f"Task {task_id} is {state} and belongs in {index_in_words(shown(home))}, but {place} lists it too.",
            f"Remove the entry: {command('ZREM', index, task_id)}",
        )
    if state == "corrupt":
        return None  # reported once, for its key
    return Finding(
        "entry_without_record",
        index,
        f"{place[0].upper()}{place[1:]} lists task {task_id}, which has no record: another program deleted it.",
        "The task is lost; push it again. The entry is removed when a worker finds it.",
    )


def index_in_words(rest: str) -> str:
    """Return an index in words. `rest` is its key without the namespace prefix."""
    kind, of, _ = kind_of(b"", rest.encode())
    name = shown(of)
    return {
        "due": "the schedule",
        "ready": f"queue {name!r}",
        "lane": f"the lane of limit {name.partition(' ')[0]!r} in queue {name.partition(' ')[2]!r}",
        "owned": f"the list of worker {name}",
        "ended": f"the list of {name} tasks",
    }.get(kind, rest)


# --- the books ---------------------------------------------------------------------------------------------------

COUNTED = ("submitted", "replayed", "done", "dead", "cancelled", "strays")


def judge_books(stats: Stats | None) -> tuple[dict[str, int], Finding | None]:
    """Check that accepted + replayed − ended = live. All counters are zero if they could not be read."""
    counts = stats.counts if stats else {}
    states = stats.by_state() if stats else {}
    books = {name: counts.get(name, 0) for name in COUNTED}
    books |= {state.value: states.get(state, 0) for state in BY_WORD.values() if state in LIVE}
    books["live"] = sum(states.get(state, 0) for state in LIVE)
    ended = books["done"] + books["dead"] + books["cancelled"]
    missing = books["missing"] = books["submitted"] + books["replayed"] - ended - books["live"]
    if missing == 0:
        return books, None
    if missing > 0:
        led = f" {plural(books['strays'], 'index entry', 'index entries')} led to no record." if books["strays"] else ""
        return books, Finding(
            "books",
            "counts",
            f"{plural(missing, 'task was', 'tasks were')} accepted and neither ended nor live: lost.{led}",
            "Something deleted records or index entries: a FLUSHDB, an eviction, an old backup, or someone by hand. "
            "Compare with what your producers pushed.",
        )
    return books, Finding(
        "books",
        "counts",
        f"{plural(-missing, 'task is', 'tasks are')} live but were never accepted, or the counters were reset.",
        "Restoring an old backup causes this. If there is no other finding, nothing is lost.",
    )


def unreadable_books(why: str) -> Finding:
    return Finding(
        "books_unreadable",
        "counts",
        f"Accepted and live tasks cannot be counted: {why}.",
        "A key of the namespace has the wrong type: fix the other findings first.",
    )
