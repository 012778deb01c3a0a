"""The last events that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relier.cli.commands.events import EventFilter, as_dict
from relier.cli.pipelined.steps import answers_to, raw
from relier.dashboard.query import Query
from relier.dashboard.session import DashboardSession
from relier.ledger.events.records import TOPICS, Event, Topic
from relier.ledger.events.replies import entry

MOST_ENTRIES = 100  # of each topic
MOST_SHOWN = 100


def events(session: DashboardSession, query: Query) -> dict[str, Any]:
    topic = query.one_of("topic", TOPICS)
    wanted = EventFilter(query.text("name"), query.text("queue"), query.text("id"))
    topics = [one for one in TOPICS if topic in ("", one)]
    streams = [session.ledger.event_stream(one) for one in topics]
    (answers,) = session.read(answers_to(*(raw("XREVRANGE", one, "+", "-", "COUNT", MOST_ENTRIES) for one in streams)))
    every = [event for one, rows in zip(topics, answers, strict=True) for event in _changes(one, rows)]
    found = [event for event in every if wanted.matches(event)]
    found.sort(key=lambda event: -event.at_us)
    return {
        "topic": topic,
        "name": wanted.name,
        "queue": wanted.queue,
        "id": wanted.id,
        "mode": session.settings.events,
        "events": [as_dict(event) for event in found[:MOST_SHOWN]],
    }


def _changes(topic: Topic, rows: Sequence[Any]) -> list[Event]:
    """Return the changes in the last entries of one stream. No mark of a reader is left."""
    return [
        event for entry_id, (field, text) in rows for event in reversed(entry(topic, entry_id, field, text).changes)
    ]
