from __future__ import annotations

import pytest

from relier.schedules import declared
from tests.support.crew import clocked, crew

__all__ = ["clocked", "crew"]  # fixtures


@pytest.fixture(autouse=True)
def _declares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared, "_declared", {})
