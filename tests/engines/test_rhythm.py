"""How often a sweep says it comes."""

from __future__ import annotations

from relier.rescue.phoenix import Rhythm


def told(*at: float) -> list[float]:
    rhythm = Rhythm(0.5)
    return [rhythm.sweep(now) for now in at]


def test_a_sweep_that_keeps_its_time_reports_what_the_store_said() -> None:
    assert told(0.0, 0.5, 0.9, 1.4) == [0.5] * 4


def test_one_long_pause_may_be_an_outage() -> None:
    assert told(0, 60, 60.5, 61, 121, 121.5) == [0.5] * 6


def test_one_that_is_always_late_says_so() -> None:
    assert told(0, 4, 8, 13, 16) == [0.5, 0.5, 0.5, 4.0, 3.0]


def test_it_is_in_time_again_at_once() -> None:
    assert told(0, 4, 8, 12, 12.5) == [0.5, 0.5, 0.5, 4.0, 0.5]
