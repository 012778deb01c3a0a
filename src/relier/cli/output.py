"""Format output: times with their age, one-line texts, tables and JSON."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

LONGEST_CELL = 100
LEAST_CELL = 16  # preferred minimum width of a column
LEAST_BESIDE_IDS = 6  # minimum width where ids need the room
GAP = 2


# --- times -------------------------------------------------------------------------------------------------------


def clock(ms: int, now_ms: int) -> str:
    """Return the local time, with the date if it is not today."""
    at, now = _local(ms), _local(now_ms)
    if at.date() == now.date():
        return f"{at:%H:%M:%S}"
    return f"{at:%b %d %H:%M:%S}" if at.year == now.year else f"{at:%Y-%m-%d %H:%M:%S}"


def span(ms: float) -> str:
    """Return a duration in at most two units."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    for unit, size, smaller, part in (("m", 60, "s", 1), ("h", 3600, "m", 60), ("d", 86400, "h", 3600)):
        if seconds < size * (24 if unit == "h" else 60) or unit == "d":
            rest = int(seconds % size // part)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError("unreachable")


def ago(ms: int, now_ms: int) -> str:
    """Return how long ago this was, or how far ahead it is, in one unit."""
    gap = now_ms - ms
    if abs(gap) < 1000:
        return "just now"
    number, unit, *_ = span(abs(gap)).split()
    return f"{number} {unit} ago" if gap > 0 else f"in {number} {unit}"


def when(ms: int, now_ms: int) -> str:
    """Return local time and age, or an empty string for 0."""
    return f"{clock(ms, now_ms)} ({ago(ms, now_ms)})" if ms else ""


def _local(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone()


# --- texts -------------------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """Escape control characters: names and messages are user data and must not steer the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def one_line(text: str, most: int = LONGEST_CELL) -> str:
    """Return the text as one line, truncated to `most` characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def plural(n: int, thing: str, things: str = "") -> str:
    """Return a count with its noun: "1 task", "2 tasks"."""
    return f"{n:,} {thing if n == 1 else things or thing + 's'}"


# --- output ------------------------------------------------------------------------------------------------------


def print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, ids: Sequence[str] = ("ID",)) -> None:
    """Print a table. In a terminal rows are truncated to fit, except `ids`; in a pipe nothing is truncated."""
    if sys.stdout.isatty():
        rich_table(headers, rows, ids=ids, width=shutil.get_terminal_size().columns)
    else:
        click.echo("\n".join(plain_table(headers, rows)))


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [headers, *([printable(" ".join(cell.split())) for cell in row] for row in rows)]
    # A very long cell sticks out; otherwise it would pad every other row.
    widths = [min(LONGEST_CELL, max(map(len, column))) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return [line.rstrip() for line in lines]


def rich_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, ids: Sequence[str], width: int, file: Any = None
) -> None:
    """Print a table for a terminal. Ids are never truncated, because people copy them; other columns shrink."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[one_line(cell) for cell in row] for row in rows]
    whole = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    fixed = [header in ids for header in headers]
    least = [wide if is_id else min(wide, LEAST_CELL) for wide, is_id in zip(whole, fixed, strict=True)]
    widths = fit(whole, fixed, width, LEAST_CELL) or fit(whole, fixed, width, LEAST_BESIDE_IDS) or least
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for header, wide in zip(headers, widths, strict=True):
        table.add_column(header, width=wide, no_wrap=True, overflow="ellipsis")
    for row in cells:
        table.add_row(*map(Text, row))
    width = max(width, sum(widths) + GAP * len(widths))
    console = Console(file=file, width=width, highlight=False, force_terminal=True if file else None)
    console.print(table)


def fit(widths: Sequence[int], fixed: Sequence[bool], room: int, least: int) -> list[int] | None:
    """Return widths that fit, shrinking the widest column first, down to `least`. None if that is not enough."""
    fitting = list(widths)
    room -= GAP * (len(widths) - 1)
    while sum(fitting) > room:
        n = max(range(len(fitting)), key=lambda i: 0 if fixed[i] else fitting[i])
        if fixed[n] or fitting[n] <= least:
            return None
        fitting[n] -= 1
    return fitting
