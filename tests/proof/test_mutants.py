"""What the checks are worth: every seeded bug is caught."""

from __future__ import annotations

import pytest

from relier.ledger.ledger import load_scripts
from relier.proof.directed import SCHEDULES
from relier.proof.exhaustive import Search
from relier.proof.lua_mutants import LUA_MUTANTS, LuaMutant
from relier.proof.mutants import MUTANTS, hunt
from relier.proof.mutants_clock import BootRemovedEarly, LostBootClaims
from relier.proof.mutants_settle import FenceAtMost, FenceNotChecked
from relier.proof.profiles import BY_NAME


@pytest.mark.parametrize("index", range(len(MUTANTS)), ids=[mutant.name for mutant in MUTANTS])
def test_every_mutant_is_caught(index: int) -> None:
    caught = hunt(index, 1000)
    assert caught.by, f"{MUTANTS[index].name} survived: {MUTANTS[index].about}"


def test_mutants_are_well_declared() -> None:
    assert len(MUTANTS) >= 35
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert all(set(mutant.profiles) <= BY_NAME.keys() | SCHEDULES.keys() for mutant in MUTANTS)


@pytest.mark.parametrize("mutant", LUA_MUTANTS, ids=[mutant.name for mutant in LUA_MUTANTS])
def test_lua_mutants_still_fit(mutant: LuaMutant) -> None:
    text = mutant.text_of()
    assert load_scripts(**{mutant.keyword: text}).names() == load_scripts().names()


@pytest.mark.parametrize("model", [FenceNotChecked, FenceAtMost, BootRemovedEarly, LostBootClaims])
def test_the_exhaustive_search_catches_them_too(model: type) -> None:
    assert Search(model, slots=(2, 1)).explore(4000) is not None
