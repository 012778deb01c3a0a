"""The exhaustive search: small instances here, all of them in `python -m proof exhaustive`."""

from __future__ import annotations

import pytest

from proof.exhaustive import Search
from proof.exhaustive_timetables import TableSearch
from proof.mutants.batches import EndsTooEarly, SweptUncounted, ThenDespiteFailure
from proof.mutants.timetables import EditDropsDue, FiresAgain

pytestmark = pytest.mark.timeout(600)  # seconds of computing, and other processes may compute meanwhile


def test_every_interleaving_of_two_workers_holds() -> None:
    search = Search(hand_back=False)
    assert search.explore() is None
    assert search.states > 500
    assert search.settled > 100


def test_the_first_interleavings_with_a_fault_hold() -> None:
    for fault in ("rollback", "lost reply"):
        search = Search(fault=fault)
        assert search.explore(1200) is None
        assert search.states == 1200


def test_every_interleaving_of_two_members_of_a_batch_holds() -> None:
    search = Search(hand_back=False, batched=True)
    assert search.explore() is None
    assert search.states > 3000
    assert search.settled > 1000


def test_the_exhaustive_search_finds_bugs_of_batches() -> None:
    for model in (SweptUncounted, ThenDespiteFailure, EndsTooEarly):
        assert Search(model, hand_back=False, batched=True).explore() is not None, model.__name__


def test_every_interleaving_of_two_schedulers_and_an_operator_holds() -> None:
    search = TableSearch(overlap="skip")
    assert search.explore() is None
    assert search.states > 500


def test_the_exhaustive_search_finds_a_second_firing() -> None:
    for model in (FiresAgain, EditDropsDue):
        assert TableSearch(model, fault="lost reply").explore() is not None, model.__name__
