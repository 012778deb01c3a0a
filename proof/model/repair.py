"""The model's repair: reconcile, and how it repairs each kind of subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proof.model.batches import INF
from proof.model.state import BatchRec, Boot, Rec
from proof.model.sweep import Sweeping
from relier.ledger.defaults import (
    BACKSTOP_MS,
    DEAD_TTL_MS,
    MEMBER_SPAN,
    REPAIR_EVERY_MS,
    REPAIR_PAGES,
    RESULT_TTL_MS,
)

LIVE = ("scheduled", "queued", "running")
MOST_REPAIRS = 100


class Repairing(Sweeping):
    """Repair damage from outside, and change nothing else."""

    def _reconcile(self, args: list[bytes]) -> Any:
        cursor, last = self.repair_turn
        words = [arg.decode() for arg in args]
        if not words[0]:
            last = 0 if last > self.now else last
            pages = min(REPAIR_PAGES, (self.now - last) // REPAIR_EVERY_MS)
            if pages:
                self.repair_turn = (cursor, self.now)
            return [cursor.encode(), pages, 0]
        self.repaired = {}
        subjects = list(zip(words[2::3], words[3::3], words[4::3], strict=True))
        looked = 0
        for kind, of, member in subjects:
            if sum(self.repaired.values()) >= MOST_REPAIRS:
                break
            self.mend(kind, of, member)
            looked += 1
        if looked == len(subjects) and words[0] == cursor:
            cursor = words[1]
            self.repair_turn = (cursor, last)
        counts = [part for kind, n in self.repaired.items() for part in (kind.encode(), n)]
        return [cursor.encode(), 0, looked, *counts]

    def fixed(self, kind: str) -> None:
        self.repaired[kind] = self.repaired.get(kind, 0) + 1
        self.count(f"repaired_{kind}")

    def mend(self, kind: str, of: str, member: str) -> None:
        of_keys: dict[str, Callable[[str], None]] = {
            "task": self.mend_task,
            "lane": self.mend_lane,
            "owned": self.mend_owner,
            "batch": self.mend_batch,
            "ready": self.mend_queue,
            "bell": self.mend_bell,
        }
        of_members: dict[str, Callable[[str, str], None]] = {
            "slots": self.mend_slot,
            "sleepers": self.mend_sleeper,
            "members": self.mend_member,
            "lanes": lambda _, lane: self.mend_lane(lane),
            "pacers": lambda _, field: self.mend_pacer(field),
            "batches": lambda _, batch: self.mend_listed_batch(batch),
        }
        if member and kind in {"due", "ready", "lane", "owned"}:
            self.mend_entry(kind, of, member)
        elif member and kind in of_members:
            of_members[kind](of, member)
        elif not member and kind in of_keys:
            of_keys[kind](of)
        elif not member:
            self.mend_leftover(kind, of)

    # --- records and indexes ---------------------------------------------------------------------------------------

    def home_of(self, task_id: str, rec: Rec) -> tuple[str, str]:
        if rec.state == "scheduled":
            return "due", ""
        if rec.state == "running":
            return "owned", rec.owner
        if rec.state != "queued":
            return "ended", rec.state
        lane = self.lane_of(rec) if "l" in rec.flags else ""
        return ("lane", lane) if task_id in self.lane_waits.get(lane, {}) else ("ready", rec.queue)

    def index_of(self, kind: str, of: str) -> dict[str, Any]:
        indexes: dict[str, dict[str, Any]] = {
            "due": {"": self.due},
            "ready": self.ready,
            "owned": self.owned,
            "ended": self.ended,
            "lane": self.lane_waits,
        }
        found: dict[str, Any] = indexes[kind].get(of, {})
        return found

    def mend_task(self, task_id: str) -> None:
        rec = self.tasks.get(task_id)
        if rec is None:
            return
        if task_id not in self.index_of(*self.home_of(task_id, rec)):
            self.bring_home(task_id, rec)
        if rec.state == "running":
            self.mend_owner(rec.owner)
            self.mend_slots(task_id, rec)
        if rec.state in LIVE and rec.expiry:
            rec.expiry = False
            self.fixed("expiry")

    def bring_home(self, task_id: str, rec: Rec) -> None:
        if rec.state == "scheduled":
            self.due[task_id] = self.now
        elif rec.state == "queued":
            self.place(task_id, rec, rec.at)
        elif rec.state == "running":
            self.owned.setdefault(rec.owner, {})[task_id] = rec.moved
        else:
            self.ended.setdefault(rec.state, {})[task_id] = self.end_of_life(rec)
        self.fixed(rec.state if rec.state in LIVE else "ended")

    def end_of_life(self, rec: Rec) -> float:
        if rec.state == "dead":
            if rec.on_lost == "hold" and rec.more.get("reason") == "lost":
                return INF
            return self.now + (DEAD_TTL_MS if rec.dead_ttl is None else rec.dead_ttl)
        ttl = RESULT_TTL_MS if rec.result_ttl is None else rec.result_ttl
        return self.now + max(ttl, (rec.key_ttl or 0) if rec.state == "done" else 0)

    def mend_owner(self, boot: str) -> None:
        if boot not in self.boots:
            self.boots[boot] = Boot(0, 0, 0, bare=True)
            self.news("cluster", "lost", boot, "", "", "", "", "not registered")
            self.fixed("unowned")

    def mend_entry(self, kind: str, of: str, task_id: str) -> None:
        rec = self.tasks.get(task_id)
        if task_id not in self.index_of(kind, of) or (rec is not None and self.home_of(task_id, rec) == (kind, of)):
            return
        self.drop_entry(kind, of, task_id)
        self.fixed("entry")
        if rec is None:
            self.count("strays")
        else:
            self.mend_task(task_id)

    def drop_entry(self, kind: str, of: str, task_id: str) -> None:
        if kind == "due":
            del self.due[task_id]
        elif kind != "lane":
            self.drop(self.ready if kind == "ready" else self.owned, of, task_id)
        elif self.wait_no_more(of, task_id) and self.lanes.get(of, "")[:1] == "-":
            self.sleep_no_more(of, self.lanes[of][1:])
            self.succeed(of)

    # --- limits ------------------------------------------------------------------------------------------------------

    def mend_slots(self, task_id: str, rec: Rec) -> None:
        for limit in self.limits_of(rec) if "l" in rec.flags else ():
            if self.slots.get(limit.key, {}).get(task_id) != rec.fence:
                self.slots.setdefault(limit.key, {})[task_id] = rec.fence
                self.fixed("slot")

    def mend_slot(self, key: str, task_id: str) -> None:
        held, rec = self.slots.get(key, {}), self.tasks.get(task_id)
        runs = rec is not None and rec.state == "running"
        if task_id not in held or (rec is not None and runs and rec.fence == held[task_id]):
            return
        if rec is not None and runs and "l" in rec.flags and key in {limit.key for limit in self.limits_of(rec)}:
            self.mend_slots(task_id, rec)
            return
        self.drop(self.slots, key, task_id)
        self.wake(key)
        self.fixed("slot")

    def mend_lane(self, lane: str) -> None:
        queue, state = lane.partition(" ")[2], self.lanes.get(lane, "")
        if state[:1] == "-":
            self.mend_asleep(lane, state[1:], queue)
        elif state and state[1:] not in self.ready.get(queue, {}) and state[1:] not in self.due:
            self.tidy_lane(lane)
            self.fixed("lane")
        elif not state and lane in self.lane_waits:
            self.succeed(lane)
            self.fixed("lane")

    def mend_asleep(self, lane: str, key: str, queue: str) -> None:
        first, listed = self.first_in(lane), self.sleepers.get((key, queue), {}).get(lane)
        if first is not None and listed == self.lane_waits[lane][first]:
            return
        if first is not None:
            self.sleep(lane, key)
        else:
            self.sleep_no_more(lane, key)
            self.awake(lane)
        self.fixed("lane")

    def mend_sleeper(self, of: str, lane: str) -> None:
        key, _, queue = of.partition(" ")
        if lane in self.sleepers.get((key, queue), {}) and self.lanes.get(lane) != f"-{key}":
            self.sleep_no_more(lane, key)
            self.fixed("lane")

    def mend_pacer(self, field: str) -> None:
        key, _, queue = field.partition(" ")
        if self.pacers.get((key, queue), "") in self.due or (key, queue) not in self.pacers:
            return
        del self.pacers[key, queue]
        self.wake_one(key, queue)
        self.fixed("lane")

    # --- batches -----------------------------------------------------------------------------------------------------

    def mend_member(self, of: str, member: str) -> None:
        group = self.batches.get(of)
        place = 2 * MEMBER_SPAN if group is None else group.members.get(member, 2 * MEMBER_SPAN)
        if place >= 2 * MEMBER_SPAN:
            return
        rec, value = self.tasks.get(member), member.encode()
        if member.startswith("@"):
            if member[1:] in self.batches:
                return
            self.end_member(f"{of} {place - MEMBER_SPAN} - - -", member, "dead", value, member[1:])
            self.batches[of].members.pop(member)
        elif rec is not None and rec.state in LIVE:
            return
        else:
            words = rec.more["batch"] if rec is not None else f"{of} {place} - - -"
            value += b"\n" + rec.body if rec is not None and "y" in rec.flags else b""
            self.end_member(words, member, self.how_it_ended(member, rec), value, member)
        self.ring_lined_up()
        self.fixed("batch")

    def how_it_ended(self, task_id: str, rec: Rec | None) -> str:
        return rec.state if rec is not None else self.tombs.get(task_id, (0, "dead"))[1]

    def mend_batch(self, batch_id: str) -> None:
        group = self.batches.get(batch_id)
        if group is None:
            return
        live = sum(1 for place in group.members.values() if place < 2 * MEMBER_SPAN)
        size = sum(map(group.count, ("done", "dead", "cancelled"))) + live
        if group.count("size") != size:
            group.counts["size"] = size
            self.fixed("batch")
        self.mend_place(group)
        if group.state == "sealed" and not live:
            self.settle_batch(group)
            self.fixed("batch")

    def mend_place(self, group: BatchRec) -> None:
        if group.id in self.batch_index or (group.parent and group.state != "open"):
            return
        kept = RESULT_TTL_MS if group.result_ttl == "-" else int(group.result_ttl)
        if group.count("dead") > 0:
            kept = max(kept, DEAD_TTL_MS if group.dead_ttl == "-" else int(group.dead_ttl))
        at = {"open": self.now + int(group.lease), "sealed": INF, "ended": self.now + kept}
        self.batch_index[group.id] = at[group.state]
        self.fixed("batch")

    def mend_listed_batch(self, batch_id: str) -> None:
        if batch_id in self.batch_index and batch_id not in self.batches:
            del self.batch_index[batch_id]
            self.fixed("entry")

    # --- marks -------------------------------------------------------------------------------------------------------

    def mend_queue(self, queue: str) -> None:
        if queue in self.ready and queue not in self.queues:
            self.queues.add(queue)
            self.fixed("bell")

    def mend_bell(self, queue: str) -> None:
        if queue in self.long_bells:
            self.long_bells.discard(queue)
            self.fixed("bell")
        if queue in self.bells and queue not in self.queues:
            self.queues.add(queue)
            self.fixed("bell")

    def mend_leftover(self, kind: str, of: str) -> None:
        """Delete a key that belongs to nothing. Only such keys are in `leftovers`."""
        value = self.leftovers.get((kind, of))
        if value is None or (kind == "lock" and int(value.split(" ")[1]) + BACKSTOP_MS >= self.now):
            return
        del self.leftovers[kind, of]
        self.fixed("key" if kind == "idem" else kind if kind == "lock" else "leftover")
