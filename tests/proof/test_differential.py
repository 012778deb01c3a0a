"""The scripts do what the model does; a script with a bug in it does not, and that is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from proof.differential.harness import DifferenceError, RealStore, fuzz, schedule
from proof.differential.lua_mutants import LUA_MUTANTS, LuaMutant
from relier.errors import RelierError
from relier.ledger import keys
from relier.ledger.ledger import load_scripts
from relier.settings import Settings
from relier.store import SyncStore
from relier.testing.virtual.store_clock import TIME_LIBRARY
from tests.support.servers import Server

SEEDS = 15
MOST_SEEDS = 400


@contextmanager
def real_on(server: Server, **replaced: str) -> Iterator[RealStore]:
    settings = Settings(redis_url=server.url, namespace="differential", redis_allow_eviction=True)
    with SyncStore(settings, load_scripts(lib__time=TIME_LIBRARY, **replaced)) as store:
        yield RealStore(store, keys.prefix("differential"))


@pytest.mark.parametrize("start", [0, 1000])
def test_scripts_and_model_give_the_same_answers(server: Server, start: int) -> None:
    with real_on(server) as real:
        for seed in range(start, start + SEEDS):
            schedule(seed, real)
            fuzz(seed, real)


@pytest.mark.parametrize("mutant", LUA_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_in_a_script_is_noticed(server: Server, mutant: LuaMutant) -> None:
    with real_on(server, **{mutant.keyword: mutant.text_of()}) as real:
        for seed in range(MOST_SEEDS):
            try:
                fuzz(seed, real)
                schedule(seed, real)
            except (DifferenceError, RelierError):
                return
    pytest.fail(f"nobody noticed {mutant.name}: an answer or a key is not compared")
