"""Configure the store for heartbeats: a separate connection, short deadlines, quick retries, no circuit breaker.

A store that flaps (goes down and up again faster than a lease) must not cost a healthy worker its lease. So a heartbeat

- does not share a circuit breaker with other calls: their failures must not prevent heartbeats;
- waits only briefly for its answer: a new heartbeat is worth more than an old one;
- is repeated soon after a failure, so that it reaches the store as soon as the store answers again.

Not covered: a store that never stays up for as long as one heartbeat takes, including the connection.
"""

from __future__ import annotations

import sys

from relier.settings import Settings

SHORTEST_DEADLINE_S = 0.5  # leaves time to reconnect after a timeout, on a busy machine too
SHORTEST_RETRY_S, LONGEST_RETRY_S = 0.05, 1.0


def heartbeat_settings(settings: Settings, lease: float) -> Settings:
    """Return the settings of a store that only keeps leases of `lease` seconds."""
    deadline = max(SHORTEST_DEADLINE_S, min(settings.redis_deadline, lease / 5))
    return settings.replace(redis_deadline=deadline, redis_breaker_failures=sys.maxsize)


def retry_pause(lease: float) -> float:
    """Return the pause between a failed heartbeat and the next one (s)."""
    return max(SHORTEST_RETRY_S, min(LONGEST_RETRY_S, lease / 20))
