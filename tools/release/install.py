"""Install the wheel into empty environments, run a first job from each, and list what is installed with it."""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import tempfile
import tomllib
import uuid
from pathlib import Path
from typing import Any

from tools.release import ROOT, Refused, run

CONSTRAINTS = ROOT / "requirements" / "constraints.txt"
SMOKE = ROOT / "tests" / "wheel_smoke.py"


def run_first_jobs(wheel: Path, pythons: list[str]) -> list[str]:
    """Run the first job from the wheel on each Python that is here. Return a line for each."""
    lines = []
    for each in pythons:
        python = find_python(each)
        if python is None:
            lines.append(f"Python {each}: SKIPPED, it is not installed and uv cannot install it")
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            installed = _install(Path(folder) / "env", python, str(wheel))
            lines.append(f"Python {each}: {run(installed, SMOKE, cwd=Path(folder), env=_alone()).splitlines()[-1]}")
    if all("SKIPPED" in line for line in lines):
        raise Refused(f"none of these versions of Python is installed: {', '.join(pythons)}")
    return lines


def find_python(version: str) -> str | None:
    try:
        return run(ROOT / ".ci" / "find-python", version).splitlines()[-1]
    except Refused:
        return None


def write_sbom(wheel: Path, sbom: Path, date: dt.date) -> int:
    """Write a CycloneDX list of all that the wheel and its extras install. Return the number of components."""
    extras = ",".join(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        installed = _install(Path(folder) / "env", sys.executable, f"{wheel}[{extras}]")
        run(installed, "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools", env=_alone())
        kind = ["--spec-version", "1.6", "--output-format", "JSON", "--output-reproducible"]
        run(sys.executable, "-m", "cyclonedx_py", "environment", *kind, "--output-file", sbom, installed)
    listed = json.loads(sbom.read_text())
    _name_subject(listed, wheel, date)
    sbom.write_text(json.dumps(listed, indent=2, sort_keys=True) + "\n")
    return len(listed["components"])


def _name_subject(listed: dict[str, Any], wheel: Path, date: dt.date) -> None:
    """Make the wheel the subject of the list instead of one of its components."""
    (subject,) = (one for one in listed["components"] if one["name"] == "relier")
    listed["components"].remove(subject)
    subject.pop("externalReferences", None)  # it would be the path where it was built
    listed["metadata"] |= {"component": subject, "timestamp": f"{date.isoformat()}T00:00:00Z"}
    listed["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, wheel.name)}"


def _install(folder: Path, python: str, what: str) -> Path:
    """Install into an empty environment, and return its interpreter."""
    run(python, "-m", "venv", folder)
    installed = folder / "bin" / "python"
    pip = [installed, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "-c", CONSTRAINTS]
    run(*pip, what, env=_alone())
    return installed


def _alone() -> dict[str, str]:
    """Return the environment variables without those that lead to other Python code."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
