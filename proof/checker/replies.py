"""Check replies against the history: every verdict must be the one that follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proof.checker.admission import heard_submit
from proof.checker.batches import (
    heard_cancel_batch,
    heard_extend_batch,
    heard_open_batch,
    heard_reap,
    heard_seal_batch,
)
from proof.checker.birth_marks import heard_get, heard_open
from proof.checker.ghost import Ghost, GhostBoot, Violation, holds_key
from proof.checker.limits import check_starts, heard_limit
from proof.checker.lock_replies import heard_holder, heard_lock
from proof.checker.members import heard_beat, heard_order, heard_register, heard_sweep
from proof.checker.timetable_replies import (
    heard_due,
    heard_fire,
    heard_schedule,
    heard_schedules,
    heard_unschedule,
)
from proof.model.state import ITEM

if TYPE_CHECKING:
    from proof.checker.history import History

Said = dict[str, str]


# --- settling ------------------------------------------------------------------------------------------------------


def _expected(ghost: Ghost | None, move: str, fence: int, boot: str) -> str:
    if ghost is None:
        return "missing"
    if ghost.state == "running" and ghost.fence == fence and ghost.owner == boot:
        return "ok"
    if move == "commit":
        return "repeat" if ghost.state == "done" and ghost.committed == (boot, fence) else "stale"
    return "repeat" if ghost.settled == f"{move}:{fence}" else "stale"


def judge(history: History, task_id: str, move: str, fence: int, boot: str, verdict: str) -> bool:
    """Compare a verdict with the history. Return whether the call may change the record."""
    if task_id in history.exempt:
        return False
    expected = _expected(history.memory.ghosts.get(task_id), move, fence, boot)
    if verdict == expected:
        if verdict == "ok" and history.effects:
            history.recorded_first(move, task_id, fence)
        return verdict == "ok"
    detail = f"{move} of {task_id} by {boot} under {fence} was told {verdict}, it is {expected}"
    if expected in {"ok", "repeat"}:
        raise Violation("committer-never-told-stale", detail)
    raise Violation("zombie-is-refused" if verdict in {"ok", "repeat"} else "verdict-fits", detail)


def _settle(history: History, raw: Any, move: str, width: int) -> Said:
    args, said = history.args, {}
    for i, answer in enumerate(raw):
        run = args[2 + width * i : 2 + width * (i + 1)]
        task_id = run[0]
        if judge(history, task_id, move, int(run[1]), args[0], answer[0].decode()):
            said[task_id] = answer[1].decode()
            history.runs[task_id] = run
    return said


def _bury(history: History, raw: Any) -> Said:
    said = _settle(history, raw, "bury", 6)
    task_id, part, n = history.args[2], history.args[6], history.args[7]
    _follow(history, said, 8, n, part, ok=_ends(history, task_id, raw[0][0].decode(), task_id in said))
    return said


def _ends(history: History, task_id: str, verdict: str, mine: bool) -> bool:
    return mine or (verdict == "ok" and task_id in history.exempt)


def _follow(history: History, said: Said, first: int, n: int, value: bytes, *, ok: bool) -> None:
    """Note the follow-ups of an end that was accepted. A refused end has none."""
    for i in range(n):
        task_id, _, _, _, _, _, on_conflict, *_ = history.args[first + ITEM * i : first + ITEM * (i + 1)]
        word, *rest = str(on_conflict).split(" ")
        if word == "join":
            history.named.add(task_id)
        if ok:
            history.offered[task_id] = history.world.subs[task_id]
            if word == "join":
                _bring(history, said, task_id, (int(rest[0]), rest[1], value))


def _bring(history: History, said: Said, task_id: str, brought: tuple[int, str, bytes]) -> None:
    size, part, value = brought
    ghost = history.memory.ghosts.get(task_id)
    if ghost is None:
        history.parts.setdefault(task_id, []).append(brought)
        return
    state = said.get(task_id, ghost.state)
    if state in {"done", "cancelled"}:
        return
    ghost.steps[part] = value
    if state == "scheduled" and len(ghost.steps) >= size:
        said[task_id] = "queued"
        history.joined.add(task_id)


def _commit(history: History, raw: Any) -> Said:
    args, said, a = history.args, dict[str, str](), 3
    for answer in raw:
        task_id, fence, has, value, n = args[a : a + 5]
        verdict = "ok" if answer == b"ok" else answer[0].decode()
        mine = judge(history, task_id, "commit", int(fence), args[1], verdict)
        if mine:
            said[task_id] = "done"
            history.runs[task_id] = (value,)
            if has == "1":
                history.returned[task_id] = value
        _follow(history, said, a + 5, n, value, ok=_ends(history, task_id, verdict, mine))
        a += 5 + ITEM * n
    return said


def _checkpoint(history: History, raw: Any) -> Said:
    boot, task_id, fence, seq, value, _ = history.args
    ghost, verdict = history.memory.ghosts.get(task_id), raw[0].decode()
    if ghost is not None and verdict == "repeat" and ghost.mark[0] == int(fence) and ghost.mark[1] >= seq:
        return {}
    if judge(history, task_id, "checkpoint", int(fence), boot, verdict) and ghost is not None:
        if ghost.mark[0] == int(fence) and ghost.mark[1] >= seq:
            raise Violation("checkpoints-advance", f"{task_id}: {seq} was taken after {ghost.mark[1]}")
        ghost.checkpoint, ghost.mark = value, (int(fence), seq)
    return {}


def _step(history: History, raw: Any) -> Said:
    boot, task_id, fence, name, value, _ = history.args
    ghost, verdict = history.memory.ghosts.get(task_id), raw[0].decode()
    if ghost is not None and verdict == "repeat" and name in ghost.steps:
        verdict = "ok"
    if judge(history, task_id, "step", int(fence), boot, verdict) and ghost is not None:
        ghost.steps.setdefault(name, value)
        if raw[3] != ghost.steps[name]:
            raise Violation("steps-stand", f"{task_id}: step {name} answered {raw[3]!r}, it is {ghost.steps[name]!r}")
    return {}


def _progress(history: History, raw: Any) -> Said:
    boot, task_id, fence, _ = history.args
    judge(history, task_id, "progress", int(fence), boot, raw[0].decode())
    return {}


# --- claims --------------------------------------------------------------------------------------------------------


def _claim(history: History, raw: Any) -> Said:
    name, lane, seq, _, _, _, *queues = history.args
    boot = history.memory.boots.get(name)
    status = raw[0].decode()
    history.repeated_claim = True
    if (boot is None or boot.lost) != (status == "gone"):
        raise Violation("lost-boots-stay-lost", f"a claim of {name} was told {status}")
    if boot is None or boot.lost:
        return {}
    if boot.helps != (status == "role"):
        raise Violation("only-workers-claim", f"a claim of {name}, a {boot.role}, was told {status}")
    if boot.helps:
        return {}
    last, before = boot.lanes.get(lane, (0, {}))
    if status == "old" or seq < last:
        if status != "old" or seq >= last:
            raise Violation("claims-are-counted", f"claim {seq} of {name} after {last} was told {status}")
        return {}
    got = {item[0].decode(): item for item in raw[2:]}
    if seq == last:
        still = {i for i, fence in before.items() if _held(history, i, name, fence)}
        if still != set(got) - history.exempt:
            raise Violation("claim-repeats", f"claim {seq} of {name} again: {sorted(got)}, not {sorted(still)}")
        return {}
    return _taken(history, boot, got, queues)


def _taken(history: History, boot: GhostBoot, got: dict[str, Any], queues: list[str]) -> Said:
    name, lane, seq, want = history.args[:4]
    history.repeated_claim, history.handed = False, len(got)
    if len(got) > want:
        raise Violation("claims-are-counted", f"claim {seq} of {name} wanted {want} and got {len(got)}")
    for task_id, item in got.items():
        if task_id not in history.exempt:
            _handed_over(history, task_id, item, queues)
    if got:
        boot.lanes[lane] = (seq, dict(history.claimed))
    check_starts(history, dict.fromkeys(history.claimed, "running"))
    return dict.fromkeys(history.claimed, "running")


def _held(history: History, task_id: str, boot: str, fence: int) -> bool:
    ghost = history.memory.ghosts.get(task_id)
    return ghost is not None and ghost.state == "running" and ghost.owner == boot and ghost.fence == fence


def _handed_over(history: History, task_id: str, item: Any, queues: list[str]) -> None:
    memory = history.memory
    ghost = memory.ghosts.get(task_id)
    fence = int(item[1].split(b" ", 3)[2])
    if ghost is None or ghost.state != "queued":
        raise Violation("one-owner", f"{task_id} was handed over, it is {ghost and ghost.state}")
    if fence <= ghost.fence:
        raise Violation("fences-only-grow", f"{task_id} was claimed under {fence} after {ghost.fence}")
    if not history.outgrows(task_id, fence):
        raise Violation("fences-outgrow-rollbacks", f"{task_id} was claimed under {fence}, which the lost suffix had")
    if ghost.fence == 0 and 0 < ghost.expires <= history.time_ms:
        raise Violation("expires-holds", f"{task_id} was handed over after {ghost.expires}")
    if memory.paused.get(ghost.sub.queue) or ghost.sub.queue not in queues:
        raise Violation("pauses-hold", f"{task_id} was handed over from {ghost.sub.queue}")
    if not item[1].endswith(b"\n" + ghost.payload):
        raise Violation("payload-kept", f"{task_id} was handed over without {ghost.payload!r}")
    if (item[2][0] if item[2] else None) != ghost.checkpoint:
        raise Violation("checkpoints-advance", f"{task_id} was handed over with {item[2]}, not {ghost.checkpoint!r}")
    flat = item[2][1] if item[2] else []
    steps = {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}
    if steps != ghost.steps:
        raise Violation("steps-stand", f"{task_id} was handed over with {steps}, not {ghost.steps}")
    history.claimed[task_id] = fence


# --- sweeps --------------------------------------------------------------------------------------------------------


def _revive(history: History, raw: Any) -> Said:
    heard_sweep(history)
    outcomes = (outcome.decode().rsplit(" ", 1) for outcome in raw[0])
    return {outcome[0]: outcome[1] for outcome in outcomes}


def _owned(history: History, raw: Any) -> Said:
    told = {raw[i].decode(): int(raw[i + 1]) for i in range(0, len(raw), 2)}
    ghosts = history.memory.ghosts
    held = {i: ghosts[i].fence for i in history.memory.held(history.args[0])}
    if not history.loose and told != held:
        raise Violation("owned-as-told", f"{history.args[0]} owns {told}, not {held}")
    return {}


# --- operators -----------------------------------------------------------------------------------------------------


def _operate(history: History, raw: Any, move: str) -> Said:
    task_id, version = history.args[0], int(history.args[1])
    if task_id in history.exempt:
        return {}
    ghost, verdict = history.memory.ghosts.get(task_id), raw[0].decode()
    if (ghost is None) != (verdict == "missing"):
        raise Violation("accepted-is-kept", f"{move} of {task_id} was told {verdict}")
    if verdict not in {"ok", "asked"} or ghost is None:
        return {}
    if version != ghost.version:
        raise Violation("operators-see-what-they-change", f"{move} of {task_id} at {ghost.version} with {version}")
    if verdict == "asked" and ghost.state != "running":
        raise Violation("legal-moves", f"{task_id} was asked to cancel as {ghost.state}")
    history.offered = {task_id: None}
    return {} if move == "discard" else {task_id: raw[1].decode()}


def _replay(history: History, raw: Any) -> Said:
    task_id, nonce = history.args[0], history.args[2]
    ghost = history.memory.ghosts.get(task_id)
    again = ghost is not None and ghost.replayed == nonce
    if task_id not in history.exempt and again != (raw[0] == b"repeat"):
        raise Violation("repeat-changes-nothing", f"replay {nonce} of {task_id} was told {raw[0]}, again is {again}")
    if raw[0] == b"key_taken" and ghost is not None and not key_taken(history, task_id, ghost.sub.key):
        raise Violation("keys-free-at-the-end", f"replay of {task_id} was refused, nobody holds {ghost.sub.key}")
    return {} if again else _operate(history, raw, "replay")


def key_taken(history: History, task_id: str, key: str) -> bool:
    if history.loose:
        return True
    now = history.time_ms
    others = (g for i, g in history.memory.ghosts.items() if i != task_id and g.sub.key == key)
    return any(holds_key(ghost, now) for ghost in others)


def _pause(history: History, raw: Any, paused: bool) -> Said:
    if raw[0] == b"ok":
        history.memory.paused[history.args[0]] = paused
    return {}


OF: dict[str, Callable[[History, Any], Said]] = {
    "open": heard_open,
    "get": heard_get,
    "submit": heard_submit,
    "commit": _commit,
    "retry": lambda history, raw: _settle(history, raw, "retry", 5),
    "release": lambda history, raw: _settle(history, raw, "release", 2),
    "bury": _bury,
    "forfeit": lambda history, raw: _settle(history, raw, "forfeit", 3),
    "checkpoint": _checkpoint,
    "step": _step,
    "progress": _progress,
    "claim": _claim,
    "register": heard_register,
    "beat": heard_beat,
    "order": heard_order,
    "revive": _revive,
    "owned": _owned,
    "cancel": lambda history, raw: _operate(history, raw, "cancel"),
    "discard": lambda history, raw: _operate(history, raw, "discard"),
    "replay": _replay,
    "pause": lambda history, raw: _pause(history, raw, True),
    "resume": lambda history, raw: _pause(history, raw, False),
    "limit": heard_limit,
    "promote": heard_due,
    "schedule": heard_schedule,
    "fire": heard_fire,
    "unschedule": heard_unschedule,
    "schedules": heard_schedules,
    "reap": heard_reap,
    "open_batch": heard_open_batch,
    "extend_batch": heard_extend_batch,
    "seal_batch": heard_seal_batch,
    "cancel_batch": heard_cancel_batch,
    "lock": heard_lock,
    "renew": lambda history, raw: heard_holder(history, raw, "renew"),
    "conclude": lambda history, raw: heard_holder(history, raw, "conclude"),
    "unlock": lambda history, raw: heard_holder(history, raw, "unlock"),
}
