"""The verdict, from the ledger alone: its records, its counters and its audit."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table

from relier import Client
from relier.cli.audit import audit
from relier.errors import RelierError
from relier.ledger.records import Task


def judge(client: Client, ids: list[str], console: Console) -> int:
    """Print the table. Return the exit code: 0 if every promise was kept."""
    answers = client.sync_store.run_many(client.ledger.get(task_id) for task_id in ids)
    tasks = [answer for answer in answers if isinstance(answer, Task)]
    states = Counter(task.record.state.value for task in tasks)
    counts = Counter(client.run(client.ledger.stats()).counts)
    report = audit(client.sync_store, client.ledger)
    again = sum(task.record.attempt > 1 for task in tasks)
    absent = sum(isinstance(answer, RelierError) for answer in answers)
    lost = max(absent, report.books["missing"])
    twice = max(0, counts["done"] - states["done"] - absent)  # a commit changes one record once
    rows = [
        ("pushed, by the receipts", len(ids), len(set(ids)) == len(ids) > 0),
        ("accepted, by the ledger", counts["submitted"], counts["submitted"] == len(ids)),
        ("done: every id asked for, one by one", states["done"], states["done"] == len(ids)),
        ("commits the ledger counted", counts["done"], counts["done"] == len(ids)),
        ("revived", counts["revived"], counts["revived"] > 0),
        ("ran more than once", again, again > 0),
        ("zombies refused", counts["refused"], counts["refused"] > 0),
        ("lost", lost, lost == 0),
        ("committed twice", twice, twice == 0),
        ("findings of the audit", len(report.findings), report.ok),
    ]
    table = Table(title="what the ledger says", min_width=50)
    table.add_column("")
    table.add_column("tasks", justify="right")
    table.add_column("")
    for name, number, good in rows:
        table.add_row(name, f"{number:,}", "[green]ok[/]" if good else "[bold red]WRONG[/]")
    console.print()
    console.print(table)
    reasons = Counter(f"{task.record.state} of {task.record.reason}" for task in tasks if task.record.state != "done")
    for what in [finding.problem for finding in report.findings] + [f"{n:,} are {why}" for why, n in reasons.items()]:
        console.print(f"! {what}", style="red")
    good = all(good for _, _, good in rows)
    console.print(
        "nothing was lost, nothing was committed twice" if good else "THE PROMISE WAS BROKEN",
        style="bold green" if good else "bold red",
    )
    return 0 if good else 1
