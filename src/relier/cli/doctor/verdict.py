"""The result of one check of `rl doctor`.

Levels: ok, warn (it works, but look at it), bad (tasks cannot run, or may be lost). Each warn and bad says what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the doctor's: what was looked at, how it is, in words, and what to do about it."""

    check: str
    level: Level
    says: str
    advice: str = ""


def ok(check: str, says: str) -> Verdict:
    return Verdict(check, "ok", says)


def warn(check: str, says: str, advice: str) -> Verdict:
    return Verdict(check, "warn", says, advice)


def bad(check: str, says: str, advice: str) -> Verdict:
    return Verdict(check, "bad", says, advice)
