"""rl schema check: find stored tasks that new code could not run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import click

from relier import registry
from relier.cli.command_groups import store_options
from relier.cli.output import print_json, progress_bar, screen_width
from relier.cli.session import CommandFailure, Exit, Session, with_session
from relier.cli.table import print_table, short_in_terminal
from relier.cli.task_list import TaskFilter, all_tasks
from relier.envelope import open_envelope
from relier.errors import RelierError, TaskNotFoundError, WorkerInitializationError
from relier.ledger.pages import read_stats
from relier.ledger.records import Record, Task
from relier.redact import shown
from relier.run.migrations import migrated
from relier.states import State

WAITING = (State.QUEUED, State.SCHEDULED, State.RUNNING, State.DEAD)
AT_ONCE = 100
EXAMPLES = 3


@dataclass(slots=True)
class SchemaProblem:
    """Tasks with one name that could not run for one reason."""

    name: str
    why: str
    states: Counter[str] = field(default_factory=Counter)
    ids: list[str] = field(default_factory=list)

    def add(self, record: Record) -> None:
        self.states[record.state.value] += 1
        if len(self.ids) < EXAMPLES:
            self.ids.append(record.id)


@click.group()
@store_options
def schema(**_: Any) -> None:
    """Check stored payloads against code."""


@schema.command()
@click.argument("modules", nargs=-1, required=True)
@with_session
def check(session: Session, modules: tuple[str, ...]) -> Exit:
    """Import MODULES and check that they can run every waiting, running and dead task.

    Reports unknown task names, schema versions without a migration, migrations that raise, and arguments that do not
    fit. Runs no task and changes nothing. Use it in a pipeline before a deploy: it exits with 1 if some task could not
    run, and with 2 if a module cannot be imported.
    """
    try:
        registry.load(modules)
    except WorkerInitializationError as error:
        raise CommandFailure(str(error), Exit.USAGE) from error
    looked, troubles = look(session)
    if session.as_json:
        print_json(
            {"namespace": session.settings.namespace, "looked": looked, "troubles": [_dict(t) for t in troubles]}
        )
    elif troubles:
        rows = [(t.name, str(t.states.total()), _states(t), t.why, _examples(t)) for t in troubles]
        print_table(("NAME", "TASKS", "STATES", "WHY", "FOR EXAMPLE"), rows, optional=("STATES",))
        total = sum(t.states.total() for t in troubles)
        click.echo(f"{total} of {looked} tasks could not run with this code.")
    else:
        click.echo(f"All {looked} waiting, running and dead tasks can run with this code.")
    return Exit.PROBLEM if troubles else Exit.OK


def look(session: Session) -> tuple[int, list[SchemaProblem]]:
    """Return how many tasks were checked, and the problems found, most frequent first."""
    looked = 0
    troubles: dict[tuple[str, str], SchemaProblem] = {}
    by_state = read_stats(session.run, session.ledger).by_state()
    with progress_bar("Checking", sum(by_state[state] for state in WAITING)) as advance:
        for task in _whole(session, all_tasks(session, TaskFilter(states=WAITING))):
            looked += 1
            advance(1)
            why = why_not(session, task)
            if why:
                name = task.record.name
                troubles.setdefault((name, why), SchemaProblem(name, why)).add(task.record)
    return looked, sorted(troubles.values(), key=lambda trouble: -trouble.states.total())


def why_not(session: Session, task: Task) -> str:
    """Return why this code could not run a task, or an empty string if it can."""
    record = task.record
    known = registry.find(record.name)
    if known is None:
        near = registry.namesakes(record.name)
        return f"no such task in these modules{f'; did you mean {near[0]}?' if near else ''}"
    try:
        payload = task.payload or b""
        envelope = open_envelope(payload, task_id=record.id, name=record.name, keyring=session.keyring)
        if envelope.schema_version > known.options.schema_version:
            newer, own = envelope.schema_version, known.options.schema_version
            return f"pushed by newer code with schema version {newer}; these modules have {own}"
        known.arguments.check(*known.arguments.decode(migrated(known, envelope)))
    except RelierError as error:
        return f"{type(error).__name__}: {shown(session.settings, record.name, str(error))}"
    except TypeError as error:
        return f"arguments do not fit: {shown(session.settings, record.name, str(error))}"
    return ""


def _whole(session: Session, records: Iterable[Record]) -> Iterator[Task]:
    rest = iter(records)
    while page := list(islice(rest, AT_ONCE)):
        for answer in session.run_many(session.ledger.get(record.id) for record in page):
            if isinstance(answer, TaskNotFoundError):  # ended in the meantime
                continue
            if isinstance(answer, RelierError):
                raise answer
            if answer.payload is not None:
                yield answer


def _examples(trouble: SchemaProblem) -> str:
    """Return the ids of some tasks; a terminal has room for one."""
    return short_in_terminal(trouble.ids[0]) if screen_width() else " ".join(trouble.ids)


def _states(trouble: SchemaProblem) -> str:
    return ", ".join(f"{n} {state}" for state, n in trouble.states.items())


def _dict(trouble: SchemaProblem) -> dict[str, object]:
    return {"name": trouble.name, "why": trouble.why, "states": dict(trouble.states), "examples": trouble.ids}
