"""Buckets: where a time falls, and how near a percentile from buckets is to the true one."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relier.slo.buckets import (
    EDGES_MS,
    bucket_of,
    count_below,
    edge_at_most,
    percentile_bucket,
    percentile_ms,
    upper_edge_ms,
)

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

TIMES = st.lists(st.integers(0, 2 * 10**9) | st.integers(0, 3000), min_size=1, max_size=200)


@pytest.mark.parametrize(
    ("ms", "bucket"), [(-5, 0), (0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (9, 4), (10, 5), (999, 12), (10**9, 37)]
)
def test_a_time_falls_into_its_bucket(ms: int, bucket: int) -> None:
    assert bucket_of(ms) == bucket


def test_edges_are_log_scaled() -> None:
    assert EDGES_MS[:9] == (0, 1, 2, 3, 5, 10, 20, 30, 50)
    assert all(1.5 <= later / earlier <= 2 for earlier, later in pairwise(EDGES_MS[1:]))
    assert upper_edge_ms(36) == 10**9
    assert upper_edge_ms(37) is None


@unhurried
@given(TIMES, st.floats(0.01, 100))
def test_a_percentile_is_in_the_bucket_of_the_true_one(times: list[int], percent: float) -> None:
    true = sorted(times)[max(1, math.ceil(len(times) * percent / 100)) - 1]
    found = percentile_bucket(Counter(map(bucket_of, times)), percent)
    assert found is not None
    assert abs(found - bucket_of(true)) <= (0 if (len(times) * percent) % 100 else 1)
    bound = percentile_ms(Counter(map(bucket_of, times)), percent)
    assert bound is not None
    assert bound >= EDGES_MS[bucket_of(true)]


def test_percentiles_equal_those_computed_by_hand() -> None:
    counts = Counter({4: 50, 8: 45, 12: 5})  # 5 to 9 ms, 50 to 99 ms, 500 to 999 ms
    assert [percentile_bucket(counts, percent) for percent in (1, 50, 51, 95, 96, 100)] == [4, 4, 8, 8, 12, 12]
    assert [percentile_ms(counts, percent) for percent in (50, 95, 99)] == [10, 100, 1000]
    assert percentile_ms(Counter({37: 1}), 50) == 10**9
    assert percentile_bucket({}, 50) is None
    assert percentile_ms({}, 50) is None


@unhurried
@given(TIMES, st.sampled_from(EDGES_MS))
def test_counts_below_an_edge_are_exact(times: list[int], edge: int) -> None:
    assert count_below(Counter(map(bucket_of, times)), edge) == sum(1 for ms in times if ms < edge)


def test_a_limit_between_edges_is_rounded_down() -> None:
    assert edge_at_most(60_000) == 50_000
    assert edge_at_most(50_000) == 50_000
