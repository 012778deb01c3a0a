"""How whoever keeps a lease talks to the store: over its own connection, at its own pace, without a breaker.

A store that flaps (down and up again, faster than a lease) must not cost a healthy worker its lease. So a heartbeat

- does not share a breaker with other calls: their failures must not keep it from being sent;
- waits only briefly for its answer: a new one is worth more than an old one;
- is sent again soon after it failed, so that it meets the next moment in which the store answers.

Not covered: a store that never answers for as long as one heartbeat takes, connecting included.
"""

from __future__ import annotations

import sys

from relier.settings import Settings

SHORTEST_DEADLINE_S = 0.5  # on a busy machine connecting anew, which follows a timeout, may take a part of it
SHORTEST_RETRY_S, LONGEST_RETRY_S = 0.05, 1.0


def heartbeat_settings(settings: Settings, lease: float) -> Settings:
    """Return the settings of a store that only keeps leases of `lease` seconds."""
    deadline = max(SHORTEST_DEADLINE_S, min(settings.redis_deadline, lease / 5))
    return settings.model_copy(update={"redis_deadline": deadline, "redis_breaker_failures": sys.maxsize})


def retry_pause(lease: float) -> float:
    """Return the seconds from a heartbeat that failed to the next one."""
    return max(SHORTEST_RETRY_S, min(LONGEST_RETRY_S, lease / 20))
