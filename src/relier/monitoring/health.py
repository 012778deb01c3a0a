"""The health of a process, and the answers to the three probes.

livez      fails if the process is stuck and must be restarted. An outage of the store does not make it fail: a restart
           would not end the outage.
readyz     fails while the process takes no new work, with the reasons: it is starting, draining, or its store is
           unreachable.
startupz   fails until the process has started.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

STUCK_S = 10.0  # a loop or thread that has not run for this long is stuck
OK, UNAVAILABLE = 200, 503


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a process.

    stuck     why the process must be restarted; empty: it is live
    unready   why it takes no new work; empty: it is ready, if it has started
    """

    role: str
    started: bool
    stuck: tuple[str, ...] = ()
    unready: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        return not self.stuck

    @property
    def ready(self) -> bool:
        return not self.reasons("/readyz")

    def reasons(self, probe: str) -> tuple[str, ...]:
        """Return why a probe fails; empty if it succeeds."""
        starting = () if self.started else ("starting",)
        if probe == "/livez":
            return self.stuck
        return starting if probe == "/startupz" else (*starting, *self.stuck, *self.unready)


PROBES = ("/livez", "/readyz", "/startupz")
HealthSource = Callable[[], Health]


def probe_answer(probe: str, health: Health) -> tuple[int, bytes]:
    """Return the HTTP status and the body of the answer to a probe. The body is one line of JSON."""
    reasons = health.reasons(probe)
    answer = {"probe": probe[1:], "ok": not reasons, "role": health.role, "reasons": [*reasons]}
    return UNAVAILABLE if reasons else OK, json.dumps(answer).encode() + b"\n"


def stuck_reasons(what: str, ran_at: float, limit: float = STUCK_S) -> tuple[str, ...]:
    """Return a reason if `what` has not run since `ran_at` (monotonic) for longer than the limit (s)."""
    silent = time.monotonic() - ran_at
    return (f"{what} has not run for {silent:.0f} s",) if silent > limit else ()
