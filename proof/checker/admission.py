"""Check the answers of submit: ids, keys, tombstones and admission limits, according to the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proof.checker.batches import heard_member
from proof.checker.birth_marks import heard_mark
from proof.checker.ghost import Violation, holds_key
from proof.model.state import ITEM

if TYPE_CHECKING:
    from proof.checker.history import History


def heard_submit(history: History, raw: Any) -> dict[str, str]:
    args = history.args
    n_limits = args[4]
    limits = [args[5 + 4 * i : 9 + 4 * i] for i in range(n_limits)]
    first = 6 + 4 * n_limits
    ids = [args[first + ITEM * i] for i in range(args[first - 1])]
    fresh = [i for i in ids if _is_new(history, i)]
    if raw[0] == b"refused":
        _refused(history, raw, limits, fresh)
        return {}
    heard_mark(history, raw[1].decode())
    said: dict[str, str] = {}
    for i, (task_id, answer) in enumerate(zip(ids, raw[2:], strict=True)):
        entry = str(args[first + ITEM * i + 6])
        if entry.startswith("member "):
            heard_member(history, task_id, entry, answer)
        history.offered[task_id] = history.world.subs[task_id]
        if isinstance(answer, bytes):
            said[task_id] = answer.decode()
            if task_id not in fresh and task_id not in history.exempt:
                raise Violation("one-record-per-id", f"{task_id} was accepted twice")
        elif task_id not in history.exempt:
            _known(history, task_id, [part if isinstance(part, int) else part.decode() for part in answer], said)
    keys = [key for i in said if (key := history.world.subs[i].key)]
    # a task that replaces the holder of its key costs nothing
    _admitted(history, limits, len(said) - (len(keys) - len(set(keys))))
    return said


def _is_new(history: History, task_id: str) -> bool:
    memory = history.memory
    return task_id not in memory.ghosts and memory.tombs.get(task_id, 0) <= history.time_ms


def _known(history: History, task_id: str, answer: list[Any], said: dict[str, str]) -> None:
    memory = history.memory
    status, other = answer[0], answer[1]
    ghost = memory.ghosts.get(other)
    if status == "closed" or (status == "ended" and task_id in history.world.flows.places):
        return
    if status == "ended":
        if memory.tombs.get(task_id, 0) <= history.time_ms:
            raise Violation("tombstone-holds", f"{task_id} was told ended, it has no tombstone")
    elif status in {"exists", "new"}:
        if ghost is None and task_id not in said:
            raise Violation("accepted-is-kept", f"{task_id} was told {status}, it is not there")
        nonce = history.world.subs[task_id].nonce
        if ghost is not None and (status == "new") != (nonce != "" and nonce == ghost.sub.nonce):
            raise Violation("repeat-changes-nothing", f"{task_id} was told {status} with nonce {nonce!r}")
    elif other in history.exempt or other in said:
        return
    elif ghost is None or ghost.sub.key != history.world.subs[task_id].key or not holds_key(ghost, history.time_ms):
        raise Violation("keys-free-at-the-end", f"{task_id} was told duplicate of {other}, which holds no key")


def _idle_at(history: History, limit: str, tolerance: int) -> int:
    """Return when a limit is idle again. A time that no task can have caused (TIME went back) means: full now."""
    tat = history.memory.tat
    if tat.get(limit, 0) > history.time_us + tolerance:
        tat[limit] = history.time_us + tolerance
    return tat.get(limit, 0)


def _refused(history: History, raw: Any, limits: list[Any], fresh: list[str]) -> None:
    name = raw[1].decode()
    extra = history.args[3]
    for limit, interval, tolerance, weight in limits if name in {limit[0] for limit in limits} else ():
        idle = max(_idle_at(history, limit, tolerance), history.time_us)
        if limit == name:
            if idle + (len(fresh) * weight + extra) * interval - tolerance <= history.time_us:
                raise Violation("admission-is-fair", f"{fresh} were refused by {name}, which has room")
            break
    if not fresh:
        raise Violation("admission-is-fair", f"a repeat was refused by {name}")


def _admitted(history: History, limits: list[Any], n: int) -> None:
    if not n:
        return
    memory, now = history.memory, history.time_us
    for limit, interval, tolerance, weight in limits:
        cost = n * weight + history.args[3]
        memory.tat[limit] = max(_idle_at(history, limit, tolerance), now) + cost * interval
        rows = memory.admitted.setdefault(limit, [])
        if rows and rows[-1][0] > now:
            rows.clear()  # TIME went back: windows start again, and the bucket stays as full as it was
        rows.append((now, cost))
        total = 0
        for at, of in reversed(rows):
            total += of
            if total * interval > tolerance + (now - at) + interval - 1:
                raise Violation("admission-holds", f"{limit}: {total} admitted within {now - at} µs")
        if history.world.backend.model.rates.get(limit) != memory.tat[limit]:
            raise Violation("admission-charges-once", f"{limit}: {history.world.backend.model.rates.get(limit)}")
