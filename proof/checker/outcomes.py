"""Check that every end and claim of a task is counted once, in the minute and the hour of its call.

The expected counts come from the events of the call, which check_events has compared with the ledger's state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from proof.checker.ghost import Memory, OutcomeMemory, Violation
from proof.model.outcomes import OUTCOME_FIELDS
from proof.model.state import TaskChange
from relier.slo.buckets import bucket_of

if TYPE_CHECKING:
    from proof.checker.checker import Checker
    from proof.model.model import Model

ENDS = frozenset({"done", "dead", "cancelled"})
Field = tuple[str, str]  # `<what> <bucket>`, and `<queue>\n<name>`


def check_outcomes(checker: Checker, script: str, rows: Iterable[TaskChange]) -> None:
    """Check the counts after a call."""
    memory, found = checker.memory.outcomes, checker.world.backend.model.outcomes
    if not rows and found == memory.hashes:
        return
    expected = Counter(_expected(checker, memory, rows))
    now = {f"m{checker.time_ms // 60_000}", f"h{checker.time_ms // 3_600_000}"} if expected else set()
    for period in found.keys() | memory.hashes.keys() | now:
        before, after = memory.hashes.get(period, {}), found.get(period, {})
        if period in now:
            _check_hash(f"{script} in {period}", before, after, expected)
            memory.hashes[period] = dict(after)
        elif before != after:
            raise Violation("outcomes-are-counted-once", f"{script} changed {period} from {before} to {after}")


def forget_outcomes(model: Model, memory: Memory) -> None:
    """Forget what was counted, so that two paths to one state count as the same case."""
    model.outcomes, memory.outcomes.hashes = {}, {}


def _expected(checker: Checker, memory: OutcomeMemory, rows: Iterable[TaskChange]) -> Iterable[Field]:
    """Return what the changes of a call must add. `since`: when each task entered its present state."""
    for row in rows:
        place = f"{row.queue}\n{row.name}"
        if row.was == row.state:
            continue
        if row.state == "running":
            entered = checker.world.backend.model.tasks[row.id].at // 1000
            yield f"wait {bucket_of(checker.time_ms - memory.since.get(row.id, entered))}", place
        elif row.state in ENDS:
            ran = bucket_of(checker.time_ms - memory.since[row.id]) if row.was == "running" else "-"
            yield f"{'expired' if row.reason == 'expired' else row.state} {ran}", place
        if row.was == "-" or row.state == "-":
            memory.since.pop(row.id, None)
        else:
            memory.since[row.id] = checker.time_ms


def _check_hash(where: str, before: dict[str, int], after: dict[str, int], expected: Counter[Field]) -> None:
    added = {field: n - before.get(field, 0) for field, n in after.items() if n != before.get(field)}
    added |= {field: -n for field, n in before.items() if field not in after}
    spilled: dict[str, int] = {}
    for (head, place), n in expected.items():
        field = f"{head}\n{place}"
        if field not in after and len(after) >= OUTCOME_FIELDS:
            spilled[f"{head}\n\n"] = spilled.get(f"{head}\n\n", 0) + n
        elif added.pop(field, 0) != n:
            raise Violation("outcomes-are-counted-once", f"{where}: {field!r} from {before} to {after}, not {n} more")
    if added != spilled:
        raise Violation("outcomes-are-counted-once", f"{where}: {added} was added beside what ended: {expected}")
    if len(after) > OUTCOME_FIELDS and sum(1 for field in after if not field.endswith("\n\n")) > OUTCOME_FIELDS:
        raise Violation("outcomes-are-bounded", f"{where}: {len(after)} fields")
