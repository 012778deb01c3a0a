"""rl schema check: what a deploy of this code could not run, of what waits now and of the dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import click

from relier import registry
from relier.cli.output import print_json, print_table
from relier.cli.session import Exit, Failure, Session, with_session
from relier.cli.task_list import Wanted, all_tasks
from relier.envelope import open_envelope
from relier.errors import RelierError, TaskNotFoundError, WorkerInitializationError
from relier.ledger.records import Record, Task
from relier.redact import shown
from relier.run.migrations import migrated
from relier.states import State

WAITING = (State.QUEUED, State.SCHEDULED, State.RUNNING, State.DEAD)
AT_ONCE = 100
EXAMPLES = 3


@dataclass(slots=True)
class Trouble:
    """Tasks of one name that could not run for one reason."""

    name: str
    why: str
    states: Counter[str] = field(default_factory=Counter)
    ids: list[str] = field(default_factory=list)

    def add(self, record: Record) -> None:
        self.states[record.state.value] += 1
        if len(self.ids) < EXAMPLES:
            self.ids.append(record.id)


@click.group()
def schema() -> None:
    """Payloads and the code that shall run them."""


@schema.command()
@click.argument("modules", nargs=-1, required=True)
@with_session
def check(session: Session, modules: tuple[str, ...]) -> Exit:
    """Import MODULES and try to read every task that waits, runs or is dead: unknown names, schema versions without a
    migration, migrations that raise, arguments that do not fit. Nothing is run and nothing is changed.

    Exit code 1 where something could not run, 2 where a module cannot be imported: for the step of a pipeline before a
    deploy.
    """
    try:
        registry.load(modules)
    except WorkerInitializationError as error:
        raise Failure(str(error), Exit.USAGE) from error
    looked, troubles = look(session)
    if session.as_json:
        print_json(
            {"namespace": session.settings.namespace, "looked": looked, "troubles": [_dict(t) for t in troubles]}
        )
    elif troubles:
        rows = [(t.name, str(t.states.total()), _states(t), t.why, " ".join(t.ids)) for t in troubles]
        print_table(("NAME", "TASKS", "STATES", "WHY", "FOR EXAMPLE"), rows, ids=("FOR EXAMPLE",))
        total = sum(t.states.total() for t in troubles)
        click.echo(f"{total} of {looked} tasks could not run with this code.")
    else:
        click.echo(f"All {looked} tasks that wait, run or are dead can run with this code.")
    return Exit.PROBLEM if troubles else Exit.OK


def look(session: Session) -> tuple[int, list[Trouble]]:
    """How many tasks were looked at, and what is wrong with some, most frequent first."""
    looked = 0
    troubles: dict[tuple[str, str], Trouble] = {}
    for task in _whole(session, all_tasks(session, Wanted(states=WAITING))):
        looked += 1
        why = why_not(session, task)
        if why:
            name = task.record.name
            troubles.setdefault((name, why), Trouble(name, why)).add(task.record)
    return looked, sorted(troubles.values(), key=lambda trouble: -trouble.states.total())


def why_not(session: Session, task: Task) -> str:
    """Why this code could not run a task; empty where it can."""
    record = task.record
    known = registry.find(record.name)
    if known is None:
        near = registry.namesakes(record.name)
        return f"no such task in these modules{f'; there is {near[0]}' if near else ''}"
    try:
        payload = task.payload or b""
        envelope = open_envelope(payload, task_id=record.id, name=record.name, keyring=session.keyring)
        if envelope.schema_version > known.options.schema_version:
            newer, own = envelope.schema_version, known.options.schema_version
            return f"pushed by newer code: schema version {newer}, these modules have {own}"
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
            if isinstance(answer, TaskNotFoundError):  # it ended meanwhile
                continue
            if isinstance(answer, RelierError):
                raise answer
            if answer.payload is not None:
                yield answer


def _states(trouble: Trouble) -> str:
    return ", ".join(f"{n} {state}" for state, n in trouble.states.items())


def _dict(trouble: Trouble) -> dict[str, object]:
    return {"name": trouble.name, "why": trouble.why, "states": dict(trouble.states), "examples": trouble.ids}
