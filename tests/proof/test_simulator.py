"""The simulator: schedules hold, a seed is a history, and the trouble it promises does happen."""

from __future__ import annotations

from collections import Counter

import pytest

from proof.__main__ import main
from proof.directed.schedules import SCHEDULES
from proof.simulator.profiles import PROFILES, profile_of
from proof.simulator.simulate import run_schedule, run_world
from proof.simulator.world import World


@pytest.mark.parametrize("part", range(4))
def test_schedules_hold(part: int) -> None:
    for seed in range(part * 78, (part + 1) * 78):
        outcome = run_schedule(seed)
        assert not outcome.violation, outcome.report


def test_two_workers_that_leave_in_one_sweep() -> None:
    """The one schedule of a million that the checker got wrong: it guessed in which order they left."""
    assert not run_schedule(962486, "failover").violation


def test_a_follow_up_of_a_join_is_no_part_of_it() -> None:
    """One schedule of half a million had such a pair, which was forgotten and began anew, and anew."""
    assert not run_schedule(50528803, "joins").violation


def test_a_clock_jump_shortens_no_lease() -> None:
    """In one schedule of 600,000 a supervisor's sweep right after a jump took more than a clamp from a long lease."""
    assert not run_schedule(50599761, "clock").violation


@pytest.mark.parametrize("profile", [profile.name for profile in PROFILES])
def test_a_seed_is_a_history(profile: str) -> None:
    first, second = World(7, profile, trace=True), World(7, profile, trace=True)
    assert run_world(first) == run_world(second)
    assert first.history() == second.history()
    assert len(first.events) > 20


def test_seeds_cover_every_profile() -> None:
    assert {profile_of(seed).name for seed in range(len(PROFILES))} == {profile.name for profile in PROFILES}


def test_every_kind_of_fault_occurs() -> None:
    seen: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    for seed in range(140):
        world = World(seed, trace=True)
        run_world(world)
        for _, _, what, *rest in world.events:
            seen[what] += 1
            if what == "commit" and rest[1] != "full":
                verdicts.update("ok" if said == b"ok" else said[0].decode() for said in rest[1])
            if what in {"commit", "bury"}:
                seen["join"] += any(str(arg).startswith("join ") for arg in rest[0])
            seen["follow-up of a burial"] += what == "bury" and rest[0][7] > 0
            seen["another task"] += what == "retry" and len(rest[0]) > 7
    faults = {"KILL", "FREEZE", "CUT", "OUTAGE", "JUMP", "STALL", "ROLLBACK", "FULL", "HEALED", "FLAP", "REFUSED"}
    moves = {"submit", "claim", "commit", "retry", "release", "bury", "forfeit", "revive", "promote", "reap", "replay"}
    marks = {"cancel", "discard", "pause", "resume", "register", "beat", "retire", "checkpoint", "step", "owned", "get"}
    locks = {"lock", "renew", "conclude", "unlock"}
    assert not (faults | moves | marks | locks) - set(seen)
    assert min(seen[what] for what in ("join", "follow-up of a burial", "another task")) > 2
    assert verdicts["stale"] > 5
    assert verdicts["repeat"] > 5


@pytest.mark.parametrize("name", SCHEDULES)
def test_directed_schedules_hold(name: str) -> None:
    assert SCHEDULES[name](World(0, "calm")) is None


def test_replay_prints_a_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--seed", "3", "--profile", "zombie", "--trace"]) == 0
    shown = capsys.readouterr().out
    assert "register" in shown
    assert "no violation" in shown
