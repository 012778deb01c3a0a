"""The fleets of the engines' tests."""

from __future__ import annotations

from tests.engines.conftest import fleet, fleets

__all__ = ["fleet", "fleets"]
