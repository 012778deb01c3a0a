"""The exhaustive search: small instances here, all of them in `python -m proof exhaustive`."""

from __future__ import annotations

from proof.exhaustive import Search


def test_every_interleaving_of_two_workers() -> None:
    search = Search(hand_back=False)
    assert search.explore() is None
    assert search.states > 500
    assert search.settled > 100


def test_the_beginning_of_those_with_a_fault() -> None:
    for fault in ("rollback", "lost reply"):
        search = Search(fault=fault)
        assert search.explore(1200) is None
        assert search.states == 1200
