"""Build the previous release from the repository's history, once per machine, and say how to run it.

The wheel of that commit and the libraries that it was locked with are installed into a folder of their own, which
stands first on PYTHONPATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.support import ROOT
from tests.support.servers import skip_without

COMMIT = "d53e476"  # change this with each release
CACHE = Path(
    os.environ.get("RELIER_TESTS_PREVIOUS", Path(tempfile.gettempdir()) / f"relier-tests-previous-{os.getuid()}")
)
FILES = ("src", "pyproject.toml", "README.md", "LICENSE", "requirements/constraints.txt")
ANY = str(ROOT)  # `tests`, without this release's code, which is in src


@cache
def previous_release() -> Path:
    """Return the folder with the previous release's code. Skip the test if the history does not hold its commit."""
    place = CACHE / COMMIT
    if not place.exists():
        archive = _archive()
        if archive is None:
            skip_without("history", f"the previous release, {COMMIT}, is not in this clone: fetch the full history")
        _install(archive, place)
    return place


def environment() -> dict[str, str]:
    """Return the environment variables with which a process runs the previous release."""
    return {"PYTHONPATH": os.pathsep.join([str(previous_release()), ANY])}


def _archive() -> bytes | None:
    command = ["git", "-C", str(ROOT), "archive", COMMIT, *FILES]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def _install(archive: bytes | None, place: Path) -> None:
    """Build the wheel and unpack it. Other test processes may do the same; one of them wins."""
    CACHE.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=CACHE))
    (work / "source").mkdir()
    subprocess.run(["tar", "-x", "-C", str(work / "source")], input=archive, check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    locked = ["--constraint", str(work / "source/requirements/constraints.txt")]
    subprocess.run([*pip, *locked, "--target", str(work / "code"), str(work / "source")], check=True)
    try:
        (work / "code").rename(place)
    except OSError:
        assert place.exists()
    shutil.rmtree(work)
