"""The metrics of event streams: how many events were written, and how far back they are kept."""

from __future__ import annotations

from collections.abc import Mapping

from relier.cli.session import Session
from relier.event_stream.cursor import NOW, START
from relier.ledger.events.records import TOPICS
from relier.monitoring import series
from relier.monitoring.meter import Labels
from relier.monitoring.series import MetricSeries


def event_rows(session: Session, now_ms: int) -> dict[MetricSeries, Mapping[Labels, float]]:
    """Read both ends of each stream. This leaves no mark of a reader."""
    written: dict[Labels, float] = {}
    kept: dict[Labels, float] = {}
    for topic in TOPICS:
        newest = session.run(session.ledger.events(topic, NOW, most=1))
        oldest = session.run(session.ledger.events(topic, START, most=1)).entries
        written[topic,] = float(newest.position.partition("-")[0])
        kept[topic,] = max(0.0, now_ms / 1000 - oldest[0].changes[0].at_us / 1e6) if oldest else 0.0
    return {series.EVENTS: written, series.EVENT_HISTORY: kept}
