"""Cancel, replay, edit and discard tasks.

A task is named by `id`, or by `pick`: the version that a preview showed, a space, and the id. A task that has changed
since its preview is left alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from relier.cli.commands.tasks.cancel import cancel_one
from relier.cli.output import plural
from relier.cli.payload_view import edited
from relier.dashboard.actions.action import ActionForm, ActionOutcome
from relier.dashboard.reads.tasks import read_some
from relier.dashboard.rendering import url
from relier.dashboard.session import DashboardSession
from relier.errors import InvalidSubmissionError, RelierError, TaskNotFoundError
from relier.ledger.records import Operated, new_task_id
from relier.store.call import Call

FIELDS = {
    "id": "Id of a task; may be repeated",
    "pick": "Version and id of a task, with a space between them; may be repeated",
}
FRESH = {"fresh": "1: discard checkpoint and steps, and start over"}
MOST = 500
Move = Callable[[str, int], Call[Operated]]


def cancel(session: DashboardSession, form: ActionForm) -> ActionOutcome:
    """Cancel waiting tasks, and ask running ones to stop."""
    ids = [*form.all("id"), *(pick.partition(" ")[2] for pick in form.all("pick"))]
    _check_some(ids)
    errors = []
    for task_id in ids:
        try:
            cancel_one(session, task_id)
        except RelierError as error:
            errors.append(error)
    return _outcome("cancelled, or asked to stop", ids, errors, _back(ids, "/tasks"))


def replay(session: DashboardSession, form: ActionForm) -> ActionOutcome:
    fresh = form.text("fresh") == "1"
    ledger = session.ledger
    return _apply(
        session, form, "replayed", lambda task, seen: ledger.replay(task, seen, new_task_id(), fresh=fresh), "/dead"
    )


def discard(session: DashboardSession, form: ActionForm) -> ActionOutcome:
    done = _apply(session, form, "discarded", session.ledger.discard, "/dead")
    return ActionOutcome(done.says, "/dead", done.ok)


def edit(session: DashboardSession, form: ActionForm) -> ActionOutcome:
    """Replay a dead task with other arguments. They are signed and encrypted as the old ones were."""
    task_id = form.needed("id")
    task = session.run(session.ledger.get(task_id))
    body = edited(session, task, form.needed("arguments"), None)
    fresh = form.text("fresh") == "1"
    session.run(session.ledger.replay(task_id, task.record.version, new_task_id(), body, fresh=fresh))
    return ActionOutcome(f"Task {task_id} was replayed with other arguments.", url("/task", id=task_id))


def _apply(session: DashboardSession, form: ActionForm, done: str, move: Move, back: str) -> ActionOutcome:
    """Apply a move to each task, at the version that was seen or that it has now."""
    versions = dict(_read_pick(pick) for pick in form.all("pick"))
    ids = form.all("id")
    versions |= {record.id: record.version for record in read_some(session, ids)}
    _check_some([*versions, *ids])
    answers = session.store.run_many(move(task, version) for task, version in versions.items())
    missing = [TaskNotFoundError(f"there is no task {task}") for task in ids if task not in versions]
    errors = [*missing, *(answer for answer in answers if isinstance(answer, RelierError))]
    every = list(dict.fromkeys([*ids, *versions]))
    return _outcome(done, every, errors, _back(every, back))


def _read_pick(pick: str) -> tuple[str, int]:
    version, _, task_id = pick.partition(" ")
    if not re.fullmatch(r"[0-9]{1,18}", version) or not task_id:
        raise InvalidSubmissionError(f"the selection {pick!r:.60} is not a version and an id; select the task again")
    return task_id, int(version)


def _check_some(ids: Sequence[str]) -> None:
    if not ids:
        raise InvalidSubmissionError("no task is selected; select at least one")
    if len(ids) > MOST:
        raise InvalidSubmissionError(f"{len(ids):,} tasks are selected; at most {MOST} can be changed at once")


def _back(ids: Sequence[str], several: str) -> str:
    return url("/task", id=ids[0]) if len(ids) == 1 else several


def _outcome(done: str, ids: Sequence[str], errors: Sequence[Any], back: str) -> ActionOutcome:
    n_done = len(ids) - len(errors)
    says = f"{plural(n_done, 'task was', 'tasks were')} {done}."
    if errors:
        why = [f"{said} ({n:,}×)" if n > 1 else said for said, n in Counter(map(str, errors)).most_common(3)]
        says += f" {plural(len(errors), 'was', 'were')} not: {'; '.join(why)}."
    return ActionOutcome(says, back, not errors)
