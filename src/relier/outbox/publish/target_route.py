"""The way to one target: whether anything is tried on it now, and whose fault it is that a row does not get through.

Each target has its own: one that is away neither holds up the rows of another, nor is its outage taken for the fault
of its rows because another's get through.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

from relier.outbox.publish.target import Deferred, Outage, Outcome, PublishTarget, SendFailed, Sent
from relier.outbox.publish.target_breaker import TargetBreaker
from relier.outbox.row import Row

log = logging.getLogger("relier.outbox")

REMEMBERED = 10_000


class TargetRoute:
    """A target, its breaker, and which of its rows met an outage."""

    def __init__(self, target: PublishTarget, cooldown: float, clock: Callable[[], float]) -> None:
        self.target = target
        self.breaker = TargetBreaker(cooldown, clock)
        self.limit: float = getattr(target, "limit", math.inf)
        self._cooldown = cooldown
        self._sent = 0
        self._met_outage: dict[int, int] = {}  # row -> how many had been sent when it last met one

    def classify(self, chunk: Sequence[Row], outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
        """What came of each row, once it is known whether the target or the row is at fault."""
        outages = [outcome for outcome in outcomes if isinstance(outcome, Outage)]
        answered = any(isinstance(outcome, Sent | Deferred) for outcome in outcomes)
        kind = self.target.kind
        if answered and self.breaker.sent():
            log.warning("the target for %s rows answers again; the relay goes on", kind)
        if outages and self.breaker.outage():
            why = outages[0].error
            log.warning("the target for %s rows is away; none is tried for %g s: %s", kind, self._cooldown, why)
        self._sent += sum(isinstance(outcome, Sent) for outcome in outcomes)
        if not outages and not self._met_outage:
            return outcomes  # as nearly always: nothing to look up row by row
        return [self._classified(row, outcome) for row, outcome in zip(chunk, outcomes, strict=True)]

    def _classified(self, row: Row, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Outage):
            self._met_outage.pop(row.id, None)
            return outcome
        if not outcome.silent:
            return outcome
        before = self._met_outage.get(row.id, self._sent)
        if len(self._met_outage) >= REMEMBERED:  # others have sent most of them by now
            self._met_outage.clear()
        self._met_outage[row.id] = self._sent
        # Others got through since: it is this row alone. To be at fault again, it must be so again.
        return outcome if before == self._sent else SendFailed(outcome.error)
