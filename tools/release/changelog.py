"""Move what is unreleased into a section of the version. Running it again changes nothing."""

from __future__ import annotations

import datetime as dt
import re

from tools.release import Refused

UNRELEASED = "## Unreleased\n"
NOTHING = "Nothing yet.\n"


def cut(text: str, version: str, date: dt.date) -> str:
    """Return the changelog with the section `## <version> (<date>)`, and nothing left in the section above it."""
    if UNRELEASED not in text:
        raise Refused("CHANGELOG.md has no section `## Unreleased`; add it above the latest release")
    before, _, below = text.partition(UNRELEASED)
    new, heading, older = below.partition("\n## ")
    is_empty = new.strip() in ("", NOTHING.strip())
    if section_of(text, version):
        if is_empty:
            return text
        raise Refused(
            f"CHANGELOG.md has unreleased changes, but {version} was already released on {date_of(text, version)}; "
            "set the next version in src/relier/version.py"
        )
    if is_empty:
        raise Refused("CHANGELOG.md lists no unreleased changes; say what this release brings, then run it again")
    return f"{before}{UNRELEASED}\n{NOTHING}\n## {version} ({date.isoformat()})\n{new}{heading}{older}"


def section_of(text: str, version: str) -> re.Match[str] | None:
    return re.search(rf"^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)$", text, re.MULTILINE)


def date_of(text: str, version: str) -> dt.date:
    """Return the date of a released version, which is also the time that its files carry."""
    section = section_of(text, version)
    if section is None:
        raise Refused(f"CHANGELOG.md has no section `## {version} (YYYY-MM-DD)`")
    return dt.date.fromisoformat(section[1])
