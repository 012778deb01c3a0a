"""`make ha-demo`: the primary is lost under load, and `replicated` loses nothing that it acknowledged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT


@pytest.mark.slow
@pytest.mark.xdist_group("ha-demo")  # Sentinels take a busy machine for a failure
@pytest.mark.timeout(300)
@pytest.mark.parametrize("loss", ["kill", "freeze", "cut"])
def test_replicated_loses_nothing(loss: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ha_demo", loss],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "examples")},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "replicated lost 0 of what it acknowledged; every task that was kept is done" in done.stdout
    assert re.search(r"replicated\D+[1-9]", done.stdout), "some were acknowledged"
    if loss == "cut":
        assert re.search(r"memory[│ ]+[\d,]+[│ ]+[\d,]+[│ ]+[1-9]", done.stdout), (
            "the cut reached the old primary's clients"
        )
