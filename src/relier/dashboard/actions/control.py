"""Change queues, schedules, batches, nodes and limits."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec.structs import replace

from relier.cli.commands.batches.commands import cancel_members
from relier.cli.commands.limits.changing import changed_numbers, known_limit
from relier.cli.commands.nodes import CannotOrderError, give_order
from relier.cli.node_view import node_statuses
from relier.dashboard.actions.action import ActionForm, ActionOutcome
from relier.dashboard.reads.schedules import schedule_operations
from relier.dashboard.rendering import url
from relier.dashboard.session import DashboardSession
from relier.errors import IllegalMoveError, InvalidSubmissionError, VersionConflictError
from relier.ledger.limit_overview import read_limits, set_limit
from relier.ledger.limit_records import LimitNumbers
from relier.ledger.nodes import Orders
from relier.limits import numbers_in_words
from relier.store.sync_wire import run_sync

TRIES = 5


# --- queues ------------------------------------------------------------------------------------------------------


def pause_queue(session: DashboardSession, form: ActionForm) -> ActionOutcome:
    return _switch_queue(session, form.needed("queue"), paused=True)


def resume_queue(session: DashboardSession, form: ActionForm) -> ActionOutcome:
    return _switch_queue(session, form.needed("queue"), paused=False)


def _switch_queue(session: DashboardSession, queue: str, *, paused: bool) -> ActionOutcome:
    """Pause or resume a queue. If another operator changes it at the same time, read it again, and try again."""
    move = session.ledger.pause if paused else session.ledger.resume
    session.run(session.ledger.open())
    for left in reversed(range(TRIES)):
        known = {found.queue: found.pause_version for found in session.stats().queues}
        try:
            session.run(move(queue, known.get(queue, 0)))
            break
        except VersionConflictError:
            if not left:
                raise
    return ActionOutcome(f"Queue {queue} is {'paused' if paused else 'running'}.", "/queues")


# --- schedules ---------------------------------------------------------------------------------------------------


def pause_schedule(session: DashboardSession, form: ActionForm) -> ActionOutcome:
    name = form.needed("name")
    session.run(session.ledger.open())
    run_sync(schedule_operations(session)[0].pause(name))
    return ActionOutcome(f"Schedule {name} is paused.", url("/schedule", name=name))


def resume_schedule(session: DashboardSession, form: ActionForm) -> ActionOutcome:
    name = form.needed("name")
    session.run(session.ledger.open())
    run_sync(schedule_operations(session)[0].resume(name))
    return ActionOutcome(f"Schedule {name} is active.", url("/schedule", name=name))


def run_schedule(session: DashboardSession, form: ActionForm) -> ActionOutcome:
    name = form.needed("name")
    session.run(session.ledger.open())
    task_id = run_sync(schedule_operations(session)[0].run_now(name))
    return ActionOutcome(f"The task of schedule {name} was pushed as {task_id}.", url("/task", id=task_id))


# --- batches -----------------------------------------------------------------------------------------------------


def cancel_batch(session: DashboardSession, form: ActionForm) -> ActionOutcome:
    batch_id = form.needed("id")
    cancel_members(session, batch_id)
    return ActionOutcome(f"Batch {batch_id} is cancelled.", url("/batch", id=batch_id))


# --- nodes -------------------------------------------------------------------------------------------------------


def drain_node(session: DashboardSession, form: ActionForm) -> ActionOutcome:
    node = _order(session, form.needed("id"), lambda orders: replace(orders, draining=True))
    return ActionOutcome(f"Node {node} was ordered to drain.", "/nodes")


def resume_node(session: DashboardSession, form: ActionForm) -> ActionOutcome:
    node = _order(session, form.needed("id"), lambda orders: replace(orders, draining=False))
    return ActionOutcome(f"Node {node} was ordered to resume.", "/nodes")


def _order(session: DashboardSession, node_id: str, change: Callable[[Orders], Orders]) -> str:
    found = node_statuses(session.stats(), session.settings.heartbeat_ttl)
    node = next((one for one in found if one.node_id == node_id), None)
    if node is None:
        raise IllegalMoveError(f"there is no node {node_id}: it has stopped, or was declared lost; reload the page")
    try:
        give_order(session, node, change)
    except CannotOrderError as error:
        raise IllegalMoveError(f"node {node_id} cannot take that order: {error}") from error
    return node_id


# --- limits ------------------------------------------------------------------------------------------------------


def set_limit_numbers(session: DashboardSession, form: ActionForm) -> ActionOutcome:
    """Set the numbers of a limit that live tasks have. Empty fields keep their value."""
    concurrency, rate, burst = (form.text(name) or None for name in ("concurrency", "rate", "burst"))
    if concurrency is rate is burst is None:
        raise InvalidSubmissionError("no number is given; say how many tasks may run at once, or how often")
    if burst is not None and not re.fullmatch(r"[1-9][0-9]{0,8}", burst):
        raise InvalidSubmissionError(f"the burst must be a whole number above 0, not {burst!r:.40}")
    limits = read_limits(session.run, session.ledger)
    name = known_limit(form.needed("name"), limits.names())
    before = limits.numbers(name) or LimitNumbers()
    after = changed_numbers(before, concurrency, rate, None if burst is None else int(burst))
    session.run(session.ledger.open())
    set_limit(session.run, session.ledger, name, after)
    return ActionOutcome(f"Limit {name} allows {numbers_in_words(after)}.", "/limits")


def clear_limit(session: DashboardSession, form: ActionForm) -> ActionOutcome:
    name = form.needed("name")
    set_limit(session.run, session.ledger, name, None)
    return ActionOutcome(f"Limit {name} is cleared: the numbers in the code apply.", "/limits")
