"""Sentry sees the failures of native tasks: as log events by itself, as exceptions through a middleware."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest

from relier import rl_task
from tests.support.fleet import Fleet, wait_until

pytestmark = pytest.mark.skipif(find_spec("sentry_sdk") is None, reason="sentry-sdk is not installed")
MODULE = "tests.support.jobs.reported"  # not imported here: sentry_sdk imports eventlet
FAILING = ("fails", "fails_in_thread", "fails_alone")


def push_failing() -> list[str]:
    def stand_in() -> None:
        raise AssertionError("a worker runs it")

    return [rl_task(name=f"{MODULE}.{name}")(stand_in).push().id for name in FAILING]


def reported(fleet: Fleet, **env: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Let three tasks fail. Return their ids, and what a worker with Sentry reported."""
    fleet.worker(modules=(MODULE,), **env)
    ids, file = push_failing(), fleet.folder / "sentry"
    fleet.wait_ended(ids)
    events = wait_until(lambda: file.exists() and len(lines := file.read_text().splitlines()) >= 3 and lines)
    return ids, [json.loads(event) for event in events]


def test_a_dead_letter_is_an_event_with_the_fields_of_its_task(fleet: Fleet) -> None:
    ids, events = reported(fleet)
    assert sorted(event["extra"]["task_id"] for event in events) == sorted(ids)
    assert {event["extra"]["task_name"] for event in events} == {f"{MODULE}.{name}" for name in FAILING}
    assert {(event["level"], event["extra"]["reason"]) for event in events} == {("error", "LookupError")}


def test_a_middleware_reports_the_exception_itself(fleet: Fleet) -> None:
    _, events = reported(fleet, CAPTURED="1")
    raised = [event["exception"]["values"][-1] for event in events]
    assert {(each["type"], each["value"]) for each in raised} == {
        ("LookupError", "async"),
        ("LookupError", "thread"),
        ("LookupError", "isolated"),
    }
    assert {each["stacktrace"]["frames"][-1]["function"] for each in raised} == set(FAILING)
