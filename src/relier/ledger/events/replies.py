"""Read the entries of event streams (lua/lib/tell.lua describes them) and the replies of events.lua."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from relier.ledger.events.records import Event, EventEntry, EventPage, Topic

NONE = "-"


def event_page(topic: Topic, raw: Any) -> EventPage:
    """Read a reply of events.lua."""
    said, count, position, *rows = raw
    return EventPage(
        position.decode(),
        tuple(entry(topic, *row) for row in rows),
        said == b"missed",
        int(count) if count else None,
    )


def entry(topic: Topic, entry_id: bytes, field: bytes, text: bytes) -> EventEntry:
    """Read one entry of a stream."""
    last, _, at_us = entry_id.decode().partition("-")
    move, _, n = field.decode().partition(" ")
    rows = list(_tasks(text) if topic == "tasks" else _others(text))
    if len(rows) != int(n):
        raise ValueError(f"entry {entry_id!r} of {topic} says {n} changes and has {len(rows)}")
    first = int(last) - len(rows) + 1
    changes = (
        Event(topic=topic, move=move, at_us=int(at_us), number=first + i, cursor="", **row)
        for i, row in enumerate(rows)
    )
    return EventEntry(entry_id.decode(), move, tuple(changes))


def _tasks(text: bytes) -> Iterator[dict[str, Any]]:
    """Read blocks of four lines: what the tasks share, their queue, their name, their ids."""
    lines = text.decode("utf-8", "replace").split("\n")
    for at in range(0, len(lines) - 3, 4):
        was, state, version, attempt, fence, worker, reason = lines[at].split(" ", 6)
        old, new = _word(was), _word(state)
        shared = {
            "kind": reason if old == new else new or "removed",
            "queue": lines[at + 1],
            "name": lines[at + 2],
            "old_state": old,
            "new_state": new,
            "version": int(version),
            "attempt": int(attempt),
            "fence": "" if fence == "0" else fence,
            "worker_id": _word(worker),
            "reason": _word(reason),
        }
        for task_id in lines[at + 3].split(" "):
            yield {"id": task_id, **shared}


def _others(text: bytes) -> Iterator[dict[str, Any]]:
    for kind, of, name, old, new, version, reason in msgspec.json.decode(text, type=list[list[str]]):
        yield {
            "kind": kind,
            "id": of,
            "name": name,
            "old_state": old,
            "new_state": new,
            "version": int(version or 0),
            "reason": reason,
        }


def _word(word: str) -> str:
    return "" if word == NONE else word
