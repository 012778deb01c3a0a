"""Print tables. In a terminal they fit its width; in a pipe nothing is cut, shortened or left out.

To fit, a table first loses its optional columns, then its free texts are cut. Ids are shortened to a unique prefix,
which every command accepts. Names and states are never cut: where even they do not fit, names continue on the next
line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from relier.cli.output import LONGEST_CELL, common_beginning, one_line, printable, screen_width

if TYPE_CHECKING:
    from rich.table import Table

GAP = 2
ENDLESS = 1_000_000
LEAST_TEXT = 10  # width of a text that is cut; narrower ones say too little
LEAST_PROSE = 20  # width of a sentence, as long as there are columns to leave out for it
LEAST_NAME = 10
SHORTEST_ID = 18  # of ours: 13 digits are time and version, and 18 random bits tell tasks of one millisecond apart
SHORTEST_UUID = 13  # of Celery's: all digits are random
SPARE = 2  # digits beyond those that tell the listed ids apart, because others are not listed
MADE = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
WORKER = re.compile(r"([^.\s]+\.\d+\.)[0-9a-f]+")
IDS = ("ID", "NODE", "WORKER")
TIMES = ("WHEN", "DIED", "LAST BEAT", "UP", "RUNNING", "OLDEST", "AGE", "EMPTY", "STARTED", "LASTED")
FOLDED = ("NAME", "TASK", "SCHEDULE", "REASON", "SETTING", "LIMIT")
WHOLE = ("ID", "STATE", "NEXT", "ROLE", "HEALTH", "QUEUE", "OUTCOME", "FOR EXAMPLE", *FOLDED, *TIMES)
PROSE = ("MESSAGE", "DETAIL", "WHAT HAPPENED", "ERROR", "WHY")
COLOURS = {
    "dead": "red",
    "lost": "red",
    "silent": "yellow",
    "paused": "yellow",
    "drained": "yellow",
    "draining": "yellow",
    "stopping": "yellow",
    "running": "green",
    "alive": "green",
    "cancelled": "dim",
}
COLOURED = ("STATE", "HEALTH", "PAUSED")


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, optional: Sequence[str] = ()) -> None:
    """Print a table. `optional`: columns that a narrow terminal leaves out, in this order."""
    width = screen_width()
    if width is None:
        click.echo("\n".join(plain_table(headers, rows)))
    else:
        terminal_table(headers, rows, optional=optional, width=width)


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [headers, *([printable(" ".join(cell.split())) for cell in row] for row in rows)]
    # A very long cell sticks out; otherwise it would pad every other row.
    widths = [min(LONGEST_CELL, max(map(len, column))) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return [line.rstrip() for line in lines]


def terminal_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, optional: Sequence[str], width: int, file: Any = None
) -> None:
    """Print a table that fits the width."""
    from rich.console import Console

    console = Console(file=file, width=width, highlight=False, force_terminal=True if file else None)
    console.print(built_table(headers, rows, optional=optional, width=width))


def built_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, optional: Sequence[str], width: int) -> Table:
    """Return a table that fits the width."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    columns = [_cells(header, [row[n] for row in rows]) for n, header in enumerate(headers)]
    whole = [max(map(cell_len, (header, *cells))) for header, cells in zip(headers, columns, strict=True)]
    widths = layout(headers, whole, width, optional)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for n, wide in widths.items():
        folded = headers[n] in FOLDED
        table.add_column(headers[n], width=wide, no_wrap=not folded, overflow="fold" if folded else "ellipsis")
    for row in zip(*columns, strict=True):
        table.add_row(*(Text(row[n], style=_colour(headers[n], row[n])) for n in widths))
    return table


def _cells(header: str, column: Sequence[str]) -> list[str]:
    cells = [one_line(cell, ENDLESS if header in WHOLE else LONGEST_CELL) for cell in column]
    return short_ids(cells) if header in IDS else cells


def _colour(header: str, cell: str) -> str:
    return COLOURS.get(cell, "") if header in COLOURED else ""


def layout(headers: Sequence[str], whole: Sequence[int], room: int, optional: Sequence[str]) -> dict[int, int]:
    """Return the width of each column that is shown. `whole`: the width that each column would need."""
    kept = list(range(len(headers)))
    for left_out, prose in ((None, LEAST_PROSE), *((name, LEAST_PROSE) for name in optional), (None, LEAST_TEXT)):
        kept = [n for n in kept if headers[n] != left_out]
        widths = fit([whole[n] for n in kept], [_least(headers[n], whole[n], prose) for n in kept], room)
        if widths is not None:
            return dict(zip(kept, widths, strict=True))
    return folded_layout(headers, {n: whole[n] for n in kept}, room)


def folded_layout(headers: Sequence[str], widths: dict[int, int], room: int) -> dict[int, int]:
    """Return widths with a folded name, and without texts that still do not fit."""
    least = {n: _least(headers[n], wide) for n, wide in widths.items()}
    while True:
        over = sum(least.values()) + GAP * (len(least) - 1) - room
        foldable = sum(wide - LEAST_NAME for n, wide in least.items() if headers[n] in FOLDED and wide > LEAST_NAME)
        texts = [n for n in least if not _is_whole(headers[n])]
        if over <= foldable or not texts:
            break
        del least[texts[-1]]
    names = [n for n in least if headers[n] in FOLDED]
    while over > 0 and any(least[n] > LEAST_NAME for n in names):
        widest = max(names, key=lambda n: least[n])
        least[widest], over = least[widest] - 1, over - 1
    return least


def _is_whole(header: str) -> bool:
    return header in WHOLE or header in IDS


def _least(header: str, wide: int, prose: int = LEAST_TEXT) -> int:
    """Return the minimum width of a column that would need `wide`. `prose`: the column holds sentences."""
    if _is_whole(header):
        return wide
    return min(wide, max(len(header), prose if header in PROSE else LEAST_TEXT))


def fit(widths: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Return widths that fit, shrinking the widest text first. None if that is not enough."""
    fitting = list(widths)
    room -= GAP * (len(widths) - 1)
    while sum(fitting) > room:
        n = max(range(len(fitting)), key=lambda i: fitting[i] if fitting[i] > least[i] else 0)
        if fitting[n] <= least[n]:
            return None
        fitting[n] -= 1
    return fitting


def short_ids(ids: Sequence[str]) -> list[str]:
    """Shorten random ids to a prefix that is unique within the list. Other ids are not shortened."""
    ordered = sorted(set(ids))
    alike = dict.fromkeys(ordered, 0)
    for one, other in pairwise(ordered):
        same = len(common_beginning((one, other)))
        alike[one], alike[other] = max(alike[one], same), max(alike[other], same)
    return [task_id[: max(_shortest(task_id), alike[task_id] + 1 + SPARE)] for task_id in ids]


def short_in_terminal(some_id: str) -> str:
    """Return an id as part of a text: short in a terminal, whole in a pipe."""
    return some_id if screen_width() is None else short_ids([some_id])[0]


def _shortest(some_id: str) -> int:
    """Return the shortest prefix of an id to show: the whole id if a user chose it."""
    if worker := WORKER.fullmatch(some_id):
        return len(worker[1]) + SPARE
    if not MADE.fullmatch(some_id):
        return len(some_id)
    return SHORTEST_UUID if "-" in some_id else SHORTEST_ID
