"""The pace of heartbeats. They share nothing with other calls that could delay them."""

from __future__ import annotations

import pytest

from relier.settings import Settings
from relier.store.connect.heartbeat import heartbeat_settings, retry_pause
from relier.store.policy import CircuitBreaker
from tests.support.toy_scripts import Hands


@pytest.mark.parametrize(("lease", "pause"), [(0.2, 0.05), (1, 0.05), (5, 0.25), (60, 1)])
def test_a_heartbeat_that_failed_is_sent_again_soon(lease: float, pause: float) -> None:
    assert retry_pause(lease) == pause


@pytest.mark.parametrize(("lease", "deadline"), [(0.2, 0.5), (1, 0.5), (5, 1), (60, 5)])
def test_a_heartbeat_is_given_up_early(lease: float, deadline: float) -> None:
    assert heartbeat_settings(Settings(redis_deadline=5), lease).redis_deadline == deadline


def test_a_failed_heartbeat_and_its_pause_fit_into_a_lease_three_times() -> None:
    for lease in (3, 5, 60):
        took = heartbeat_settings(Settings(), lease).redis_deadline + retry_pause(lease)
        assert 3 * took <= 0.9 * lease


def test_heartbeats_have_no_breaker() -> None:
    settings = heartbeat_settings(Settings(redis_breaker_failures=1), 5)
    breaker = CircuitBreaker(Hands(), settings.redis_breaker_failures, settings.redis_breaker_cooldown)
    for _ in range(100_000):
        breaker.failed()
    assert breaker.refuses() == 0
