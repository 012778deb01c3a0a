"""Find task names by their last part, and suggest names for misspelt ones."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

from relier.cli.session import CommandFailure, Exit, Session
from relier.cli.task_list import TaskFilter, in_state
from relier.ledger.pages import read_stats

SAMPLE = 1000  # tasks of each state that are read to suggest a name


def known_names(session: Session, wanted: TaskFilter) -> set[str]:
    """Return the names of some tasks in the wanted states, the newest ones."""
    stats = read_stats(session.run, session.ledger)
    found = (
        entry.record.name
        for state in wanted.states
        for entry in islice(in_state(session, stats, state, TaskFilter([state]), limit=SAMPLE - 1), SAMPLE)
        if entry.record is not None
    )
    return set(found)


def did_you_mean(session: Session, wanted: TaskFilter) -> str:
    """Return a hint for a name that no task has, or an empty string."""
    if not wanted.name:
        return ""
    names = known_names(session, wanted)
    by_last = {name.rpartition(".")[2]: name for name in names}
    near = get_close_matches(wanted.name, [*names, *by_last], 1)
    return f" Did you mean {by_last.get(near[0], near[0])}?" if near else ""


def refuse_several(wanted: TaskFilter, names: Iterable[str]) -> None:
    """Raise if a short name matches several tasks: a command that changes tasks needs the whole name."""
    different = sorted(set(names))
    if wanted.name and len(different) > 1:
        raise CommandFailure(
            f"--name {wanted.name} matches {len(different)} tasks; nothing was changed; give the whole name:",
            Exit.USAGE,
            different,
        )
