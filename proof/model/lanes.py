"""The model's limits at run time: slots of running tasks, lanes of waiting ones. See lua/lib/lanes.lua."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proof.model.events import Telling
from proof.model.state import Rec


@dataclass(frozen=True, slots=True)
class Limited:
    """One limit of one task, with the numbers that apply now."""

    name: str
    key: str
    most: int
    interval: int
    tolerance: int


def _score(order: int | None) -> bytes:
    """Format a score as the store writes it."""
    return b"" if order is None else f"{order:.17g}".encode()


class Lanes(Telling):
    """Limits at run time: which tasks may run, and which wait for which limit."""

    def limits_of(self, rec: Rec) -> list[Limited]:
        limits = []
        for line in rec.more.get("limits", "").splitlines():
            name, key, *words = line.split()
            numbers = self.limits.get(key) or self.limits.get(name)
            limits.append(Limited(name, key, *(numbers[:3] if numbers else map(int, words))))
        return limits

    def lane_of(self, rec: Rec) -> str:
        return f"{','.join(limit.key for limit in self.limits_of(rec))} {rec.queue}"

    def is_full(self, limit: Limited) -> bool:
        return 0 < limit.most <= len(self.slots.get(limit.key, {}))

    def first_full(self, limits: list[Limited]) -> str | None:
        return next((limit.key for limit in limits if self.is_full(limit)), None)

    def first_in(self, lane: str) -> str | None:
        waits = self.lane_waits.get(lane, {})
        return min(waits, key=lambda i: (waits[i], i), default=None)

    def lanes_of(self, queue: str) -> dict[str, str]:
        return {lane: state for lane, state in self.lanes.items() if lane.partition(" ")[2] == queue}

    # --- pieces --------------------------------------------------------------------------------------------------

    def wait_in(self, lane: str, order: int, task_id: str) -> None:
        self.lane_waits.setdefault(lane, {})[task_id] = order

    def wait_no_more(self, lane: str, task_id: str) -> bool:
        waits = self.lane_waits.get(lane, {})
        was = waits.pop(task_id, None) is not None
        if not waits:
            self.lane_waits.pop(lane, None)
        return was

    def sleep(self, lane: str, key: str) -> None:
        first = self.first_in(lane)
        self.lanes[lane] = f"-{key}"
        self.sleepers.setdefault((key, lane.partition(" ")[2]), {})[lane] = self.lane_waits[lane][first or ""]

    def sleep_no_more(self, lane: str, key: str) -> None:
        place = (key, lane.partition(" ")[2])
        self.sleepers.get(place, {}).pop(lane, None)
        if not self.sleepers.get(place):
            self.sleepers.pop(place, None)

    def lead(self, lane: str, task_id: str, order: int) -> None:
        queue = lane.partition(" ")[2]
        self.lanes[lane] = f"+{task_id}"
        self.ready.setdefault(queue, {})[task_id] = order
        self.ring(queue)

    def awake(self, lane: str) -> None:
        """Make the first waiting task the head. Remove the lane if there is none."""
        first = self.first_in(lane)
        if first is None:
            self.lanes.pop(lane, None)
            return
        order = self.lane_waits[lane][first]
        self.wait_no_more(lane, first)
        self.lead(lane, first, order)

    def wake_one(self, key: str, queue: str) -> None:
        asleep = self.sleepers.get((key, queue), {})
        lane = min(asleep, key=lambda name: (asleep[name], name), default=None)
        if lane is not None:
            self.sleep_no_more(lane, key)
            self.awake(lane)

    def wake(self, key: str) -> None:
        for queue in [queue for of, queue in self.sleepers if of == key]:
            self.wake_one(key, queue)

    def pass_on(self, limits: list[Limited], queue: str, but: str | None = None) -> None:
        for limit in limits:
            if limit.key != but and not self.is_full(limit):
                self.wake_one(limit.key, queue)

    def pace_no_more(self, task_id: str, limits: list[Limited], queue: str) -> None:
        for limit in limits:
            if self.pacers.get((limit.key, queue)) == task_id:
                del self.pacers[limit.key, queue]

    def succeed(self, lane: str) -> bool:
        first = self.tasks.get(self.first_in(lane) or "")
        key = self.first_full(self.limits_of(first)) if first else None
        if key is not None:
            self.sleep(lane, key)
            return False
        self.awake(lane)
        return lane in self.lanes

    # --- what moves do -------------------------------------------------------------------------------------------

    def enter_lane(self, task_id: str, rec: Rec, order: int) -> None:
        limits, lane = self.limits_of(rec), self.lane_of(rec)
        state = self.lanes.get(lane)
        head = state[1:] if state and state[0] == "+" else None
        place = self.ready.get(rec.queue, {}).get(head or "") if head != task_id else None
        key = self.first_full(limits) if state is None else None
        if head == task_id or (state is None and key is None):
            self.pace_no_more(task_id, limits, rec.queue)
            self.lead(lane, task_id, order)
        elif head and place is not None and order < place:
            del self.ready[rec.queue][head]
            self.wait_in(lane, place, head)
            self.lead(lane, task_id, order)
        else:
            self.wait_in(lane, order, task_id)
            if head is None:
                self.sleep(lane, key or (state or "")[1:])

    def leave_lane(self, task_id: str, rec: Rec) -> None:
        if "l" not in rec.flags:
            return
        limits, lane = self.limits_of(rec), self.lane_of(rec)
        state = self.lanes.get(lane, "")
        if state == f"+{task_id}":
            self.pace_no_more(task_id, limits, rec.queue)
            if not self.succeed(lane):
                self.pass_on(limits, rec.queue)
        elif self.wait_no_more(lane, task_id) and state[:1] == "-":
            self.sleep_no_more(lane, state[1:])
            self.succeed(lane)

    def admit(self, task_id: str, rec: Rec, order: int, fence: int) -> bool:
        """Return whether a head that was taken from its queue may run. Otherwise let it wait again."""
        limits, lane, queue = self.limits_of(rec), self.lane_of(rec), rec.queue
        key, due = self.first_full(limits), None
        if key is None:
            due, key = self.paced_until(limits)
        if due is not None and key is not None and (key, queue) not in self.pacers:
            self.pacers[key, queue] = task_id
            rec.mark("p")
            rec.state, rec.version, rec.moved = "scheduled", rec.version + 1, self.time_us // 1000
            self.tell(task_id, rec, "queued", "scheduled")
            self.due[task_id] = due
        elif key is not None:
            self.wait_in(lane, order, task_id)
            self.sleep(lane, key)
        if key is not None:
            self.pass_on(limits, queue, key)
            return False
        for limit in limits:
            self.slots.setdefault(limit.key, {})[task_id] = fence
        self.count_start(limits)
        self.succeed(lane)
        for limit in limits:
            if limit.interval:
                self.wake_one(limit.key, queue)
        return True

    def free_slots(self, task_id: str, rec: Rec) -> None:
        for limit in self.limits_of(rec):
            held = self.slots.get(limit.key, {})
            if held.pop(task_id, None) is None:
                continue
            if not held:
                del self.slots[limit.key]
            self.wake(limit.key)

    def count_limited(self, rec: Rec, by: int) -> None:
        for limit in self.limits_of(rec) if "l" in rec.flags else ():
            self.limited[limit.key] = self.limited.get(limit.key, 0) + by
            if self.limited[limit.key] <= 0:
                del self.limited[limit.key]

    # --- rates ---------------------------------------------------------------------------------------------------

    def idle_at(self, limit: Limited) -> int:
        return max(self.time_us, min(self.paces.get(limit.key, 0), self.time_us + limit.tolerance))

    def paced_until(self, limits: list[Limited]) -> tuple[int | None, str | None]:
        starts = [
            (self.idle_at(limit) + limit.interval - limit.tolerance, limit.key) for limit in limits if limit.interval
        ]
        latest, key = self.time_us, None
        for start, of in starts:
            if start > latest:
                latest, key = start, of
        return (None, None) if key is None else (-(-latest // 1000), key)

    def count_start(self, limits: list[Limited]) -> None:
        for limit in limits:
            if limit.interval:
                self.paces[limit.key] = self.idle_at(limit) + limit.interval

    # --- operators and repair ------------------------------------------------------------------------------------

    def _limit(self, args: list[bytes]) -> Any:
        name, version, most, interval, tolerance, _ = (arg.decode() for arg in args)
        stored = self.limits.get(name)
        wanted = (int(most), int(interval), int(tolerance)) if most else None
        now = stored[3] if stored else 0
        same = (stored[:3] if stored else None) == wanted
        if not same and now != int(version):
            return [b"conflict", str(now).encode(), b""]
        if not same:
            now = now + 1 if wanted else 0
            if wanted:
                self.limits[name] = (*wanted, now)
            else:
                self.limits.pop(name, None)
            kind, numbers = ("limit_set", " ".join(map(str, wanted))) if wanted else ("limit_cleared", "")
            self.news("cluster", kind, name, "", "", "", now, numbers)
        for head in [state[1:] for state in self.lanes.values() if state[0] == "+"]:
            self.hasten(head)
        for lane in sorted(lane for lane, state in self.lanes.items() if state[0] == "-"):
            self.tidy_lane(lane)
        return [b"repeat" if same else b"ok", str(now).encode(), b""]

    def hasten(self, head: str) -> None:
        """Move a head forward that waits for a rate longer than the new numbers require."""
        rec = self.tasks.get(head)
        if rec is not None and head in self.due:
            due, _ = self.paced_until(self.limits_of(rec))
            self.due[head] = min(self.due[head], self.time_us // 1000 if due is None else due)

    def _limits(self, _: list[bytes]) -> Any:
        keys = []
        for key in sorted(self.limited):
            held = self.slots.get(key, {})
            first = min(held, key=lambda i: (held[i], i), default=None)
            of = [each for each in self.limits_of(self.tasks[first]) if each.key == key] if first in self.tasks else []
            said = f"{of[0].most} {of[0].interval} {of[0].tolerance}" if of else ""
            name = of[0].name if of else ""
            keys.append([key.encode(), str(self.limited[key]).encode(), len(held), said.encode(), name.encode()])
        chosen = [part.encode() for name, n in sorted(self.limits.items()) for part in (name, " ".join(map(str, n)))]
        return [str(self.time_us // 1000).encode(), b"", keys, chosen, b""]

    def _lanes(self, args: list[bytes]) -> Any:
        rows: list[Any] = []
        for lane, state in sorted((self.lanes_of(args[0].decode()) if args[0] else self.lanes).items()):
            waits = self.lane_waits.get(lane, {})
            rows.append([lane.encode(), state.encode(), len(waits), _score(max(waits.values(), default=None))])
        return [b"", *rows]

    def tidy_lanes(self) -> None:
        for key in sorted(self.limited):
            for task_id in list(self.slots.get(key, {})):
                rec = self.tasks.get(task_id)
                if rec is None or rec.state != "running":
                    del self.slots[key][task_id]
                    self.count("slots_freed")
            if not self.slots.get(key):
                self.slots.pop(key, None)
        for lane in sorted(self.lanes):
            self.tidy_lane(lane)

    def tidy_lane(self, lane: str) -> None:
        keys, _, queue = lane.partition(" ")
        state = self.lanes.get(lane, "-")
        if state[0] == "+":
            if state[1:] in self.ready.get(queue, {}) or state[1:] in self.due:
                return
            for key in keys.split(","):
                if self.pacers.get((key, queue)) == state[1:]:
                    del self.pacers[key, queue]
        else:
            key, first = state[1:], self.first_in(lane)
            rec = self.tasks.get(first or "")
            for limit in self.limits_of(rec) if rec else ():
                paced = limit.interval > 0 and (key, queue) in self.pacers
                if limit.key == key and (self.is_full(limit) or paced):
                    return
            self.sleep_no_more(lane, key)
        self.awake(lane)
        self.count("lanes_woken")

    # --- what the rest of the model brings -------------------------------------------------------------------------

    def ring(self, queue: str) -> None:
        raise NotImplementedError

    def count(self, field_name: str, n: int = 1) -> None:
        raise NotImplementedError
