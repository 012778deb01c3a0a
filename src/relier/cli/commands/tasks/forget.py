"""rl tasks forget: delete records and results of tasks that are done or cancelled, before their time."""

from __future__ import annotations

import click

from relier.cli.session import Exit, Session, with_session
from relier.cli.shards.routes import routed, to_selection
from relier.cli.task_selection import (
    Selection,
    apply_move,
    choose,
    confirm,
    report_dry_run,
    report_outcomes,
    selection_options,
)
from relier.states import State


@click.command()
@selection_options(State.DONE, State.CANCELLED)
@with_session
@routed(to_selection)
def forget(session: Session, selection: Selection) -> Exit:
    """Forget tasks that are done or cancelled: their records, results and idempotency keys.

    The next push with such a key is a new task. Use this when an idempotent task returned a wrong result.
    """
    chosen = choose(session, selection)
    if selection.dry_run:
        return report_dry_run(session, chosen, "forgotten")
    confirm(session, selection, chosen, "Permanently forget")
    outcomes = apply_move(session, chosen, lambda task: session.ledger.discard(task.id, task.version))
    return report_outcomes(session, chosen, outcomes, "forgotten")
