"""The invariants of nodes: which are registered, when each lease ends, and what their orders are.

Workers and helpers (all other roles) each have a clock, with the same rules. No call of a helper moves the workers'
clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proof.checker.ghost import GhostBoot, GhostClock, Violation
from relier.store.call import Call

if TYPE_CHECKING:
    from proof.checker.checker import Checker
    from proof.checker.history import History

Said = dict[str, str]


# --- clocks --------------------------------------------------------------------------------------------------------


def clock_of(history: History, boot: GhostBoot) -> GhostClock:
    return history.memory.helper_clock if boot.helps else history.memory.clock


def tick(history: History, clock: GhostClock, interval: int | None = None) -> None:
    """Advance a clock. A gap that is too long for a pause between two ticks starts a grace, in which no node may be
    lost.
    """
    gap = 0 if clock.last_tick is None else history.time_ms - clock.last_tick
    if interval is not None and gap > max(clock.clamp, 2 * interval):
        clock.grace = history.world.now + 2 * clock.clamp * 1000
    clock.last_tick = history.time_ms


def reclamp(history: History) -> None:
    memory = history.memory
    workers = [boot.lease for boot in memory.boots.values() if not boot.helps]
    helpers = [boot.lease for boot in memory.boots.values() if boot.helps]
    if workers:
        memory.clock.clamp = (min(workers) + 1) // 2
    if helpers:
        memory.helper_clock.clamp = (min(helpers) + 1) // 2
    else:
        memory.helper_clock = GhostClock()


def jumped(history: History, delta_us: int) -> None:
    """Note a jump of the store's TIME. A jump too long for a pause costs leases nothing, any other at most a clamp."""
    for clock in (history.memory.clock, history.memory.helper_clock):
        cost = min(max(delta_us, 0) // 1000 + 1, clock.clamp)
        if delta_us > 1000 * max(clock.clamp, 2 * history.world.profile.sweep[1]):
            cost = 0
        clock.grace -= cost * 1000
        for boot in history.memory.boots.values():
            if clock_of(history, boot) is clock:
                boot.credit += cost


# --- replies -------------------------------------------------------------------------------------------------------


def heard_register(history: History, raw: Any) -> Said:
    name, lease, _, role, carried = history.args
    memory, now = history.memory, history.world.now
    boot = memory.boots.get(name)
    refused = boot is not None and (boot.lost or boot.role != role)
    if role == "worker" or not refused:
        tick(history, memory.clock if role == "worker" else memory.helper_clock)
    if refused != (raw == b"gone"):
        raise Violation("lost-boots-stay-lost", f"register of {name} as {role} was told {raw}")
    if refused:
        return {}
    boot = memory.boots.setdefault(name, GhostBoot(lease, now, role=role))
    boot.lease, boot.seen, boot.credit = lease, now, 0
    if carried and not boot.order:
        boot.order = f"1 {carried}"
    reclamp(history)
    return {}


def heard_beat(history: History, raw: Any) -> Said:
    name, interval = history.args[0], int(history.args[1]) // 4
    boot = history.memory.boots.get(name)
    tick(history, history.memory.clock if boot is None else clock_of(history, boot), interval)
    if boot is None or boot.lost:
        if raw[0] != b"gone":
            raise Violation("lost-boots-stay-lost", f"a beat of {name} was accepted")
        return {}
    if raw[0] != b"ok":
        raise Violation("live-lease-not-stolen", f"a beat of {name}, which nobody declared lost, was refused")
    boot.seen, boot.credit = history.world.now, 0
    ghosts = history.memory.ghosts
    asked = {f"{i} {ghosts[i].fence}" for i in history.memory.held(name) if ghosts[i].asked}
    if not history.loose and asked != {item.decode() for item in raw[2]}:
        raise Violation("cancel-reaches-its-owner", f"{name} was asked {raw[2]}, not {asked}")
    told = raw[3].decode() if len(raw) > 3 else ""
    if told != boot.order:
        raise Violation("orders-reach-their-node", f"{name} was told {told!r}, its orders are {boot.order!r}")
    return {}


def heard_order(history: History, raw: Any) -> Said:
    """Check that an order is accepted only for the version that its operator saw, and only for a registered node."""
    name, seen, *wanted = map(str, history.args)
    boot = history.memory.boots.get(name)
    verdict, now = raw[0].decode(), raw[1].decode()
    if boot is None or boot.lost:
        expected, order = "gone", ""
    else:
        version, _, state = boot.order.partition(" ")
        expected = "ok" if (version or "0") == seen else "conflict"
        expected = "repeat" if state == " ".join(wanted) else expected
        order = " ".join([str(int(version or 0) + 1), *wanted]) if expected == "ok" else boot.order
        boot.order = order
    if (verdict, now) != (expected, order):
        raise Violation("orders-see-what-they-change", f"{name}: {verdict} {now!r}, not {expected} {order!r}")
    return {}


def heard_sweep(history: History) -> None:
    interval, named = int(history.args[2]), history.args[3]
    tick(history, history.memory.clock, None if named else interval)
    if not named and any(boot.helps for boot in history.memory.boots.values()):
        tick(history, history.memory.helper_clock, interval)


# --- who is a member -----------------------------------------------------------------------------------------------


def check_boots(checker: Checker, call: Call[Any], raw: Any) -> None:
    """Check that nodes leave only by a retire with no tasks, or because revive declared them lost."""
    boots, known = checker.world.backend.model.boots, checker.memory.boots
    script = call.script
    _check_workers_clock(checker, call)
    if script not in {"revive", "retire", "register"}:
        if len(boots) != len(known):
            raise Violation("members-change-by-rule", f"{sorted(boots)} after {script}, not {sorted(known)}")
        return
    named = str(call.args[3]) if script == "revive" else ""
    for name in list(known):
        boot = boots.get(name)
        if boot is not None and (boot.lease_end != 0 or known[name].lost):
            if known[name].lost and boot.lease_end != 0:
                raise Violation("lost-boots-stay-lost", f"{name} lives again after {script}")
            continue
        _left(checker, script, name, named, raw, removed=boot is None)
    if len(boots) != len(known):
        raise Violation("members-change-by-rule", f"{sorted(boots)} after {script}, not {sorted(known)}")
    if len(checker.fallen) > 1 and not any(not boot.helps for boot in known.values()):
        _last_of_all(checker)
    _check_clamps(checker)


def _check_workers_clock(checker: Checker, call: Call[Any]) -> None:
    """Check that no call of a helper advances the clock of workers' leases."""
    memory, clock = checker.memory, checker.world.backend.model.clock
    name = str(call.args[0]) if call.script in {"register", "beat", "retire"} else ""
    if name in memory.boots and memory.boots[name].helps and clock != memory.workers_clock:
        before = memory.workers_clock
        if call.script != "register" or call.args[3] != "worker":
            raise Violation("helpers-leave-the-workers-clock", f"{call.script} of {name}: {before} became {clock}")
    memory.workers_clock = clock


def _check_clamps(checker: Checker) -> None:
    """Check that each clock's clamp follows the leases that the clock measures, and no others."""
    model, memory = checker.world.backend.model, checker.memory
    for clock, ghost in ((model.clock, memory.clock), (model.helper_clock, memory.helper_clock)):
        if clock is not None and clock[2] != ghost.clamp:
            raise Violation("clamps-follow-their-leases", f"{clock[2]} is the clamp, not {ghost.clamp}")


def _last_of_all(checker: Checker) -> None:
    """Allow either clamp when several nodes leave at once: a sweep may remove them in any order."""
    clock = checker.world.backend.model.clock
    gone = [boot for boot in checker.fallen.values() if not boot.helps]
    if clock is not None and clock[2] in {(boot.lease + 1) // 2 for boot in gone}:
        checker.memory.clock.clamp = clock[2]


def _left(checker: Checker, script: str, name: str, named: str, raw: Any, *, removed: bool) -> None:
    known = checker.memory.boots
    if script == "retire" and removed and name == checker.args[0] and raw[0] == b"ok":
        if checker.memory.held(name):
            raise Violation("dead-boot-owns-nothing", f"{name} retired and holds {checker.memory.held(name)}")
        tick(checker, clock_of(checker, known[name]))
    elif script == "revive":
        if not known[name].lost:
            _declare(checker, name, named)
    else:
        raise Violation("members-change-by-rule", f"{name} left in {script}")
    if removed:
        checker.fallen[name] = known.pop(name)
        reclamp(checker)


def _declare(history: History, name: str, named: str) -> None:
    """Check that a node that was declared lost is lost."""
    boot, world = history.memory.boots[name], history.world
    boot.lost, boot.ran = True, len(history.memory.held(name))
    if name == named:
        return
    silent_for = (world.now - boot.seen) // 1000 + boot.credit
    if silent_for + 2 < boot.lease:
        raise Violation("live-lease-not-stolen", f"{name} was declared lost after {silent_for} of {boot.lease} ms")
    grace = clock_of(history, boot).grace
    if world.now + 2000 < grace:
        raise Violation("grace-after-outage", f"{name} was declared lost {world.now} before {grace}")
    if world.profile.flap and world.faults.is_healthy(name):
        raise Violation("healthy-survives-flapping", f"{name} was declared lost after {silent_for} ms")
