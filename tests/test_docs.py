"""What the documents show, runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(code: list[str], folder: Path) -> str:
    done = subprocess.run([sys.executable, *code], cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_code_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert "Settled(verdict=<Verdict.OK: 'ok'>" in run(["-c", block], tmp_path)


def test_the_demo_loses_nothing(tmp_path: Path) -> None:
    told = run([str(ROOT / "examples" / "survive.py")], tmp_path)
    assert "nothing was lost, nothing was committed twice" in told
    assert re.search(r"late commits refused +[1-9]", told), told


def test_links_in_documents_lead_somewhere() -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    for document in documents:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
