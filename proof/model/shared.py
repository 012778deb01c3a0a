"""The parts that the model's moves share: ends of records, requeueing, submission, admission."""

from __future__ import annotations

from typing import Any

from proof.model.lanes import Lanes
from proof.model.members import Members
from proof.model.outcomes import Counting
from proof.model.state import Item, Rec
from relier.errors import StoreFullError
from relier.ledger.defaults import (
    DEAD_TTL_MS,
    HISTORY_KEPT,
    MAX_RESURRECTIONS,
    PRIORITY_STEP_US,
    RESULT_TTL_MS,
    REVIVED_US,
)


class Pieces(Lanes, Members, Counting):
    """A namespace, and the small changes that moves consist of."""

    def expired(self, rec: Rec) -> bool:
        """Return whether it is too late to start a task. A task that already had an attempt continues, however late."""
        return rec.fence == 0 and rec.expires is not None and rec.expires <= self.now

    # --- pieces of moves -----------------------------------------------------------------------------------------

    def count(self, field_name: str, n: int = 1) -> None:
        self.counts[field_name] = self.counts.get(field_name, 0) + n

    def ring(self, queue: str) -> None:
        if queue not in self.bells:
            self.bells.add(queue)
            self.queues.add(queue)

    def moved(self, task_id: str, rec: Rec, state: str, why: str = "") -> None:
        was, rec.state, rec.version, rec.moved = rec.state, state, rec.version + 1, self.now
        self.tell(task_id, rec, was, state, why)

    def note(self, rec: Rec, **fields: object) -> None:
        rec.mark("m")
        rec.more.update({name: str(value) for name, value in fields.items()})

    def log(self, rec: Rec, move: str, detail: str) -> None:
        rec.history.append([move, str(self.now), str(rec.attempt), rec.owner, str(rec.fence), detail, str(rec.moved)])
        del rec.history[:-HISTORY_KEPT]
        rec.mark("h")

    def holder(self, key: str) -> str | None:
        """Return the id of the task that holds an idempotency key now."""
        task_id, until = self.idem.get(key, ("", None))
        if task_id not in self.tasks or (until is not None and until <= self.now):
            return None
        return task_id

    def close_key(self, task_id: str, rec: Rec, state: str, lost: str | None = None) -> int:
        key = rec.more.get("key")
        if key is None or rec.key_ttl is None or self.idem.get(key) != (task_id, None):
            return 0
        if state == "done":
            self.idem[key] = (task_id, self.now + rec.key_ttl)
            return rec.key_ttl
        if not lost:
            del self.idem[key]
        return 0

    def finish(self, task_id: str, rec: Rec, state: str, value: bytes | None = None, reason: str = "") -> None:
        """End a task as done or cancelled. The result replaces the payload."""
        if reason:
            self.note(rec, reason=reason)
        ttl = RESULT_TTL_MS if rec.result_ttl is None else rec.result_ttl
        ttl = max(ttl, self.close_key(task_id, rec, state))
        self.count_end(rec, state, reason)
        self.moved(task_id, rec, state, reason)
        rec.checkpoint, rec.steps, rec.body, rec.expiry = None, {}, value or b"", True
        if value is not None:
            rec.mark("y")
        self.settle_end(task_id, rec, self.now + ttl)

    def finish_dead(self, task_id: str, rec: Rec, reason: str, lost: str | None = None) -> None:
        self.close_key(task_id, rec, "dead", lost)
        self.note(rec, reason=reason)
        self.count_end(rec, "dead")
        self.moved(task_id, rec, "dead", reason)
        rec.expiry = lost != "hold"
        ttl = DEAD_TTL_MS if rec.dead_ttl is None else rec.dead_ttl
        self.settle_end(task_id, rec, float("inf") if lost == "hold" else self.now + ttl)

    def settle_end(self, task_id: str, rec: Rec, eol: float) -> None:
        self.ended.setdefault(rec.state, {})[task_id] = eol
        self.count(rec.state)
        if "b" in rec.flags:
            self.parted.append((task_id, rec.state, rec.body if "y" in rec.flags else None, rec.more["batch"]))
        if rec.held is not None:
            self.count("bytes", -rec.held)
        self.count_limited(rec, -1)
        self.waits_no_more(task_id, rec)

    def waits_no_more(self, task_id: str, rec: Rec) -> None:
        """Stop watching the expiry of a task that starts for the first time, or ends."""
        if rec.expires is not None and rec.fence == 0:
            self.expiring.pop(task_id, None)

    def remove(self, task_id: str, rec: Rec) -> None:
        key = rec.more.get("key")
        if key is not None and self.idem.get(key, ("", None))[0] == task_id:
            del self.idem[key]
        self.drop(self.ended, rec.state, task_id)
        del self.tasks[task_id]
        self.tell(task_id, rec, rec.state, "-")
        if rec.tomb_ttl is not None:
            self.tombs[task_id] = (self.now + rec.tomb_ttl, rec.state)

    def line_up(self, task_id: str, rec: Rec, at_us: int) -> None:
        self.ready.setdefault(rec.queue, {})[task_id] = at_us - rec.priority * PRIORITY_STEP_US

    def place(self, task_id: str, rec: Rec, at_us: int) -> None:
        """Put a task into its queue, or behind the limits that hold it back."""
        if "l" in rec.flags:
            self.enter_lane(task_id, rec, at_us - rec.priority * PRIORITY_STEP_US)
        else:
            self.line_up(task_id, rec, at_us)
            self.ring(rec.queue)

    def displace(self, task_id: str, rec: Rec) -> None:
        """Take a waiting task out of its queue."""
        self.drop(self.ready, rec.queue, task_id)
        self.due.pop(task_id, None)
        self.leave_lane(task_id, rec)

    def requeue(self, task_id: str, rec: Rec, at_us: int) -> str:
        if "c" in rec.flags:
            self.finish(task_id, rec, "cancelled", reason="cancelled")
            return "cancelled"
        self.moved(task_id, rec, "queued")
        rec.owner = "-"
        self.place(task_id, rec, at_us)
        return "queued"

    def resurrect(self, task_id: str, rec: Rec, alone: bool, cause: str) -> str:
        self.log(rec, "revive", cause)
        if "c" in rec.flags:
            return self.requeue(task_id, rec, rec.at)
        if rec.on_lost:
            self.finish_dead(task_id, rec, "lost", rec.on_lost)
            return "dead"
        deaths = int(rec.more.get("deaths", 0)) + (1 if alone else 0)
        scares = int(rec.more.get("scares", 0)) + (0 if alone else 1)
        self.note(rec, deaths=deaths, scares=scares)
        for name in ("since", "locked_since"):
            rec.more.pop(name, None)
        most = MAX_RESURRECTIONS if rec.max_resurrections is None else rec.max_resurrections
        if deaths > most:
            self.finish_dead(task_id, rec, "max_resurrections_exceeded")
            return "dead"
        if scares > self.most_scares(most):
            self.finish_dead(task_id, rec, "workers_kept_dying")
            return "dead"
        if scares >= 2:
            rec.mark("a")
        self.count("revived")
        return self.requeue(task_id, rec, rec.at - REVIVED_US)

    def most_scares(self, most_deaths: int) -> int:
        """Return how many unproven deaths a task may have: two that make it a suspect, and two for each death of its
        own.
        """
        return 2 + 2 * most_deaths

    def leave(self, task_id: str, rec: Rec) -> None:
        """Take an attempt off its owner."""
        self.drop(self.owned, rec.owner, task_id)
        if "c" in rec.flags and rec.owner in self.boots:
            self.boots[rec.owner].asked.discard((task_id, rec.fence))
        if "l" in rec.flags:
            self.free_slots(task_id, rec)

    def drop(self, index: dict[str, dict[str, Any]], of: str, task_id: str) -> None:
        """Remove a task from an index. Remove the index when it is empty."""
        entries = index.get(of, {})
        entries.pop(task_id, None)
        if not entries:
            index.pop(of, None)

    def held(self, task_id: str, boot: str) -> Rec | None:
        """Return the record that an owner wants to settle. If it is gone, remove it from the owner, too."""
        rec = self.tasks.get(task_id)
        if rec is None and task_id in self.owned.get(boot, {}):
            self.drop(self.owned, boot, task_id)
            self.count("strays")
        return rec

    def verdict(self, rec: Rec | None, move: str, fence: int, boot: str) -> str:
        if rec is None:
            return "missing"
        if rec.state == "running" and rec.fence == fence and rec.owner == boot:
            return "ok"
        if move == "commit":
            if rec.state == "done" and rec.fence == fence and rec.owner == boot:
                return "repeat"
        elif rec.more.get("settled") == f"{move}:{fence}":
            return "repeat"
        if move != "progress":
            self.count("refused")
        return "stale"

    def stop_task(self, task_id: str, rec: Rec) -> str:
        """End a waiting task, or ask a running one to stop."""
        if rec.state == "running":
            rec.mark("c")
            rec.version += 1
            self.tell(task_id, rec, "running", "running", "cancel_requested")
            if rec.owner in self.boots:
                self.boots[rec.owner].asked.add((task_id, rec.fence))
            return "asked"
        self.displace(task_id, rec)
        self.finish(task_id, rec, "cancelled", reason="cancelled")
        return "ok"

    # --- 1 enter -------------------------------------------------------------------------------------------------

    def look(self, item: Item) -> list[Any] | None:
        """Return the answer for an item that already exists, or None for a new one."""
        rec = self.tasks.get(item.id)
        if rec is not None:
            mine = item.nonce != "" and rec.more.get("nonce") == item.nonce
            return [b"new" if mine else b"exists", item.id.encode(), rec.state.encode(), rec.version]
        until, state = self.tombs.get(item.id, (0, ""))
        if until > self.now:
            return [b"ended", item.id.encode(), state.encode(), b"0"]
        if item.on_conflict.startswith("member "):
            return self.refuses(item.id, item.on_conflict)
        other = self.holder(item.key) if item.key else None
        if other and not (item.on_conflict == "replace" and self.tasks[other].state in {"queued", "scheduled"}):
            return [b"duplicate", other.encode(), self.tasks[other].state.encode(), self.tasks[other].version]
        return None

    def enter(self, item: Item, nth: int, charged: bool) -> bytes:
        rec = item.record(self.time_us + nth, self.now, charged)
        self.tasks[item.id] = rec
        self.tombs.pop(item.id, None)
        eta = item.absolute(item.eta, self.now)
        self.tell(item.id, rec, "-", "scheduled" if eta > self.now else "queued")
        if "batch" in rec.more:
            self.enlist(item, rec)
        if item.key:
            other = self.holder(item.key)
            if other and other != item.id:
                old = self.tasks[other]
                self.displace(other, old)
                self.finish(other, old, "cancelled", reason="replaced")
            self.idem[item.key] = (item.id, None)
        if rec.expires is not None:
            self.expiring[item.id] = rec.expires
        self.count_limited(rec, 1)
        if eta > self.now:
            rec.state = "scheduled"
            self.due[item.id] = eta
        elif "l" in rec.flags:
            self.place(item.id, rec, rec.at)
        else:
            first = not self.ready.get(item.queue)
            self.line_up(item.id, rec, rec.at)
            if first:
                self.lined_up.add(item.queue)
        self.count("submitted")
        if charged:
            self.count("bytes", len(item.tail))
        return rec.state.encode()

    def refuses(self, task_id: str, words: str) -> list[Any] | None:
        raise NotImplementedError  # of a batch: see batches.py

    def enlist(self, item: Item, rec: Rec) -> None:
        raise NotImplementedError

    def bring(self, task_id: str, size: int, part: str, value: bytes) -> None:
        """Deliver a part to a join. The last part queues it."""
        rec = self.tasks.get(task_id)
        if rec is None or not self.takes_parts(rec):
            return
        rec.steps[part] = value
        rec.mark("s")
        if rec.state == "scheduled" and len(rec.steps) >= size:
            self.complete(task_id, rec)

    def takes_parts(self, rec: Rec) -> bool:
        return rec.state not in {"done", "cancelled"}

    def complete(self, task_id: str, rec: Rec) -> None:
        """Queue a join that has all its parts."""
        self.due.pop(task_id, None)
        self.moved(task_id, rec, "queued")
        self.place(task_id, rec, self.time_us)

    def replace(self, rec: Rec, tail: bytes) -> None:
        """Continue the record as another task, under the same key."""
        key_ttl = rec.key_ttl
        rec.say(tail)
        rec.key_ttl = key_ttl
        rec.flags = rec.flags if rec.optional() else rec.flags.replace("o", "")
        if rec.optional():
            rec.mark("o")

    def ring_lined_up(self) -> None:
        for queue in self.lined_up:
            self.ring(queue)
        self.lined_up.clear()

    def weigh(
        self, items: list[Item], max_depth: int, max_bytes: int, extra: int, limits: list[list[bytes]]
    ) -> tuple[Any, dict[str, int]]:
        """Apply the admission limits. Return a refusal, or the new arrival times."""
        depth: dict[str, int] = {}
        for item in items if max_depth else ():
            depth[item.queue] = depth.get(item.queue, self.depth(item.queue)) + 1
            if depth[item.queue] > max_depth:
                return [b"refused", f"depth:{item.queue}".encode(), b"0"], {}
        if max_bytes and self.counts.get("bytes", 0) + sum(len(item.tail) for item in items) > max_bytes:
            return [b"refused", b"bytes", b"0"], {}
        arrivals = {}
        for name, interval, tolerance, weight in limits:
            idle_at = self.rates.get(name.decode(), 0)
            if idle_at > self.time_us + int(tolerance):
                self.need_memory()
                idle_at = self.rates[name.decode()] = self.time_us + int(tolerance)
            idle_at = max(idle_at, self.time_us)
            arrival = idle_at + (len(items) * int(weight) + extra) * int(interval)
            if arrival - int(tolerance) > self.time_us:
                return [b"refused", name, str(arrival - int(tolerance) - self.time_us).encode()], {}
            arrivals[name.decode()] = arrival
        return None, arrivals

    def depth(self, queue: str) -> int:
        held_back = sum(len(waits) for lane, waits in self.lane_waits.items() if lane.partition(" ")[2] == queue)
        return len(self.ready.get(queue, {})) + held_back

    def need_memory(self) -> None:
        """Refuse the call if the store is full. A script whose first write needs memory fails before it changes
        anything.
        """
        if self.full:
            raise StoreFullError("the store is full")
