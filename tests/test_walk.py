"""`make walk` runs, and ARCHITECTURE.md states what it counts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_architecture_states_the_figures_of_make_walk() -> None:
    walk = subprocess.run([sys.executable, ROOT / "tools" / "walk.py"], capture_output=True, text=True, check=False)
    assert walk.returncode == 0, walk.stdout + walk.stderr
    counted = re.findall(r"= (\d+) files", walk.stdout)
    stated = (ROOT / "ARCHITECTURE.md").read_text().partition("It counts ")[2].partition("(here, ")[0]
    assert counted == re.findall(r"\d+", stated), stated
