"""The sweep fires due schedules once, whichever worker is first. A schedule that cannot be fired blocks no other."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from relier import Schedules, rl_task
from relier.errors import RedisConnectionError, StoreFullError
from relier.ledger.defaults import DUE_SCHEDULES
from relier.rescue.phoenix import Phoenix
from relier.schedules.definition import run_id
from relier.schedules.spec import spec_of
from tests.support.crew import Crew

pytestmark = pytest.mark.anyio


@rl_task(name="fir.tick")
def tick() -> None: ...


def phoenix(crew: Crew) -> Phoenix:
    return Phoenix(crew.client.settings, crew.client.store, crew.ledger, keyring=crew.client.keyring)


def now_ms(crew: Crew) -> int:
    return crew.clock.now_us // 1000


def unknown(crew: Crew, name: str, in_ms: int = 1000, kind: str = "lunar") -> None:
    """Write a schedule that no process here can compute."""
    spec = spec_of(name, tick, {"every": 60}).definition(crew.client.settings, crew.client.keyring)
    raw = spec.encoded().replace(b'"every"', f'"{kind}"'.encode())
    crew.run(crew.ledger.schedule(name, "0", raw, now_ms(crew) + in_ms))


async def test_two_sweeps_fire_once(clocked: Crew) -> None:
    Schedules().create("s", tick, every=60)
    clocked.advance(61)
    one, two = phoenix(clocked), phoenix(clocked)
    for each in (one, two, one, two):
        await each.sweep_once()
    assert clocked.count("submitted") == 1


async def test_runs_that_queue_wait_for_each_other(clocked: Crew) -> None:
    Schedules().create("s", tick, every=60, overlap="queue")
    boot, sweep = clocked.join(), phoenix(clocked)
    for _ in range(3):
        clocked.advance(60)
        await sweep.sweep_once()
    ran = []
    for seq in range(1, 7, 2):
        (claimed,) = clocked.run(clocked.ledger.claim(boot, seq, ["default"], 5)).tasks
        assert clocked.run(clocked.ledger.claim(boot, seq + 1, ["default"], 5)).tasks == ()
        ran.append(claimed.record.id)
        clocked.commit(claimed.lease)
    assert ran == sorted(ran)


async def test_the_sweep_wakes_up_for_the_next_schedule(clocked: Crew) -> None:
    clocked.with_settings(resurrection_check_interval=30.0)
    sweep = phoenix(clocked)
    assert await sweep.sweep_once() > 20
    Schedules().create("s", tick, every=60)
    at = Schedules().get("s").next
    assert at is not None
    clocked.clock.set(round(at.timestamp() * 1_000_000) - 2_000_000)
    assert 1.9 <= await sweep.sweep_once() <= 2.0
    clocked.advance(2)
    assert await sweep.sweep_once() > 20


async def test_a_schedule_that_cannot_be_computed_neither_spins_nor_blocks_others(
    clocked: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    clocked.with_settings(resurrection_check_interval=30.0)
    for n in range(2 * DUE_SCHEDULES + 3):
        unknown(clocked, f"strange {n}")
    Schedules().create("s", tick, every=60)
    clocked.advance(61)
    sweep = phoenix(clocked)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert await sweep.sweep_once() > 20, "it does not spin"
    assert clocked.count("submitted") == 1
    assert caplog.text.count("strange 7 is due, but this process cannot fire it") == 1, "it is reported once"
    Schedules().remove("strange 7")
    unknown(clocked, "strange 7", kind="solar")
    clocked.advance(2)
    await sweep.sweep_once()
    assert caplog.text.count("strange 7 is due, but this process cannot fire it") == 2, "another version"


@pytest.mark.parametrize("raw", [b"", b"{}", b"[1]", b'{"v":2,"timing":{},"task":"t","payload":""}'])
async def test_a_definition_that_cannot_be_read_blocks_nothing(clocked: Crew, raw: bytes) -> None:
    clocked.run(clocked.ledger.schedule("broken", "0", raw, now_ms(clocked) + 1))
    Schedules().create("s", tick, every=60)
    clocked.advance(61)
    await phoenix(clocked).sweep_once()
    assert clocked.count("submitted") == 1
    (broken,) = [info for info in Schedules().list() if info.name == "broken"]
    assert broken.problem


async def test_the_other_schedules_fire_whatever_fails_in_one(
    clocked: Crew, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(__import__("relier.schedules.timings", fromlist=["KINDS"]).KINDS, "odd", lambda stored: 1 / 0)
    unknown(clocked, "odd", kind="odd")
    Schedules().create("s", tick, every=60)
    clocked.advance(61)
    await phoenix(clocked).sweep_once()
    assert clocked.count("submitted") == 1
    assert "ZeroDivisionError" in caplog.text


class FailingStore:
    """Answers the calls of a sweep, except for some scripts."""

    def __init__(self, crew: Crew, error: Exception) -> None:
        self._store = crew.client.store
        self.error: Exception | None = error

    async def run(self, call: Any) -> Any:
        if call.script == "fire" and self.error is not None:
            raise self.error
        return await self._store.run(call)

    async def command(self, *args: Any, retry: bool = False) -> Any:
        return await self._store.command(*args, retry=retry)


async def test_a_full_store_delays_a_firing_and_loses_nothing(clocked: Crew) -> None:
    Schedules().create("s", tick, every=60)
    clocked.advance(61)
    store = FailingStore(clocked, StoreFullError("full"))
    sweep = Phoenix(clocked.client.settings, store, clocked.ledger, keyring=clocked.client.keyring)  # type: ignore[arg-type]
    await sweep.sweep_once()
    assert clocked.count("submitted") == 0
    store.error = None
    await sweep.sweep_once()
    assert clocked.count("submitted") == 1


async def test_the_sweep_raises_an_outage_of_the_store(clocked: Crew) -> None:
    Schedules().create("s", tick, every=60)
    clocked.advance(61)
    store = FailingStore(clocked, RedisConnectionError("away"))
    sweep = Phoenix(clocked.client.settings, store, clocked.ledger, keyring=clocked.client.keyring)  # type: ignore[arg-type]
    with pytest.raises(RedisConnectionError):
        await sweep.sweep_once()


def test_the_id_of_a_run_is_derived_and_sorts_by_its_time() -> None:
    one = run_id("ns", "s", "1", 1_700_000_000_000)
    assert one == run_id("ns", "s", "1", 1_700_000_000_000)
    assert len(one) == 32
    assert int(one[:12], 16) == 1_700_000_000_000
    others = {run_id("ns2", "s", "1", 1_700_000_000_000), run_id("ns", "s2", "1", 1_700_000_000_000)}
    others |= {run_id("ns", "s", "2", 1_700_000_000_000), run_id("ns", "s", "1", 1_700_000_000_001)}
    assert len({one, *others}) == 5
    assert max(run_id("ns", "s", str(n), 1_700_000_000_000) for n in range(50)) < run_id(
        "a", "b", "9", 1_700_000_000_001
    )
