"""How good the checks are: every seeded bug is caught."""

from __future__ import annotations

import pytest

from proof.differential.lua_mutants import LUA_MUTANTS, LuaMutant
from proof.directed.schedules import SCHEDULES
from proof.exhaustive import Search
from proof.mutants.clock import BootRemovedEarly, LostBootClaims
from proof.mutants.hunt import MUTANTS, hunt
from proof.mutants.settling import FenceAtMost, FenceNotChecked
from proof.simulator.profiles import BY_NAME
from relier.ledger.ledger import load_scripts

NAMES = load_scripts().names()
pytestmark = pytest.mark.timeout(600)  # seconds of computing, and other processes may compute meanwhile


@pytest.mark.parametrize("index", range(len(MUTANTS)), ids=[mutant.name for mutant in MUTANTS])
def test_every_mutant_is_caught(index: int) -> None:
    caught = hunt(index, 1000)
    assert caught.by, f"{MUTANTS[index].name} survived: {MUTANTS[index].about}"


def test_every_mutant_is_declared_correctly() -> None:
    assert len(MUTANTS) >= 35
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert all(set(mutant.profiles) <= BY_NAME.keys() | SCHEDULES.keys() for mutant in MUTANTS)


@pytest.mark.parametrize("mutant", LUA_MUTANTS, ids=[mutant.name for mutant in LUA_MUTANTS])
def test_every_lua_mutant_still_matches_its_script(mutant: LuaMutant) -> None:
    assert load_scripts(**{mutant.keyword: mutant.text_of()}).names() == NAMES


@pytest.mark.parametrize("model", [FenceNotChecked, FenceAtMost, BootRemovedEarly, LostBootClaims])
def test_the_exhaustive_search_catches_mutants_too(model: type) -> None:
    assert Search(model, slots=(2, 1)).explore(4000) is not None
