"""The model's sweep: revive, promote, reap."""

from __future__ import annotations

from typing import Any

from proof.model.batches import Batching
from proof.model.state import Boot, Sweep
from proof.model.timetables import Timetables

MOST_BOOTS = 100


class Sweeping(Timetables, Batching):
    """Moves that anyone may make, at any time and as often as they like."""

    def _revive(self, args: list[bytes]) -> Any:
        most, deepest, interval, named, cause = (
            int(args[0]),
            int(args[1]),
            int(args[2]),
            args[3].decode(),
            args[4].decode(),
        )
        _, till = self.tick() if named else self.tick(interval, sweeps=True)
        sweep = Sweep(most, deepest, cause)
        lost = [named] if named in self.boots else []
        if not named:
            self.remove_helpers(interval, sweep)
            expired = {name: boot.lease_end for name, boot in self.boots.items() if boot.lease_end <= till}
            lost = sorted(expired, key=lambda name: (expired[name], name))
        sweep.pending = max(0, len(lost) - MOST_BOOTS)
        first = self.now % (sweep.pending + 1)
        lost = [name for name in lost[first : first + MOST_BOOTS] if named or self.boots[name].role == "worker"]
        for i in range(len(lost)):
            if sweep.looked < most:
                self.sweep_boot(lost[(self.now + i + 1) % len(lost)], sweep)
            else:
                sweep.pending += 1
        return [sweep.outcomes, sweep.deferred, sweep.removed, sweep.pending]

    def remove_helpers(self, interval: int, sweep: Sweep) -> None:
        """Remove helpers whose lease has run out on their clock. They own nothing, so nothing else follows."""
        if self.helper_clock is None:
            return
        _, till = self.tick_helpers(interval, sweeps=True)
        over = sorted(
            (boot.helper_end, name)
            for name, boot in self.boots.items()
            if boot.role != "worker" and boot.helper_end <= till
        )
        for _, name in over[:MOST_BOOTS]:
            self.news("cluster", "lost", name, "", "", "", "", sweep.cause)
            self.remove_boot(name)
            sweep.removed += 1

    def sweep_boot(self, name: str, sweep: Sweep) -> None:
        boot = self.boots[name]
        if boot.lease_end != 0:
            boot.lease_end, boot.ran, boot.cause = 0, len(self.owned.get(name, {})), sweep.cause
            self.news("cluster", "lost", name, "", "", "", "", sweep.cause)
        owned = self.owned.get(name, {})
        for task_id in sorted(owned, key=lambda i: (owned[i], i))[: sweep.most - sweep.looked]:
            self.rescue(name, boot, task_id, sweep)
            sweep.looked += 1
        if self.owned.get(name):
            sweep.pending += 1
        else:
            self.remove_boot(name)
            sweep.removed += 1

    def rescue(self, name: str, boot: Boot, task_id: str, sweep: Sweep) -> None:
        rec = self.tasks.get(task_id)
        if rec is None or rec.state != "running" or rec.owner != name:
            self.drop(self.owned, name, task_id)
            self.count("strays")
        elif self.revived_in(rec.queue) >= sweep.deepest:
            self.owned[name][task_id] = max(self.now, max(self.owned[name].values()) + 1)
            sweep.deferred += 1
        else:
            self.leave(task_id, rec)
            state = self.resurrect(task_id, rec, boot.ran == 1, sweep.cause if boot.bare else boot.cause)
            sweep.outcomes.append(f"{task_id} {state}".encode())

    def revived_in(self, queue: str) -> int:
        return sum(1 for order in self.ready.get(queue, {}).values() if order <= 0)

    def _promote(self, args: list[bytes]) -> Any:
        due = sorted((at, task_id) for task_id, at in self.due.items() if at <= self.now)[: int(args[0])]
        promoted = 0
        for at, task_id in due:
            rec = self.tasks.get(task_id)
            del self.due[task_id]
            if rec is None or rec.state != "scheduled":
                self.count("strays")
            elif self.expired(rec):
                self.displace(task_id, rec)
                self.finish(task_id, rec, "cancelled", reason="expired")
            else:
                self.moved(task_id, rec, "queued")
                self.place(task_id, rec, rec.at if "p" in rec.flags else at * 1000)
                rec.unmark("p")
                promoted += 1
        self.expire(int(args[0]) - len(due))
        self.end_members()
        timetables, ahead = self.due_timetables(args[2].decode(), int(args[1]))
        times = [*self.due.values(), *self.expiring.values()] if int(args[0]) else []
        times += [] if ahead is None else [ahead]
        return [promoted, str(min(times)).encode() if times else b"", self.now, *timetables]

    def expire(self, most: int) -> None:
        """End tasks that waited for their first attempt beyond their expiry, wherever they wait."""
        late = sorted((at, task_id) for task_id, at in self.expiring.items() if at <= self.now)[:most]
        for _, task_id in late:
            rec = self.tasks.get(task_id)
            del self.expiring[task_id]
            if rec is not None and rec.state in {"queued", "scheduled"} and self.expired(rec):
                self.displace(task_id, rec)
                self.finish(task_id, rec, "cancelled", reason="expired")

    def _reap(self, args: list[bytes]) -> Any:
        removed, most = 0, int(args[0])
        for state in ("done", "cancelled", "dead"):
            ended = self.ended.get(state, {})
            over = sorted((eol, task_id) for task_id, eol in ended.items() if eol <= self.now)
            for _, task_id in over[: most - removed]:
                rec = self.tasks.get(task_id)
                if rec is not None and rec.state == state:
                    self.remove(task_id, rec)
                    self.count("reaped")
                else:
                    self.drop(self.ended, state, task_id)
                    self.count("strays")
                removed += 1
        for queue in sorted(self.queues):
            self.tidy(queue, int(args[1]))
        self.tidy_lanes()
        return removed + self.tidy_batches(most - removed)

    def tidy(self, queue: str, unused: int) -> None:
        """Remove a queue that has long been empty and not paused, with its doorbell and its pause version."""
        if self.depth(queue) or self.pauses.get(queue, (False, 0))[0]:
            self.idle.pop(queue, None)
        elif self.now - self.idle.setdefault(queue, self.now) >= unused:
            self.queues.discard(queue)
            self.bells.discard(queue)
            self.long_bells.discard(queue)
            self.pauses.pop(queue, None)
            del self.idle[queue]
