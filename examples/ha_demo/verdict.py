"""The verdict per loss and level, from the ledger alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from relier import Client
from relier.cli.audit import audit
from relier.errors import RelierError
from relier.ledger.records import Task

from .producers import LevelProducer

KEEPS_ALL = {"replicated"}  # a failover may cost the other levels what the replicas did not have yet


@dataclass(frozen=True)
class Row:
    """The outcome of the tasks that one producer pushed while the primary was lost."""

    loss: str
    level: str
    acknowledged: int
    done: int
    lost: int
    unconfirmed: int
    waited: float

    @property
    def good(self) -> bool:
        kept = self.done + self.lost == self.acknowledged
        return kept and self.acknowledged > 0 and not (self.lost and self.level in KEEPS_ALL)


def unfinished(client: Client, ids: Sequence[str]) -> int:
    """Return how many of these tasks exist and have not ended."""
    answers = client.sync_store.run_many(client.ledger.get(task_id) for task_id in ids)
    return sum(isinstance(answer, Task) and answer.record.state.value != "done" for answer in answers)


def rows_of(loss: str, client: Client, producers: Sequence[LevelProducer]) -> list[Row]:
    rows = []
    for producer in producers:
        ids = list(producer.acknowledged)
        answers = client.sync_store.run_many(client.ledger.get(task_id) for task_id in ids)
        done = sum(isinstance(answer, Task) and answer.record.state.value == "done" for answer in answers)
        lost = sum(isinstance(answer, RelierError) for answer in answers)
        waited = producer.longest_wait()
        rows.append(Row(loss, producer.level, len(ids), done, lost, producer.unconfirmed, waited))
    return rows


def findings(client: Client) -> list[str]:
    return [finding.problem for finding in audit(client.sync_store, client.ledger).findings]


def judge(rows: Sequence[Row], problems: Sequence[str], console: Console) -> int:
    """Print the table. Return the exit code: 0 if each level kept what it promises.

    `repeated`: pushes that raised and were repeated. `waited`: the longest time without an accepted push.
    """
    table = Table(title="what the ledger says after each failover", show_edge=False, pad_edge=False)  # 80 columns
    for name in ("primary", "level"):
        table.add_column(name, no_wrap=True)
    for name in ("accepted", "done", "lost", "repeated", "waited", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.loss,
            row.level,
            f"{row.acknowledged:,}",
            f"{row.done:,}",
            f"{row.lost:,}",
            f"{row.unconfirmed:,}",
            f"{row.waited:.1f} s",
            "[green]ok[/]" if row.good else "[bold red]WRONG[/]",
        )
    console.print()
    console.print(table)
    for problem in problems:
        console.print(f"! {problem}", style="red")
    good = all(row.good for row in rows) and not problems
    lost = sum(row.lost for row in rows if row.level in KEEPS_ALL)
    console.print(
        f"replicated lost {lost} of what it acknowledged; "
        + ("every task that was kept is done" if good else "THE PROMISE WAS BROKEN"),
        style="bold green" if good else "bold red",
    )
    return 0 if good else 1
