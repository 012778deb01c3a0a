"""Seeded bugs in workers: how they send heartbeats, and how they react to a refusal."""

from __future__ import annotations

from functools import partial
from typing import Any

from proof.mutants.mutant import Mutant, register_worker
from proof.simulator.actors import Worker
from proof.simulator.world import LOST, MS, Steps
from relier.errors import RelierError

MUTANTS: list[Mutant] = []
_bug = partial(register_worker, MUTANTS)


@_bug("after a heartbeat that failed the next one comes a quarter of a lease later", "flapping")
class WaitsAQuarterLease(Worker):
    @property
    def retry_pause(self) -> int:
        return self.lease * MS // 4


@_bug("after a heartbeat that failed a breaker keeps the next ones from being sent for half a lease", "flapping")
class BeatsThroughABreaker(Worker):
    @property
    def retry_pause(self) -> int:
        return self.lease * MS // 2


@_bug("a heartbeat that is refused for now is the last one", "flapping")
class RefusedBeatIsTheLast(Worker):
    def beats(self, boot: str) -> Steps:
        beating, answer = super().beats(boot), None
        while True:
            try:
                wish = beating.send(answer)
            except StopIteration:
                return
            answer = yield wish
            if isinstance(answer, RelierError):
                return


@_bug("a step takes a refusal for now for its last word", "flapping")
class NotNowIsFinal(Worker):
    def again(self, answer: Any) -> bool:
        return super().again(answer) and not isinstance(answer, RelierError)


@_bug("a step that got no answer is not told again", "flapping")
class LostReplyIsFinal(Worker):
    def again(self, answer: Any) -> bool:
        return super().again(answer) and answer is not LOST
