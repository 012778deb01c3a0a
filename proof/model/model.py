"""The ledger in plain Python: the behaviour of the scripts, written a second time and independently of Redis.

`Model.run(call)` answers a `Call` with the raw reply that its script would give at the model's time. The state is plain
dictionaries, so that a checker can read all of it. `copy()` is cheap, so that a store can be rolled back.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from proof.model.locks import Locks
from proof.model.operators import Operate
from proof.model.repair import Repairing
from proof.model.state import ITEM, Boot, Item, Rec
from relier.store.call import Call

__all__ = ["Boot", "Model", "Rec"]

MOST_PUT_AWAY = 200


class Model(Operate, Repairing, Locks):
    """The moves. Times are in ms; `time_us` is the store's TIME, set from outside."""

    def copy(self) -> Model:
        """Return a copy, to which the store can be rolled back."""
        return copy.deepcopy(self)

    def empty(self) -> Model:
        """Return the same store without data."""
        return type(self)(time_us=self.time_us, full=self.full)

    def run(self, call: Call[Any]) -> Any:
        """Return the raw reply that the call's script would give now."""
        self.opening, self.told, self.told_news, self.counted = False, [], {}, []
        words = [
            arg if arg.__class__ is bytes else (arg if arg.__class__ is str else str(arg)).encode() for arg in call.args
        ]
        answer = getattr(self, f"_{call.script}")(words)
        self.end_members()
        self.write_outcomes()
        self.publish_all(call.script)
        return answer

    def _open(self, args: list[bytes]) -> Any:
        layout, fresh, remembered = (arg.decode() for arg in args)
        self.layout = self.layout or layout
        if self.layout != layout:
            return [self.layout.encode(), b""]
        self.born = self.born or f"{fresh}-{self.now}"
        if remembered not in {"", self.born} and not self.emptied:
            self.emptied = f"{self.now} {remembered}"
            self.count("emptied")
        return [self.layout.encode(), self.born.encode()]

    def _submit(self, args: list[bytes]) -> Any:
        max_depth, max_bytes, extra, n_limits = (int(arg) for arg in args[1:5])
        limits = [args[5 + 4 * i : 9 + 4 * i] for i in range(n_limits)]
        start = 6 + 4 * n_limits
        items = [Item.read(args, start + ITEM * i) for i in range(int(args[start - 1]))]
        answers: list[Any] = [None] * len(items)
        fresh, twins = self.sort_out(items, answers)
        born = self.born.encode()
        if not fresh:
            return [b"ok", born, *answers]
        refused, arrivals = self.weigh([items[i] for i in fresh], max_depth, max_bytes, extra, limits)
        if refused:
            return refused
        self.need_memory()
        guarded = bool(n_limits or max_depth or max_bytes)
        for i in sorted(fresh, key=lambda i: self.enters_late(items[i], guarded)):
            answers[i] = self.enter(items[i], i + 1, max_bytes > 0)
        for i in twins:
            answers[i] = self.look(items[i]) or self.enter(items[i], i + 1, max_bytes > 0)
        self.rates.update(arrivals)
        self.ring_lined_up()
        return [b"ok", born, *answers]

    def enters_late(self, item: Item, guarded: bool) -> bool:
        """Return whether an item enters after those with a new id and no guard, because it must be looked up first."""
        return guarded or item.key != "" or item.id in self.tombs or item.on_conflict.startswith("member")

    def sort_out(self, items: list[Item], answers: list[Any]) -> tuple[list[int], list[int]]:
        """Find out which items are new and which are duplicates. The others are answered at once."""
        fresh: list[int] = []
        twins: list[int] = []
        seen: set[tuple[str, str]] = set()
        for i, item in enumerate(items):
            if ("id", item.id) in seen or (item.key and ("key", item.key) in seen):
                twins.append(i)
                continue
            answers[i] = self.look(item)
            if answers[i] is None:
                fresh.append(i)
                seen |= {("id", item.id), ("key", item.key)}
        return fresh, twins

    # --- 2 work --------------------------------------------------------------------------------------------------

    def _claim(self, args: list[bytes]) -> Any:
        name, lane, seq, want, room = args[0].decode(), args[1].decode(), int(args[2]), int(args[3]), int(args[4])
        boot = self.boots.get(name)
        if boot is None or boot.lease_end == 0:
            return [b"gone"]
        if boot.role != "worker":
            return [b"role", boot.role.encode()]
        last, before = boot.lanes.get(lane, (0, []))
        if lane in boot.lanes and seq < last:
            return [b"old"]
        if lane in boot.lanes and seq == last:
            still = [(i, f) for i, f in before if self.verdict_free(i, f, name)]
            return [b"ok", self.now, *(self.hand_over(i, self.tasks[i]) for i, _ in still)]
        taken: list[tuple[str, int]] = []
        aside: list[str] = []
        full = False
        for queue in (arg.decode() for arg in args[6:]):
            if self.pauses.get(queue, (False, 0))[0]:
                continue
            if not full:
                full, room = self.drain(name, queue, want, room, taken, aside)
            if full and (args[5] == b"1" or len(aside) >= MOST_PUT_AWAY) and self.ready.get(queue):
                self.ring(queue)
        if taken:
            boot.lanes[lane] = (seq, taken)
        return [b"ok", self.now, *(self.hand_over(i, self.tasks[i]) for i, _ in taken)]

    def verdict_free(self, task_id: str, fence: int, boot: str) -> bool:
        rec = self.tasks.get(task_id)
        return rec is not None and rec.state == "running" and rec.owner == boot and rec.fence == fence

    def drain(
        self, boot: str, queue: str, want: int, room: int, taken: list[tuple[str, int]], aside: list[str]
    ) -> tuple[bool, int]:
        """Take tasks from one queue until it is empty or the claim is full. Return (full, room left)."""
        while len(taken) < want and len(aside) < MOST_PUT_AWAY:
            index = self.ready.get(queue)
            if not index:
                return False, room
            task_id = min(index, key=lambda i: (index[i], i))
            rec = self.tasks.get(task_id)
            if rec is not None and rec.state == "queued" and not self.expired(rec):
                size, order = len(rec.text()), index[task_id]
                if size > room and taken:
                    return True, room
                self.drop(self.ready, queue, task_id)
                if "l" in rec.flags:
                    aside += [task_id, task_id]
                    if not self.admit(task_id, rec, order, max(rec.fence + 1, self.time_us)):
                        continue
                room -= size
                self.start(boot, task_id, rec)
                taken.append((task_id, rec.fence))
                continue
            self.drop(self.ready, queue, task_id)
            aside.append(task_id)
            if rec is not None and rec.state == "queued":
                self.displace(task_id, rec)
                self.finish(task_id, rec, "cancelled", reason="expired")
            else:
                self.count("strays")
        return True, room

    def start(self, boot: str, task_id: str, rec: Rec) -> None:
        self.waits_no_more(task_id, rec)
        rec.fence = max(rec.fence + 1, self.time_us)
        rec.owner, rec.attempt = boot, rec.attempt + 1
        self.count_wait(rec)
        self.moved(task_id, rec, "running")
        self.owned.setdefault(boot, {})[task_id] = self.now

    def hand_over(self, task_id: str, rec: Rec) -> list[Any]:
        more: Any = None
        if rec.flags:
            past = [
                rec.more[name].encode() if name in rec.more else None
                for name in ("retries", "deaths", "scares", "since", "revision", "locked_since")
            ]
            steps = [part for name, value in rec.steps.items() for part in (name.encode(), value)]
            more = [rec.checkpoint, steps, *past, None]
        return [task_id.encode(), rec.text(), more]

    def _checkpoint(self, args: list[bytes]) -> Any:
        boot, task_id, fence, seq = args[0].decode(), args[1].decode(), int(args[2]), int(args[3])
        rec = self.tasks.get(task_id)
        said = self.verdict(rec, "checkpoint", fence, boot)
        if said == "ok" and rec is not None:
            of, last = (int(word) for word in rec.more.get("checkpoint", "0:0").split(":"))
            if of == fence and last >= seq:
                said = "repeat"
            else:
                rec.checkpoint = args[4]
                rec.mark("k")
                self.note(rec, checkpoint=f"{fence}:{seq}")
        return _settled(said, rec)

    def _step(self, args: list[bytes]) -> Any:
        boot, task_id, fence, name = args[0].decode(), args[1].decode(), int(args[2]), args[3].decode()
        rec = self.tasks.get(task_id)
        said = self.verdict(rec, "step", fence, boot)
        if said != "ok" or rec is None:
            return [*_settled(said, rec), None]
        if name in rec.steps:
            return [*_settled("repeat", rec), rec.steps[name]]
        rec.steps[name] = args[4]
        rec.mark("s")
        return [*_settled(said, rec), args[4]]

    def _progress(self, args: list[bytes]) -> Any:
        boot, task_id, fence = args[0].decode(), args[1].decode(), int(args[2])
        rec = self.tasks.get(task_id)
        said = self.verdict(rec, "progress", fence, boot)
        if said == "ok" and rec is not None:
            self.note(rec, progress=args[3].decode())
        return _settled(said, rec)

    # --- 3 settle ------------------------------------------------------------------------------------------------

    def _commit(self, args: list[bytes]) -> Any:
        boot, a = args[1].decode(), 3
        answers: list[Any] = []
        for _ in range(int(args[2])):
            task_id, fence, n = args[a].decode(), int(args[a + 1]), int(args[a + 4])
            rec = self.held(task_id, boot)
            said = self.verdict(rec, "commit", fence, boot)
            if said == "ok" and rec is not None:
                self.leave(task_id, rec)
                self.finish(task_id, rec, "done", args[a + 3] if args[a + 2] == b"1" else None)
                self.follow(_items(args, a + 5, n), args[a + 3])
                answers.append(b"ok")
            else:
                answers.append(_settled(said, rec))
            a += 5 + ITEM * n
        return answers

    def follow(self, items: list[Item], value: bytes) -> None:
        """Submit what follows an end. `value` is the part that the end delivers to a join."""
        for nth, item in enumerate(items):
            if self.look(item) is None:
                self.enter(item, nth, False)
            if item.join:
                self.bring(item.id, *item.join, value)
        self.ring_lined_up()

    def settle(self, args: list[bytes], move: str, width: int) -> Iterator[tuple[str, Rec, list[bytes], list[Any]]]:
        """Do what all settling moves share: yield the records to settle. The move appends their new states."""
        boot = args[0].decode()
        for i in range(int(args[1])):
            run = args[2 + width * i : 2 + width * (i + 1)]
            task_id, fence = run[0].decode(), int(run[1])
            rec = self.held(task_id, boot)
            said = self.verdict(rec, move, fence, boot)
            answer: list[Any] = []
            if said == "ok" and rec is not None:
                self.leave(task_id, rec)
                self.note(rec, settled=f"{move}:{fence}")
                yield task_id, rec, run, answer
                self.answers.append([b"ok", answer[0].encode(), run[1]])
            else:
                self.answers.append(_settled(said, rec))

    def answered(self) -> list[Any]:
        answers, self.answers = self.answers, []
        return answers

    def _retry(self, args: list[bytes]) -> Any:
        for task_id, rec, run, answer in self.settle(args, "retry", 5):  # of a task that continues as another one
            delay = int(run[2])
            if run[3] != b"quiet":
                self.log(rec, "retry", run[4].decode())
            if run[3] != b"failure":
                rec.attempt -= 1
                self.put_back(rec, run[3].decode())
            else:
                rec.more["retries"] = str(int(rec.more.get("retries", 0)) + 1)
                for name in ("since", "locked_since", "scares"):
                    rec.more.pop(name, None)
            self.count("retried")
            if len(args) > 7 and "c" not in rec.flags:
                self.replace(rec, args[7])
            if delay:
                answer.append(self.reschedule(task_id, rec, delay, keeps=run[3] == b"quiet"))
            else:
                answer.append(self.requeue(task_id, rec, self.time_us))
        return self.answered()

    def put_back(self, rec: Rec, kind: str) -> None:
        """Return since when a task has been put back for this reason. A different reason starts a new count."""
        if kind != "quiet":
            mine, other = ("locked_since", "since") if kind == "locked" else ("since", "locked_since")
            rec.more.setdefault(mine, str(self.now))
            rec.more.pop(other, None)

    def reschedule(self, task_id: str, rec: Rec, delay: int, *, keeps: bool) -> str:
        if "c" in rec.flags:
            return self.requeue(task_id, rec, 0)
        (rec.mark if keeps else rec.unmark)("p")
        self.moved(task_id, rec, "scheduled")
        rec.owner = "-"
        self.due[task_id] = self.now + delay
        return "scheduled"

    def _release(self, args: list[bytes]) -> Any:
        for task_id, rec, _, answer in self.settle(args, "release", 2):
            self.count("released")
            rec.attempt -= 1
            answer.append(self.requeue(task_id, rec, rec.at))
        return self.answered()

    def _bury(self, args: list[bytes]) -> Any:
        for task_id, rec, run, answer in self.settle(args, "bury", 6):
            self.log(rec, "bury", run[3].decode())
            self.finish_dead(task_id, rec, run[2].decode())
            self.follow(_items(args, 8, int(run[5])), run[4])
            answer.append("dead")
        return self.answered()

    def _forfeit(self, args: list[bytes]) -> Any:
        for task_id, rec, run, answer in self.settle(args, "forfeit", 3):
            answer.append(self.resurrect(task_id, rec, True, run[2].decode()))
        return self.answered()


def _items(args: list[bytes], first: int, n: int) -> list[Item]:
    return [Item.read(args, first + ITEM * i) for i in range(n)]


def _settled(said: str, rec: Rec | None) -> list[Any]:
    return [said.encode(), rec.state.encode() if rec else b"", str(rec.fence if rec else 0).encode()]
