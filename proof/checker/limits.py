"""Check limits at run time against the history: who may start, who holds a slot, and that no task waits in vain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from proof.checker.ghost import LIVE, Ghost, Violation
from proof.model.model import Model
from relier.ledger.limit_records import LimitNumbers, RunLimit

if TYPE_CHECKING:
    from proof.checker.checker import Checker
    from proof.checker.history import History


def heard_limit(history: History, raw: Any) -> dict[str, str]:
    """Check an operator's change of a limit, and the numbers in the reply."""
    name, version, *words, _ = history.args
    chosen = history.memory.limit_set
    now = chosen[name][1] if name in chosen else 0
    wanted = LimitNumbers(*words) if words[0] != "" else None
    same = (chosen[name][0] if name in chosen else None) == wanted
    expected = "repeat" if same else "ok" if int(version) == now else "conflict"
    if raw[0].decode() != expected:
        raise Violation("operators-see-what-they-change", f"limit {name} was told {raw[0]}, not {expected}")
    if expected == "ok" and wanted is None:
        del chosen[name]
    elif expected == "ok" and wanted is not None:
        chosen[name] = (wanted, now + 1)
    if expected != "conflict":
        _hasten(history)
    return {}


def _hasten(history: History) -> None:
    """Move tasks forward that wait for a rate longer than the new numbers require."""
    for ghost in history.memory.ghosts.values():
        if ghost.state == "scheduled" and ghost.keeps and ghost.waits_for_rate:
            rated = [(limit.key, numbers_of(history, limit)) for limit in ghost.sub.limits]
            starts = [_start_at(history, n, history.memory.paced.get(key, 0)) for key, n in rated if n.interval_us]
            latest = max(starts, default=0)
            ghost.due = min(ghost.due, history.time_ms if latest <= history.time_us else -(-latest // 1000))


def numbers_of(history: History, limit: RunLimit) -> LimitNumbers:
    chosen = history.memory.limit_set
    found = chosen.get(limit.key) or chosen.get(limit.name)
    return found[0] if found else limit.numbers


def lane_of(ghost: Ghost) -> str:
    return f"{','.join(limit.key for limit in ghost.sub.limits)} {ghost.sub.queue}"


def _running(history: History, key: str, but: Iterable[str] = ()) -> set[str]:
    ghosts = history.memory.ghosts.items()
    return {i for i, g in ghosts if g.state == "running" and _limited_by(g, key)} - set(but)


def _limited_by(ghost: Ghost, key: str) -> bool:
    return any(limit.key == key for limit in ghost.sub.limits)


def _start_at(history: History, numbers: LimitNumbers, idle_at: int) -> int:
    """Return when the next task may start (µs) under a rate that is idle at that time."""
    now = history.time_us
    return max(now, min(idle_at, now + numbers.tolerance_us)) + numbers.interval_us - numbers.tolerance_us


# --- starts --------------------------------------------------------------------------------------------------------


def check_starts(history: History, said: dict[str, str]) -> None:
    """Check that all limits of a task allowed each start of a claim, in order."""
    memory = history.memory
    limited = [i for i in said if memory.ghosts[i].sub.limits]
    running: dict[str, int] = {}
    if history.loose:  # a task whose record somebody removed may have started: believe the ledger
        memory.paced = dict(history.world.backend.model.paces)
        return
    history.paced_before = dict(memory.paced)
    for task_id in limited:
        for limit in memory.ghosts[task_id].sub.limits:
            numbers = numbers_of(history, limit)
            count = running.setdefault(limit.key, len(_running(history, limit.key, limited)))
            if 0 < numbers.concurrency <= count:
                raise Violation("concurrency-holds", f"{task_id} is number {count + 1} of {limit.key}: {numbers}")
            running[limit.key] = count + 1
            if numbers.interval_us:
                _check_rate(history, task_id, limit.key, numbers)


def _check_rate(history: History, task_id: str, key: str, numbers: LimitNumbers) -> None:
    now, paced = history.time_us, history.memory.paced
    if _start_at(history, numbers, paced.get(key, 0)) > now:
        raise Violation("rate-holds", f"{task_id} started before {key} allows it: {paced.get(key)} at {now}")
    paced[key] = max(now, min(paced.get(key, 0), now + numbers.tolerance_us)) + numbers.interval_us


def waits_for_a_rate(history: History, task_id: str, ghost: Ghost) -> bool:
    """Check a task that a claim scheduled instead of starting: the time is when the last of its rates allows it."""
    rated = [(limit.key, numbers_of(history, limit)) for limit in ghost.sub.limits]
    rated = [(key, numbers) for key, numbers in rated if numbers.interval_us]
    if not rated:
        return False
    ghost.due, ghost.keeps, ghost.waits_for_rate = history.world.backend.model.due.get(task_id, 0), True, True
    if history.loose:
        return True
    soonest, latest = (
        max(_start_at(history, numbers, paced.get(key, 0)) for key, numbers in rated)
        for paced in (history.paced_before, history.memory.paced)
    )
    return history.time_us < latest and -(-soonest // 1000) <= ghost.due <= -(-latest // 1000)


def may_wait(history: History, ghost: Ghost) -> bool:
    """Return whether a claim may leave a task: a limit of its lane is full or has a rate, or the lane's head waits for
    one.
    """
    lane, mates = lane_of(ghost), history.memory.ghosts.values()
    if any(mate.waits_for_rate and mate.state == "scheduled" and lane_of(mate) == lane for mate in mates):
        return True
    return any(
        numbers.interval_us or 0 < numbers.concurrency <= len(_running(history, limit.key))
        for limit in ghost.sub.limits
        for numbers in _all_numbers(history, limit.key)
    )


def _all_numbers(history: History, key: str) -> set[LimitNumbers]:
    """Return the numbers of a key. They may differ between two releases, but tasks of one lane wait for each other."""
    live = (ghost for ghost in history.memory.ghosts.values() if ghost.state in LIVE)
    return {numbers_of(history, limit) for ghost in live for limit in ghost.sub.limits if limit.key == key}


def check_lane_order(history: History, said: dict[str, str]) -> None:
    """Check that no task of a lane was handed over before an earlier one, unless the head waits for a rate."""
    if not said:
        return
    ghosts = history.memory.ghosts
    first: dict[str, int] = {}
    for ghost in ghosts.values():
        if ghost.state == "queued" and ghost.sub.limits:
            lane = lane_of(ghost)
            first[lane] = min(first.get(lane, ghost.order), ghost.order)
    for task_id in said:
        ghost = ghosts[task_id]
        rated = any(numbers_of(history, limit).interval_us for limit in ghost.sub.limits)
        if (
            ghost.sub.limits
            and not rated
            and not ghost.waits_for_rate
            and first.get(lane_of(ghost), ghost.order) < ghost.order
        ):
            raise Violation("order-in-lane", f"{task_id} was handed over before another of {lane_of(ghost)}")


# --- the state -----------------------------------------------------------------------------------------------------


def check_limits(checker: Checker) -> None:
    """Check that only running tasks hold slots, keys are counted, and every waiting lane has a reason to wait."""
    model, ghosts = checker.world.backend.model, checker.memory.ghosts
    if checker.loose or not (model.limited or model.lanes or model.slots):
        return
    slots: dict[str, dict[str, int]] = {}
    live: dict[str, int] = {}
    for task_id, ghost in ghosts.items():
        for limit in ghost.sub.limits if ghost.state in LIVE else ():
            live[limit.key] = live.get(limit.key, 0) + 1
            if ghost.state == "running":
                slots.setdefault(limit.key, {})[task_id] = ghost.fence
    if model.slots != slots:
        raise Violation("slots-belong-to-running-tasks", f"{model.slots}, the history says {slots}")
    if model.limited != live:
        raise Violation("limited-tasks-are-counted", f"{model.limited}, the history says {live}")
    for lane in model.lane_waits:
        _check_lane(checker, model, lane)
    _check_heads(model, ghosts)
    listed = {(lane, key, queue, n) for (key, queue), rows in model.sleepers.items() for lane, n in rows.items()}
    asleep = {
        (lane, state[1:], lane.partition(" ")[2], min(model.lane_waits.get(lane, {"": 0}).values()))
        for lane, state in model.lanes.items()
        if state[0] == "-"
    }
    if listed != asleep:
        raise Violation("sleepers-are-listed", f"{listed}, but {asleep} sleep")


def _check_heads(model: Model, ghosts: Mapping[str, Ghost]) -> None:
    """Check that only the head of each lane is in the queue."""
    for queue in model.ready.values():
        for task_id in queue:
            ghost = ghosts.get(task_id)
            if ghost is not None and ghost.sub.limits and model.lanes.get(lane_of(ghost)) != f"+{task_id}":
                raise Violation("only-heads-are-in-queues", f"{task_id} is not the head of {lane_of(ghost)}")


def _check_lane(checker: Checker, model: Model, lane: str) -> None:
    queue, state = lane.partition(" ")[2], model.lanes.get(lane, "")
    if state[:1] == "+":
        head = state[1:]
        if head not in model.ready.get(queue, {}) and head not in model.due:
            raise Violation("nobody-waits-in-vain", f"{lane} waits behind {head}, which is not in its queue")
        return
    key = state[1:]
    running = len(_running(checker, key))
    full = any(0 < numbers.concurrency <= running for numbers in _all_numbers(checker, key))
    if full or _may_take(model, key, queue) or (key, queue) in model.pacers:
        return
    raise Violation("nobody-waits-in-vain", f"{lane} sleeps on {key}, which has room in {queue}")


def _may_take(model: Model, key: str, queue: str) -> bool:
    """Return whether a head that needs the key is awake in the queue."""
    ready = model.ready.get(queue, {})
    return any(
        state[0] == "+" and state[1:] in ready and key in lane.partition(" ")[0].split(",")
        for lane, state in model.lanes.items()
        if lane.partition(" ")[2] == queue
    )
