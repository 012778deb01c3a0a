"""The buckets in which the ledger counts times: fixed, four to a decade (lua/lib/outcomes.lua).

Bucket n holds the whole milliseconds from EDGES_MS[n] up to, but not including, EDGES_MS[n + 1]. The last one has no
upper end. A percentile is known only as a bucket: the true value lies inside it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

EDGES_MS: tuple[int, ...] = (0, *(first * 10**decade for decade in range(9) for first in (1, 2, 3, 5)), 10**9)


def bucket_of(ms: int) -> int:
    """Return the bucket of a time. A negative time, after a step of the clock, counts as zero."""
    return bisect_right(EDGES_MS, max(0, ms)) - 1


def edge_at_most(ms: int) -> int:
    """Return the greatest edge that is not above a time: times below it are known to be shorter."""
    return EDGES_MS[bucket_of(ms)]


def upper_edge_ms(bucket: int) -> int | None:
    """Return where a bucket ends, or None for the last one."""
    return EDGES_MS[bucket + 1] if bucket + 1 < len(EDGES_MS) else None


def percentile_bucket(counts: Mapping[int, int], percent: float) -> int | None:
    """Return the bucket that holds a percentile, by the nearest rank, or None if nothing was counted."""
    total = sum(counts.values())
    if total <= 0:
        return None
    rank = max(1, -int(-total * percent // 100))  # rounded up
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= rank:
            return bucket
    raise AssertionError("the counts of the buckets do not add up to the total")


def percentile_ms(counts: Mapping[int, int], percent: float) -> int | None:
    """Return an upper bound of a percentile: the end of its bucket, or the beginning of the last one."""
    bucket = percentile_bucket(counts, percent)
    if bucket is None:
        return None
    upper = upper_edge_ms(bucket)
    return EDGES_MS[bucket] if upper is None else upper


def count_below(counts: Mapping[int, int], ms: int) -> int:
    """Return how many times were below an edge."""
    return sum(n for bucket, n in counts.items() if EDGES_MS[bucket] < edge_at_most(ms))
