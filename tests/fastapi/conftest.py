from __future__ import annotations

from tests.support.crew import clocked, crew

__all__ = ["clocked", "crew"]  # fixtures
