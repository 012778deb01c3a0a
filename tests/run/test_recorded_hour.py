"""An hour of recorded arrivals, checked in every window: in no ten seconds are more tasks admitted than limit and burst
allow."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from relier import AdmissionRejectedError, Settings
from relier.ledger import Ledger
from relier.ledger.ledger import load_scripts
from relier.ledger.records import Admission, AdmissionLimit, Submission
from relier.store import SyncStore

WINDOW_US, HOUR_US, EPOCH_US = 10_000_000, 3_600_000_000, 1_800_000_000_000_000
TIMES = """-- The next of the times that wait in a list: calls of one pipeline then happen at times of their own.
local now_us = tonumber(redis.call('LPOP', KEYS[1] .. 'times'))
local now = math.floor(now_us / 1000)
"""
_numbers = itertools.count()


def arrivals(rng: random.Random, per_second: float, shape: str) -> Iterator[int]:
    """Return arrival times within an hour (µs): evenly at random, in bursts, or just before and after the edges of
    windows."""
    at = 0.0
    while at < HOUR_US:
        if shape == "bursts" and rng.random() < 0.02:
            at += rng.uniform(0, 40_000_000)
        elif shape == "edges" and rng.random() < 0.5:
            at = (at // WINDOW_US + 1) * WINDOW_US - rng.choice([-1, 0, 1, 2]) - rng.uniform(0, 50_000)
            for _ in range(12):
                at += rng.uniform(0, 4_000)
                yield EPOCH_US + int(at)
        at += rng.expovariate(per_second) * 1_000_000
        yield EPOCH_US + int(at)


def most_in_a_window(came: list[tuple[int, int]]) -> int:
    most, total, first = 0, 0, 0
    for at, weight in came:
        total += weight
        while came[first][0] <= at - WINDOW_US:
            total -= came[first][1]
            first += 1
        most = max(most, total)
    return most


def let_in(times: list[int], weights: list[int], bucket: AdmissionLimit) -> list[tuple[int, int]]:
    """Return what a leaky bucket admits: it drains one task per interval, and holds as many as the tolerance allows."""
    came, idle_at = [], 0
    for at, weight in zip(times, weights, strict=True):
        after = max(idle_at, at) + weight * bucket.interval_us
        if after - bucket.tolerance_us <= at:
            idle_at = after
            came.append((at, weight))
    return came


@examples(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    limit=st.integers(1, 8),
    pressure=st.floats(0.5, 1.5),
    shape=st.sampled_from(["even", "bursts", "edges"]),
    weights=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
)
def test_no_window_of_a_recorded_hour_exceeds_the_limit(
    settings: Settings, limit: int, pressure: float, shape: str, weights: list[int], seed: int
) -> None:
    rng = random.Random(seed)
    weights = [min(weight, limit) for weight in weights]
    times = sorted(arrivals(rng, pressure * limit / 10, shape))
    drawn = [rng.choice(weights) for _ in times]
    own = settings.replace(namespace=f"{settings.namespace}-{next(_numbers)}")
    ledger, bucket = Ledger(own), AdmissionLimit.per_window("all", limit, WINDOW_US // 1000)
    with SyncStore(own, load_scripts(lib__time=TIMES)) as store:
        for some in (times[i : i + 1000] for i in range(0, len(times), 1000)):
            store.command("RPUSH", ledger.prefix + "times", *some)
        calls = [
            ledger.submit(
                [Submission(id=f"{i}", name="app.work", payload=b"{}")], Admission((bucket.weighing(weight),))
            )
            for i, weight in enumerate(drawn)
        ]
        answers = store.run_many(calls)
        store.command("EVAL", "redis.call('UNLINK', unpack(redis.call('KEYS', KEYS[1] .. 't:1*')))", 1, ledger.prefix)
    refused = [isinstance(answer, AdmissionRejectedError) for answer in answers]
    came = [(at, weight) for at, weight, no in zip(times, drawn, refused, strict=True) if not no]
    assert most_in_a_window(came) <= 2 * limit, "limit, and the burst of a limit that had been idle"
    assert came == let_in(times, drawn, bucket), "and nobody was refused who fitted in"
