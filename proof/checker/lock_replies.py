"""Check the answers of lock, renew, conclude and unlock: who holds a key, according to the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proof.checker.ghost import GhostHold, Violation

if TYPE_CHECKING:
    from proof.checker.history import History


def heard_lock(history: History, raw: Any) -> dict[str, str]:
    key, token, ms, owner, task_id, fence = history.args
    said, now = raw[0].decode(), history.time_ms
    ghost = history.memory.holds.get(key)
    told = f"lock of {key} by {token} was told {said}, it is {ghost} at {now}"
    if (task_id != "-" and _is_lost(history, owner)) != (said == "gone"):
        raise Violation("lost-boots-hold-nothing", told)
    if said == "gone":
        return {}
    held = ghost is not None and ghost.until > now
    if ghost is not None and held and ghost.result is not None:
        if raw != [b"completed", ghost.result]:
            raise Violation("results-stand", told)
        return {}
    if said == "completed":
        raise Violation("results-stand", told)
    others = ghost is not None and held and ghost.token != token and not _makes_room(history, ghost, task_id, fence)
    if others != (said == "in_flight"):
        raise Violation("one-holder" if others else "locks-are-freed", told)
    if ghost is not None and others and int(raw[1]) != ghost.until - now:
        raise Violation("locks-are-freed", f"{told}, for {raw[1]} ms")
    if said == "claimed" and (ghost is None or not held or ghost.token != token):
        history.memory.holds[key] = GhostHold(token, now + ms, owner, task_id, fence)
    _compare(history, key)
    return {}


def _is_lost(history: History, name: str) -> bool:
    boot = history.memory.boots.get(name)
    return boot is None or boot.lost


def _makes_room(history: History, ghost: GhostHold, task_id: str, fence: str) -> bool:
    if ghost.task_id == "-":
        return False
    return _is_lost(history, ghost.owner) or (ghost.task_id == task_id and int(ghost.fence) < int(fence))


def heard_holder(history: History, raw: Any, move: str) -> dict[str, str]:
    """Check renew, conclude and unlock. The token decides, whatever the time is."""
    key, token = history.args[:2]
    ghost = history.memory.holds.get(key)
    if ghost is None:
        expected = "missing"
    elif ghost.token != token:
        expected = "stale"
    elif ghost.result is None:
        expected = "ok"
    else:
        expected = "repeat" if move == "conclude" else "stale"
    if raw.decode() != expected:
        name = "holder-is-never-told-stale" if expected in {"ok", "repeat"} else "nobody-touches-anothers-lock"
        raise Violation(name, f"{move} of {key} by {token} was told {raw.decode()}, it is {ghost}")
    if expected == "ok" and ghost is not None:
        _follow(history, key, ghost, move)
    _compare(history, key)
    return {}


def _follow(history: History, key: str, ghost: GhostHold, move: str) -> None:
    if move == "unlock":
        del history.memory.holds[key]
        return
    ghost.until = history.time_ms + int(history.args[2])
    if move == "conclude":
        ghost.result = history.args[3]


def _compare(history: History, key: str) -> None:
    """Compare the mark with what replies have reported about it."""
    hold, ghost = history.world.backend.model.holds.get(key), history.memory.holds.get(key)
    kept = None if hold is None else (hold.token, hold.until, hold.result if hold.done else None)
    told = None if ghost is None else (ghost.token, ghost.until, ghost.result)
    if kept != told:
        raise Violation("holds-as-told", f"{key} is {kept}, not {told}")


def check_holds(history: History) -> None:
    """Check every key from scratch."""
    for key in history.world.backend.model.holds.keys() | history.memory.holds.keys():
        _compare(history, key)
