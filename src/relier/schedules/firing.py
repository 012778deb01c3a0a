"""Fire schedules that are due. Every sweep does this (rescue/phoenix.py), and an edit does it for the old version.

Only the store's TIME decides what is due, and the script accepts only the first call. If this process cannot fire a
schedule (an unknown timing, a missing key), it logs that once, and leaves the schedule to other processes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from relier.codec.keyring import Keyring
from relier.errors import IndeterminateError, RelierError, StoreError, StoreFullError
from relier.ledger.ledger import CHUNK_BYTES, Ledger
from relier.ledger.schedule_records import FIRE_RUNS, DueSchedule, FireAnswer, FireOutcome
from relier.schedules.definition import read_definition
from relier.schedules.planning import plan_fire
from relier.settings import Settings
from relier.store.call import Call

log = logging.getLogger("relier.schedules")

RunCall = Callable[[Call[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class FireContext:
    """Hold what a firing needs besides the schedule itself."""

    ledger: Ledger
    namespace: str
    keyring: Keyring
    shard: int = field(default=0, kw_only=True)
    shards: int = field(default=1, kw_only=True)

    @classmethod
    def of(cls, settings: Settings, ledger: Ledger, keyring: Keyring) -> FireContext:
        """Return the context of one namespace, which may be a shard."""
        return cls(ledger, settings.namespace, keyring, shard=settings.shard or 0, shards=settings.shards)

    def call(self, due: DueSchedule, now_ms: int) -> Call[FireAnswer]:
        """Return the call that fires a due schedule. Raise a RelierError if this process cannot compute it."""
        definition = read_definition(due.name, due.definition)
        most = max(1, min(FIRE_RUNS, CHUNK_BYTES // max(1, len(definition.payload))))
        plan = plan_fire(definition.when(), definition.rule(), due.intended_ms, now_ms, most)
        shard = (self.shard, self.shards)
        named = (due.name, self.namespace, due.version)
        runs = definition.runs(*named, plan.runs, self.keyring, *shard) if plan.runs else []
        return self.ledger.fire(
            due.name,
            due.version,
            due.intended_ms,
            plan.next_ms,
            runs,
            missed=plan.missed,
            overlap=definition.overlap,
        )

    def fired(self, due: DueSchedule, answer: FireAnswer) -> None:
        """Handle the answer to a `fire` call: log it."""
        report_fired(due, answer)


class DueSchedules:
    """Fire the due schedules that a sweep finds."""

    def __init__(self, context: FireContext, run: RunCall) -> None:
        self._context = context
        self._run = run
        self._stuck: dict[str, str] = {}  # name -> version of schedules that this process cannot fire

    async def fire(self, found: Sequence[DueSchedule], now_ms: int) -> int:
        """Fire due schedules. Return how many of them this process cannot fire now, so that the sweep skips them."""
        stuck = 0
        for due in found:
            try:
                answer = await self._run(self._context.call(due, now_ms))
            except StoreFullError as error:
                self._report(due, error)
                stuck += 1
            except (StoreError, IndeterminateError):
                raise
            except RelierError as error:
                self._report(due, error)
                stuck += 1
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one schedule must not stop the others
                self._report(due, error)
                stuck += 1
            else:
                self._stuck.pop(due.name, None)
                self._context.fired(due, answer)
        return stuck

    def _report(self, due: DueSchedule, error: Exception) -> None:
        if self._stuck.get(due.name) != due.version:
            self._stuck[due.name] = due.version
            known = isinstance(error, RelierError)
            log.warning(
                "schedule %s is due, but this process cannot fire it: %s; other workers may fire it",
                due.name,
                error if known else repr(error),
                exc_info=None if known else error,
            )


def report_fired(due: DueSchedule, answer: FireAnswer) -> None:
    """Log what a firing did."""
    for outcome, task_id in answer.outcomes:
        if outcome == FireOutcome.FIRED:
            log.info("schedule %s fired task %s", due.name, task_id)
        else:
            log.info("schedule %s did not fire: %s (task %s)", due.name, outcome, task_id)
