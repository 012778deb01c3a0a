"""rl slo status: burn rates and alerts of each objective."""

from __future__ import annotations

from typing import Any

import click

from relier.cli.output import print_json, print_sentences
from relier.cli.session import Exit, Session, with_session
from relier.cli.table import print_table
from relier.slo import ObjectiveStatus, judge_all, objectives_of, read_history_sync

SHOWN = ("5m", "1h", "6h", "3d")
HEADERS = ("OBJECTIVE", "STATE", "TARGET", *(window.upper() for window in SHOWN), "LEFT")
COUNTING_IS_OFF = "RELIER_SLO is off for this command: processes with this setting count nothing."


@click.command("status")
@with_session
def status_command(session: Session) -> Exit:
    """Show the burn rate of each objective over 5 minutes, 1 hour, 6 hours and 3 days, and which alerts fire.

    A burn rate of 1 uses up the error budget exactly; a burn rate of 10 uses it up ten times as fast. LEFT is the share
    of the last 3 days' budget that remains. STATE is `page` or `ticket` if an alert fires; then the exit code is 1.
    """
    objectives = objectives_of(session.settings)
    history = read_history_sync(session.run, session.ledger)
    found = judge_all(objectives, history)
    if session.as_json:
        rows = [_as_dict(each) for each in found]
        print_json({"namespace": session.settings.namespace, "now_ms": history.now_ms, "objectives": rows})
    else:
        print_table(HEADERS, [_row(each) for each in found], optional=("TARGET",))
        print_sentences(_explained(each) for each in found if each.firing)
        if session.settings.slo == "off":
            click.echo(COUNTING_IS_OFF)
    return Exit.PROBLEM if any(each.firing for each in found) else Exit.OK


def _row(each: ObjectiveStatus) -> tuple[str, ...]:
    rates = [each.windows[window].burn_rate for window in SHOWN]
    left = "" if each.budget_left is None else f"{each.budget_left:.0%}" if each.budget_left > 0 else "none"
    words = ["-" if rate is None else f"{rate:.3g}" for rate in rates]
    return each.objective.label, each.state, f"{each.objective.target:.4%}".rstrip("0%").rstrip(".") + "%", *words, left


def _explained(each: ObjectiveStatus) -> str:
    rule = each.firing[0]
    long, short = each.windows[rule.long], each.windows[rule.short]
    return (
        f"{rule.severity}: {each.objective.label}: {long.total - long.good:,} of {long.total:,} did not do well in the "
        f"last {rule.long}, and {short.total - short.good:,} of {short.total:,} in the last {rule.short}: more than "
        f"{rule.threshold:g} times what the target allows. See `rl slo report --window {rule.long}`."
    )


def _as_dict(each: ObjectiveStatus) -> dict[str, Any]:
    objective = each.objective
    windows = {
        name: {"good": window.good, "total": window.total, "burn_rate": window.burn_rate}
        for name, window in each.windows.items()
    }
    alerts = [
        {"severity": rule.severity, "long": rule.long, "short": rule.short, "threshold": rule.threshold}
        for rule in each.firing
    ]
    return {
        "objective": objective.label,
        "kind": objective.kind,
        "queue": objective.queue or None,
        "task": objective.task or None,
        "within_ms": objective.within_ms or None,
        "target": objective.target,
        "state": each.state,
        "windows": windows,
        "alerts": alerts,
        "budget_left": each.budget_left,
    }
