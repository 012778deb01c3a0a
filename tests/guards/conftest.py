"""A crew per test, on a namespace of its own. The books are audited at the end."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "store"))  # its proxy serves here too

from guards.crew import QUICK, SEARCHED, Crew
from relier import Settings


@pytest.fixture(autouse=True)
def find_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolated processes import the tests' own modules."""
    monkeypatch.setenv("PYTHONPATH", SEARCHED)


@pytest.fixture
async def crew(settings: Settings) -> AsyncIterator[Crew]:
    one = Crew(settings.model_copy(update=QUICK))
    yield one
    await one.aclose()


@pytest.fixture
async def clocked(settings: Settings) -> AsyncIterator[Crew]:
    """On a time that the test sets: nothing happens between two lines."""
    one = Crew(settings.model_copy(update=QUICK), clocked=True)
    yield one
    await one.aclose()
