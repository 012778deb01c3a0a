"""The invariants, checked after every call the store ran.

The checker compares two views. The history (history.py) derives the state of each task from calls and replies alone:
who owns the task under which fence, how often it died, where it stands in its queue. The state (here) is the ledger's
own data. A call changes the state. Every difference must be a legal move (states.MOVES). The reply must report it,
unless it is one of the silent ones: an expired task ends in claim or promote, a replaced one in submit, and a reaped
one is removed.

A rollback of the store also rolls back the checker's memory, so exactly the writes of the lost suffix are forgiven.
Facts acknowledged at the level that the rollback respects are stored separately, and must still be true.

Records that somebody removed by hand are exempt from then on, with everything that belongs to them.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from proof.checker.batches import check_batches, settle_batches
from proof.checker.events import check_events
from proof.checker.ghost import LIVE, Ghost, Memory, Violation
from proof.checker.history import History
from proof.checker.indexes import check_all, check_counts, check_expired, check_keys, check_places
from proof.checker.limits import check_limits
from proof.checker.members import check_boots, jumped
from proof.checker.outcomes import check_outcomes
from proof.checker.replies import key_taken
from proof.checker.timetable_replies import acknowledge_timetable, timetables_hold
from proof.model.state import ITEM, Rec
from relier.ledger.records import Accepted, Recorded, Settled
from relier.ledger.schedule_records import ScheduleAnswer
from relier.states import BY_WORD, MOVES
from relier.store.call import Call, Durability

if TYPE_CHECKING:
    from proof.simulator.world import World

# The moves that a full store may refuse, besides a lock outside tasks and the activation of a schedule.
BRINGS_NEW = frozenset({"submit", "replay", "fire", "open_batch"})
CHANGING = frozenset(MOVES)
STEP = "step "


class Checker(History):
    """Check safety after every call. The simulation itself (simulate.py) checks liveness."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.durable: dict[tuple[str, str], Durability] = {}  # (accepted, done or "step …", id) -> level
        self.serial = 0  # of entries of events; never rolled back
        self.positions: dict[tuple[str, str], int] = {}  # (topic, id of an entry that a reader got) -> its serial

    # --- what clients were told ----------------------------------------------------------------------------------

    def acknowledged(self, call: Call[Any], answer: Any) -> None:
        """Remember the facts that this answer acknowledged. The client may rely on them from now on."""
        if call.script == "submit" and isinstance(answer, list):
            for item in answer:
                if isinstance(item, Accepted) and item.status in {"new", "exists"}:
                    self._accept(item.id, call.durability)
        elif call.script == "commit" and isinstance(answer, list):
            for task_id, settled in zip(_commit_ids(call.args), answer, strict=True):
                if isinstance(settled, Settled) and settled.ok:
                    self.durable["done", task_id] = call.durability
        elif call.script == "step" and isinstance(answer, Recorded) and answer.settled.ok:
            self.durable[f"{STEP}{call.args[3]!s}", str(call.args[1])] = call.durability
        elif isinstance(answer, ScheduleAnswer):
            acknowledge_timetable(self, call, answer)

    def _accept(self, task_id: str, level: Durability) -> None:
        memory = self.memory
        if task_id not in memory.ghosts and task_id not in memory.removed and task_id not in self.exempt:
            raise Violation("accepted-is-kept", f"{task_id} was acknowledged and is not there")
        if self.durable.get(("accepted", task_id)) in {None, Durability.MEMORY}:
            self.durable["accepted", task_id] = level

    def refused_as_full(self, call: Call[Any]) -> None:
        outside = call.script == "lock" and call.args[4] == "-"
        starts = call.script == "schedule" and call.args[5] == "active"
        if call.script not in BRINGS_NEW and not outside and not starts:
            raise Violation("settles-when-full", f"{call.script} was refused by a full store")

    # --- rollbacks -----------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        return pickle.dumps((self.memory, self.durable), pickle.HIGHEST_PROTOCOL)

    def restore(self, snapshot: bytes, respected: Durability) -> None:
        """Return to an earlier state with the store. Everything acknowledged at the respected level must still be
        there.
        """
        kept = {fact: level for fact, level in self.durable.items() if level is respected}
        self.memory, self.durable = pickle.loads(snapshot)  # noqa: S301 - our own
        for (kind, task_id), level in kept.items():
            ghost = self.memory.ghosts.get(task_id)
            if task_id in self.memory.removed or task_id in self.exempt:
                continue
            if ghost is None or not _still(kind, ghost):
                raise Violation("level-holds", f"{task_id} was {kind} at {level} and is not after the rollback")
        self.durable.update(kept)
        timetables_hold(self, respected)
        self.effects.clear()  # a record that was lost with the suffix is nobody's fault
        for task_id in list(self.memory.ghosts):
            if task_id in self.exempt:
                del self.memory.ghosts[task_id]
        check_all(self)

    def wiped(self) -> None:
        """Forget everything: the store was emptied, and nothing that it acknowledged is left."""
        self.memory, self.durable, self.durable_tables = Memory(), {}, {}

    def _tick(self, script: str) -> None:
        clock, memory = self.world.backend.model.clock, self.memory
        if clock is not None and clock[0] != memory.ledger_now:
            if clock[0] < memory.ledger_now:
                raise Violation("clock-only-grows", f"from {memory.ledger_now} to {clock[0]} in {script}")
            memory.ledger_now = clock[0]

    def _forget_steps(self, replay: Call[Any]) -> None:
        """Forget the steps of a task that was replayed from the beginning: they were deleted on purpose."""
        for fact in [fact for fact in self.durable if fact[0].startswith(STEP) and fact[1] == replay.args[0]]:
            if replay.args[5]:
                del self.durable[fact]

    def jumped(self, delta_us: int) -> None:
        """Note that the store's TIME jumped."""
        jumped(self, delta_us)

    def wrecked(self, task_id: str) -> None:
        """Exempt a task whose record somebody removed by hand, and subtract it from the counters."""
        self.exempt.add(task_id)
        ghost = self.memory.ghosts.pop(task_id, None)
        self.memory.events.tasks.pop(task_id, None)
        if ghost is not None and ghost.state in LIVE:
            self.memory.entered -= 1
        self.loose = True

    # --- after every call ----------------------------------------------------------------------------------------

    def applied(self, call: Call[Any], raw: Any, time_us: int) -> None:
        self._judge(call, raw, time_us)
        changes = check_events(self, call, raw)
        check_outcomes(self, call.script, changes)

    def _judge(self, call: Call[Any], raw: Any, time_us: int) -> None:
        self.time_us, self.time_ms = time_us, time_us // 1000
        script = call.script
        said = self.told(call, raw)
        if script == "replay":
            self._forget_steps(call)
        self._tick(script)
        check_boots(self, call, raw)
        if script not in CHANGING:
            if script in {"checkpoint", "step", "progress"}:
                self._notes(call.args[1])
            elif script == "limit":
                check_limits(self)
            return
        changed = self._differences(script, said)
        for task_id in self.named:
            self._notes(task_id)
        self._check_state(script, changed)
        self._whole(call, raw, said, len(changed))

    def _whole(self, call: Call[Any], raw: Any, said: dict[str, str], changed: int) -> None:
        """Check the rules about the call as a whole."""
        script = call.script
        if script == "claim":
            self.order_kept(said)
        elif script in {"commit", "bury"} and self.offered:
            self._followed()
        elif script == "promote":
            check_expired(self, int(call.args[0]), changed)
        elif script == "revive":
            self.thorough(call, raw)

    def _check_state(self, script: str, changed: list[str]) -> None:
        if changed or script == "reap":
            check_limits(self)
        if changed:
            check_places(self, changed)
            check_keys(self)
            check_counts(self)
        if self.memory.batches or self.due:
            check_batches(self, script)

    def _differences(self, script: str, said: dict[str, str]) -> list[str]:
        """Judge every record that differs from the remembered one. Return the ids."""
        tasks, ghosts = self.world.backend.model.tasks, self.memory.ghosts
        changed, new = [], []
        for task_id, rec in tasks.items():
            ghost = ghosts.get(task_id)
            if ghost is None:
                if task_id not in self.exempt:
                    new.append((task_id, rec))
            elif (
                rec.state != ghost.state
                or rec.version != ghost.version
                or rec.fence != ghost.fence
                or rec.owner != ghost.owner
                or rec.attempt != ghost.attempt
            ):
                self._moved(script, task_id, rec, ghost, said)
                changed.append(task_id)
            elif said and said.get(task_id, rec.state) != rec.state:
                raise Violation("said-is-done", f"{script} said {task_id} is {said[task_id]}, it is {rec.state}")
        if self.memory.batches:
            settle_batches(self)
        for task_id, rec in new:
            self._entered(script, task_id, rec, said)
            changed.append(task_id)
        if not ghosts.keys() <= tasks.keys():
            changed += [task_id for task_id in list(ghosts) if task_id not in tasks and self._vanished(script, task_id)]
        return changed

    def _entered(self, script: str, task_id: str, rec: Rec, said: dict[str, str]) -> None:
        if task_id in self.due:
            self.due.discard(task_id)
            self.offered[task_id] = self.world.subs[task_id]
        if (None, BY_WORD[rec.state]) not in MOVES[script].pairs or task_id not in self.offered:
            raise Violation("legal-moves", f"{task_id} appeared as {rec.state} in {script}")
        if script == "submit" and task_id not in said:
            raise Violation("said-is-done", f"submit entered {task_id} and told nobody")
        if self.memory.tombs.get(task_id, 0) > self.time_ms:
            raise Violation("tombstone-holds", f"{task_id} entered again before its tombstone ended")
        self.memory.ghosts[task_id] = self.enter_ghost(task_id, rec)

    def _followed(self) -> None:
        """Check that every follow-up of an end exists, unless its id or key was used before."""
        memory = self.memory
        for task_id, sub in self.offered.items():
            gone = memory.tombs.get(task_id, 0) > self.time_ms or task_id in self.exempt
            gone = gone or any(sub and sub.key and memory.ghosts[i].sub.key == sub.key for i in self.runs)
            if (
                task_id not in memory.ghosts
                and not gone
                and not (sub and sub.key and key_taken(self, task_id, sub.key))
            ):
                raise Violation("follow-ups-enter", f"{task_id} should have entered")

    def _moved(self, script: str, task_id: str, rec: Rec, ghost: Ghost, said: dict[str, str]) -> None:
        old, new = ghost.state, rec.state
        same = old == new and script in {"cancel", "cancel_batch"} and said.get(task_id) == "running"
        if not same and (BY_WORD[old], BY_WORD[new]) not in MOVES[script].pairs:
            raise Violation("legal-moves", f"{task_id} went from {old} to {new} in {script}")
        if task_id in said:
            if said[task_id] != new:
                raise Violation("said-is-done", f"{script} said {task_id} is {said[task_id]}, it is {new}")
        else:
            self.silent(script, task_id, ghost, new)
        if rec.fence != (self.claimed.get(task_id, 0) if script == "claim" and new == "running" else ghost.fence):
            raise Violation("fences-only-grow", f"{task_id} in {script}: fence {ghost.fence} became {rec.fence}")
        if rec.version <= ghost.version:
            raise Violation("versions-grow", f"{task_id} in {script}: {ghost.version} became {rec.version}")
        self.follow_ghost(script, task_id, rec, ghost)
        if rec.attempt != ghost.attempt:
            raise Violation("attempts-count", f"{task_id} after {script}: {rec.attempt} attempts, not {ghost.attempt}")
        if rec.owner != ghost.owner:
            raise Violation("owner-as-told", f"{task_id} after {script}: owner {rec.owner}, not {ghost.owner}")
        told = (ghost.sub.name, ghost.sub.queue, ghost.sub.priority)
        kept = rec.body == ghost.payload or rec.state in {"done", "cancelled"}
        if (rec.name, rec.queue, rec.priority) != told or not kept:
            raise Violation(
                "goes-on-as-told", f"{task_id} after {script}: {rec.text()!r}, not {told} {ghost.payload!r}"
            )
        self._counts_of(script, task_id, rec, ghost)

    def _counts_of(self, script: str, task_id: str, rec: Rec, ghost: Ghost) -> None:
        deaths, scares = int(rec.more.get("deaths", 0)), int(rec.more.get("scares", 0))
        if (deaths, scares) != (ghost.deaths, ghost.scares):
            told = f"deaths {deaths} scares {scares}, not {ghost.deaths} and {ghost.scares}"
            raise Violation("deaths-are-fair", f"{task_id} after {script}: {told}")
        since = {name: rec.more[name] for name in ("since", "locked_since") if name in rec.more}
        if since != ghost.since:
            raise Violation("put-backs-have-their-time", f"{task_id} after {script}: {since}, not {ghost.since}")
        if rec.state in {"queued", "scheduled"} and (("a" in rec.flags) != ghost.alone or "c" in rec.flags):
            raise Violation("suspects-run-alone", f"{task_id} after {script}: flags {rec.flags!r}, alone {ghost.alone}")
        self._notes(task_id)

    def _notes(self, task_id: object) -> None:
        rec, ghost = self.world.backend.model.tasks.get(str(task_id)), self.memory.ghosts.get(str(task_id))
        if rec is None or ghost is None:
            return
        if rec.checkpoint != ghost.checkpoint:
            raise Violation("checkpoints-advance", f"{task_id} holds {rec.checkpoint!r}, not {ghost.checkpoint!r}")
        if rec.steps != ghost.steps:
            raise Violation("steps-stand", f"{task_id} holds {rec.steps}, not {ghost.steps}")

    def _vanished(self, script: str, task_id: str) -> bool:
        ghost, memory = self.memory.ghosts[task_id], self.memory
        if ghost.state in LIVE:
            raise Violation("accepted-is-kept", f"{task_id} was {ghost.state} and vanished in {script}")
        asked = script == "discard" and task_id in self.offered
        if not asked and (script != "reap" or ghost.eol > self.time_ms):
            raise Violation("kept-to-its-end-of-life", f"{task_id} ({ghost.state}) vanished in {script}")
        memory.removed.add(task_id)
        if ghost.sub.tomb_ttl_ms is not None:
            memory.tombs[task_id] = self.time_ms + ghost.sub.tomb_ttl_ms
        del memory.ghosts[task_id]
        return True


def _still(kind: str, ghost: Ghost) -> bool:
    """Return whether a fact that a client was told still holds. Steps are deleted when their task ends."""
    if kind.startswith(STEP):
        return ghost.state in {"done", "cancelled"} or kind.removeprefix(STEP) in ghost.steps
    return kind != "done" or ghost.state == "done"


def _commit_ids(args: tuple[Any, ...]) -> list[str]:
    ids, a = [], 3
    for _ in range(int(args[2])):
        ids.append(str(args[a]))
        a += 5 + ITEM * int(args[a + 4])
    return ids


__all__ = ["Checker", "Memory"]
