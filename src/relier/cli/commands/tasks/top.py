"""rl tasks top: how many tasks of each name there are, by state."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import click

from relier.cli.output import plural, print_json, progress_bar
from relier.cli.session import Session, with_session
from relier.cli.table import print_table
from relier.cli.task_list import ORDER, TaskFilter, in_state, losses, totals
from relier.ledger.pages import read_stats
from relier.ledger.records import Record
from relier.ledger.stats import Stats
from relier.states import State

SHOWN = (State.RUNNING, State.QUEUED, State.SCHEDULED, State.DEAD, State.DONE)
HEADERS = ("NAME", *(state.value.upper() for state in SHOWN), "RETRIES", "DEATHS")


@dataclass(slots=True)
class NameCounts:
    """The tasks of one name: how many in each state, and their retries, deaths and resurrections together."""

    states: Counter[State] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)

    def add(self, record: Record) -> None:
        self.states[record.state] += 1
        self.losses.update(losses(record))

    @property
    def rank(self) -> tuple[int, ...]:
        return tuple(self.states[state] for state in SHOWN)


@click.command()
@click.option("--queue", default="", metavar="QUEUE", help="Only tasks in this queue.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="Maximum number of names to list."
)
@click.option(
    "--sample",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Maximum number of tasks to read in each state, the newest ones.",
)
@with_session
def top(session: Session, queue: str, limit: int, sample: int) -> None:
    """Count tasks by name and state. Names with the most running tasks come first, then those with the most queued."""
    stats = read_stats(session.run, session.ledger)
    names, read = count_names(session, stats, queue, sample)
    ranked = sorted(names.items(), key=lambda item: (tuple(-n for n in item[1].rank), item[0]))
    whole = all(stats.by_state()[state] <= sample for state in ORDER)
    if session.as_json:
        rows = [_dict(name, counts) for name, counts in ranked[:limit]]
        print_json(
            {
                "namespace": session.settings.namespace,
                "names": rows,
                "read": read,
                "complete": whole,
                "totals": totals(stats),
            }
        )
        return
    if not ranked:
        click.echo(f"No tasks{TaskFilter(queue=queue)} in {session.where}.")
        return
    print_table(HEADERS, [_row(name, counts) for name, counts in ranked[:limit]], optional=("DONE", "DEATHS"))
    click.echo(f"{min(limit, len(ranked))} of {plural(len(ranked), 'name')}, {plural(read, 'task')} read.")
    if not whole:
        click.echo(f"! Only the newest {sample:,} tasks of each state were read; --sample raises that.")


def count_names(session: Session, stats: Stats, queue: str, sample: int) -> tuple[dict[str, NameCounts], int]:
    """Count up to `sample` tasks of each state by name. Return the counts, and how many tasks were read."""
    names: defaultdict[str, NameCounts] = defaultdict(NameCounts)
    wanted, read = TaskFilter(queue=queue), 0
    total = sum(min(sample, n) for n in stats.by_state().values())
    with progress_bar("Reading", total) as advance:
        for state in ORDER:
            for entry in islice(in_state(session, stats, state, wanted), sample):
                read += 1
                if entry.record is not None and wanted.matches(entry.record):
                    names[entry.record.name].add(entry.record)
                if read % 1000 == 0:
                    advance(1000)
    return dict(names), read


def _row(name: str, counts: NameCounts) -> tuple[str, ...]:
    states = (f"{counts.states[state]:,}" for state in SHOWN)
    return name, *states, f"{counts.losses['retries']:,}", f"{counts.losses['deaths']:,}"


def _dict(name: str, counts: NameCounts) -> dict[str, Any]:
    return {"name": name, **{state.value: counts.states[state] for state in State}, **counts.losses}
