"""Format output: times with their age, one-line texts, sentences, JSON and progress bars. Tables: table.py."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import click

LONGEST_CELL = 100
INDENT = "  "
WORTH_A_BAR = 500  # shorter work is done before anybody reads a progress bar


# --- times -------------------------------------------------------------------------------------------------------


in_utc: ContextVar[bool] = ContextVar("in_utc", default=False)  # set for readers who are in another zone


def clock(ms: int, now_ms: int) -> str:
    """Return the local time, with the date if it is not today. With `in_utc`, date and time in UTC."""
    if in_utc.get():
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
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
    for unit, size, smaller, part in (("min", 60, "s", 1), ("h", 3600, "min", 60), ("d", 86400, "h", 3600)):
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
    whole = number.partition(".")[0]
    return f"{whole} {unit} ago" if gap > 0 else f"in {whole} {unit}"


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


def common_beginning(texts: Sequence[str]) -> str:
    """Return the longest prefix that all texts share."""
    first, last = min(texts, default=""), max(texts, default="")
    same = (n for n, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1])
    return first[: next(same, min(len(first), len(last)))]


# --- output ------------------------------------------------------------------------------------------------------


collected: ContextVar[list[dict[str, Any]] | None] = ContextVar("collected", default=None)  # instead of printing


def print_json(document: Any) -> None:
    if (documents := collected.get()) is not None:
        documents.append(document)
        return
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def print_json_line(document: Any) -> None:
    """Print a document on one line, for output that consists of many documents."""
    click.echo(json.dumps(document, ensure_ascii=False, default=str))


def screen_width() -> int | None:
    """Return the width of the terminal, or None if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_sentences(sentences: Iterable[str]) -> None:
    """Print each sentence on its own line. In a terminal, lines break between words."""
    width = screen_width()
    for text in sentences:
        broken = textwrap.wrap(text, width, subsequent_indent=INDENT, break_on_hyphens=False) if width else [text]
        click.echo("\n".join(broken))


@contextmanager
def progress_bar(label: str, total: int, *, always: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a progress bar for long work, on stderr if it is a terminal. Yield a function that reports steps."""
    hidden = not sys.stderr.isatty() or (total < WORTH_A_BAR and not always)
    with click.progressbar(length=total, label=label, file=sys.stderr, hidden=hidden) as bar:
        yield bar.update
