"""Look into sdist and wheel: they hold the repository's files, unchanged, and nothing else."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

from tools.release import ROOT, Refused, run, tracked_files

PACKAGE = "src/"
METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


def check_clean(but: str) -> None:
    """Refuse uncommitted changes, except for one file, and a version whose tag is another commit."""
    changed = [line[3:] for line in run("git", "status", "--porcelain").splitlines()]
    if set(changed) - {but}:
        raise Refused(
            f"these files are not committed: {', '.join(sorted(set(changed) - {but}))}; commit or remove them"
        )


def check_metadata(*files: Path) -> None:
    """Let twine check what an index would: metadata, and whether the README renders."""
    run(sys.executable, "-m", "twine", "check", "--strict", *files)


def check_wheel(wheel: Path) -> int:
    """Return the number of files of the package. Refuse a wheel with a missing, changed or foreign file."""
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    (info,) = {name.partition("/")[0] for name in found if ".dist-info/" in name}
    described = {name.removeprefix(f"{info}/") for name in found if name.startswith(f"{info}/")}
    if described != METADATA:
        raise Refused(f"{wheel.name} describes itself by {sorted(described)}, not by {sorted(METADATA)}")
    package = {name: content for name, content in found.items() if not name.startswith(f"{info}/")}
    expected = {name.removeprefix(PACKAGE): name for name in tracked_files() if name.startswith(PACKAGE)}
    _compare(wheel.name, package, expected)
    return len(package)


def check_sdist(sdist: Path) -> int:
    """Return the number of files of the repository. Refuse an sdist with a missing, changed or foreign file."""
    top = sdist.name.removesuffix(".tar.gz")
    with tarfile.open(sdist) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        found = {each.name.removeprefix(f"{top}/"): archive.extractfile(each).read() for each in members}  # type: ignore[union-attr]
    if found.pop("PKG-INFO", None) is None:
        raise Refused(f"{sdist.name} has no PKG-INFO")
    _compare(sdist.name, found, {name: name for name in tracked_files()})
    return len(found)


def _compare(archive: str, found: dict[str, bytes], expected: dict[str, str]) -> None:
    """Compare name -> content in an archive with name -> path in the repository."""
    wrong = {
        "lacks": sorted(expected.keys() - found.keys()),
        "has in addition": sorted(found.keys() - expected.keys()),
        "has other content for": sorted(
            name for name in found.keys() & expected.keys() if found[name] != (ROOT / expected[name]).read_bytes()
        ),
    }
    problems = [f"{archive} {what} {', '.join(names)}" for what, names in wrong.items() if names]
    if problems:
        raise Refused("; ".join(problems))
