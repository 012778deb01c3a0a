"""The sweep interval that a node reports."""

from __future__ import annotations

from relier.rescue.phoenix import Rhythm


def told(*at: float) -> list[float]:
    rhythm = Rhythm(0.5)
    return [rhythm.sweep(now) for now in at]


def test_a_punctual_sweep_reports_the_configured_interval() -> None:
    assert told(0.0, 0.5, 0.9, 1.4) == [0.5] * 4


def test_one_long_pause_may_be_an_outage() -> None:
    assert told(0, 60, 60.5, 61, 121, 121.5) == [0.5] * 6


def test_a_sweep_that_is_always_late_reports_a_longer_interval() -> None:
    assert told(0, 4, 8, 13, 16) == [0.5, 0.5, 0.5, 4.0, 3.0]


def test_one_punctual_sweep_restores_the_configured_interval() -> None:
    assert told(0, 4, 8, 12, 12.5) == [0.5, 0.5, 0.5, 4.0, 0.5]
