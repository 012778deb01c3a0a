"""Options and settings that are not valid times are refused where they are given."""

from __future__ import annotations

import logging
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from relier.cli.main import rl
from relier.errors import ConfigurationError
from relier.outbox.relay.liveness_file import LivenessFile
from relier.outbox.relay.options import RelayOptions, age_of
from relier.settings import Settings


@pytest.mark.parametrize("name", [field.name for field in fields(RelayOptions) if field.type == "float"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_option_that_is_no_time_is_refused(name: str, value: float) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ConfigurationError, match=f"{name} must be a number of seconds, not"):
        RelayOptions(**options)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_setting_that_is_no_time_is_refused(value: float) -> None:
    with pytest.raises(
        ConfigurationError, match=r"heartbeat_ttl: must be a finite number, greater than 0; correct the code"
    ):
        Settings(heartbeat_ttl=value)


@pytest.mark.parametrize("name", [field.name for field in fields(RelayOptions) if field.type == "float"])
def test_a_time_that_no_clock_or_column_can_hold_is_refused(name: str) -> None:
    options: dict[str, Any] = {name: 1e300}
    with pytest.raises(ConfigurationError, match=f"{name} must be at most ten years"):
        RelayOptions(**options)


@pytest.mark.parametrize("given", ["nan", "inf", "1e999"])
@pytest.mark.parametrize(
    "command",
    [["worker", "m", "--max-rss-mb"], ["dlq", "replay", "--all", "--rate"], ["outbox", "relay", "--idle-time"]],
)
def test_every_command_refuses_values_that_are_not_numbers(command: list[str], given: str) -> None:
    told = CliRunner().invoke(rl, [*command, given], env={"RELIER_OUTBOX_DATABASE_URL": "sqlite://"})
    assert told.exit_code == 2
    assert "Traceback" not in told.output
    assert "nan" in told.stderr or "inf" in told.stderr or given in told.stderr


@pytest.mark.parametrize("age", ["²d", "9999999999999999999d", "-1d", "1.5d", "nan", "d", ""])
def test_an_invalid_age_is_refused(age: str) -> None:
    with pytest.raises(ConfigurationError, match="an age must be a number and a unit"):
        age_of(age)


def test_a_rate_too_low_to_wait_for_is_refused() -> None:
    told = CliRunner().invoke(rl, ["dlq", "replay", "--all", "--rate", "1e-300"])
    assert told.exit_code == 2
    assert "is not a rate" in told.stderr


def test_a_liveness_file_that_cannot_be_touched_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "relier.outbox")
    folder = tmp_path / "later"
    sign = LivenessFile(str(folder / "alive"))
    for _ in range(3):
        sign.touch()
    folder.mkdir()
    for _ in range(3):
        sign.touch()
    failed, again = (record.message for record in caplog.records)
    assert "liveness file not touched" in failed
    assert "touched again" in again
