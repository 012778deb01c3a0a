"""The output for people: a live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .watch import Snapshot

FRAME = 11  # lines that are no event and no worker
LINE_EVERY_S = 2.0


def figures(seen: Snapshot) -> list[tuple[str, int, str]]:
    """Return name, number and colour of each counter."""
    return [
        ("pushed", seen.pushed, "bold"),
        ("done", seen.done, "bold green"),
        ("revived", seen.revived, "bold cyan"),
        ("zombies refused", seen.refused, "bold yellow"),
        ("lost", seen.lost, "bold green" if seen.lost == 0 else "bold red"),
        ("committed twice", seen.twice, "bold green" if seen.twice == 0 else "bold red"),
    ]


class View:
    """Show counters, workers, and events."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._began = time.monotonic()
        self._events: list[str] = []
        self._seen: Snapshot | None = None
        self._said = 0.0
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, event: str) -> None:
        """Show an event."""
        line = f"{time.monotonic() - self._began:5.1f} s  {event}"
        self._events.append(line)
        if self._live is None:
            print(line, flush=True)
        else:
            self._draw()

    def show(self, seen: Snapshot) -> None:
        """Show the current state."""
        self._seen = seen
        if self._live is not None:
            self._draw()
        elif time.monotonic() - self._said >= LINE_EVERY_S:
            self._said = time.monotonic()
            print(f"         {', '.join(f'{name} {number:,}' for name, number, _ in figures(seen))}", flush=True)

    def _draw(self) -> None:
        if self._live is not None and self._seen is not None:
            room = max(4, self.console.height - FRAME - len(self._seen.rows))
            log = Text("\n".join(self._events[-room:]), no_wrap=True, overflow="ellipsis")
            self._live.update(
                Group(self._counters(self._seen), self._workers(self._seen), Panel(log, title="what happened")),
                refresh=True,
            )

    def _counters(self, seen: Snapshot) -> Panel:
        table = Table.grid(expand=True)
        for _ in figures(seen):
            table.add_column(justify="center")
        table.add_row(*(Text(f"{number:,}", style=colour) for _, number, colour in figures(seen)))
        table.add_row(*(Text(name, style="dim") for name, _, _ in figures(seen)))
        return Panel(table, title="Relier: nothing gets lost")

    def _workers(self, seen: Snapshot) -> Panel:
        table = Table(box=None, pad_edge=False, expand=True, header_style="dim")
        for title in ("worker", "processes", "tasks in hand", "state"):
            table.add_column(title, justify="right" if title == "tasks in hand" else "left")
        colours = {"works": "green", "starts": "dim", "left": "dim", "killed": "red"}
        for row in seen.rows:
            colour = colours.get(row.state, "yellow")
            pids = " ".join(map(str, row.pids))
            table.add_row(row.name, pids, str(row.held) if row.held else "", Text(row.state, style=colour))
        return Panel(table, title="workers (the ledger's view)")
