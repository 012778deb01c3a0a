"""The moves of events: read a page of a stream, and leave the mark of a reader."""

from __future__ import annotations

from functools import partial

from relier.errors import InvalidSubmissionError
from relier.ledger import keys
from relier.ledger.checks import check_number
from relier.ledger.defaults import WATCH_MS
from relier.ledger.events.records import TOPICS, EventPage, Topic
from relier.ledger.events.replies import event_page
from relier.ledger.moves.base import MoveBase
from relier.store.call import Call

PAGE_ENTRIES = 50


class EventMoves(MoveBase):
    def events(self, topic: Topic, position: str, *, most: int = PAGE_ENTRIES, again: bool = False) -> Call[EventPage]:
        """Read entries of a topic after a position: 'now', 'start', or one that an earlier page gave.

        `again`: include the entry at the position, because the reader has processed only a part of it.
        """
        if topic not in TOPICS:
            raise InvalidSubmissionError(f"unknown topic {topic!r}; use one of {', '.join(TOPICS)}")
        check_number("most", most, 1, 1000)
        return self._call("events", [topic, position, most, "1" if again else ""], partial(event_page, topic))

    def watch(self, ms: int = WATCH_MS) -> Call[bool]:
        """Leave the mark of a reader. Return whether there was one: if not, events may not have been written."""
        check_number("ms", ms, 1)
        return self._call("watch", [ms], lambda raw: raw == 1)

    def event_stream(self, topic: Topic) -> str:
        """Return the key that readers of a topic block on."""
        return keys.spell(self.prefix, "events", topic)
