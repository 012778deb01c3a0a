"""`make release`: what it writes into the changelog, what it refuses, and that two builds are the same."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.servers import skip_without
from tools.release import ROOT, Refused, check, tracked_files
from tools.release.build import version
from tools.release.changelog import cut, date_of

TOOLS = ROOT / ".venv-release" / "bin" / "python"
DATE = dt.date(2026, 11, 30)
CHANGES = "# Changelog\n\n## Unreleased\n\n### Messages\n\n- Errors are plainer.\n\n## 0.9.0 (2026-01-02)\n\n- Older.\n"


def test_unreleased_changes_become_the_section_of_the_version() -> None:
    text = cut(CHANGES, "1.0.0a1", DATE)
    assert text == CHANGES.replace("## Unreleased\n", "## Unreleased\n\nNothing yet.\n\n## 1.0.0a1 (2026-11-30)\n")
    assert date_of(text, "1.0.0a1") == DATE


def test_a_second_cut_keeps_the_first_date() -> None:
    once = cut(CHANGES, "1.0.0a1", DATE)
    assert cut(once, "1.0.0a1", DATE + dt.timedelta(days=3)) == once


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# Changelog\n", "no section `## Unreleased`"),
        ("# Changelog\n\n## Unreleased\n\nNothing yet.\n", "lists no unreleased changes"),
        (CHANGES.replace("0.9.0", "1.0.0a1"), "already released on 2026-01-02; set the next version"),
    ],
)
def test_a_changelog_that_does_not_fit_the_version_is_refused(text: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        cut(text, "1.0.0a1", DATE)


def test_the_changelog_of_this_repository_can_be_cut() -> None:
    text = cut((ROOT / "CHANGELOG.md").read_text(), version(), DATE)
    assert date_of(text, version()) <= DATE


def wheel_of(folder: Path, **changes: str | None) -> Path:
    """Write a wheel with the package's files; `changes` maps path -> content, or None to leave the file out."""
    wheel = folder / "relier-1-py3-none-any.whl"
    files: dict[str, str | bytes | None] = {f"relier-1.dist-info/{name}": "" for name in check.METADATA}
    files |= {name[4:]: (ROOT / name).read_bytes() for name in tracked_files() if name.startswith("src/")}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in (files | changes).items():
            if content is not None:
                archive.writestr(name, content)
    return wheel


def test_a_wheel_holds_the_files_of_the_package(tmp_path: Path) -> None:
    assert check.check_wheel(wheel_of(tmp_path)) > 500


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"relier/ledger/lua/submit.lua": None}, "lacks relier/ledger/lua/submit.lua"),
        ({"relier/py.typed": "x"}, "has other content for relier/py.typed"),
        ({"tests/conftest.py": ""}, "has in addition tests/conftest.py"),
        ({"relier-1.dist-info/entry_points.txt": None}, "describes itself by"),
    ],
)
def test_a_wheel_that_differs_from_the_repository_is_refused(
    tmp_path: Path, changes: dict[str, str | None], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        check.check_wheel(wheel_of(tmp_path, **changes))


# --- the whole of it -------------------------------------------------------------------------------------------------


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with this one's files as its only commit."""
    if not TOOLS.exists():
        skip_without("release", "the tools of a release are not installed: make wheel")
    folder = tmp_path / "clone"
    for name in tracked_files():
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "All")
    return folder


def git(folder: Path, *command: str) -> str:
    return subprocess.check_output(["git", "-C", str(folder), *command], text=True)


def release(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RELIER_", "PYTEST_"))}
    command = [str(TOOLS), "-m", "tools.release", *options]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_uncommitted_files_are_refused(clone: Path) -> None:
    (clone / "README.md").write_text("# Other\n")
    done = release(clone)
    assert done.returncode == 1
    assert "no release: these files are not committed: README.md; commit or remove them" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)  # three environments are installed
def test_a_release_is_built_checked_and_tried_but_not_published(clone: Path) -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    done = release(clone, "--date", DATE.isoformat(), "--pythons", f"{python} 2.6")
    assert done.returncode == 0, done.stdout + done.stderr
    this, dist = version(), clone / "dist"
    assert f"changelog: {this} of {DATE}" in done.stdout
    assert re.search(rf"Python {python}: relier {this} on Python {python}\S+: the first job works", done.stdout)
    assert "Python 2.6: SKIPPED" in done.stdout
    assert "Nothing was published, committed or tagged" in done.stdout
    assert (git(clone, "tag"), git(clone, "status", "--porcelain")) == ("", " M CHANGELOG.md\n")
    pairs = [line.split("  ") for line in (dist / "SHA256SUMS").read_text().splitlines()]
    sums = {name: digest for digest, name in pairs}
    assert set(sums) == {f"relier-{this}.tar.gz", f"relier-{this}-py3-none-any.whl", f"relier-{this}.cdx.json"}
    assert all(hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest for name, digest in sums.items())
    with tarfile.open(dist / f"relier-{this}.tar.gz") as archive:
        times = {dt.datetime.fromtimestamp(member.mtime, dt.UTC).date() for member in archive.getmembers()}
    assert times == {DATE}
    check_sbom(json.loads((dist / f"relier-{this}.cdx.json").read_text()), this)


def check_sbom(sbom: dict, this: str) -> None:
    """The list names the wheel as its subject, and every package that its metadata and extras install."""
    assert (sbom["bomFormat"], sbom["metadata"]["component"]["name"]) == ("CycloneDX", "relier")
    assert sbom["metadata"]["component"]["version"] == this
    listed = {f"{one['name'].lower().replace('_', '-')}=={one['version']}" for one in sbom["components"]}
    locked = {line.split(" ;")[0] for line in (ROOT / "requirements/constraints.txt").read_text().splitlines()}
    assert {"hiredis", "msgspec", "celery", "django", "sqlalchemy"} <= {one.partition("==")[0] for one in listed}
    assert listed <= locked
    assert str(ROOT) not in json.dumps(sbom)
    assert "/tmp/" not in json.dumps(sbom)
