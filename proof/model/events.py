"""The model's events: what each call changed, on one stream per topic. See lua/lib/tell.lua and events.lua."""

from __future__ import annotations

import json
from typing import Any

from proof.model.state import Entry, Namespace, Rec, TaskChange

EVENTS_KEPT = 60  # a low number, so that simulated runs trim their streams
EVENTS_STEP = EVENTS_KEPT // 20


class Telling(Namespace):
    """Collect the changes of a call, and write them when it ends."""

    def tell(self, task_id: str, rec: Rec, was: str, state: str, why: str = "") -> None:
        worker = rec.owner if "running" in {was, state} else "-"
        what = (rec.version, rec.attempt, rec.fence, worker, rec.queue, rec.name, why)
        self.told.append(TaskChange(task_id, was, state, *what))

    def news(self, topic: str, *row: object) -> None:
        """Return the fields of a change: kind, id, name, state before, state, version, reason."""
        self.told_news.setdefault(topic, []).append(tuple(str(word) for word in row))

    def publish_all(self, script: str) -> None:
        if not self.told and not self.told_news:
            return
        changes: dict[str, list[Any]] = {"tasks": self.told, **self.told_news}
        self.told, self.told_news = [], {}
        for topic in ("tasks", "batches", "schedules", "cluster"):
            if changes.get(topic):
                self.publish(topic, script, changes[topic])

    def publish(self, topic: str, script: str, rows: list[Any]) -> None:
        before = self.event_numbers.get(topic, 0)
        last = self.event_numbers[topic] = before + len(rows)
        self.streams.setdefault(topic, []).append(Entry(last, self.time_us, script, tuple(rows)))
        if last // EVENTS_STEP > before // EVENTS_STEP:
            self.trim(topic, last - EVENTS_KEPT)

    def trim(self, topic: str, until: int) -> None:
        """Remove the entries up to this number."""
        self.streams[topic] = [entry for entry in self.streams[topic] if entry.last > until]

    # --- reading ---------------------------------------------------------------------------------------------------

    def _watch(self, _: list[bytes]) -> Any:
        was, self.watched = self.watched, True
        return int(was)

    def _events(self, args: list[bytes]) -> Any:
        topic, position, most = args[0].decode(), args[1].decode(), int(args[2])
        stream, number = self.streams.get(topic, []), self.event_numbers.get(topic, 0)
        if position == "now":
            return _page("ok", "", stream[-1].id if stream else f"{number}-0", [])
        if position == "start":
            return _page("ok", "", f"{stream[0].first - 1 if stream else number}-0", stream[: most + 1])
        n, us = (int(word) for word in position.split("-"))
        left = [entry for entry in stream if (entry.last, entry.us) >= (n if us else n + 1, us)][: most + 1]
        if self.is_there(position, left, n, number):
            return _page("ok", "", position, left if args[3] == b"1" or not us else left[1:])
        following = stream[0].first if stream else number + 1
        if following > n:
            count = str(following - 1 - n) if following > n + 1 else ""
            return _page("missed", count, f"{following - 1}-0", stream[: most + 1])
        return self.after_another_history(stream, us, most, number)

    def is_there(self, position: str, left: list[Entry], n: int, number: int) -> bool:
        """Return whether a reader at this position can continue without a gap."""
        if not position.endswith("-0"):
            return bool(left) and left[0].id == position
        return left[0].first == n + 1 if left else number == n

    def after_another_history(self, stream: list[Entry], us: int, most: int, number: int) -> Any:
        later: list[Entry] = []
        for entry in reversed(stream[-most:]):
            if entry.us <= us:
                break
            later.insert(0, entry)
        newest = stream[-1].id if stream else f"{number}-0"
        return _page("missed", "", f"{later[0].first - 1}-0" if later else newest, later)


def _page(said: str, count: str, position: str, entries: list[Entry]) -> list[Any]:
    return [said.encode(), count.encode(), position.encode(), *(shown(entry) for entry in entries)]


def shown(entry: Entry) -> list[bytes]:
    """Return an entry as the store keeps it, but with one block for each task."""
    field = f"{entry.move} {len(entry.rows)}".encode()
    if not isinstance(entry.rows[0], TaskChange):
        return [entry.id.encode(), field, json.dumps(entry.rows).encode()]
    blocks = (
        f"{c.was} {c.state} {c.version} {c.attempt} {c.fence} {c.worker} {c.reason or '-'}\n{c.queue}\n{c.name}\n{c.id}"
        for c in entry.rows
    )
    return [entry.id.encode(), field, "\n".join(blocks).encode()]
