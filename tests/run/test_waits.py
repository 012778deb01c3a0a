"""How long an attempt waited for the store."""

from __future__ import annotations

import contextlib

from relier.run.waits import LONG_S, Waits


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_quick_answer_counts_as_no_wait() -> None:
    clock = Clock()
    waits = Waits(clock)
    for _ in range(10):
        with waits.one():
            clock.now += LONG_S * 0.9
            assert waits.any
            assert waits.seconds() == 0
    assert not waits.any
    assert waits.seconds() == 0


def test_a_long_wait_counts_while_it_lasts_and_after() -> None:
    clock = Clock()
    waits = Waits(clock)
    with waits.one():
        clock.now += 5
        assert waits.seconds() == 5
        clock.now += 5
    clock.now += 7
    assert waits.seconds() == 10


def test_branches_that_wait_at_once_wait_once() -> None:
    clock = Clock()
    waits = Waits(clock)
    with contextlib.ExitStack() as first, waits.one():
        clock.now += 1
        first.enter_context(waits.one())
        clock.now += 2
        first.close()
        clock.now += 3
        assert waits.seconds() == 6
    assert waits.seconds() == 6


def test_branches_that_wait_one_after_the_other_wait_from_the_first_to_the_last() -> None:
    clock = Clock()
    waits = Waits(clock)
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        first.enter_context(waits.one())
        clock.now += 1
        second.enter_context(waits.one())
        clock.now += 2
        first.close()
        clock.now += 3
        assert waits.seconds() == 6
    assert waits.seconds() == 6


def test_another_process_reports_its_waits() -> None:
    clock = Clock()
    inside, outside = Waits(clock), Waits(clock)
    with inside.one():
        clock.now += 4
    with inside.one():
        clock.now += 2
        outside.mirror(*inside.state)
        clock.now += 1
        assert outside.any
        assert outside.seconds() == inside.seconds() == 7
    outside.mirror(*inside.state)
    assert outside.seconds() == 7
    assert not outside.any
