"""Select tasks by id or filter, ask for confirmation, and apply a move to them at a limited rate."""

from __future__ import annotations

import functools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from relier.cli.find.task_ids import full_ids
from relier.cli.find.task_names import did_you_mean, refuse_several
from relier.cli.output import one_line, plural, print_json, progress_bar
from relier.cli.session import Exit, Session, exit_code_of, not_empty
from relier.cli.task_list import TaskFilter, all_tasks
from relier.errors import IllegalMoveError, RelierError
from relier.ledger.records import Operated
from relier.states import State
from relier.store.call import Call

AT_ONCE = 100
KINDS = {State.DEAD: "dead tasks", State.DONE: "tasks that are done or cancelled"}
SLOWEST = 1e-6  # tasks per second; slower rates exceed what sleep() accepts


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected tasks: ids from the command line, or a filter."""

    ids: tuple[str, ...]
    wanted: TaskFilter
    everything: bool
    yes: bool
    dry_run: bool

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


def selection_options(*states: State) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ID…, --reason (for ended tasks), --name, --queue, --all, --dry-run and --yes, passed on as one Selection."""
    kind = KINDS.get(states[0], "tasks that have not ended")
    reason = click.option(
        "--reason", default="", metavar="REASON", callback=not_empty, help="Select tasks with this reason."
    )

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.argument("ids", nargs=-1, metavar="[ID]...", callback=not_empty)
        @click.option("--name", default="", metavar="NAME", callback=not_empty, help="Select tasks with this name.")
        @click.option("--queue", default="", metavar="QUEUE", callback=not_empty, help="Select tasks in this queue.")
        @click.option("--all", "everything", is_flag=True, help=f"Select all {kind}.")
        @click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
        @click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
        @functools.wraps(function)
        def command(
            ids: tuple[str, ...],
            name: str,
            queue: str,
            everything: bool,
            dry_run: bool,
            yes: bool,
            reason: str = "",
            **given: Any,
        ) -> Any:
            wanted = TaskFilter(states, queue, name, reason)
            _check_selected(ids, wanted, everything)
            selection = Selection(tuple(dict.fromkeys(ids)), wanted, everything, yes, dry_run)
            return function(selection=selection, **given)

        return reason(command) if State.DEAD in states else command

    return add


def _check_selected(ids: Sequence[str], wanted: TaskFilter, everything: bool) -> None:
    if bool(ids) == (everything or not wanted.everything):
        filters = "--reason, --name, --queue" if State.DEAD in wanted.states else "--name, --queue"
        raise click.UsageError(
            f"no tasks selected; give IDs, {filters} or --all"
            if not ids
            else "IDs and filters cannot be combined; give one or the other"
        )


def choose(session: Session, selection: Selection) -> list[SelectedTask]:
    """Return the selected tasks, each with the version that was read."""
    states = selection.wanted.states
    if selection.by_filter:
        found = list(all_tasks(session, selection.wanted))
        refuse_several(selection.wanted, (record.name for record in found))
        if not found and (hint := did_you_mean(session, selection.wanted)):
            click.echo(f"rl: no task is named {selection.wanted.name!r}.{hint}", err=True)
        return [SelectedTask(record.id, record.version, record.reason, record.name) for record in found]
    ids = full_ids(session, selection.ids, dead=State.DEAD in states)
    chosen = []
    answers = session.run_many(session.ledger.get(task_id) for task_id in ids)
    for task_id, task in zip(ids, answers, strict=True):
        if isinstance(task, RelierError):
            chosen.append(SelectedTask(task_id, trouble=task))
        elif task.record.state not in states:  # without this check, discard would accept any ended task
            right = " or ".join(state.value for state in states)
            said = f"task {task_id} is {task.record.state}, not {right}; it was left unchanged; see `rl why {task_id}`"
            chosen.append(SelectedTask(task_id, trouble=IllegalMoveError(said)))
        else:
            chosen.append(SelectedTask(task_id, task.record.version, task.record.reason, task.record.name))
    return chosen


def confirm(session: Session, selection: Selection, chosen: Sequence[SelectedTask], verb: str) -> None:
    """Ask before acting on tasks that a filter selected. Ids from the command line need no confirmation."""
    if not selection.by_filter or selection.yes or selection.dry_run or not chosen:
        return
    print_kinds(chosen, err=True)
    if not is_interactive():
        raise click.UsageError(f"{plural(len(chosen), 'task')} selected, but stdin is not a terminal; add --yes")
    kind = "dead task" if State.DEAD in selection.wanted.states else "task"
    click.confirm(f"{verb} {plural(len(chosen), kind)} in {session.where}?", abort=True, err=True)


def print_kinds(chosen: Sequence[SelectedTask], *, err: bool) -> None:
    """Print how many tasks of each name were selected, and why they died."""
    kinds = Counter((task.reason, task.name) for task in chosen if task.trouble is None)
    for (reason, name), n in kinds.most_common(5):
        click.echo(f"  {n:,} × {f'{one_line(reason)} in ' if reason else ''}{one_line(name)}", err=err)
    if len(kinds) > 5:
        click.echo(f"  and {plural(len(kinds) - 5, 'other combination')} of reason and name", err=err)


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
    with progress_bar("", len(chosen), always=rate is not None) as advance:
        for some in _steps(chosen, rate, sleep, clock):
            fit = [task for task in some if task.trouble is None]
            calls = [move(task) for task in fit]
            replies = session.run_many(calls)
            answers = dict(zip((task.id for task in fit), replies, strict=True))
            for task in some:
                answer = task.trouble or answers[task.id]
                outcomes.append(MoveOutcome(task.id, answer if isinstance(answer, RelierError) else None))
            advance(len(some))
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


def report_dry_run(session: Session, chosen: Sequence[SelectedTask], done: str) -> Exit:
    """Report what would be done, and return the highest exit code among the tasks that cannot be selected."""
    errors = [task.trouble for task in chosen if task.trouble is not None]
    if session.as_json:
        rows = [
            {"id": task.id, "outcome": "refused" if task.trouble else f"would be {done}", "error": _said(task.trouble)}
            for task in chosen
        ]
        print_json({"namespace": session.settings.namespace, done: 0, "dry_run": True, "tasks": rows})
    else:
        for line in dict.fromkeys(map(_said, errors)):
            click.echo(f"rl: {line}", err=True)
        click.echo(f"{plural(len(chosen) - len(errors), 'task')} would be {done}.")
        print_kinds(chosen, err=False)
    return max(map(exit_code_of, errors), default=Exit.OK)


def _said(error: RelierError | None) -> str | None:
    return " ".join(str(error).split()) if error else None
