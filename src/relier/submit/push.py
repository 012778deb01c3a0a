"""A call of a task becomes a Submission, and what the ledger answers becomes a receipt."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from relier.envelope import seal
from relier.errors import (
    CorruptRecordError,
    DuplicateTaskError,
    InvalidSubmissionError,
    RelierError,
    TaskInFlightError,
)
from relier.keyring import NO_KEYS, Keyring
from relier.ledger.defaults import DEAD_TTL_MS, MAX_RESURRECTIONS, RESULT_TTL_MS
from relier.ledger.records import Accepted, Submission, new_task_id
from relier.options import OnDuplicate, PushOptions
from relier.settings import Settings
from relier.states import LIVE
from relier.store.call import Durability
from relier.submit.client import Client
from relier.trace import current_trace

if TYPE_CHECKING:
    from relier.task import RlTask

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
NO_OPTIONS = PushOptions()


def call_of(item: Any) -> tuple[Args, Kwargs]:
    """One item of `push_many`: a tuple is positional arguments, a dict keyword arguments."""
    if isinstance(item, tuple):
        return item, {}
    if isinstance(item, dict):
        return (), item
    raise InvalidSubmissionError(
        f"push_many takes tuples of positional or dicts of keyword arguments, not {item!r:.60}; nothing was pushed; "
        f"write ({item!r:.40},) for one positional argument"
    )


def submission_of(
    task: RlTask[Any, Any],
    args: Args,
    kwargs: Kwargs,
    push: PushOptions,
    level: Durability,
    settings: Settings,
    keyring: Keyring = NO_KEYS,
    fresh_id: str = "",
) -> Submission:
    """What enters the ledger. Arguments that do not fit or cannot travel are refused here, in the caller's face.
    `fresh_id`: the id of this push alone, where the caller has made one already."""
    options = task.options
    task_id = fresh_id or new_task_id() if push.task_id is None else push.task_id
    body = task.arguments.encode(args, kwargs)
    key = task.guards.key(args, kwargs, body, push.idempotency_key)
    payload = seal(
        body,
        schema_version=options.schema_version,
        pushed_ms=time.time_ns() // 1_000_000,
        trace=current_trace(),
        task_id=task_id,
        name=options.name,
        keyring=keyring,
    )
    times: dict[str, Any] = {} if push is NO_OPTIONS else push.times()
    return Submission(
        id=task_id,
        name=options.name,
        payload=payload,
        queue=options.queue if push.queue is None else push.queue,
        priority=options.priority if push.priority is None else push.priority,
        key=key,
        key_ttl_ms=round(1000 * options.idempotency_ttl) if key else 0,
        on_conflict="replace" if options.on_duplicate == "replace" else "return",
        nonce="" if push.task_id is None else new_task_id(),  # tells a re-sent push of a chosen id from somebody else's
        max_resurrections=resurrections(options.max_resurrections, settings.max_resurrections),
        on_lost=options.on_lost,
        result_ttl_ms=kept_ms(options.result_ttl, settings.result_ttl, RESULT_TTL_MS),
        dead_ttl_ms=kept_ms(options.dead_ttl, settings.dead_ttl, DEAD_TTL_MS),
        durability=level,
        **times,
    )


def resurrections(own: int | None, usual: int) -> int | None:
    """How many deaths a record allows: None where the scripts allow as many anyway."""
    most = usual if own is None else own
    return None if most == MAX_RESURRECTIONS else most


def kept_ms(own: float | None, usual: float, default_ms: int) -> int | None:
    """How long an ended record is kept: None where the scripts do that anyway, so that the record stays plain."""
    ms = round(1000 * (usual if own is None else own))
    return None if ms == default_ms else ms


def level_of(task: RlTask[Any, Any], push: PushOptions, client: Client) -> Durability:
    """The durability of one push: its own, else the task's, else the setting."""
    return push.durability or task.options.durability or Durability(client.settings.durability)


def is_duplicate(task: Submission, answer: Accepted) -> bool:
    """Whether the task was here before. A fresh id that "exists" is this very push, sent again after a lost reply."""
    return answer.status != "new" and not (answer.status == "exists" and not task.nonce and answer.id == task.id)


def trouble_with(task: Submission, answer: Accepted, on_duplicate: OnDuplicate) -> RelierError | None:
    """Why a push that was answered is none: something else holds its id, or it is a duplicate that shall be refused."""
    if answer.status == "corrupt":
        return CorruptRecordError(
            f"push of {task.id} was refused: something that is no task holds its key; nothing was written; look at it"
        )
    if on_duplicate != "raise" or not is_duplicate(task, answer) or answer.id == task.id:
        return None  # its own id: this push was made before, and whoever lost its answer makes it again
    if answer.state in LIVE:
        return TaskInFlightError(
            f"task {answer.id} with the same idempotency key is {answer.state}; nothing was pushed; await that one",
            answer.id,
        )
    return DuplicateTaskError(
        f"task {answer.id} with the same idempotency key is {answer.state or 'ended'} already; nothing was pushed",
        answer.id,
    )


def bytes_held(task: Submission) -> int:
    """What a task counts towards RELIER_ADMISSION_MAX_BYTES: its record from its options on (see lib/enter.lua)."""
    return len(task.args()[-1])  # type: ignore[arg-type]
