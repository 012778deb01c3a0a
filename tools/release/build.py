"""Build sdist and wheel twice, in surroundings that differ in all that must not matter, and compare the bytes."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.release import ROOT, Refused, run, tracked_files


@dataclass(frozen=True)
class Surroundings:
    """What differs between two builds, and must not change a byte of what they make."""

    folder: str
    umask: int
    changed: int  # when the source files were last changed, in seconds since 1970
    hash_seed: str
    timezone: str

    def env(self, epoch: int) -> dict[str, str]:
        varying = {"PYTHONHASHSEED": self.hash_seed, "TZ": self.timezone}
        return os.environ | varying | {"SOURCE_DATE_EPOCH": str(epoch)}


BUILDS = (
    Surroundings("one", 0o022, 1_500_000_000, "1", "UTC"),
    Surroundings("another/folder", 0o077, 1_700_000_000, "2", "Asia/Tokyo"),
)


def version() -> str:
    """Return the version that src/relier/version.py states."""
    found = re.search(r'^__version__ = "([^"]+)"$', (ROOT / "src/relier/version.py").read_text(), re.MULTILINE)
    if found is None:
        raise Refused("src/relier/version.py states no version")
    return found[1]


def build_twice(dist: Path, date: dt.date) -> tuple[Path, Path]:
    """Write sdist and wheel into `dist`, and return their paths. Their files carry the date of the release."""
    epoch = int(dt.datetime.combine(date, dt.time(), dt.UTC).timestamp())
    with tempfile.TemporaryDirectory() as work:
        first, second = (_build(Path(work) / each.folder, each, epoch) for each in BUILDS)
        for name, content in first.items():
            if second.get(name) != content:
                raise Refused(f"two builds of {name} differ; compare them with diffoscope")
        dist.mkdir(exist_ok=True)
        for name, content in first.items():
            (dist / name).write_bytes(content)
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    return sdist, wheel


def _build(folder: Path, surroundings: Surroundings, epoch: int) -> dict[str, bytes]:
    """Copy the repository's files and build there. Return name -> content of what was built."""
    before = os.umask(surroundings.umask)
    try:
        source = folder / "source"
        for name in tracked_files():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            executable = os.access(ROOT / name, os.X_OK)
            shutil.copyfile(ROOT / name, target)
            target.chmod((0o777 if executable else 0o666) & ~surroundings.umask)
            os.utime(target, (surroundings.changed, surroundings.changed))
        env = surroundings.env(epoch)
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", source, cwd=folder, env=env)
    finally:
        os.umask(before)
    return {file.name: file.read_bytes() for file in (folder / "dist").iterdir()}
