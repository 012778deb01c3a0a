"""The result of one check of `rl doctor`.

Levels: ok, warn (works, but needs attention), bad (tasks cannot run or may be lost). Warnings and problems come with
advice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import click

from relier.cli.output import printable

Level = Literal["ok", "warn", "bad"]
MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "bad": ("✗", "red")}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check: the subject, a level, a description, and advice."""

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


def print_check(result: CheckResult) -> None:
    mark, colour = MARKS[result.level]
    click.echo(f"{click.style(mark, fg=colour)} {printable(result.says)}")
    if result.advice:
        click.echo(f"    {printable(result.advice)}")
