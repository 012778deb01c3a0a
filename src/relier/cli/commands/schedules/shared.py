"""Read and show schedules, for all commands of `rl schedules`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from relier.cli.output import ago
from relier.cli.session import CommandFailure, Exit, Session
from relier.errors import ScheduleNotFoundError
from relier.ledger.records import Accepted, Admission, Submission
from relier.schedules.api import ScheduleOperations
from relier.schedules.views import ScheduleFiring, ScheduleInfo
from relier.store.call import Call, Durability
from relier.store.sync_wire import run_sync

OVERDUE_MS = 60_000


class SessionAccess:
    """Run the calls of a command. Unlike a client, do not open the namespace, so that reading writes nothing."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def run(self, call: Call[Any]) -> Any:
        return self._session.run(call)

    async def submit(
        self, tasks: Sequence[Submission], admission: Admission | None, level: Durability
    ) -> Sequence[Accepted]:
        return self._session.run(self._session.ledger.submit(tasks, admission, level))


def operations_of(session: Session) -> tuple[ScheduleOperations, int]:
    """Return the operations on schedules for a session, and the store's time (ms)."""
    now_ms = session.run(session.ledger.schedules("-")).now_ms
    return ScheduleOperations(session.settings, session.ledger, session.keyring, SessionAccess(session)), now_ms


def named(operations: ScheduleOperations, name: str) -> ScheduleInfo:
    """Return a schedule. The error for an unknown name suggests the closest one."""
    try:
        return run_sync(operations.get(name))
    except ScheduleNotFoundError as error:
        close = get_close_matches(name, [info.name for info in run_sync(operations.list_all())], 1)
        meant = f"did you mean {close[0]!r}?" if close else "`rl schedules` lists them"
        raise CommandFailure(f"there is no schedule {name!r}; {meant}", Exit.PROBLEM) from error


def next_due(info: ScheduleInfo, now_ms: int) -> str:
    if info.next is None:
        return ""
    at = to_ms(info.next)
    return f"overdue, {ago(at, now_ms)}" if at < now_ms - OVERDUE_MS else due_in(at, now_ms)


def due_in(at: int, now_ms: int) -> str:
    """Return how far ahead a time is: "in 5 min", or "now" from a second before it."""
    return ago(at, now_ms) if at >= now_ms + 1000 else "now"


def to_ms(moment: datetime) -> int:
    return round(1000 * moment.timestamp())


def as_dict(info: ScheduleInfo) -> dict[str, Any]:
    plain = asdict(info)
    return plain | {
        "state": info.state.value,
        "next_ms": None if info.next is None else to_ms(info.next),
        "next": None if info.next is None else info.next.isoformat(),
        "history": [firing_dict(firing) for firing in info.history],
    }


def firing_dict(firing: ScheduleFiring) -> dict[str, Any]:
    return asdict(firing) | {"intended": firing.intended.isoformat(), "at": firing.at.isoformat()}
