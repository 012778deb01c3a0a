"""Keep a reader's place: per topic, the last entry that it read, or a part of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from relier.errors import InvalidSubmissionError
from relier.ledger.events.records import TOPICS, Topic

NOW, START = "now", "start"
PLACE = re.compile(r"^([a-z]+)=(\d{1,16}-\d{1,17})(?:\.(\d{1,9}))?$")


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """A position in one stream. `part`: how many changes of that entry were read, 0 for all of them."""

    position: str
    part: int = 0

    def __str__(self) -> str:
        return f"{self.position}.{self.part}" if self.part else self.position


def topics_of(topics: str | Iterable[str] | None) -> tuple[Topic, ...]:
    """Return the topics to follow, all by default. Raise InvalidSubmissionError for an unknown one."""
    wanted = TOPICS if topics is None else (topics,) if isinstance(topics, str) else tuple(topics)
    for topic in wanted:
        if topic not in TOPICS:
            raise InvalidSubmissionError(f"there is no topic {topic!r} of events; use {', '.join(TOPICS)}")
    if not wanted:
        raise InvalidSubmissionError(f"no topic was given; use {', '.join(TOPICS)}, or leave topics out for all")
    return cast(tuple[Topic, ...], tuple(dict.fromkeys(wanted)))


def places_of(since: str, topics: tuple[Topic, ...]) -> dict[Topic, StreamPlace]:
    """Read `since`: 'now', 'start', or the cursor of an event."""
    if since in {NOW, START}:
        return {topic: StreamPlace(since) for topic in topics}
    found: dict[str, StreamPlace] = {}
    for word in since.split(","):
        match = PLACE.match(word)
        if match is None:
            raise InvalidSubmissionError(
                f"cannot read the cursor {since!r:.80}; pass the `cursor` of an event, or 'now' or 'start'"
            )
        found[match[1]] = StreamPlace(match[2], int(match[3] or 0))
    lacking = [topic for topic in topics if topic not in found]
    if lacking:
        raise InvalidSubmissionError(
            f"the cursor has no place for the topic {lacking[0]!r}: it comes from a reader of other topics; "
            f"follow {', '.join(found)}, or begin with 'now' or 'start'"
        )
    return {topic: found[topic] for topic in topics}


def cursor_of(places: Mapping[Topic, StreamPlace]) -> str:
    """Return the places as one word, which `places_of` reads."""
    return ",".join(f"{topic}={place}" for topic, place in places.items())
