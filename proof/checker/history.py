"""The history: the state that every task must be in by now, derived from calls and their replies."""

# ruff: noqa: ARG001 - every move changes its ghost by the same signature

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proof.checker import limits, replies
from proof.checker.batches import member_ended, member_entered, member_replayed
from proof.checker.ghost import LIVE, Ghost, GhostBoot, Memory, Violation
from proof.model.state import Rec
from relier.ledger.defaults import MAX_RESURRECTIONS, REVIVED_US
from relier.ledger.records import Lease, Submission
from relier.store.call import Call, Durability

if TYPE_CHECKING:
    from proof.simulator.world import World


class History:
    """Update the ghosts. `told` reads one reply; then the checker judges all remaining differences."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.memory = Memory()
        self.exempt: set[str] = set()
        self.effects: set[tuple[str, int]] = set()  # id and fence of attempts that did something not yet recorded
        self.loose = False  # a record was removed by hand: indexes may hold entries without a record
        self.time_us = 0
        self.time_ms = 0
        self.highest: dict[str, int] = {}  # id -> the highest fence ever issued: no rollback takes it back
        self.latest_us = 0
        self.marks: set[str] = set()  # all birth marks so far
        self.table_versions: dict[str, int] = {}  # timetable -> its highest version: no rollback takes it back
        self.durable_tables: dict[str, tuple[int, Durability]] = {}  # timetable -> version acknowledged, level
        # about the call that is being judged
        self.args: tuple[Any, ...] = ()
        self.offered: dict[str, Submission | None] = {}
        self.runs: dict[str, tuple[Any, ...]] = {}
        self.claimed: dict[str, int] = {}
        self.fallen: dict[str, GhostBoot] = {}
        self.repeated_claim = False
        self.handed = 0
        self.paced_before: dict[str, int] = {}  # when each rate was idle before the claim
        self.named: set[str] = set()  # joins for which an end of this call has a part, accepted or not
        self.parts: dict[str, list[tuple[int, str, bytes]]] = {}  # of submitted tasks: size, part, value
        self.joined: set[str] = set()  # joins that no longer wait
        self.due: set[str] = set()  # tasks that must be submitted, because a member of a batch ended
        self.returned: dict[str, bytes] = {}  # the values with which tasks ended

    def told(self, call: Call[Any], raw: Any) -> dict[str, str]:
        """Return the changes that the reply reports: id -> new state. Compare every verdict with the history."""
        self.args = call.args
        if self.offered or self.runs or self.claimed or self.fallen:
            self.offered, self.runs, self.claimed, self.fallen = {}, {}, {}, {}
        if self.named or self.parts or self.joined or self.due or self.returned:
            self.named, self.parts, self.joined = set(), {}, set()
            self.due, self.returned = set(), {}
        hear = replies.OF.get(call.script)
        return hear(self, raw) if hear else {}

    def outgrows(self, task_id: str, fence: int) -> bool:
        """Return whether a fence is above all that were ever issued, also in a lost suffix, if TIME is ahead of that
        suffix.
        """
        fits = fence > self.highest.get(task_id, 0) or self.time_us <= self.latest_us
        self.latest_us = max(self.latest_us, self.time_us)
        self.highest[task_id] = max(self.highest.get(task_id, 0), fence)
        return fits

    # --- effects of steps ------------------------------------------------------------------------------------------

    def effect(self, lease: Lease) -> None:
        """Note that an attempt has performed an effect that a step must record."""
        self.effects.add((lease.task_id, int(lease.fence)))

    def excuse(self, lease: Lease) -> None:
        """Excuse an attempt that could not record an effect, because it no longer owns the task."""
        self.effects.discard((lease.task_id, int(lease.fence)))

    def recorded_first(self, move: str, task_id: str, fence: int) -> None:
        """Check that no attempt ends by its own decision before its effect is recorded. A later attempt would repeat
        the effect.
        """
        if move == "step":
            self.effects.discard((task_id, fence))
        elif move in {"commit", "retry", "bury"} and (task_id, fence) in self.effects:
            raise Violation(
                "effects-are-recorded", f"{task_id} ended in {move} under {fence} with an effect unrecorded"
            )

    # --- what waits ---------------------------------------------------------------------------------------------

    def _is_ready(self, task_id: str, ghost: Ghost) -> bool:
        """Return whether a task is in its queue, and not behind a limit."""
        return not ghost.sub.limits or task_id in self.world.backend.model.ready.get(ghost.sub.queue, {})

    def _revived_waiting(self, *, limited: bool = True) -> dict[str, int]:
        waiting: dict[str, int] = {}
        for task_id, ghost in self.memory.ghosts.items():
            if ghost.sub.limits and not limited:
                continue
            if ghost.state == "queued" and ghost.order <= 0 and self._is_ready(task_id, ghost):
                waiting[ghost.sub.queue] = waiting.get(ghost.sub.queue, 0) + 1
        return waiting

    # --- records -------------------------------------------------------------------------------------------------

    def enter_ghost(self, task_id: str, rec: Rec) -> Ghost:
        """Create the ghost of a new task from its submission."""
        sub = self.offered[task_id]
        if sub is None or not 0 <= rec.at - self.time_us <= 100:
            raise Violation("legal-moves", f"{task_id} entered at {rec.at}, the call ran at {self.time_us}")
        now = self.time_ms
        due = now + sub.delay_ms if sub.delay_ms else sub.eta_ms
        expires = now + sub.expires_in_ms if sub.expires_in_ms else sub.expires_at_ms
        ghost = Ghost(sub, "scheduled" if due > now else "queued", rec.at, 0, due, expires, sub.payload)
        self.memory.entered += 1
        member_entered(self, task_id)
        if rec.state == "cancelled":
            # Replaced by another task of the same call.
            self.silent("submit", task_id, ghost, "cancelled")
            ghost.state, ghost.version = rec.state, rec.version
            ghost.end("cancelled", now)
            self.memory.ended += 1
            return ghost
        ghost.line_up(rec.at)
        for size, part, value in self.parts.get(task_id, ()):
            ghost.steps[part] = value
            if ghost.state == "scheduled" and len(ghost.steps) >= size:
                ghost.state, ghost.version = "queued", 2
                ghost.line_up(self.time_us)
        if rec.state != ghost.state or rec.body != sub.payload or rec.queue != sub.queue:
            raise Violation(
                "enters-as-asked", f"{task_id} entered as {rec.state} {rec.queue} {rec.body!r}, not {ghost}"
            )
        return ghost

    def follow_ghost(self, script: str, task_id: str, rec: Rec, ghost: Ghost) -> None:
        """Apply one legal change, and check what must hold of the task afterwards."""
        was, ghost.state, ghost.version = ghost.state, rec.state, rec.version
        follow = _joined if task_id in self.joined else _FOLLOW.get(script)
        if follow is not None:
            follow(self, task_id, ghost)
        if ghost.state != rec.state:
            raise Violation("ends-as-ruled", f"{task_id} is {rec.state} after {script}, not {ghost.state}")
        if ghost.state in {"queued", "scheduled"}:
            ghost.owner = "-"
        if ghost.state not in LIVE and was in LIVE:
            ghost.end(ghost.state, self.time_ms)
            self.memory.ended += 1
            member_ended(self, task_id, ghost.state)

    def resurrect(self, ghost: Ghost, alone: bool) -> None:
        if ghost.asked:
            ghost.state = "cancelled"
            return
        if ghost.sub.on_lost != "retry":
            ghost.state, ghost.lost = "dead", ghost.sub.on_lost
            return
        ghost.since = {}
        if alone:
            ghost.deaths += 1
        else:
            ghost.scares += 1
        most = ghost.sub.max_resurrections
        most = MAX_RESURRECTIONS if most is None else most
        if ghost.deaths > most or ghost.scares > 2 + 2 * most:
            ghost.state = "dead"
            ghost.reason = "max_resurrections_exceeded" if ghost.deaths > most else "workers_kept_dying"
            return
        ghost.state = "queued"
        ghost.alone = ghost.alone or ghost.scares >= 2
        ghost.line_up(ghost.at - REVIVED_US)

    def silent(self, script: str, task_id: str, ghost: Ghost, new: str) -> None:
        """Check a change that the reply does not report. The move must be allowed to make it silently."""
        expired = ghost.fence == 0 and 0 < ghost.expires <= self.time_ms
        if script == "claim" and new == "cancelled" and expired:
            return
        if script == "claim" and new == "scheduled" and limits.waits_for_a_rate(self, task_id, ghost):
            return
        if script == "promote" and (expired if new == "cancelled" else ghost.due <= self.time_ms and not expired):
            return
        if script in {"submit", "commit", "bury", "fire"} and new == "cancelled" and ghost.sub.key:
            heirs = (sub for i, sub in self.offered.items() if sub and i != task_id and sub.key == ghost.sub.key)
            if any(heir.on_conflict == "replace" for heir in heirs):
                return
        raise Violation(
            "said-is-done", f"{task_id} went from {ghost.state} to {new} in {script}, untold and by no rule"
        )

    # --- whole calls ---------------------------------------------------------------------------------------------

    def order_kept(self, said: dict[str, str]) -> None:
        """Check that a claim skipped no earlier task of its queues, and left no task behind without a reason."""
        _, lane, seq, want, _, _, *queues = self.args
        if self.repeated_claim:
            return
        ghosts = self.memory.ghosts
        limits.check_lane_order(self, said)
        taken = {
            queue: max((ghosts[i].order for i in said if _plain_in(ghosts[i], queue)), default=None) for queue in queues
        }
        full = self.handed >= int(want)
        left_before = False
        for queue in queues:
            if self.memory.paused.get(queue):
                continue
            if left_before and taken[queue] is not None:
                raise Violation("queues-in-order", f"claim {lane} {seq} took from {queue} while an earlier queue waits")
            there = [
                g
                for i, g in ghosts.items()
                # except tasks that this claim put into the queue
                if g.state == "queued" and g.sub.queue == queue and i not in self.offered
            ]
            if not full and not self.loose:
                there = [g for g in there if not (g.sub.limits and limits.may_wait(self, g))]
            else:
                there = [g for g in there if not g.sub.limits]
            waiting = [g.order for g in there]
            if waiting and not full:
                raise Violation(
                    "claims-what-waits", f"a claim of {want} got {len(said)} and left {len(waiting)} in {queue}"
                )
            last = taken[queue]
            if waiting and last is not None and min(waiting) < last:
                raise Violation("order-in-queue", f"{queue}: {min(waiting)} waits, {last} was handed over")
            left_before = left_before or bool(waiting)

    def thorough(self, call: Call[Any], raw: Any) -> None:
        """Check that a sweep skips no lost worker without a reason, respects its limits, and removes only nodes that
        own nothing.
        """
        most, deepest = int(call.args[0]), int(call.args[1])
        memory = self.memory
        for name in self.fallen:
            if memory.held(name):
                raise Violation("dead-boot-owns-nothing", f"{name} was removed and holds {memory.held(name)}")
        if self.loose:
            return
        waiting, plain = self._revived_waiting(), self._revived_waiting(limited=False)
        for outcome in raw[0]:
            ghost = memory.ghosts[outcome.decode().split()[0]]
            # A slot that becomes free may also queue limited tasks.
            if ghost.state == "queued" and not ghost.sub.limits and plain[ghost.sub.queue] > deepest:
                raise Violation("brake-holds", f"{plain[ghost.sub.queue]} revived wait in {ghost.sub.queue}")
        looked = len(raw[0]) + int(raw[1])
        named = str(call.args[3])
        for name, boot in memory.boots.items():
            if boot.lost and looked < most and (not named or named == name):
                idle = [i for i in memory.held(name) if waiting.get(memory.ghosts[i].sub.queue, 0) < deepest]
                if idle:
                    raise Violation("sweep-is-thorough", f"{idle} of {name} were left, {looked} of {most} looked at")


def _plain_in(ghost: Ghost, queue: str) -> bool:
    return ghost.sub.queue == queue and not ghost.sub.limits


# --- how each move changes a ghost --------------------------------------------------------------------------------


def _claim(history: History, task_id: str, ghost: Ghost) -> None:
    if ghost.state == "running":
        ghost.fence, ghost.owner = history.claimed[task_id], str(history.args[0])
        ghost.attempt += 1


def _commit(history: History, task_id: str, ghost: Ghost) -> None:
    if task_id in history.runs:
        ghost.committed = (ghost.owner, ghost.fence)


def _settled(history: History, move: str, ghost: Ghost) -> None:
    ghost.settled = f"{move}:{ghost.fence}"
    if ghost.asked and move in {"retry", "release"}:
        ghost.state = "cancelled"


def _retry(history: History, task_id: str, ghost: Ghost) -> None:
    _, _, delay, kind, _ = history.runs[task_id]
    if kind == "failure":
        ghost.scares, ghost.since = 0, {}
    else:
        ghost.attempt -= 1
        field = {"putback": "since", "locked": "locked_since"}.get(kind)
        if field:
            ghost.since = {field: ghost.since.get(field, str(history.time_ms))}
    if len(history.args) > 7 and not ghost.asked:
        ghost.goes_on_as(history.world.others[history.args[7]])
    ghost.state = "scheduled" if delay else "queued"
    ghost.due, ghost.keeps, ghost.waits_for_rate = history.time_ms + delay, kind == "quiet", False
    ghost.line_up(history.time_us)
    _settled(history, "retry", ghost)


def _joined(history: History, task_id: str, ghost: Ghost) -> None:
    ghost.line_up(history.time_us)


def _release(history: History, task_id: str, ghost: Ghost) -> None:
    ghost.attempt -= 1
    ghost.state = "queued"
    ghost.line_up(ghost.at)
    _settled(history, "release", ghost)


def _bury(history: History, task_id: str, ghost: Ghost) -> None:
    if task_id in history.runs:
        ghost.state, ghost.reason = "dead", str(history.runs[task_id][2])
        _settled(history, "bury", ghost)


def _forfeit(history: History, task_id: str, ghost: Ghost) -> None:
    _settled(history, "forfeit", ghost)
    history.resurrect(ghost, True)


def _revive(history: History, task_id: str, ghost: Ghost) -> None:
    boot = history.fallen.get(ghost.owner) or history.memory.boots.get(ghost.owner)
    if boot is None or not boot.lost:
        raise Violation("live-lease-not-stolen", f"{task_id} was taken from {ghost.owner}, which is not lost")
    alone = boot.ran == 1
    if history.loose:
        # A record that was removed by hand still counted as running: believe the ledger.
        alone = int(history.world.backend.model.tasks[task_id].more.get("deaths", 0)) > ghost.deaths
    history.resurrect(ghost, alone)


def _promote(history: History, task_id: str, ghost: Ghost) -> None:
    ghost.line_up(ghost.at if ghost.keeps else ghost.due * 1000)


def _replay(history: History, task_id: str, ghost: Ghost) -> None:
    _, _, nonce, edited, payload, fresh = history.args
    ghost.attempt = ghost.deaths = ghost.scares = 0
    ghost.since = {}
    ghost.alone = ghost.asked = False
    ghost.settled = ghost.lost = ghost.reason = ""
    ghost.replayed = str(nonce)
    if edited:
        ghost.payload = payload
    if fresh:
        ghost.checkpoint, ghost.mark, ghost.steps = None, (0, 0), {}
    ghost.line_up(history.time_us)
    history.memory.entered += 1
    member_replayed(history, task_id)


def _cancel(history: History, task_id: str, ghost: Ghost) -> None:
    if ghost.state == "running":
        ghost.asked = True


_FOLLOW = {
    "claim": _claim,
    "commit": _commit,
    "retry": _retry,
    "release": _release,
    "bury": _bury,
    "forfeit": _forfeit,
    "revive": _revive,
    "promote": _promote,
    "replay": _replay,
    "cancel": _cancel,
    "cancel_batch": _cancel,
}
