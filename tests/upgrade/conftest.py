"""The same fleets as those of tests/engines."""

from __future__ import annotations

from tests.engines.conftest import fleet, fleets

__all__ = ["fleet", "fleets"]
