"""The scripts do what the model does. A script with a seeded bug does not, and the difference is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from proof.differential.harness import DifferenceError, RealStore, fuzz, proof_scripts, schedule
from proof.differential.lua_mutants import LUA_MUTANTS, LuaMutant
from relier.errors import RelierError
from relier.ledger import keys
from relier.settings import Settings
from relier.store import SyncStore
from tests.support.servers import Server

SEEDS = 15
MOST_SEEDS = 400


@contextmanager
def real_on(server: Server, **replaced: str) -> Iterator[RealStore]:
    settings = Settings(redis_url=server.url, namespace="differential", redis_allow_eviction=True)
    with SyncStore(settings, proof_scripts(**replaced)) as store:
        yield RealStore(store, keys.prefix("differential"))


@pytest.mark.parametrize("start", [0, 1000])
def test_scripts_and_model_give_the_same_answers(server: Server, start: int) -> None:
    with real_on(server) as real:
        for seed in range(start, start + SEEDS):
            schedule(seed, real)
            fuzz(seed, real)


@pytest.mark.slow
@pytest.mark.timeout(900)  # for a bug that few seeds find, hundreds of seeds are tried
@pytest.mark.parametrize("mutant", LUA_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_in_a_script_is_noticed(server: Server, mutant: LuaMutant) -> None:
    with real_on(server, **{mutant.keyword: mutant.text_of()}) as real:
        for seed in range(MOST_SEEDS):
            try:
                fuzz(seed, real)
                schedule(seed, real)
            except (DifferenceError, RelierError, ValueError):  # ValueError: an entry of events that cannot be read
                return
    pytest.fail(f"nobody noticed {mutant.name}: an answer or a key is not compared")
