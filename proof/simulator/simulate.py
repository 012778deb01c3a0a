"""Run one schedule from its seed: faults, repair, a check that everything ends, and a sweep until the namespace is
empty."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from proof.checker.batches import check_none_is_stuck
from proof.checker.ghost import LIVE, Violation
from proof.checker.indexes import check_all
from proof.model.model import Model
from proof.simulator.actors import Worker
from proof.simulator.faults import Faults
from proof.simulator.world import SECOND, Backend, ModelBackend, World
from relier.errors import RelierError

# After the faults, everything ends within this time: a lease and its grace, a sweep and the longest delay, and the same
# again for every death that a poison task may have.
SETTLE_S = 40
DRAIN_S = 40
AGES = 40 * 86_400 * SECOND


# The errors that a broken script or reply causes.
STUMBLES = (KeyError, ValueError, TypeError, AttributeError, IndexError, RelierError)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a schedule. `violation` is empty if every invariant held."""

    seed: int
    profile: str
    steps: int
    violation: str = ""
    report: str = ""


def run_schedule(
    seed: int,
    profile: str | None = None,
    backend: Backend | None = None,
    *,
    trace: bool = False,
    worker: type[Worker] | None = None,
) -> Outcome:
    world = World(seed, profile, backend, trace=trace)
    world.hires = worker
    return run_world(world)


def run_world(world: World) -> Outcome:
    try:
        _live(world)
    except Violation as violation:
        return Outcome(world.seed, world.profile.name, world.steps, violation.name, world.explain(violation))
    except STUMBLES as error:
        where = traceback.format_exc(limit=-3)
        report = world.explain(Violation("no-script-stumbles", f"{error!r}\n{where}"))
        return Outcome(world.seed, world.profile.name, world.steps, "no-script-stumbles", report)
    return Outcome(world.seed, world.profile.name, world.steps)


def _live(world: World) -> None:
    faults = world.faults = Faults(world)
    faults.begin()
    world.run_until(world.rng.randint(*world.profile.seconds) * SECOND)
    check_all(world.checker)
    faults.heal()
    # Delays use TIME, so they last longer if TIME was set back.
    settle_s = SETTLE_S * (4 if world.profile.flows[1] else 1)  # links run one after the other
    until = world.now + settle_s * SECOND + world.foremost - world.skew
    if not world.run_until(until, lambda: _settled(world)):
        check_none_is_stuck(world.checker)
        raise Violation("everything-ends", f"after {settle_s} s without faults: {_unsettled(world)}")
    faults.close()
    if not world.run_until(world.now + DRAIN_S * SECOND, lambda: not world.backend.model.boots):
        raise Violation("no-boot-is-left", f"{sorted(world.backend.model.boots)}")
    check_all(world.checker)
    _reap(world)


def _settled(world: World) -> bool:
    if world.in_flight or world.pushing:
        return False
    memory = world.checker.memory
    for ghost in memory.ghosts.values():
        if ghost.state in LIVE:
            return False
    return all(batch.ended is not None for batch in memory.batches.values())


def _unsettled(world: World) -> str:
    ghosts = world.checker.memory.ghosts.items()
    return ", ".join(f"{i} {g.state} of {g.owner}" for i, g in ghosts if g.state in LIVE)


def _reap(world: World) -> None:
    """Discard tasks that are held for a person, reap the rest, and check that the namespace is empty."""
    model = world.backend.model
    world.now += AGES
    for task_id, rec in list(model.tasks.items()):
        if task_id in model.ended.get("dead", {}) and model.ended["dead"][task_id] == float("inf"):
            world.apply(world.ledger.discard(task_id, rec.version))
    while world.apply(world.ledger.reap()):
        pass
    if world.checker.loose:
        return
    left = _left(world.backend.model, world.backend.time_us // 1000)
    if left:
        raise Violation("nothing-leaks", left)


def _left(model: Model, now: int) -> str:
    named: dict[str, Iterable[Any]] = {
        "tasks": model.tasks,
        "due": model.due,
        "ready": model.ready,
        "owned": model.owned,
        "ended": model.ended,
        "boots": model.boots,
        "idem": model.idem,
        "holds": [key for key, hold in model.holds.items() if hold.until > now],
        "lanes": model.lanes,
        "lane_waits": model.lane_waits,
        "sleepers": model.sleepers,
        "pacers": model.pacers,
        "slots": model.slots,
        "limited": model.limited,
        "timetables": model.timetables,
        "batches": model.batches,
        "batch index": model.batch_index,
    }
    return ", ".join(f"{name} {sorted(left)}" for name, left in named.items() if left)


__all__ = ["ModelBackend", "Outcome", "run_schedule", "run_world"]
