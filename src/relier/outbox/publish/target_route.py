"""The route to one target: whether to try it now, and whether the target or a row is at fault when a row is not sent.

Each target has its own route. So a target that is unreachable does not delay the rows of other targets. And while other
targets accept their rows, its outage is not mistaken for a fault of its own rows.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

from relier.outbox.publish.target import Deferred, Outage, Outcome, PublishTarget, SendFailed, Sent
from relier.outbox.row import Row
from relier.store.policy import CircuitBreaker

log = logging.getLogger("relier.outbox")

REMEMBERED = 10_000
OUTAGES = 2  # consecutive outages that open the breaker


class TargetRoute:
    """A target, its breaker, and which of its rows met an outage."""

    def __init__(self, target: PublishTarget, cooldown: float, clock: Callable[[], float]) -> None:
        self.target = target
        self.breaker = CircuitBreaker(clock, OUTAGES, cooldown)
        self.limit: float = getattr(target, "limit", math.inf)
        self._cooldown = cooldown
        self._sent = 0
        self._met_outage: dict[int, int] = {}  # row -> how many rows had been sent at its last outage

    def classify(self, chunk: Sequence[Row], outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
        """Return the outcome of each row, after deciding whether the target or the row is at fault."""
        outages = [outcome for outcome in outcomes if isinstance(outcome, Outage)]
        answered = any(isinstance(outcome, Sent | Deferred) for outcome in outcomes)
        kind = self.target.kind
        if answered and self.breaker.succeeded():
            log.warning("target available again: kind=%s", kind)
        if outages and self.breaker.failed():
            why = outages[0].error
            log.warning("target unreachable: kind=%s retry_in=%gs error=%s", kind, self._cooldown, why)
        self._sent += sum(isinstance(outcome, Sent) for outcome in outcomes)
        if not outages and not self._met_outage:
            return outcomes  # the usual case: nothing to look up row by row
        return [self._classified(row, outcome) for row, outcome in zip(chunk, outcomes, strict=True)]

    def _classified(self, row: Row, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Outage):
            self._met_outage.pop(row.id, None)
            return outcome
        if not outcome.silent:
            return outcome
        before = self._met_outage.get(row.id, self._sent)
        if len(self._met_outage) >= REMEMBERED:  # other relays have sent most of them by now
            self._met_outage.clear()
        self._met_outage[row.id] = self._sent
        # Other rows were sent since, so this row is at fault. To be charged again, it must fail again after another
        # success.
        return outcome if before == self._sent else SendFailed(outcome.error)
