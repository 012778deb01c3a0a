"""The page about locks: its files are written, its commands are run, and their output is compared with the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "idempotency-lock.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def typed(console: str) -> list[tuple[str, str]]:
    """Return each command of a block with its expected output."""
    parts = re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]
    return [(command, said) for command, _, said in (part.partition("\n") for part in parts)]


def test_the_page_shows_what_happens(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()  # the embedded store lives with the project
    env = {name: value for name, value in os.environ.items() if not name.startswith("RELIER_")}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    ran = 0
    for kind, text in BLOCK.findall(PAGE.read_text()):
        if kind == "python":
            (tmp_path / text.split()[1]).write_text(text)
            continue
        for command, said in typed(text):
            shell = ["/bin/sh", "-c", command]
            done = subprocess.run(shell, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
            assert (done.stdout, done.returncode) == (said, 0), done.stderr
            ran += 1
    assert ran == 4
