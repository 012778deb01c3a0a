"""The steps of a release, in order: `make release [DATE=2026-11-30] [PYTHONS="3.11 3.12"]`.

The last lines of its output say what a person does next.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import shutil
import sys

from tools.release import ROOT, Refused
from tools.release.build import build_twice, version
from tools.release.changelog import cut, date_of
from tools.release.check import check_clean, check_metadata, check_sdist, check_wheel
from tools.release.install import run_first_jobs, write_sbom

DIST = ROOT / "dist"
CHANGELOG = ROOT / "CHANGELOG.md"

NEXT = """
Release {version} is in dist/. Nothing was published, committed or tagged. To release it:

  1. Read the section {version} of CHANGELOG.md, commit it, and run `make check` on that commit.
  2. Run `make release` there again. dist/SHA256SUMS must not change: the date comes from the changelog now.
  3. git tag -a v{version} -m "Relier {version}" && git push origin v{version}
  4. Upload dist/*.whl, dist/*.tar.gz, the SBOM and SHA256SUMS where your users get them. The name `relier` on pypi.org
     belongs to another project, so `twine upload` needs an index of your own, or a new name, first.
  5. Set the next version in src/relier/version.py, and COMMIT in tests/upgrade/previous.py to the tagged commit.
"""


def main() -> None:
    options = parsed()
    try:
        release(options.date, options.pythons.split())
    except Refused as refused:
        sys.exit(f"no release: {refused}")


def parsed() -> argparse.Namespace:
    today = dt.datetime.now(dt.UTC).date()
    parser = argparse.ArgumentParser(prog="make release", description="Build a release and check it.")
    parser.add_argument("--date", type=dt.date.fromisoformat, default=today, help="of the release (today, in UTC)")
    parser.add_argument("--pythons", default="3.11 3.12 3.13", help="versions of Python to install the wheel on")
    return parser.parse_args()


def release(date: dt.date, pythons: list[str]) -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    this = version()
    check_clean(but="CHANGELOG.md")
    CHANGELOG.write_text(cut(CHANGELOG.read_text(), this, date))
    date = date_of(CHANGELOG.read_text(), this)
    print(f"changelog: {this} of {date}")
    sdist, wheel = build_twice(DIST, date)
    print(f"built twice, byte for byte the same: {sdist.name}, {wheel.name}")
    check_metadata(sdist, wheel)
    print(f"contents: {check_wheel(wheel)} files in the wheel, {check_sdist(sdist)} in the sdist, as in the repository")
    print("\n".join(run_first_jobs(wheel, pythons)))
    sbom = DIST / f"relier-{this}.cdx.json"
    print(f"SBOM: {write_sbom(wheel, sbom, date)} components in {sbom.name}")
    files = sorted(file for file in DIST.iterdir() if file.is_file())
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (DIST / "SHA256SUMS").write_text(sums)
    print(sums, end="")
    print(NEXT.format(version=this), end="")


if __name__ == "__main__":
    main()
