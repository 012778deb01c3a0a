"""Write what the folders of a site share: the list of versions, and a start page that leads to the newest.

python tools/site_versions.py build/site

Each folder that holds a site is a version. The theme shows the list as a menu, and stays on the same page if the other
version has it. The newest release is `latest`; alphas and betas count only while there is no release.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

START = """<!doctype html>
<meta charset="utf-8">
<title>Relier</title>
<link rel="canonical" href="{version}/index.html">
<meta http-equiv="refresh" content="0; url={version}/index.html">
<a href="{version}/index.html">Relier {version}</a>
"""
LINK = re.compile(r"(?<=\]\()(?!\w+:)")


def write(site: Path) -> list[str]:
    """Write versions.json, index.html and llms.txt. Return the versions, the newest first."""
    versions = sorted(versions_in(site), reverse=True)
    if not versions:
        raise SystemExit(f"there is no version of the site in {site}: run make site")
    latest = next((one for one in versions if not one.is_prerelease), versions[0])
    listed = [
        {"version": str(one), "title": str(one), "aliases": ["latest"] if one == latest else []} for one in versions
    ]
    (site / "versions.json").write_text(json.dumps(listed, indent=2) + "\n")
    (site / "index.html").write_text(START.format(version=latest))
    (site / "llms.txt").write_text(LINK.sub(f"{latest}/", (site / str(latest) / "llms.txt").read_text()))
    return [str(one) for one in versions]


def versions_in(site: Path) -> list[Version]:
    found = []
    for page in site.glob("*/index.html"):
        try:
            found.append(Version(page.parent.name))
        except InvalidVersion:
            raise SystemExit(
                f"{page.parent} is not named as a version; build it again: make site VERSION=1.0.0"
            ) from None
    return found


if __name__ == "__main__":
    print("versions:", ", ".join(write(Path(sys.argv[1]))))
