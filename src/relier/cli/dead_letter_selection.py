"""Select dead tasks by id or filter, ask for confirmation, and apply a move to them at a limited rate."""

from __future__ import annotations

import functools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from relier.cli.output import one_line, plural, print_json
from relier.cli.session import Exit, Session, exit_code_of
from relier.cli.task_list import TaskFilter, all_tasks
from relier.errors import IllegalMoveError, RelierError
from relier.ledger.records import Operated
from relier.states import State
from relier.store.call import Call

AT_ONCE = 100
SLOWEST = 1e-6  # tasks per second; slower rates exceed what sleep() accepts


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected tasks: ids from the command line, or a filter."""

    ids: tuple[str, ...]
    wanted: TaskFilter
    everything: bool
    yes: bool

    @property
    def by_filter(self) -> bool:
        return not self.ids


@dataclass(frozen=True, slots=True)
class SelectedTask:
    """One task at the version that was read. `trouble`: why it cannot be selected."""

    id: str
    version: int = 0
    reason: str = ""
    name: str = ""
    trouble: RelierError | None = None


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    id: str
    error: RelierError | None


def read_rate(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse --rate: a number per second, minute or hour."""
    if value is None:
        return None
    number, _, unit = value.partition("/")
    seconds = {"": 1, "s": 1, "m": 60, "h": 3600}.get(unit.strip(), 0)
    try:
        rate = float(number) / seconds
    except (ValueError, ZeroDivisionError):
        rate = 0.0
    if not SLOWEST <= rate < float("inf"):
        raise click.BadParameter(f"{value!r} is not a rate; write 50, 50/s or 300/m", ctx, param)
    return rate


def selection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ID…, --reason, --name, --queue, --all and --yes, passed on as one Selection."""

    @click.argument("ids", nargs=-1, metavar="[ID]...")
    @click.option("--reason", default="", metavar="REASON", help="Select tasks with this reason.")
    @click.option("--name", default="", metavar="NAME", help="Select tasks with this name.")
    @click.option("--queue", default="", metavar="QUEUE", help="Select tasks in this queue.")
    @click.option("--all", "everything", is_flag=True, help="Select all dead tasks.")
    @click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
    @functools.wraps(function)
    def command(
        ids: tuple[str, ...], reason: str, name: str, queue: str, everything: bool, yes: bool, **given: Any
    ) -> Any:
        wanted = TaskFilter([State.DEAD], queue, name, reason)
        filtered = everything or not wanted.everything
        if bool(ids) == filtered:
            raise click.UsageError(
                "no tasks selected; give IDs, --reason, --name, --queue or --all"
                if not ids
                else "IDs and filters cannot be combined; give one or the other"
            )
        return function(selection=Selection(tuple(dict.fromkeys(ids)), wanted, everything, yes), **given)

    return command


def choose(session: Session, selection: Selection) -> list[SelectedTask]:
    """Return the selected tasks, each with the version that was read."""
    if selection.by_filter:
        found = all_tasks(session, selection.wanted)
        return [SelectedTask(record.id, record.version, record.reason, record.name) for record in found]
    chosen = []
    answers = session.run_many(session.ledger.get(task_id) for task_id in selection.ids)
    for task_id, task in zip(selection.ids, answers, strict=True):
        if isinstance(task, RelierError):
            chosen.append(SelectedTask(task_id, trouble=task))
        elif task.record.state is not State.DEAD:  # without this check, discard would accept any ended task
            message = f"task {task_id} is {task.record.state}, not dead; it was left unchanged; see `rl why {task_id}`"
            chosen.append(SelectedTask(task_id, trouble=IllegalMoveError(message)))
        else:
            chosen.append(SelectedTask(task_id, task.record.version, task.record.reason, task.record.name))
    return chosen


def confirm(session: Session, selection: Selection, chosen: Sequence[SelectedTask], verb: str) -> None:
    """Ask before acting on tasks that a filter selected. Ids from the command line need no confirmation."""
    if not selection.by_filter or selection.yes or not chosen:
        return
    kinds = Counter((task.reason, task.name) for task in chosen)
    for (reason, name), n in kinds.most_common(5):
        click.echo(f"  {n:,} × {one_line(reason)} in {one_line(name)}", err=True)
    if len(kinds) > 5:
        click.echo(f"  and {plural(len(kinds) - 5, 'other combination')} of reason and name", err=True)
    if not is_interactive():
        raise click.UsageError(f"{plural(len(chosen), 'task')} selected, but stdin is not a terminal; add --yes")
    click.confirm(f"{verb} {plural(len(chosen), 'dead task')} in {session.where}?", abort=True, err=True)


def is_interactive() -> bool:
    return sys.stdin.isatty()


def apply_move(
    session: Session,
    chosen: Sequence[SelectedTask],
    move: Callable[[SelectedTask], Call[Operated]],
    *,
    rate: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> list[MoveOutcome]:
    """Apply a move to each task, at a rate if one is given. Stop once the store cannot be reached."""
    outcomes: list[MoveOutcome] = []
    for some in _steps(chosen, rate, sleep, clock):
        fit = [task for task in some if task.trouble is None]
        calls = [move(task) for task in fit]
        replies = session.run_many(calls)
        answers = dict(zip((task.id for task in fit), replies, strict=True))
        for task in some:
            answer = task.trouble or answers[task.id]
            outcomes.append(MoveOutcome(task.id, answer if isinstance(answer, RelierError) else None))
        if any(outcome.error and exit_code_of(outcome.error) is Exit.STORE for outcome in outcomes[-len(some) :]):
            break
    return outcomes


def _steps(
    chosen: Sequence[SelectedTask], rate: float | None, sleep: Callable[[float], None], clock: Callable[[], float]
) -> Iterator[Sequence[SelectedTask]]:
    """Yield about a tenth of a second's worth of tasks at a time, so that a rate does not become bursts."""
    size = AT_ONCE if rate is None else max(1, min(AT_ONCE, int(rate / 10)))
    began = clock()
    for at in range(0, len(chosen), size):
        if rate is not None and (wait := began + at / rate - clock()) > 0:
            sleep(wait)
        yield chosen[at : at + size]


def report_outcomes(
    session: Session, chosen: Sequence[SelectedTask], outcomes: Sequence[MoveOutcome], done: str
) -> Exit:
    """Report the outcomes, and return the highest exit code among them."""
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    worst = max(map(exit_code_of, errors), default=Exit.OK)
    n_done = len(outcomes) - len(errors)
    if session.as_json:
        rows = [
            {"id": outcome.id, "outcome": "refused" if outcome.error else done, "error": _said(outcome.error)}
            for outcome in outcomes
        ]
        untried = [{"id": task.id, "outcome": "not tried", "error": None} for task in chosen[len(outcomes) :]]
        print_json({"namespace": session.settings.namespace, done: n_done, "tasks": rows + untried})
        return worst
    for line in dict.fromkeys(map(_said, errors)):  # report an outage once, not once per task
        click.echo(f"rl: {line}", err=True)
    click.echo(f"{plural(n_done, 'task')} {done}{f' of {len(chosen):,}' if n_done < len(chosen) else ''}.")
    return worst


def _said(error: RelierError | None) -> str | None:
    return " ".join(str(error).split()) if error else None
