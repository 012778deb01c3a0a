"""rl slo report: how tasks ended, waited and ran."""

from __future__ import annotations

from typing import Any

import click

from relier.cli.output import plural, print_json, span
from relier.cli.session import Session, with_session
from relier.cli.table import print_table
from relier.slo import WINDOWS, TaskNumbers, read_history_sync, report_tasks
from relier.slo.task_report import PERCENTS

HEADERS = ("NAME", "QUEUE", "DONE", "DEAD", "LATE", "OK", "WAIT P50", "P95", "P99", "RUN P50", "P95", "P99")
OPTIONAL = ("QUEUE", "LATE", "WAIT P50", "RUN P50")


@click.command("report")
@click.option(
    "--window", type=click.Choice(list(WINDOWS)), default="1h", show_default=True, help="How far back to count."
)
@click.option("--queue", default="", metavar="QUEUE", help="Only tasks in this queue.")
@click.option("--name", default="", metavar="NAME", help="Only tasks with exactly this name.")
@click.option(
    "--limit", "most", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Maximum number to list."
)
@with_session
def report_command(session: Session, window: str, queue: str, name: str, most: int) -> None:
    """Show how the tasks of a window ended, and percentiles of how long they waited and ran. The busiest come first.

    LATE counts expired tasks. OK is the share that ended as done, not counting cancelled tasks. Waits are counted per
    claim, run times per ended task. A percentile is the upper end of its bucket: the true value is below it.
    """
    history = read_history_sync(session.run, session.ledger)
    found = report_tasks(history.last(WINDOWS[window]), queue, name)
    shown = found[:most]
    if session.as_json:
        rows = [_as_dict(one) for one in shown]
        document = {"namespace": session.settings.namespace, "now_ms": history.now_ms, "window": window}
        print_json(document | {"tasks": rows, "more": len(found) - len(shown)})
        return
    if not found:
        click.echo(f"Nothing was counted in the last {window} in {session.where}.")
        return
    print_table(HEADERS, [_row(one) for one in shown], optional=OPTIONAL)
    if len(found) > most:
        click.echo(
            f"{plural(len(found) - most, 'more row')}; list them with --limit, or choose with --queue and --name."
        )


def _row(one: TaskNumbers) -> tuple[str, ...]:
    ended = (f"{one.ended[state]:,}" for state in ("done", "dead", "expired"))
    ok = "" if one.success is None else f"{one.success:.2%}"
    times = [*(one.wait_ms(percent) for percent in PERCENTS), *(one.run_ms(percent) for percent in PERCENTS)]
    return one.name or "(other)", one.queue, *ended, ok, *("" if ms is None else span(ms) for ms in times)


def _as_dict(one: TaskNumbers) -> dict[str, Any]:
    return {
        "name": one.name,
        "queue": one.queue,
        **{state: one.ended[state] for state in ("done", "dead", "expired", "cancelled")},
        "success": one.success,
        "wait_ms": {f"p{percent}": one.wait_ms(percent) for percent in PERCENTS},
        "run_ms": {f"p{percent}": one.run_ms(percent) for percent in PERCENTS},
    }
