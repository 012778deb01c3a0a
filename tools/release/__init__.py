"""Build a release and check it: `make release`. Nothing is published, committed or tagged.

changelog.py   moves what is unreleased into a section of this version, with its date
build.py       builds sdist and wheel twice, in different surroundings, and compares every byte
check.py       looks into both, and lets twine judge their metadata
install.py     installs the wheel on each version of Python, runs a first job, and writes the SBOM
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


class Refused(Exception):
    """The release must not be made: the message says why and what to do."""


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output. A command that fails refuses the release with what it printed."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Refused(f"`{' '.join(str(part) for part in command)}` failed:\n{done.stdout}")
    return done.stdout


def tracked_files() -> list[str]:
    """Return the paths of all files that belong to the repository."""
    return sorted(run("git", "ls-files", "-z").rstrip("\0").split("\0"))
