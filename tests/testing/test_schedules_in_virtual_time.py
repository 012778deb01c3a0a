"""Schedules in run_pending: they fire as virtual time passes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from relier import Schedules, rl_task, schedule
from relier.schedules import declared
from relier.testing import VirtualStore, run_pending

HOUR = timedelta(hours=1)
ran: list[str] = []


@rl_task(name="vt.note")
def note(what: str) -> None:
    ran.append(what)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared, "_declared", {})
    ran.clear()


def test_a_schedule_fires_while_time_passes(relier_store: VirtualStore) -> None:
    Schedules().create("often", note, every=600, args=("often",))
    assert len(run_pending(within=HOUR)) == 6
    assert ran == ["often"] * 6
    assert [entry.outcome for entry in Schedules().get("often").history] == ["fired"] * 6


def test_declared_schedules_fire_too(relier_store: VirtualStore) -> None:
    schedule("nightly", note, cron="0 3 * * *", args=("nightly",))
    relier_store.declare_schedules()
    assert len(run_pending(within=3 * 24 * HOUR)) == 3


def test_without_an_end_schedules_do_not_keep_a_run_going(relier_store: VirtualStore) -> None:
    Schedules().create("often", note, every=600, args=("often",))
    assert run_pending() == []
    note.with_options(delay=1800).push("late")
    run_pending()
    assert sorted(ran) == ["late", "often", "often", "often"], "those that were due until the last task"
