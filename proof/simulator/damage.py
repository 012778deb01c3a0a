"""Damage to the keys of a namespace, as a person, an eviction or an incomplete backup causes it, and its repair.

Each kind of damage changes one thing in the store. A reconcile over all keys must then bring back the state from
before, apart from what was lost for good (a due time, a place in a queue), and it must change nothing else. Without
damage it must change nothing at all.
"""

# ruff: noqa: ARG001 - every kind of damage has the same signature

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from proof.checker.ghost import LIVE, Ghost, Violation
from proof.checker.indexes import check_all
from proof.model.batches import INF
from proof.model.model import Model, Rec
from proof.model.state import Boot
from relier.ledger.defaults import DEAD_TTL_MS, MEMBER_SPAN, PRIORITY_STEP_US, RESULT_TTL_MS
from relier.ledger.ledger import Ledger
from relier.ledger.moves.repair import Subject
from relier.store.call import Call

if TYPE_CHECKING:
    from proof.simulator.world import World

Edit = Callable[[Model], Any]
MONTH_MS = 30 * 86_400_000
OLD_LOCK = "held 5 token w - -"
# These fields belong to one call or to the caller, not to the namespace.
PASSING = {"time_us", "full", "opening", "parted", "going_on", "told", "told_news", "answers", "lined_up", "repaired"}


@dataclass(frozen=True, slots=True)
class Damage:
    """One change by hand: as raw commands, and on the model. `heal` turns the state before the damage into the state
    expected after the repair; without it, only the invariants are checked. `learn` tells the checker what was lost for
    good.
    """

    kind: str
    commands: tuple[tuple[str | int, ...], ...]
    wound: Edit
    heal: Edit | None
    learn: Callable[[dict[str, Ghost], int], None] = lambda _ghosts, _now: None


def subjects_of(model: Model) -> list[Subject]:
    """Return everything that workers look at, in the order of its keys."""
    per: dict[str, Any] = {
        "task": model.tasks,
        "ready": model.ready,
        "bell": model.bells,
        "owned": model.owned,
        "lane": model.lane_waits,
        "batch": model.batches,
        "members": model.batches,
        "plans": model.batches,
        "more": model.tasks,
        "worker": model.boots,
        "lock": model.holds,
        "idem": model.idem,
    }
    found = [Subject(kind, of.encode()) for kind, ids in per.items() for of in sorted(ids)]
    found += [Subject(kind, of.encode()) for kind, of in sorted(model.leftovers)]
    of_indexes: tuple[tuple[str, dict[str, Any]], ...] = (
        ("due", {"": model.due}),
        ("ready", model.ready),
        ("owned", model.owned),
        ("lane", model.lane_waits),
        ("slots", model.slots),
        ("sleepers", {f"{key} {queue}": rows for (key, queue), rows in model.sleepers.items()}),
        ("lanes", {"": model.lanes}),
        ("pacers", {"": {f"{key} {queue}": task for (key, queue), task in model.pacers.items()}}),
        ("waiting", {"": {lane.partition(" ")[2]: lane for lane in model.lane_waits}}),
        ("members", {of: group.members for of, group in model.batches.items()}),
        ("batches", {"": model.batch_index}),
    )
    for kind, indexes in of_indexes:
        found += [Subject(kind, of.encode(), i.encode()) for of in sorted(indexes) for i in sorted(indexes[of])]
    return found


def reconcile_all(ledger: Ledger, model: Model) -> Call[Any]:
    return ledger.reconcile(subjects_of(model), model.repair_turn[0], "7")


def left_over(kind: str, value: str) -> Any:
    """Return the value of a key that belongs to nothing, as the store has it."""
    return {"x": value.encode()} if kind in {"more", "plans", "worker"} else value.encode()


