"""The model's batches: how members are added, what follows their ends, and the moves on batches."""

from __future__ import annotations

from typing import Any

from proof.model.packed import unpack
from proof.model.shared import Pieces
from proof.model.state import BatchRec, Item, Rec
from relier.ledger.defaults import ADDED_PLACE, DEAD_TTL_MS, MEMBER_SPAN, RESULT_TTL_MS

INF = float("inf")
STAGES = {"done": 1, "dead": 2, "cancelled": 3}
LETTERS = {"then": "t", "on_failure": "f", "on_complete": "c"}


class Batching(Pieces):
    """Batches and their moves."""

    # --- entering --------------------------------------------------------------------------------------------------

    def refuses(self, task_id: str, words: str) -> list[Any] | None:
        of, how, parent, *adder = words.split()[1:]
        group = self.batches.get(of)
        if group is not None and task_id in group.members:
            return [b"ended", task_id.encode(), b"", b"0"]
        if how == "opens" and group is None:
            around = self.batches.get(parent)
            self.opening |= parent == "-" or (around is not None and self.takes(around, adder))
        enters = {
            "stored": True,
            "with": group is None and self.opening,
            "opens": group is None and self.opening,
            "adds": group is not None and self.takes(group, adder),
        }
        return None if enters[how] else [b"closed", task_id.encode(), b"", b"0"]

    def takes(self, group: BatchRec, adder: list[str]) -> bool:
        """Return whether a batch accepts a member now: an open batch from anyone, a sealed one from its own running
        members.
        """
        if group.abandoned or group.state == "ended" or self.is_stopped(group):
            return False
        if group.state == "open":
            return True
        rec = self.tasks.get(adder[0])
        mine = rec is not None and rec.state == "running" and (str(rec.fence), rec.owner) == (adder[1], adder[2])
        return mine and rec is not None and rec.more.get("batch", "").split(" ")[0] == group.id

    def is_stopped(self, group: BatchRec | None) -> bool:
        while group is not None and not group.stopped:
            group = self.batches.get(group.parent.split(" ")[0]) if group.parent else None
        return group is not None

    def create_batch(self, header: list[bytes], at: str = "") -> None:
        if header[1] == b"plans":
            self.add_plans(header[0].decode(), header[2:])
            return
        batch_id, state, collects, name, parent, lease, result_ttl, dead_ttl = (word.decode() for word in header[:8])
        if batch_id in self.batches:
            return
        root = batch_id
        if parent:
            of, words = self.count_in(parent, at)
            if of is None:
                return
            parent, root = words, of.root
            of.members["@" + batch_id] = MEMBER_SPAN + int(words.split(" ")[1])
        if state == "open" or not parent:
            self.batch_index[batch_id] = self.now + int(lease) if state == "open" else INF
        self.batches[batch_id] = BatchRec(
            batch_id, state, collects, name, parent, root, self.now, lease, result_ttl, dead_ttl
        )
        self.news("batches", state, batch_id, name, "", state, "", "")
        self.add_plans(batch_id, header[8:])

    def add_plans(self, batch_id: str, flat: list[bytes]) -> None:
        if batch_id in self.batches:
            self.batches[batch_id].plans |= {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}

    def count_in(self, words: str, at: str) -> tuple[BatchRec | None, str]:
        """Count a new member. Store its batch and its place in the record."""
        of, place, next_link, given, tasks = words.split(" ")
        group = self.batches.get(of)
        if group is None:
            return None, words
        place = at if place == "=" else place
        if tasks != "-":
            group.add("size")
            if tasks != "0":
                self.batches[group.root].add("tasks", int(tasks))
            if place == "-":
                place = str(ADDED_PLACE + group.count("size"))
            if group.state == "open":
                self.batch_index[of] = self.now + int(group.lease)
        return group, f"{of} {place} {next_link} {given} {tasks}"

    def enlist(self, item: Item, rec: Rec) -> None:
        for header in item.opens:
            self.create_batch(header, self.going_on)
        group, words = self.count_in(rec.more["batch"], self.going_on)
        rec.more["batch"] = words
        if group is not None:
            group.members[item.id] = int(words.split(" ")[1])

    # --- what follows from an end ----------------------------------------------------------------------------------

    def end_members(self) -> None:
        """Update the batches of all members that the running move ended."""
        if not self.parted and not self.lined_up:
            return
        parted, self.parted = self.parted, []
        for task_id, state, value, words in parted:
            named = task_id.encode()
            self.end_member(words, task_id, state, named if value is None else named + b"\n" + value, task_id)
        self.ring_lined_up()

    def end_member(self, words: str, member: str, state: str, value: bytes, task: str) -> None:
        """Handle a member's end, and end every batch around it that is now complete."""
        while words:
            around, how = self.end_one(words, member, state, value, task)
            member = "@" + words.split(" ")[0]
            words, state, value = around, how, member.encode()

    def end_one(self, words: str, member: str, state: str, value: bytes, task: str) -> tuple[str, str]:
        of, place, next_link, given, _ = words.split(" ")
        group = self.batches.get(of)
        if group is None or group.members.get(member, 2 * MEMBER_SPAN) >= 2 * MEMBER_SPAN:
            return "", ""
        group.members[member] += 2 * MEMBER_SPAN * STAGES[state]
        if member == task:
            self.batches[group.root].add(f"tasks_{state}")
        stopped = self.is_stopped(group)
        if state == "done":
            group.results.pop(given, None)
        if state == "done" and next_link != "-":
            if not stopped and self.go_on(group, place, next_link, value if member == task else None):
                return "", ""
            state = "cancelled" if stopped else "dead"
        group.add(state)
        if state == "done":
            self.collect(group, place, value)
        else:
            group.failed = group.failed or task
            if not stopped:
                self.fire(group, "on_failure")
        return self.end_batch(group)

    def collect(self, group: BatchRec, place: str, value: bytes) -> None:
        if group.collects:
            group.results[place] = value

    def go_on(self, group: BatchRec, place: str, next_link: str, value: bytes | None) -> bool:
        plan = group.plans.pop(next_link, None)
        if plan is None:
            return False
        if value is not None:
            group.results[f">{next_link}"] = value
        self.going_on = place
        return self.start_plan(plan) is not None

    def start_plan(self, packed: bytes) -> str | None:
        """Submit all tasks of a plan, or none. Return the id of the first."""
        headers, *rows = unpack(packed)
        items = [Item.read(row, 0) for row in rows]
        if len({item.id for item in items}) < len(items) or any(self.look(item) is not None for item in items):
            return None
        for header in headers:
            self.create_batch(header, self.going_on)
        for nth, item in enumerate(items):
            self.enter(item, nth, False)
        return items[0].id

    def fire(self, group: BatchRec, callback: str) -> None:
        letter, plan = LETTERS[callback], group.plans.get(callback)
        if plan is None or letter in group.fired:
            return
        group.fired += letter
        del group.plans[callback]
        group.callbacks[callback] = self.start_plan(plan) or ""

    def end_batch(self, group: BatchRec) -> tuple[str, str]:
        """End a batch if it is complete. Return its outcome for the batch around it."""
        if group.state != "sealed" or sum(map(group.count, STAGES)) < group.count("size"):
            return "", ""
        stopped = self.is_stopped(group)
        whole = group.count("done") == group.count("size") and not group.abandoned
        group.state, group.ended = "ended", self.now
        outcome = "done" if whole else "cancelled" if stopped else "dead"
        self.news("batches", "ended", group.id, group.name, "sealed", "ended", "", outcome)
        if whole and not stopped:
            self.fire(group, "then")
        self.fire(group, "on_complete")
        if group.parent:
            return group.parent, outcome
        kept = RESULT_TTL_MS if group.result_ttl == "-" else int(group.result_ttl)
        if group.count("dead") > 0:
            kept = max(kept, DEAD_TTL_MS if group.dead_ttl == "-" else int(group.dead_ttl))
        self.batch_index[group.id] = self.now + kept
        return "", ""

    def rejoin(self, task_id: str, rec: Rec) -> None:
        """Handle a replay of a dead member: its batch, and those around it that had ended, wait again."""
        words, member = rec.more.get("batch", ""), task_id
        while words:
            group = self.batches.get(words.split(" ")[0])
            stage = 0 if group is None else group.members.get(member, 0) // (2 * MEMBER_SPAN)
            if group is None or stage == 0:
                return
            group.members[member] -= 2 * MEMBER_SPAN * stage
            if member == task_id:
                self.batches[group.root].add("tasks_dead", -1)
            group.add("cancelled" if stage == STAGES["cancelled"] else "dead", -1)
            group.failed = "" if group.failed == task_id else group.failed
            if group.state != "ended":
                return
            group.state, group.ended = "sealed", 0
            self.news("batches", "sealed", group.id, group.name, "ended", "sealed", "", "replay")
            if not group.parent:
                self.batch_index[group.id] = INF
            words, member = group.parent, "@" + group.id

    # --- the moves -------------------------------------------------------------------------------------------------

    def _open_batch(self, args: list[bytes]) -> Any:
        known = self.batches.get(args[0].decode())
        if known is not None:
            return [b"repeat", known.state.encode()]
        self.need_memory()
        self.create_batch(unpack(args[1]))
        group = self.batches[args[0].decode()]
        self.settle_batch(group)
        return [b"ok", group.state.encode()]

    def _extend_batch(self, args: list[bytes]) -> Any:
        group = self.batches.get(args[0].decode())
        if group is None:
            return [b"missing", b""]
        if group.state != "open":
            return [b"closed", group.state.encode()]
        self.batch_index[group.id] = self.now + int(group.lease)
        return [b"ok", b"open"]

    def _seal_batch(self, args: list[bytes]) -> Any:
        group, abandoned = self.batches.get(args[0].decode()), args[1] == b"1"
        if group is None:
            return [b"missing", b""]
        if group.abandoned and not abandoned:
            return [b"abandoned", group.state.encode()]
        if group.state != "open":
            return [b"repeat", group.state.encode()]
        self.seal(group, abandoned)
        return [b"ok", group.state.encode()]

    def seal(self, group: BatchRec, abandoned: bool) -> None:
        if group.state == "open":
            group.state = "sealed"
            self.news("batches", "sealed", group.id, group.name, "open", "sealed", "", "")
            if group.parent:
                self.batch_index.pop(group.id, None)
            else:
                self.batch_index[group.id] = INF
        if abandoned:
            group.abandoned = True
            self.news("batches", "abandoned", group.id, group.name, group.state, group.state, "", "")
            self.fire(group, "on_failure")
        self.settle_batch(group)

    def settle_batch(self, group: BatchRec) -> None:
        """End a batch that is complete although no member ends now: it was just sealed, or has no members."""
        around, how = self.end_batch(group)
        if around:
            self.end_member(around, f"@{group.id}", how, f"@{group.id}".encode(), group.failed or group.id)
        self.ring_lined_up()

    def _cancel_batch(self, args: list[bytes]) -> Any:
        group = self.batches.get(args[0].decode())
        if group is None or group.state == "ended":
            return [b"missing" if group is None else b"ended", b"", []]
        if not group.stopped:
            self.news("batches", "cancelled", group.id, group.name, group.state, group.state, "", "")
        group.stopped = True
        after, most = float(args[1] or b"-inf"), int(args[2])
        live = sorted((n, i) for i, n in group.members.items() if after < n < 2 * MEMBER_SPAN)[:most]
        for place, member in live:
            if not member.startswith("@"):
                self.stop_member(group, member, place)
        if group.state == "open":
            self.seal(group, False)
        cursor = str(live[-1][0]).encode() if len(live) == most else b""
        return [b"ok", cursor, [member[1:].encode() for _, member in live if member.startswith("@")]]

    def stop_member(self, group: BatchRec, task_id: str, place: int) -> None:
        rec = self.tasks.get(task_id)
        if rec is None:
            self.end_member(f"{group.id} {place} - - -", task_id, "cancelled", b"", task_id)
        elif rec.state in {"scheduled", "queued"} or (rec.state == "running" and "c" not in rec.flags):
            self.stop_task(task_id, rec)

    def tidy_batches(self, most: int) -> int:
        """Seal open batches whose producer is gone, and remove ended ones whose retention is over."""
        looked = 0
        due = sorted((at, batch_id) for batch_id, at in self.batch_index.items() if at <= self.now)
        for _, batch_id in due[:most]:
            if looked >= most:
                break
            group = self.batches.get(batch_id)
            if group is None:
                del self.batch_index[batch_id]
                looked += 1
            elif group.state == "ended":
                looked += self.remove_batch(group, most - looked)
            else:
                self.seal(group, group.state == "open")
                looked += 1
        return looked

    def remove_batch(self, group: BatchRec, most: int) -> int:
        for n in range(1, most + 1):
            leaf, around = self.innermost(group)
            if self.is_waited_for(leaf):
                self.batch_index[group.id] = self.now + RESULT_TTL_MS
                return n
            self.news("batches", "removed", leaf.id, leaf.name, "ended", "", "", "")
            del self.batches[leaf.id]
            if leaf is group:
                del self.batch_index[group.id]
                return n
            del around.members["@" + leaf.id]
        return most

    def innermost(self, group: BatchRec) -> tuple[BatchRec, BatchRec]:
        around = group
        while True:
            inner = sorted((score, i) for i, score in group.members.items() if i.startswith("@"))
            if not inner:
                return group, around
            around, group = group, self.batches[inner[0][1][1:]]

    def is_waited_for(self, group: BatchRec) -> bool:
        """Return whether a callback may still ask for the results of a batch."""
        rec = self.tasks.get(group.callbacks.get("then", ""))
        return rec is not None and rec.state not in {"done", "cancelled"}

    # --- reads -----------------------------------------------------------------------------------------------------

    def _batch(self, args: list[bytes]) -> Any:
        group = self.batches.get(args[0].decode())
        return [] if group is None else [part for pair in group.fields().items() for part in pair]

    def _results(self, args: list[bytes]) -> Any:
        group, field = self.batches.get(args[0].decode()), args[2].decode()
        found = {} if group is None else {k: v for k, v in group.results.items() if field in {"", k}}
        return [[part for name, value in found.items() for part in (name.encode(), value)], None]

    def _members(self, args: list[bytes]) -> Any:
        group = self.batches.get(args[0].decode())
        first, end, skip, most = (int(arg) for arg in args[1:])
        rows = sorted((n, i) for i, n in (group.members if group else {}).items() if first <= n < end)
        return [part for n, i in rows[skip : skip + most] for part in (i.encode(), str(n).encode())]
