"""Define what `run_pending` returns: one RanAttempt for each attempt that ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from relier.errors import TaskNotFoundError
from relier.ledger.records import Claimed, Task
from relier.run.attempt import Attempt
from relier.run.outcome import Again, Crowded, Done, Failed, Gone, Outcome, PutBack
from relier.states import State
from relier.submit.client import Client
from relier.testing.declared import seen_call, seen_result
from relier.testing.virtual.runner import Settlement

WORDS = {"retry": "retried", "bury": "dead", "release": "released", "forfeit": "killed"}


@dataclass(frozen=True)
class RanAttempt:
    """Describe an attempt that ended.

    outcome   done, retried, dead, killed (by a fault), refused (the lease was lost, so the ledger refused the outcome),
              released (handed back), or put back (this process does not know the task)
    result    what the task returned, if it is done
    error     what the task raised, if it raised
    at        when the attempt ended, in virtual time since the test's store was opened
    """

    task_id: str
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    attempt: int
    outcome: str
    result: Any = None
    error: BaseException | None = None
    at: timedelta = field(default=timedelta(), compare=False)

    def __str__(self) -> str:
        words = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        error = "" if self.error is None else f": {type(self.error).__name__}: {self.error}"
        return f"{self.name}({', '.join(words)}), attempt {self.attempt}: {self.outcome}{error}"


def ran_attempt(
    client: Client, settled: Settlement, attempt: Attempt | None, at: timedelta, *, killed: bool
) -> RanAttempt:
    """Return the description of a settled attempt, according to the ledger."""
    claimed, outcome = settled.claimed, settled.outcome
    try:
        task = client.run(client.ledger.get(claimed.lease.task_id))
    except TaskNotFoundError:
        task = None
    word = "killed" if killed else _word(claimed, outcome, task)
    result = None
    if word == "done" and attempt is not None and isinstance(outcome, Done) and outcome.result is not None:
        raw = client.keyring.unwrap(outcome.result, claimed.lease.task_id, "result")
        result = seen_result(attempt.task, attempt.task.arguments.decode_result(raw))
    error = outcome.error if isinstance(outcome, Failed | PutBack) else None
    args, kwargs = ((), {}) if attempt is None else seen_call(attempt.task, attempt.args, attempt.kwargs)
    record = claimed.record
    return RanAttempt(record.id, record.name, args, kwargs, record.attempt, word, result, error, at)


def _word(claimed: Claimed, outcome: Outcome, task: Task | None) -> str:
    fence = claimed.lease.fence
    if isinstance(outcome, Done):
        done = task is None or (task.record.state is State.DONE and task.record.fence == fence)
        return "done" if done else "refused"
    if isinstance(outcome, PutBack | Crowded):
        return "put back"
    if isinstance(outcome, Again | Gone):
        return "retried" if isinstance(outcome, Again) else "refused"
    moves = [entry.move for entry in ([] if task is None else task.history) if entry.fence == fence]
    return WORDS.get(moves[-1], "refused") if moves else "refused"
