"""The rules of the audit for limits at run time: slots, and lanes of waiting tasks (ledger/lua/lib/lanes.lua)."""

from __future__ import annotations

from collections.abc import Iterator

from relier.cli.audit.findings import Finding, ObservedKey, Subject, command
from relier.store.sync_store import SyncStore

REPAIRED = "A worker's sweep repairs this within a minute. If it stays, restart a worker, or start `rl resurrector`."
SCAN_COUNT = 500

# Keys whose members or fields are judged one by one, by the kind of subject that lua/keys.lua knows them as.
WALKED = {"lanes": "lane_state", "sleepers": "sleeper", "slots": "slot", "pacers": "pacer"}


def walk(store: SyncStore, kind: str, key: bytes) -> Iterator[Subject]:
    """Yield the members of a sorted set, or the fields of a hash: none if the key has the wrong type."""
    scan, expected = ("HSCAN", b"hash") if kind in {"lanes", "pacers"} else ("ZSCAN", b"zset")
    if store.command("TYPE", key, retry=True) != expected:
        return
    cursor = b"0"
    while True:
        cursor, flat = store.command(scan, key, cursor, "COUNT", SCAN_COUNT, retry=True)
        yield from ((WALKED[kind], name, key) for name in flat[::2])
        if cursor == b"0":
            return


# --- keys --------------------------------------------------------------------------------------------------------


def run_without_slot(seen: ObservedKey) -> Finding:
    return seen.finding(
        "run_without_slot",
        f"Task {seen.of} is running without a slot of its limit: one task too many may run at the same time.",
        "Something deleted the slot. The limit holds again when the task ends; there is nothing to do.",
    )


def lane(seen: ObservedKey) -> Finding | None:
    if seen.fact(0):
        return None
    key = seen.of.partition(" ")[0].partition(",")[0]
    return seen.finding(
        "lane_unknown",
        f"Tasks wait behind limits in {seen.key}, but no list names that lane: no worker will find them.",
        f"List it, so that a sweep wakes it: {command('HSET', seen.spell('lanes'), seen.of, f'-{key}')}",
    )


def sleepers(seen: ObservedKey) -> Finding | None:
    if seen.fact(0):
        return None
    key, _, queue = seen.of.partition(" ")
    return seen.finding(
        "sleepers_unknown",
        f"Tasks of queue {queue!r} wait for limit {key!r}, but a freed slot does not wake them.",
        f"Add the queue: {command('SADD', seen.spell('sleeping') + key, queue)}",
    )


# --- members and fields of keys ----------------------------------------------------------------------------------


def _lane_state(seen: ObservedKey) -> Finding | None:
    state, placed, first, asleep = seen.fact(0), seen.fact(1), seen.fact(3), seen.fact(4)
    waiting = int(seen.facts[2]) if len(seen.facts) > 2 else 0
    keys, _, queue = seen.of.partition(" ")
    what = f"The lane of limit {keys!r} in queue {queue!r}"
    if not state:
        return None
    if state[0] == "+" and not placed:
        return seen.finding(
            "lane_without_head",
            f"{what} waits behind task {state[1:]}, which is neither in the queue nor scheduled: its tasks do not run.",
            REPAIRED,
        )
    if state[0] == "-" and not waiting:
        return seen.finding("lane_empty", f"{what} is listed as asleep, but no task waits in it.", REPAIRED)
    if state[0] == "-" and asleep != first:
        return seen.finding(
            "lane_not_asleep",
            f"{what} waits for limit {state[1:]!r}, which does not list it: a freed slot does not wake it in order.",
            REPAIRED,
        )
    return None


def _sleeper(seen: ObservedKey) -> Finding | None:
    score, state = seen.fact(0), seen.fact(1)
    key = seen.key.removeprefix(seen.spell("sleepers")).partition(" ")[0]
    if not score or state == f"-{key}":
        return None
    return seen.finding(
        "sleeper_awake",
        f"Limit {key!r} lists the lane {seen.of!r} as asleep, but it is not: a freed slot would wake it in vain.",
        f"Remove the entry: {command('ZREM', seen.key, seen.of)}",
    )


def _slot(seen: ObservedKey) -> Finding | None:
    score, state, fence = seen.fact(0), seen.fact(1), seen.fact(2)
    if not score or (state == "running" and int(float(score)) == int(fence)):
        return None
    key = seen.key.removeprefix(seen.spell("slots"))
    return seen.finding(
        "slot_without_run",
        f"Limit {key!r} counts task {seen.of} as running, but {_not_running(state)}: the limit allows one task less.",
        f"{REPAIRED} By hand: {command('ZREM', seen.key, seen.of)}",
    )


def _not_running(state: str) -> str:
    return "that was an earlier attempt" if state == "running" else f"it is {state}" if state else "it has no record"


def _pacer(seen: ObservedKey) -> Finding | None:
    task_id, scheduled = seen.fact(0), seen.fact(1)
    if not task_id or scheduled:
        return None
    key, _, queue = seen.of.partition(" ")
    return seen.finding(
        "pacer_not_scheduled",
        f"Tasks of queue {queue!r} wait behind task {task_id} for the rate of limit {key!r}, but that task is not "
        f"scheduled.",
        f"Remove the entry: {command('HDEL', seen.key, seen.of)}",
    )


MEMBERS = {"lane_state": _lane_state, "sleeper": _sleeper, "slot": _slot, "pacer": _pacer}
