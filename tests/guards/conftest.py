"""A crew per test, on a namespace of its own. The books are audited at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from guards.crew import QUICK, Crew
from relier import Settings


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
