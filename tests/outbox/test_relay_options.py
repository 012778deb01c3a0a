"""Options and settings that are no times are refused where they are given."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest
from pydantic import ValidationError

from relier.errors import ConfigurationError
from relier.outbox.options import RelayOptions
from relier.settings import Settings


@pytest.mark.parametrize("name", [field.name for field in fields(RelayOptions) if field.type == "float"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_option_that_is_no_time_is_refused(name: str, value: float) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ConfigurationError, match=f"{name} must be a number of seconds, not"):
        RelayOptions(**options)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_setting_that_is_no_time_is_refused(value: float) -> None:
    with pytest.raises(ValidationError, match=r"finite number|greater than"):
        Settings(heartbeat_ttl=value)
