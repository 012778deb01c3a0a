"""The systemd units: accepted by systemd, and their command lines are valid."""

from __future__ import annotations

import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.deploy.command_lines import check_command_line
from tests.deploy.conftest import DEPLOY

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
RL = "/srv/relier/.venv/bin/rl"


def read(unit: Path) -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=False)  # a unit may name several files of variables
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text())
    return parser


def test_there_is_a_unit_for_every_process() -> None:
    names = ["backup", "relay", "resurrector", "scheduler", "worker@"]
    assert [unit.name for unit in UNITS] == [f"relier-{name}.service" for name in names]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_valid_command(unit: Path) -> None:
    service = read(unit)["Service"]
    program, *words = service["ExecStart"].split()
    assert program == RL
    check_command_line([word.replace("%i", "shop.tasks") for word in words])
    assert service["Restart"] == "always"
    assert service["User"] == "relier"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_accepts_a_unit(unit: Path, tmp_path: Path) -> None:
    """systemd-analyze wants the program to exist, so the unit names this one's."""
    copy = tmp_path / unit.name.replace("@", "@shop")
    copy.write_text(unit.read_text().replace(RL, str(Path(sys.executable).with_name("rl"))))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60)
    complaints = [line for line in done.stderr.splitlines() if unit.stem.rstrip("@") in line]
    assert complaints == []
    assert done.returncode == 0, done.stderr
