"""Parse the progress that `ctx.progress` stored. The ledger keeps it as one line of text."""

from __future__ import annotations

import re
from dataclasses import dataclass

NUMBER = r"([-+]?\d[\d.]*(?:e[-+]?\d+)?)"
PROGRESS = re.compile(f"{NUMBER}(?: of {NUMBER})?(?:: (.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Hold the last progress report of a task: `ctx.progress(done, total, note)`."""

    done: float
    total: float | None = None
    note: str = ""


def read_progress(text: str) -> TaskProgress | None:
    """Return the numbers and the note of a stored report, or None if the text is not a report."""
    found = PROGRESS.fullmatch(text)
    if found is None:
        return None
    done, total, note = found.groups()
    return TaskProgress(float(done), None if total is None else float(total), note or "")
