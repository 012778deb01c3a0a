"""The checker itself: each violation that a test constructs is reported under its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proof.checker.ghost import Violation
from proof.checker.indexes import check_all
from proof.directed.stage import Stage
from proof.model.model import Model
from proof.mutants.claims import FenceIsTime
from proof.simulator.simulate import run_schedule
from proof.simulator.world import SECOND, ModelBackend, World
from relier.ledger.records import Lease
from relier.store.call import Durability


@pytest.fixture
def stage() -> Stage:
    """Create a worker that runs `t`, which has a key, while `u` waits."""
    stage = Stage(World(0, "calm"))
    stage.run(stage.ledger.register("A", 2000))
    stage.push(stage.submission("t", key="k"), stage.submission("u"))
    stage.claim("A", 1)
    return stage


def lease(stage: Stage) -> Lease:
    return Lease("t", str(model(stage).tasks["t"].fence), "A")


def model(stage: Stage) -> Model:
    return stage.world.backend.model


def _lose_the_waiting(ledger: Model) -> None:
    del ledger.tasks["u"], ledger.ready["default"]


def _expire_the_living(ledger: Model) -> None:
    ledger.tasks["u"].expiry = True


def _stand_twice(ledger: Model) -> None:
    ledger.due["u"] = 1


def _free_the_key(ledger: Model) -> None:
    ledger.idem.clear()


def _miscount(ledger: Model) -> None:
    ledger.counts["done"] = 1


def _leak_bytes(ledger: Model) -> None:
    ledger.counts["bytes"] = 5


def _own_as_a_stranger(ledger: Model) -> None:
    ledger.owned["Z"] = ledger.owned.pop("A")
    ledger.tasks["t"].owner = "Z"


TAMPERINGS: dict[str, Callable[[Model], None]] = {
    "accepted-is-kept": _lose_the_waiting,
    "live-has-no-expiry": _expire_the_living,
    "in-exactly-one-index": _stand_twice,
    "keys-last-as-long-as-their-task": _free_the_key,
    "counts-add-up": _miscount,
    "bytes-add-up": _leak_bytes,
    "owners-are-members": _own_as_a_stranger,
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_each_tampering_is_reported_by_its_kind(stage: Stage, name: str) -> None:
    check_all(stage.world.checker)
    TAMPERINGS[name](model(stage))
    with pytest.raises(Violation) as raised:
        check_all(stage.world.checker)
    assert raised.value.name == name


def test_a_change_that_no_reply_reports_is_reported(stage: Stage) -> None:
    model(stage).tasks["u"].state = "done"
    with pytest.raises(Violation, match="legal-moves"):
        stage.run(stage.ledger.promote())


def test_a_fence_that_shrinks_is_reported() -> None:
    stage = Stage(World(0, "calm", ModelBackend(FenceIsTime())))
    stage.run(stage.ledger.register("A", 2000))
    stage.push(stage.submission("t"))
    stage.run(stage.ledger.release(stage.claim("A", 1)))
    stage.world.skew -= SECOND
    with pytest.raises(Violation, match="fences-only-grow"):
        stage.claim("A", 2)


def test_a_commit_that_is_answered_stale_is_reported(stage: Stage) -> None:
    commit = stage.ledger.commit([(lease(stage), b"r", ())])
    stage.run(commit)
    model(stage).tasks["t"].fence += 1
    with pytest.raises(Violation, match="committer-never-told-stale"):
        stage.run(commit)


def test_a_stolen_live_lease_is_reported(stage: Stage) -> None:
    model(stage).boots["A"].lease_end = 1
    with pytest.raises(Violation, match="live-lease-not-stolen"):
        stage.run(stage.ledger.revive())


def test_a_rollback_may_lose_what_its_durability_allows(stage: Stage) -> None:
    world = stage.world
    images = world.backend.snapshot(), world.checker.snapshot()
    call = stage.ledger.submit([stage.submission("v")], durability=Durability.MEMORY)
    world.checker.acknowledged(call, call.parse(world.apply(call)))
    world.backend.restore(images[0])
    world.checker.restore(images[1], Durability.REPLICATED)
    check_all(world.checker)


@pytest.mark.parametrize("move", ["submit", "commit"])
def test_a_rollback_may_not_lose_what_was_confirmed(stage: Stage, move: str) -> None:
    world, level = stage.world, Durability.REPLICATED
    images = world.backend.snapshot(), world.checker.snapshot()
    call: Any = stage.ledger.submit([stage.submission("v")], durability=level)
    if move == "commit":
        call = stage.ledger.commit([(lease(stage), b"r", ())], durability=level)
    world.checker.acknowledged(call, call.parse(world.apply(call)))
    world.backend.restore(images[0])
    with pytest.raises(Violation, match="level-holds"):
        world.checker.restore(images[1], level)


class Stumbles(Model):
    """A script that fails halfway."""

    def _promote(self, args: list[bytes]) -> Any:
        raise KeyError(str(args))


def test_a_violation_says_how_to_reproduce_it() -> None:
    outcome = run_schedule(4, "calm", ModelBackend(Stumbles()))
    assert outcome.violation == "no-script-stumbles"
    assert outcome.report.splitlines()[0].startswith("seed 4 (calm), step ")
    assert outcome.report.endswith("python -m proof replay --seed 4 --profile calm")
    assert len(outcome.report.splitlines()) > 5