def damage_and_repair(world: World) -> None:
    """Do one kind of damage, or none, repair everything, and compare the state with the one before."""
    model, checker = world.backend.model, world.checker
    damage = some_damage(world.rng, model) if world.rng.random() < 0.85 else None
    before = pickle.dumps(model)
    if damage is not None:
        world.backend.damage(damage)
        world.note("DAMAGE", damage.kind, damage.commands)
        damage.learn(checker.memory.ghosts, (world.time_us() + 1) // 1000)
    world.apply(reconcile_all(world.ledger, model))
    expected: Model = pickle.loads(before)  # noqa: S301 - our own
    expected.time_us = model.time_us
    if damage is not None and damage.heal is not None:
        damage.heal(expected)
    if damage is None or damage.heal is not None:
        _compare(expected, model, damage.kind if damage else "no damage")
    check_all(checker)


def _compare(expected: Model, found: Model, kind: str) -> None:
    for field in fields(expected):
        if field.name in PASSING | {"repair_turn"}:
            continue
        right, real = getattr(expected, field.name), getattr(found, field.name)
        if right != real:
            name = "repair-heals" if kind != "no damage" else "repair-harms-nothing"
            raise Violation(name, f"after {kind}, {field.name} is {real}, not {right}")


# --- kinds of damage -------------------------------------------------------------------------------------------------


def _some(rng: random.Random, model: Model, fits: Callable[[str, Rec], bool]) -> tuple[str, Rec] | None:
    found = sorted(task_id for task_id, rec in model.tasks.items() if fits(task_id, rec))
    return (chosen := rng.choice(found), model.tasks[chosen]) if found else None


def _repaired(model: Model, kind: str, n: int = 1) -> None:
    model.count(f"repaired_{kind}", n)


def _order(rec: Rec) -> int:
    return rec.at - rec.priority * PRIORITY_STEP_US


def queued_lost(rng: random.Random, model: Model) -> Damage | None:
    found = _some(rng, model, lambda i, rec: rec.state == "queued" and i in model.ready.get(rec.queue, {}))
    if found is None:
        return None
    task_id, rec = found

    def heal(after: Model) -> None:
        after.ready[rec.queue][task_id] = _order(rec)
        after.bells.add(rec.queue)
        after.queues.add(rec.queue)
        _repaired(after, "queued")

    def learn(ghosts: dict[str, Ghost], _: int) -> None:
        ghosts[task_id].line_up(rec.at)

    commands = (("ZREM", f"q:{rec.queue}", task_id),)
    # The head of a lane may be there out of turn. Then only the invariants are checked.
    exact = "l" not in rec.flags
    return Damage(
        "queued_lost", commands, lambda m: m.drop(m.ready, rec.queue, task_id), heal if exact else None, learn
    )


def waiting_lost(rng: random.Random, model: Model) -> Damage | None:
    """A task is gone from its lane, and the count of waiting tasks with it."""
    found = _some(
        rng, model, lambda i, rec: rec.state == "queued" and i in model.lane_waits.get(model.lane_of(rec), {})
    )
    if found is None:
        return None
    task_id, rec = found
    lane = model.lane_of(rec)
    waiting = sum(len(rows) for of, rows in model.lane_waits.items() if of.partition(" ")[2] == rec.queue)
    last = ("HDEL", "waiting", rec.queue) if waiting == 1 else ("HINCRBY", "waiting", rec.queue, -1)

    def learn(ghosts: dict[str, Ghost], _: int) -> None:
        ghosts[task_id].line_up(rec.at)

    commands = (("ZREM", f"ln:{lane}", task_id), last)
    return Damage("waiting_lost", commands, lambda m: m.wait_no_more(lane, task_id), None, learn)


def scheduled_lost(rng: random.Random, model: Model) -> Damage | None:
    found = _some(rng, model, lambda i, rec: rec.state == "scheduled" and i in model.due)
    if found is None:
        return None
    task_id, _ = found

    def heal(after: Model) -> None:
        after.due[task_id] = after.now
        _repaired(after, "scheduled")

    def learn(ghosts: dict[str, Ghost], now: int) -> None:
        ghosts[task_id].due = now

    return Damage("scheduled_lost", (("ZREM", "due", task_id),), lambda m: m.due.pop(task_id), heal, learn)


def running_lost(rng: random.Random, model: Model) -> Damage | None:
    found = _some(rng, model, lambda i, rec: rec.state == "running" and i in model.owned.get(rec.owner, {}))
    if found is None:
        return None
    task_id, rec = found

    def heal(after: Model) -> None:
        after.owned[rec.owner][task_id] = rec.moved
        _repaired(after, "running")

    commands = (("ZREM", f"o:{rec.owner}", task_id),)
    return Damage("running_lost", commands, lambda m: m.drop(m.owned, rec.owner, task_id), heal)


def ended_lost(rng: random.Random, model: Model, *, keyed: bool = False) -> Damage | None:
    found = _some(
        rng,
        model,
        lambda i, rec: rec.state not in LIVE and i in model.ended.get(rec.state, {}) and ("key" in rec.more) == keyed,
    )
    if found is None:
        return None
    task_id, rec = found

    def eol(now: int) -> float:
        if rec.state == "dead":
            held = rec.on_lost == "hold" and rec.more.get("reason") == "lost"
            return INF if held else now + (DEAD_TTL_MS if rec.dead_ttl is None else rec.dead_ttl)
        ttl = RESULT_TTL_MS if rec.result_ttl is None else rec.result_ttl
        return now + max(ttl, (rec.key_ttl or 0) if rec.state == "done" else 0)

    def heal(after: Model) -> None:
        after.ended[rec.state][task_id] = eol(after.now)
        _repaired(after, "ended")

    def learn(ghosts: dict[str, Ghost], now: int) -> None:
        ghosts[task_id].eol = eol(now)

    commands = (("ZREM", f"e:{rec.state}", task_id),)
    return Damage("ended_lost", commands, lambda m: m.drop(m.ended, rec.state, task_id), heal, learn)


def keyed_ended_lost(rng: random.Random, model: Model) -> Damage | None:
    """Remove an ended task with an idempotency key from its list. The checker derives the key's time from the end of
    life, which is lost.
    """
    return ended_lost(rng, model, keyed=True)


def stray_entry(rng: random.Random, model: Model) -> Damage | None:
    kind, of = rng.choice(
        [("due", ""), *(("q:", q) for q in sorted(model.ready)), *(("o:", b) for b in sorted(model.owned))]
    )

    def wound(of_model: Model) -> None:
        index = {"due": of_model.due, "q:": of_model.ready.get(of), "o:": of_model.owned.get(of)}[kind]
        (index if index is not None else {})["nobody"] = 5

    def heal(after: Model) -> None:
        after.count("strays")
        _repaired(after, "entry")

    return Damage("stray_entry", (("ZADD", f"{kind}{of}", 5, "nobody"),), wound, heal)


def second_entry(rng: random.Random, model: Model) -> Damage | None:
    """A task is in a second index, beside the one that it belongs in."""
    found = _some(rng, model, lambda i, rec: rec.state != "scheduled" and i not in model.due)
    if found is None:
        return None
    task_id, _ = found

    def wound(of_model: Model) -> None:
        of_model.due[task_id] = 5

    commands = (("ZADD", "due", 5, task_id),)
    return Damage("second_entry", commands, wound, lambda after: _repaired(after, "entry"))


def owner_lost(rng: random.Random, model: Model) -> Damage | None:
    """A worker that runs tasks is not registered any more."""
    owners = sorted(boot for boot in model.owned if boot in model.boots and not model.boots[boot].bare)
    if not owners:
        return None
    boot = rng.choice(owners)
    commands = (("ZREM", "boots", boot), ("ZREM", "leases", boot), ("DEL", f"w:{boot}"), ("DEL", f"x:{boot}"))

    def heal(after: Model) -> None:
        after.boots[boot] = Boot(0, 0, 0, bare=True)
        after.told_news = {}
        after.news("cluster", "lost", boot, "", "", "", "", "not registered")
        after.publish_all("reconcile")
        _repaired(after, "unowned")

    return Damage("owner_lost", commands, lambda m: m.boots.pop(boot), heal)


def slot_lost(rng: random.Random, model: Model) -> Damage | None:
    held = sorted((key, task_id) for key, rows in model.slots.items() for task_id in rows)
    if not held:
        return None
    key, task_id = rng.choice(held)
    other = rng.random() < 0.5  # the slot of an earlier attempt is there instead
    commands = (("ZADD", f"sl:{key}", 5, task_id),) if other else (("ZREM", f"sl:{key}", task_id),)

    def wound(of_model: Model) -> None:
        if other:
            of_model.slots[key][task_id] = 5
        else:
            of_model.drop(of_model.slots, key, task_id)

    return Damage("slot_lost", commands, wound, lambda after: _repaired(after, "slot"))


def stray_slot(rng: random.Random, model: Model) -> Damage | None:
    free = sorted(key for key in model.limited if all(key != of for of, _ in model.sleepers))
    if not free:
        return None
    key = rng.choice(free)

    def wound(of_model: Model) -> None:
        of_model.slots.setdefault(key, {})["nobody"] = 5

    return Damage("stray_slot", (("ZADD", f"sl:{key}", 5, "nobody"),), wound, lambda after: _repaired(after, "slot"))


def lane_forgotten(rng: random.Random, model: Model) -> Damage | None:
    lanes = sorted(lane for lane, state in model.lanes.items() if state[0] == "-")
    if not lanes:
        return None
    lane = rng.choice(lanes)
    key, queue = model.lanes[lane][1:], lane.partition(" ")[2]
    only = len(model.sleepers[key, queue]) == 1
    commands: tuple[tuple[str, ...], ...] = (("HDEL", "lanes", lane), ("ZREM", f"sp:{key} {queue}", lane))
    commands += (("SREM", f"sq:{key}", queue),) if only else ()

    def wound(of_model: Model) -> None:
        del of_model.lanes[lane]
        of_model.sleep_no_more(lane, key)

    return Damage("lane_forgotten", commands, wound, None)


def lane_not_asleep(rng: random.Random, model: Model) -> Damage | None:
    """A lane is in the list of a limit under the wrong order, or in the list of a limit for which it does not wait."""
    asleep = sorted((place, lane) for place, rows in model.sleepers.items() for lane in rows)
    if not asleep:
        return None
    (key, queue), lane = rng.choice(asleep)
    stray = rng.random() < 0.5
    name = f"gone {queue}" if stray else lane

    def wound(of_model: Model) -> None:
        of_model.sleepers[key, queue][name] = 7

    commands = (("ZADD", f"sp:{key} {queue}", 7, name),)
    return Damage("lane_not_asleep", commands, wound, lambda after: _repaired(after, "lane"))


def stray_pacer(rng: random.Random, model: Model) -> Damage | None:
    if ("free", "q") in model.pacers:
        return None

    def wound(of_model: Model) -> None:
        of_model.pacers["free", "q"] = "nobody"

    commands = (("HSET", "pacers", "free q", "nobody"),)
    return Damage("stray_pacer", commands, wound, lambda after: _repaired(after, "lane"))


def batch_miscounted(rng: random.Random, model: Model) -> Damage | None:
    if not model.batches:
        return None
    batch = rng.choice(sorted(model.batches))
    by = rng.choice((1, -1)) if model.batches[batch].count("size") else 1
    new = model.batches[batch].count("size") == 0

    def heal(after: Model) -> None:
        _repaired(after, "batch")
        if new:
            after.batches[batch].counts["size"] = 0

    commands = (("HINCRBY", f"g:{batch}", "size", by),)
    return Damage("batch_miscounted", commands, lambda m: m.batches[batch].add("size", by), heal)


def batch_unlisted(rng: random.Random, model: Model) -> Damage | None:
    listed = sorted(batch for batch in model.batch_index if batch in model.batches)
    if not listed:
        return None
    batch = rng.choice(listed)
    group = model.batches[batch]
    kept = RESULT_TTL_MS if group.result_ttl == "-" else int(group.result_ttl)
    if group.count("dead"):
        kept = max(kept, DEAD_TTL_MS if group.dead_ttl == "-" else int(group.dead_ttl))

    def heal(after: Model) -> None:
        at = {"open": after.now + int(group.lease), "sealed": INF, "ended": after.now + kept}
        after.batch_index[batch] = at[group.state]
        _repaired(after, "batch")

    # The checker knows when the lease of an open batch ends; that is lost here.
    if group.state == "open":
        return None
    return Damage("batch_unlisted", (("ZREM", "batches", batch),), lambda m: m.batch_index.pop(batch), heal)


def stray_batch(rng: random.Random, model: Model) -> Damage | None:
    def wound(of_model: Model) -> None:
        of_model.batch_index["nobody"] = 5_000_000_000_000.0

    commands = (("ZADD", "batches", 5_000_000_000_000, "nobody"),)
    return Damage("stray_batch", commands, wound, lambda after: _repaired(after, "entry"))


def inner_batch_lost(rng: random.Random, model: Model) -> Damage | None:
    """A batch counts an inner batch that does not exist."""
    open_ones = sorted(batch for batch, group in model.batches.items() if group.state != "ended")
    if not open_ones:
        return None
    batch = rng.choice(open_ones)
    place = MEMBER_SPAN + 77

    def wound(of_model: Model) -> None:
        of_model.batches[batch].add("size")
        of_model.batches[batch].members["@nobody"] = place

    commands = (("HINCRBY", f"g:{batch}", "size", 1), ("ZADD", f"gm:{batch}", place, "@nobody"))
    return Damage("inner_batch_lost", commands, wound, None)


def long_bell(rng: random.Random, model: Model) -> Damage | None:
    if not model.bells:
        return None
    queue = rng.choice(sorted(model.bells))
    return Damage(
        "long_bell",
        (("RPUSH", f"b:{queue}", "1"),),
        lambda m: m.long_bells.add(queue),
        lambda after: _repaired(after, "bell"),
    )


def queue_forgotten(rng: random.Random, model: Model) -> Damage | None:
    if not model.ready.keys() | model.bells:
        return None
    queue = rng.choice(sorted(model.ready.keys() | model.bells))
    commands = (("SREM", "queues", queue),)
    return Damage(
        "queue_forgotten", commands, lambda m: m.queues.discard(queue), lambda after: _repaired(after, "bell")
    )


def key_left_over(rng: random.Random, model: Model) -> Damage | None:
    kind = rng.choice(("more", "plans", "worker", "idem", "lock"))
    value = {"idem": "nobody", "lock": OLD_LOCK}.get(kind, "y")
    spelled = {"more": "m:", "plans": "gp:", "worker": "w:", "idem": "i:", "lock": "l:"}[kind]
    hashed = kind in {"more", "plans", "worker"}
    commands = (("HSET", f"{spelled}nobody", "x", value) if hashed else ("SET", f"{spelled}nobody", value + "\n"),)

    def wound(of_model: Model) -> None:
        of_model.leftovers[kind, "nobody"] = value if hashed else value + "\n"

    repaired = {"idem": "key", "lock": "lock"}.get(kind, "leftover")
    return Damage(f"{kind}_left_over", commands, wound, lambda after: _repaired(after, repaired))


def live_expires(rng: random.Random, model: Model) -> Damage | None:
    found = _some(rng, model, lambda _, rec: rec.state in LIVE)
    if found is None:
        return None
    task_id, _ = found

    def wound(of_model: Model) -> None:
        of_model.tasks[task_id].expiry = True

    commands = tuple(("PEXPIRE", f"{kind}:{task_id}", MONTH_MS) for kind in "tmhcs")
    return Damage("live_expires", commands, wound, lambda after: _repaired(after, "expiry"))


KINDS: tuple[Callable[[random.Random, Model], Damage | None], ...] = (
    *(queued_lost, waiting_lost, scheduled_lost, running_lost, ended_lost, stray_entry, second_entry),
    *(slot_lost, stray_slot, lane_forgotten, lane_not_asleep, stray_pacer, batch_miscounted, batch_unlisted),
    *(stray_batch, long_bell, queue_forgotten, key_left_over, live_expires),
)
# Damage whose consequences the checker cannot judge. Only the comparison of model and scripts uses it.
GRAVE = (owner_lost, inner_batch_lost, keyed_ended_lost)


def some_damage(
    rng: random.Random, model: Model, kinds: tuple[Callable[[random.Random, Model], Damage | None], ...] = KINDS
) -> Damage | None:
    """Return a kind of damage that is possible now."""
    for kind in rng.sample(kinds, len(kinds)):
        damage = kind(rng, model)
        if damage is not None:
            return damage
    return None
