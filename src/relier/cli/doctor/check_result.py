"""The result of one check of `rl doctor`.

Levels: ok, warn (works, but needs attention), bad (tasks cannot run or may be lost). Warnings and problems come with
advice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What was checked, its level, a description, and advice."""

    check: str
    level: Level
    says: str
    advice: str = ""


def ok(check: str, says: str) -> CheckResult:
    return CheckResult(check, "ok", says)


def warn(check: str, says: str, advice: str) -> CheckResult:
    return CheckResult(check, "warn", says, advice)


def bad(check: str, says: str, advice: str) -> CheckResult:
    return CheckResult(check, "bad", says, advice)
