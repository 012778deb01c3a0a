"""Parse the raw reply of each script into a value, or raise the error that it reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from relier.errors import (
    AdmissionRejectedError,
    CorruptRecordError,
    IdempotencyConflictError,
    IllegalMoveError,
    LayoutError,
    LeaseLostError,
    StoreEmptiedError,
    TaskNotFoundError,
    VersionConflictError,
)
from relier.ledger.keys import LAYOUT
from relier.ledger.lanes import Lane, LanePage
from relier.ledger.limit_records import LimitChange, LimitedKey, LimitNumbers, LimitPage
from relier.ledger.nodes import NodeStats, read_orders
from relier.ledger.records import (
    Accepted,
    Beat,
    Claim,
    Claimed,
    ClaimStatus,
    HistoryEntry,
    Lease,
    Locked,
    LockState,
    Operated,
    Page,
    Promoted,
    Record,
    Recorded,
    Settled,
    Spec,
    Swept,
    Task,
    Verdict,
)
from relier.ledger.schedule_records import DueSchedule
from relier.ledger.stats import QueueStats, Stats
from relier.monitoring.admission import refusals
from relier.settings.shards import check_shards
from relier.states import BY_WORD, State
from relier.store.call import Durability

CORE_WIDTH = 96
DURABILITIES = {level.value.encode(): level for level in Durability}
OPERATED = ("ok", "repeat", "asked", "missing", "conflict", "illegal", "key_taken", "corrupt")
CORRUPT = "its record cannot be read: another program wrote to its key; inspect the key, then delete it by hand"


def opened(namespace: str, shards: int, raw: Any) -> str:
    """Return the birth mark. Raise an error if the namespace has a different layout or number of shards."""
    layout, born = map(text, raw)
    if layout != LAYOUT:
        raise LayoutError(
            f"namespace {namespace!r} has layout {layout}, but this release uses layout {LAYOUT}; nothing was written; "
            f"{layout_advice(layout)}, or choose another RELIER_NAMESPACE; see docs/how-to/upgrade.md"
        )
    check_shards(namespace, shards, born)
    return born


def layout_advice(layout: str) -> str:
    """Return what to do if a namespace has another layout than this release: upgrade, or run the older release."""
    if layout.isdecimal() and int(layout) > int(LAYOUT):
        return "a newer release wrote it: upgrade Relier here"
    return "run the release that wrote it until its tasks have ended"


def word(raw: Any, *known: str) -> str:
    """Return one of the words that a script may answer with. Raise ValueError for anything else."""
    found = text(raw)
    if found not in known:
        raise ValueError(f"expected one of {', '.join(known)}")
    return found


def registered(raw: Any) -> bool:
    return word(raw, "ok", "gone") == "ok"


def accepted(ids: list[str], raw: Any) -> list[Accepted]:
    if raw[0] == b"refused":
        limit, retry_after = text(raw[1]), number(raw[2]) / 1_000_000
        refusals["rate" if retry_after else "full"] += 1
        if retry_after == 0:
            message = f"admission limit {limit!r} is reached; nothing was accepted; wait until workers catch up"
            raise AdmissionRejectedError(limit, 1.0, message)
        raise AdmissionRejectedError(limit, retry_after)
    born = text(raw[1])
    return [_accepted(task_id, born, item) for task_id, item in zip(ids, raw[2:], strict=True)]


def _accepted(task_id: str, born: str, raw: Any) -> Accepted:
    if isinstance(raw, bytes):
        return Accepted("new", task_id, BY_WORD[raw.decode()], 1, born)
    status, other, state, version = map(text, raw)
    return Accepted(cast(Literal["new"], status), other, BY_WORD.get(state), int(version), born)


def beat(raw: Any) -> Beat:
    if word(raw[0], "ok", "gone") == "gone":
        return Beat(alive=False)
    asked = tuple((words[0], words[1]) for words in (text(item).split() for item in raw[2]))
    return Beat(True, int(raw[1]), asked, read_orders(text(raw[3])) if len(raw) > 3 else None)


def retired(raw: Any) -> int:
    return int(raw[1]) if word(raw[0], "ok", "busy", "gone") == "busy" else 0


def claim(worker_id: str, raw: Any) -> Claim:
    if raw[0] == b"role":
        raise IllegalMoveError(
            f"node {worker_id} cannot claim tasks: it is registered as {text(raw[1])}, and only workers own tasks; "
            f"register a worker"
        )
    status = ClaimStatus(text(raw[0]))
    if status is not ClaimStatus.OK:
        return Claim(status, 0, ())
    return Claim(status, int(raw[1]), tuple(_claimed(worker_id, *item) for item in raw[2:]))


def _claimed(worker_id: str, task_id: bytes, raw: bytes, more: Any) -> Claimed:
    record, payload = read_record(task_id.decode(), raw)
    lease = Lease(record.id, record.fence, worker_id)
    if not more:
        return Claimed(lease, record, payload)
    checkpoint, steps, *past, left = more
    retries, deaths, scares, since, revision, locked_since = map(number, past)
    counts = (retries, deaths, scares, since, revision, locked_since)
    return Claimed(lease, record, payload, checkpoint, dict(pairs(steps)), *counts, text(left or b""))


def settled(raw: Any) -> Settled:
    return Settled(Verdict(text(raw[0])), text(raw[1]), text(raw[2]))


def all_settled(expected: int, raw: Any) -> list[Settled]:
    if len(raw) != expected:
        raise ValueError(f"{len(raw)} answers for {expected} tasks")
    return [settled(item) for item in raw]


def committed(fences: list[str], raw: Any) -> list[Settled]:
    return [
        Settled(Verdict.OK, "done", fence) if item == b"ok" else settled(item)
        for fence, item in zip(fences, raw, strict=True)
    ]


def recorded(raw: Any) -> Recorded:
    return Recorded(settled(raw), raw[3])


def locked(worker_id: str, raw: Any) -> Locked:
    state = word(raw[0], *LockState, "gone")
    if state == "gone":
        raise LeaseLostError(
            f"worker {worker_id} got no lock: it was declared lost, and its locks are no longer valid; nothing was "
            f"written; stop here, because another attempt may be running"
        )
    if state == LockState.IN_FLIGHT:
        return Locked(LockState.IN_FLIGHT, int(raw[1]), text(raw[2]), "" if raw[3] == b"-" else text(raw[3]))
    return Locked(LockState(state), result=raw[1] if state == LockState.COMPLETED else b"")


def verdict(raw: Any) -> Verdict:
    return Verdict(text(raw))


def swept(raw: Any) -> Swept:
    outcomes = (text(item).rsplit(" ", 1) for item in raw[0])
    return Swept(tuple((task_id, state) for task_id, state in outcomes), int(raw[1]), int(raw[2]), int(raw[3]))


def promoted(raw: Any) -> Promoted:
    if not isinstance(raw, list):
        raise TypeError("a list was expected")
    count, due, now, *schedules = raw
    found = tuple(DueSchedule(text(name), text(version), int(at), body) for name, version, at, body in schedules)
    return Promoted(int(count), int(float(due)) if due else None, int(now), found)


def reaped(raw: Any) -> int:
    return int(raw)


def operated(move: str, what: str, raw: Any) -> Operated:
    verdict, state, version = word(raw[0], *OPERATED), text(raw[1]), int(raw[2])
    match verdict:
        case "conflict":
            raise VersionConflictError(
                f"{move} of {what} was refused: it changed since it was read (now version {version}); read it again, "
                f"then repeat the call"
            )
        case "illegal":
            raise IllegalMoveError(f"{move} of {what} was refused: it is {state}, which does not allow that")
        case "key_taken":
            raise IdempotencyConflictError(
                f"{move} of {what} was refused: another task holds the idempotency key now; try again when that key is "
                f"free (`idempotency_ttl` after the other task is done), or discard this task"
            )
        case "corrupt":
            raise CorruptRecordError(f"{move} of {what} was refused: {CORRUPT}")
        case "missing" if move != "discard":
            raise TaskNotFoundError(f"{move} of {what} was refused: there is no such task, or its record has expired")
    return Operated(cast(Literal["ok"], verdict), state, version)


def task(task_id: str, born: str, raw: Any) -> Task:
    if raw[0] == b"corrupt":
        raise CorruptRecordError(f"task {task_id}: {CORRUPT}")
    if not raw[0]:
        if born and text(raw[6]) != born:
            raise StoreEmptiedError(
                f"task {task_id} is lost: the store was emptied or replaced after it was accepted (the birth mark was "
                f"{born}, now it is {text(raw[6]) or 'none'}); restore the store from a backup, or push the task again"
            )
        raise TaskNotFoundError(f"there is no task {task_id}: it never existed, or its record has expired")
    if raw[0].startswith(b"ended "):
        raise TaskNotFoundError(f"task {task_id} ended as {text(raw[0]).split()[-1]} and its record has expired")
    record, body = read_record(task_id, raw[0], _words(raw[1]))
    payload = None if record.state in {State.DONE, State.CANCELLED} else body
    result = body if "y" in record.flags else None
    history = tuple(map(read_history, raw[4]))
    return Task(record, payload, result, raw[2], dict(pairs(raw[3])), history, text(raw[5] or b""))


def steps(raw: Any) -> tuple[dict[str, bytes], str]:
    found, left = raw
    if not isinstance(found, list):
        raise TypeError("a list was expected")
    return dict(pairs(found)), str(int(left)) if left else ""


def limit_change(name: str, raw: Any) -> LimitChange:
    verdict, version = word(raw[0], "ok", "repeat", "conflict"), int(raw[1])
    if verdict == "conflict":
        raise VersionConflictError(
            f"limit {name} was not changed: it changed since it was read (now version {version}); read the limit "
            f"again, then repeat the change"
        )
    return LimitChange(verdict, version, text(raw[2]))


def limit_page(raw: Any) -> LimitPage:
    keys = tuple(
        LimitedKey(text(key), int(n), int(run), _numbers(said), text(name)) for key, n, run, said, name in raw[2]
    )
    chosen = {name: (_numbers(said), int(said.split()[3])) for name, said in pairs(raw[3])}
    left = f"{text(raw[1])} {text(raw[4])}" if raw[1] or raw[4] else ""
    return LimitPage(int(raw[0]), left, keys, {name: (n, v) for name, (n, v) in chosen.items() if n})


def lane_page(raw: Any) -> LanePage:
    return LanePage(text(raw[0]), tuple(_lane(*row) for row in raw[1:]))


def _lane(name: Any, state: Any, waiting: Any, last_score: Any) -> Lane:
    said = text(state)
    if said[:1] not in {"+", "-"}:
        raise ValueError("the state of a lane begins with + or -")
    head, asleep_on = (said[1:], "") if said[0] == "+" else ("", said[1:])
    return Lane(text(name), head, asleep_on, int(waiting), text(last_score))


def _numbers(said: bytes) -> LimitNumbers | None:
    return LimitNumbers(*(int(number) for number in said.split()[:3])) if said else None


def _words(flat: Any) -> dict[str, str]:
    return {name: text(value) for name, value in pairs(flat)}


def page(raw: Any) -> Page:
    sound = [row for row in raw[1:] if row[1] != b"corrupt"]
    records = tuple(read_record(text(row[0]), row[1], _words(row[2]))[0] for row in sound)
    corrupt = tuple(text(row[0]) for row in raw[1:] if row[1] == b"corrupt")
    return Page(records, text(raw[0]) or None, corrupt)


def owned(raw: Any) -> dict[str, str]:
    return {task_id: text(fence) for task_id, fence in pairs(raw)}


def stats(raw: Any) -> Stats:
    return Stats(
        int(raw[0]),
        {name: int(value) for name, value in pairs(raw[1])},
        tuple(_queue(*line) for line in raw[2]),
        int(raw[3]),
        tuple(_node(*line) for line in raw[4]),
        {"done": int(raw[5][0]), "dead": int(raw[5][1]), "cancelled": int(raw[5][2])},
        f"{text(raw[6])} {text(raw[7])}".rstrip(" ") if raw[6] or raw[7] else "",
    )


def _queue(queue: Any, ready: int, revived: int, oldest: Any, paused: Any, version: Any, held_back: Any) -> QueueStats:
    since = int(oldest) if oldest else None
    return QueueStats(text(queue), ready, revived, since, paused == b"1", int(version), int(held_back))


def _node(node_id: Any, left: Any, held: int, about: Any, beat_ms: Any, *more: Any) -> NodeStats:
    polled, registered, role, report, orders = more
    times = number(beat_ms), text(polled), number(registered)
    return NodeStats(text(node_id), int(left), held, text(about), *times, text(role), text(report), text(orders))


# --- fields ------------------------------------------------------------------------------------------------------


def text(raw: Any) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)


def number(raw: Any) -> int:
    """Return a whole number from a reply or a field, or 0 if it is missing or invalid."""
    try:
        return int(raw or 0)
    except ValueError:
        return 0


def pairs(flat: Sequence[Any]) -> Iterable[tuple[str, Any]]:
    return ((text(flat[i]), flat[i + 1]) for i in range(0, len(flat), 2))


def _optional(word: bytes) -> int | None:
    return int(word) if word.isdigit() else None


def read_spec(raw: bytes) -> Spec:
    at, expires, held, priority, result, dead, key, tomb, most, on_lost, durability = raw.split(b" ")
    return Spec(
        int(at),
        int(priority),
        _optional(expires),
        _optional(held),
        _optional(result),
        _optional(dead),
        _optional(key),
        _optional(tomb),
        _optional(most),
        "retry" if on_lost == b"-" else text(on_lost),
        DURABILITIES.get(durability, Durability.MEMORY),
    )


def read_record(task_id: str, raw: bytes, more: Mapping[str, str] | None = None) -> tuple[Record, bytes]:
    """Return a record and its payload or result. Raise CorruptRecordError if the record cannot be read."""
    try:
        core, spec, queue, name, body = raw.split(b"\n", 4)
        state, version, fence, owner, attempt, flags, moved = core.decode().split()
        record = Record(
            task_id,
            BY_WORD[state],
            int(version),
            fence,
            "" if owner == "-" else owner,
            int(attempt),
            "" if flags == "-" else flags,
            int(moved),
            read_spec(spec),
            text(queue),
            text(name),
            more or {},
        )
    except (ValueError, KeyError) as error:
        raise CorruptRecordError(_unreadable(task_id)) from error
    if len(core) != CORE_WIDTH or not queue or not name:
        raise CorruptRecordError(_unreadable(task_id))
    return record, body


def _unreadable(task_id: str) -> str:
    return f"the record of task {task_id} cannot be read: another program wrote to it; inspect its key, then delete it"


def read_history(raw: bytes) -> HistoryEntry:
    try:
        move, at, attempt, owner, fence, detail, since = json.loads(raw)
        return HistoryEntry(move, number(at), number(attempt), owner, fence, detail, number(since))
    except (ValueError, TypeError):
        return HistoryEntry("unreadable", 0, 0, "", "0", text(raw))
