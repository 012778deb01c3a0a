"""Schedules of the store layer violate nothing, and seeded bugs are caught."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from proof.store.mutants import STORE_MUTANTS, StoreMutant, hunt
from proof.store.network import DOWN, FROZEN, NOT_NOW, Server, Spell, VirtualLoop, run_virtually
from proof.store.schedules import run_store_schedule, weather_of
from relier.store.replies import MEANINGS, Judgement


@pytest.mark.parametrize("part", range(4))
def test_schedules_hold(part: int) -> None:
    for seed in range(part * 50, (part + 1) * 50):
        violation = run_store_schedule(seed)
        assert violation is None, f"seed {seed}: {violation}"


@pytest.mark.parametrize("mutant", STORE_MUTANTS, ids=[mutant.about.replace(" ", "-") for mutant in STORE_MUTANTS])
def test_every_mutant_is_caught(mutant: StoreMutant) -> None:
    assert hunt(mutant, 100).by, f"it survived: {mutant.about}"


def test_every_kind_of_fault_occurs() -> None:
    seen = {spell.what for seed in range(20) for spell in weather_of(random.Random(seed), flapping=False).spells}
    assert seen == {DOWN, FROZEN, *NOT_NOW}


def test_the_not_now_replies_are_judged_as_temporary() -> None:
    judged = {MEANINGS[reply.partition(" ")[0]][0] for reply in NOT_NOW}
    assert judged == {Judgement.WAIT, Judgement.LOOK_UP}


def test_time_passes_only_while_all_callers_wait() -> None:
    async def main(loop: VirtualLoop) -> float:
        await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(1800))
        return loop.time()

    began = time.monotonic()
    assert run_virtually(main) == pytest.approx(3600)
    assert time.monotonic() - began < 60


def test_a_server_that_restarts_forgets_its_scripts() -> None:
    async def main(loop: VirtualLoop) -> list[object]:
        server = Server(loop, random.Random(0), [Spell(1, 2, DOWN)], 0)
        load = b"*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$1\r\nx\r\n"
        (sha,) = server.run(load)
        call = b"*5\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n1\r\n$1\r\nk\r\n$4\r\nname\r\n" % sha
        first = server.run(call)
        await asyncio.sleep(3)
        return [*first, *map(str, server.run(call))]

    assert run_virtually(main) == [b"name", "NOSCRIPT No matching script."]
