"""Which dead tasks an operator means, being sure that they mean it, and doing it at a bearable rate."""

from __future__ import annotations

import functools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from relier.cli.output import many, one_line, print_json
from relier.cli.session import Exit, Session, exit_code_of
from relier.cli.task_list import Wanted, all_tasks
from relier.errors import IllegalMoveError, RelierError
from relier.ledger.records import Operated
from relier.states import State
from relier.store.call import Call

AT_ONCE = 100
SLOWEST = 1e-6  # a second: nobody waits eleven days for a task, and some pauses are too long to sleep


@dataclass(frozen=True, slots=True)
class Selection:
    """Ids as typed, or filters."""

    ids: tuple[str, ...]
    wanted: Wanted
    everything: bool
    yes: bool

    @property
    def by_filter(self) -> bool:
        return not self.ids


@dataclass(frozen=True, slots=True)
class Selected:
    """One task as it was seen. `trouble`: why it cannot be had."""

    id: str
    version: int = 0
    reason: str = ""
    name: str = ""
    trouble: RelierError | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    id: str
    error: RelierError | None


def read_rate(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """`--rate`: so many a second, or a minute, or an hour."""
    if value is None:
        return None
    number, _, unit = value.partition("/")
    seconds = {"": 1, "s": 1, "m": 60, "h": 3600}.get(unit.strip(), 0)
    try:
        rate = float(number) / seconds
    except (ValueError, ZeroDivisionError):
        rate = 0.0
    if not SLOWEST <= rate < float("inf"):
        raise click.BadParameter(f"{value!r} is no rate; write it like 50, 50/s or 300/m", ctx, param)
    return rate


def selection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """ID…, --reason, --name, --queue, --all and --yes, handed over as one Selection."""

    @click.argument("ids", nargs=-1, metavar="[ID]...")
    @click.option("--reason", default="", metavar="REASON", help="All that died of this.")
    @click.option("--name", default="", metavar="NAME", help="All of this name.")
    @click.option("--queue", default="", metavar="QUEUE", help="All of this queue.")
    @click.option("--all", "everything", is_flag=True, help="All dead tasks.")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @functools.wraps(function)
    def command(
        ids: tuple[str, ...], reason: str, name: str, queue: str, everything: bool, yes: bool, **given: Any
    ) -> Any:
        wanted = Wanted([State.DEAD], queue, name, reason)
        filtered = everything or not wanted.everything
        if bool(ids) == filtered:
            raise click.UsageError(
                "say which: either IDs, or --reason, --name, --queue, or --all"
                if not ids
                else "give IDs or filters, not both"
            )
        return function(selection=Selection(tuple(dict.fromkeys(ids)), wanted, everything, yes), **given)

    return command


def choose(session: Session, selection: Selection) -> list[Selected]:
    """The tasks meant, with the version they were seen at."""
    if selection.by_filter:
        found = all_tasks(session, selection.wanted)
        return [Selected(record.id, record.version, record.reason, record.name) for record in found]
    chosen = []
    answers = session.run_many(session.ledger.get(task_id) for task_id in selection.ids)
    for task_id, task in zip(selection.ids, answers, strict=True):
        if isinstance(task, RelierError):
            chosen.append(Selected(task_id, trouble=task))
        elif task.record.state is not State.DEAD:  # the ledger would discard any ended record
            message = f"task {task_id} is {task.record.state}, not dead; nothing was done; see `rl why {task_id}`"
            chosen.append(Selected(task_id, trouble=IllegalMoveError(message)))
        else:
            chosen.append(Selected(task_id, task.record.version, task.record.reason, task.record.name))
    return chosen


def confirm(session: Session, selection: Selection, chosen: Sequence[Selected], verb: str) -> None:
    """What a filter selects is asked about; ids somebody typed are not."""
    if not selection.by_filter or selection.yes or not chosen:
        return
    kinds = Counter((task.reason, task.name) for task in chosen)
    for (reason, name), n in kinds.most_common(5):
        click.echo(f"  {n:,} × {one_line(reason)} in {one_line(name)}", err=True)
    if len(kinds) > 5:
        click.echo(f"  and {many(len(kinds) - 5, 'other kind')}", err=True)
    if not somebody_is_here():
        raise click.UsageError(f"{many(len(chosen), 'task')} would be meant, and nobody is here to ask; say --yes")
    click.confirm(f"{verb}: {many(len(chosen), 'dead task')} of {session.where}?", abort=True, err=True)


def somebody_is_here() -> bool:
    return sys.stdin.isatty()


def carry_out(
    session: Session,
    chosen: Sequence[Selected],
    move: Callable[[Selected], Call[Operated]],
    *,
    rate: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> list[Outcome]:
    """Makes the move for each; at a rate, in small steps. Once the store is out of reach, the rest is not tried."""
    outcomes: list[Outcome] = []
    for some in _steps(chosen, rate, sleep, clock):
        fit = [task for task in some if task.trouble is None]
        calls = [move(task) for task in fit]
        replies = session.run_many(calls)
        answers = dict(zip((task.id for task in fit), replies, strict=True))
        for task in some:
            answer = task.trouble or answers[task.id]
            outcomes.append(Outcome(task.id, answer if isinstance(answer, RelierError) else None))
        if any(outcome.error and exit_code_of(outcome.error) is Exit.STORE for outcome in outcomes[-len(some) :]):
            break
    return outcomes


def _steps(
    chosen: Sequence[Selected], rate: float | None, sleep: Callable[[float], None], clock: Callable[[], float]
) -> Iterator[Sequence[Selected]]:
    """A tenth of a second's worth at a time, so that a rate is a stream and not a burst a second."""
    size = AT_ONCE if rate is None else max(1, min(AT_ONCE, int(rate / 10)))
    began = clock()
    for at in range(0, len(chosen), size):
        if rate is not None and (wait := began + at / rate - clock()) > 0:
            sleep(wait)
        yield chosen[at : at + size]


def tell(session: Session, chosen: Sequence[Selected], outcomes: Sequence[Outcome], done: str) -> Exit:
    """What came of it; the worst exit code of any."""
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
    for line in dict.fromkeys(map(_said, errors)):  # an outage is told once, not for each task
        click.echo(f"rl: {line}", err=True)
    click.echo(f"{many(n_done, 'task')} {done}{f' of {len(chosen):,}' if n_done < len(chosen) else ''}.")
    return worst


def _said(error: RelierError | None) -> str | None:
    return " ".join(str(error).split()) if error else None
