"""Seeded bugs in the store layer and its callers. Each replaces one name of the code while a schedule runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from proof.mutants.hunt import Caught
from proof.store.schedules import run_store_schedule
from relier.errors import IndeterminateError, StoreNotReadyError, StoreReplyError
from relier.run import channel
from relier.settings import Settings
from relier.store import batch, core, replies
from relier.store.batch import Request
from relier.store.connect import heartbeat
from relier.store.policy import AttemptError, RetrySchedule

SEEDS = 300


class LoadsCost(RetrySchedule):
    def failed(self, failure: AttemptError) -> None:
        super().failed(failure)
        self._lost += failure.load_script


class RefusalsCost(RetrySchedule):
    def failed(self, failure: AttemptError) -> None:
        super().failed(failure)
        self._lost += not failure.sent and not failure.load_script


class GivesUpBeforeAPause(RetrySchedule):
    def pause(self, failure: AttemptError, left: float) -> float | None:
        return None if left < 1.5 else super().pause(failure, left)


class NeverPauses(RetrySchedule):
    def pause(self, failure: AttemptError, left: float) -> float | None:
        pause = super().pause(failure, left)
        return pause and 60.0


class NeverLoads(batch.RequestBatch):
    def _send_again(self, request: Request, failure: AttemptError) -> None:
        super()._send_again(request, failure)
        self._missing = {}


def _breaker_for_beats(settings: Settings, lease: float) -> Settings:
    own = heartbeat_settings(settings, lease)
    return own.replace(redis_breaker_failures=2, redis_breaker_cooldown=2.5)


heartbeat_settings = heartbeat.heartbeat_settings
NOSCRIPT_IS_FINAL = {**replies.MEANINGS, "NOSCRIPT": (replies.Judgement.FINAL, StoreReplyError)}
NOREPLICAS_IS_FINAL = {**replies.MEANINGS, "NOREPLICAS": (replies.Judgement.FINAL, StoreReplyError)}
NOT_NOW_IS_FINAL = {**replies.MEANINGS, "LOADING": (replies.Judgement.REFUSED, StoreNotReadyError)}


@dataclass(frozen=True, slots=True)
class StoreMutant:
    """While the mutant is active, `owner.name` is `value`."""

    about: str
    owner: Any
    name: str
    value: Any

    @contextmanager
    def alive(self) -> Iterator[None]:
        kept = getattr(self.owner, self.name)
        setattr(self.owner, self.name, self.value)
        try:
            yield
        finally:
            setattr(self.owner, self.name, kept)


STORE_MUTANTS = (
    StoreMutant("loading a script uses up an attempt", core, "RetrySchedule", LoadsCost),
    StoreMutant("an attempt that was refused, or never arrived, uses up a retry", core, "RetrySchedule", RefusalsCost),
    StoreMutant("a call gives up before its deadline", core, "RetrySchedule", GivesUpBeforeAPause),
    StoreMutant("a pause does not look at the deadline", core, "RetrySchedule", NeverPauses),
    StoreMutant("a script that is missing is not loaded", core, "RequestBatch", NeverLoads),
    StoreMutant("NOSCRIPT is an answer like any other", replies, "MEANINGS", NOSCRIPT_IS_FINAL),
    StoreMutant("NOREPLICAS is an answer like any other", replies, "MEANINGS", NOREPLICAS_IS_FINAL),
    StoreMutant("LOADING is told at once", replies, "MEANINGS", NOT_NOW_IS_FINAL),
    StoreMutant("a step takes an outage for final", channel, "AGAIN", (IndeterminateError,)),
    StoreMutant(
        "a heart waits a quarter of a lease after a failure", heartbeat, "retry_pause", lambda lease: lease / 4
    ),
    StoreMutant("heartbeats have a breaker", heartbeat, "heartbeat_settings", _breaker_for_beats),
)


def hunt(mutant: StoreMutant, seeds: int = SEEDS) -> Caught:
    """Run one schedule after another, until one catches the mutant."""
    with mutant.alive():
        for seed in range(seeds):
            violation = run_store_schedule(seed)
            if violation is not None:
                return Caught(mutant.about, f"store seed {seed}", violation.name, seed + 1)
    return Caught(mutant.about, "", "", seeds)


def main() -> int:
    """Print which check caught which mutant, and return the number of survivors."""
    results = [hunt(mutant) for mutant in STORE_MUTANTS]
    for caught in results:
        sys.stdout.write(f"  {caught.invariant or 'SURVIVED':32} {caught.by:16} {caught.mutant}\n")
    survivors = [caught.mutant for caught in results if not caught.by]
    sys.stdout.write(f"{len(results)} mutants of the store layer, survivors: {survivors or 'none'}\n")
    return len(survivors)
