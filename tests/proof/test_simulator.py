"""The simulator: schedules violate nothing, a seed gives the same history again, and the promised faults do occur."""

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
    """The checker judged one schedule in a million wrongly, because it guessed in which order the two left."""
    assert not run_schedule(962486, "failover").violation


def test_a_follow_up_of_a_join_is_not_a_part_of_it() -> None:
    """One schedule in half a million had such a pair. Once forgotten, the two started each other again and again."""
    assert not run_schedule(50528803, "joins").violation


def test_a_clock_jump_shortens_no_lease() -> None:
    """In one schedule of 600,000, a supervisor's sweep right after a jump shortened a long lease by more than a
    clamp."""
    assert not run_schedule(50599761, "clock").violation


def test_a_batch_that_enters_again_after_a_rollback_has_no_added_members() -> None:
    """In one schedule of 17,000, the checker expected members that were added before the rollback to enter again."""
    assert not run_schedule(16672, "workflows").violation


def test_a_schedule_created_again_after_time_went_back_fires_nothing_twice() -> None:
    """In one schedule of 31,000, an occurrence fired again that a removed schedule of the same name had fired."""
    assert not run_schedule(30823, "timetables").violation


def test_a_repeated_claim_may_take_the_callback_that_it_queued() -> None:
    """In one schedule of 38,000, a claim took no task, but ended an expired member and so queued a callback."""
    assert not run_schedule(37769, "workflows").violation


@pytest.mark.parametrize("profile", [profile.name for profile in PROFILES])
def test_a_seed_always_gives_the_same_history(profile: str) -> None:
    first, second = World(7, profile, trace=True), World(7, profile, trace=True)
    assert run_world(first) == run_world(second)
    assert first.history() == second.history()
    assert len(first.events) > 20


def test_seeds_cover_every_profile() -> None:
    assert {profile_of(seed).name for seed in range(len(PROFILES))} == {profile.name for profile in PROFILES}


def test_every_kind_of_fault_occurs() -> None:
    seen: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    for seed in range(400):
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
    tables = {"schedule", "fire", "unschedule", "schedules"}
    assert not (faults | moves | marks | locks | tables) - set(seen)
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
