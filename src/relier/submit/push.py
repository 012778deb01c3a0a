"""Turn a call of a task into a Submission, and interpret the ledger's answer to a push."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from relier import registry
from relier.codec.keyring import NO_KEYS, Keyring
from relier.envelope import seal
from relier.errors import (
    CorruptRecordError,
    DuplicateTaskError,
    InvalidSubmissionError,
    RelierError,
    TaskInFlightError,
)
from relier.ledger.defaults import DEAD_TTL_MS, MAX_RESURRECTIONS, RESULT_TTL_MS
from relier.ledger.limit_records import RunLimit
from relier.ledger.records import Accepted, Submission, new_task_id
from relier.options import OnDuplicate, PushOptions, TaskOptions
from relier.settings import Settings
from relier.states import LIVE
from relier.store.call import Durability
from relier.submit.client import Client
from relier.submit.shards.routing import routed_id
from relier.trace import current_trace

if TYPE_CHECKING:
    from relier.task import RlTask

log = logging.getLogger("relier.submit")

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
CallArguments = tuple[Args, Kwargs]
NO_OPTIONS = PushOptions()


def call_of(item: Any) -> CallArguments:
    """Return the arguments in one item of `push_many`: a tuple holds positional, a dict keyword arguments."""
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
    """Return the submission of one call. Raise if its arguments do not fit the function or cannot be encoded.

    `fresh_id`: an id that the caller has made for this push alone. With shards, it may get another one."""
    options = task.options
    if registry.unimportable and options.name in registry.unimportable:
        _warn_unimportable(options.name)
    body = task.arguments.encode(args, kwargs)
    key = task.guards.key(args, kwargs, body, push.idempotency_key)
    queue = options.queue if push.queue is None else push.queue
    limits = task.guards.limits(args, kwargs, queue)
    task_id = _id_for(task, push, fresh_id, key, limits, settings.shards)
    times: dict[str, Any] = {} if push is NO_OPTIONS else push.times()
    return Submission(
        id=task_id,
        name=options.name,
        payload=_sealed(body, task_id, options, keyring),
        queue=queue,
        priority=options.priority if push.priority is None else push.priority,
        key=key,
        key_ttl_ms=round(1000 * options.idempotency_ttl) if key else 0,
        on_conflict="replace" if options.on_duplicate == "replace" else "return",
        nonce="" if push.task_id is None else new_task_id(),  # tells a repeated push of a chosen id from another
        max_resurrections=resurrections(options.max_resurrections, settings.max_resurrections),
        on_lost=options.on_lost,
        result_ttl_ms=kept_ms(options.result_ttl, settings.result_ttl, RESULT_TTL_MS),
        dead_ttl_ms=kept_ms(options.dead_ttl, settings.dead_ttl, DEAD_TTL_MS),
        durability=level,
        limits=limits,
        **times,
    )


def _id_for(
    task: RlTask[Any, Any], push: PushOptions, fresh_id: str, key: str, limits: tuple[RunLimit, ...], shards: int
) -> str:
    task_id = fresh_id or new_task_id() if push.task_id is None else push.task_id
    return task_id if shards == 1 else routed_id(task, push, task_id, key, limits, shards)


def _warn_unimportable(name: str) -> None:
    """Warn once per task that workers will not know it."""
    if where := registry.unimportable.pop(name, ""):
        log.warning(
            "task %s is defined in %s, which workers cannot import: pushed tasks wait, and become dead letters if no "
            "worker knows them; move the function to the top level of a module, and start a worker with that module",
            name,
            where,
        )


def _sealed(body: bytes, task_id: str, options: TaskOptions, keyring: Keyring) -> bytes:
    return seal(
        body,
        schema_version=options.schema_version,
        pushed_ms=time.time_ns() // 1_000_000,
        trace=current_trace(),
        task_id=task_id,
        name=options.name,
        keyring=keyring,
    )


def resurrections(own: int | None, usual: int) -> int | None:
    """Return how many deaths a record allows, or None if that is the scripts' default."""
    most = usual if own is None else own
    return None if most == MAX_RESURRECTIONS else most


def kept_ms(own: float | None, usual: float, default_ms: int) -> int | None:
    """Return how long an ended record is kept. None means the scripts' default, which takes no space in the record."""
    ms = round(1000 * (usual if own is None else own))
    return None if ms == default_ms else ms


def level_of(task: RlTask[Any, Any], push: PushOptions, client: Client) -> Durability:
    """Return the durability of one push: its own, else the task's, else the setting."""
    return push.durability or task.options.durability or Durability(client.settings.durability)


def is_duplicate(task: Submission, answer: Accepted) -> bool:
    """Return whether the task existed before this push.

    If the ledger already knows a fresh id, it has seen this very push, which was sent again after a lost reply.
    """
    return answer.status != "new" and not (answer.status == "exists" and not task.nonce and answer.id == task.id)


def refusal_in(task: Submission, answer: Accepted, on_duplicate: OnDuplicate) -> RelierError | None:
    """Return the error of a push that the answer refuses: its id is taken by something else, or it is a duplicate."""
    if answer.status == "corrupt":
        return CorruptRecordError(
            f"push of {task.id} was refused: its key in the store holds something that is not a task; nothing was "
            f"written; find out what wrote it"
        )
    if on_duplicate != "raise" or not is_duplicate(task, answer) or answer.id == task.id:
        return None  # its own id: this push was made before, its answer was lost, and the caller repeats it
    if answer.state in LIVE:
        return TaskInFlightError(
            f"task {answer.id} with the same idempotency key is {answer.state}; nothing was pushed; wait for that task",
            answer.id,
        )
    return DuplicateTaskError(
        f"task {answer.id} with the same idempotency key is already {answer.state or 'ended'}; nothing was pushed",
        answer.id,
    )


def bytes_held(task: Submission) -> int:
    """Return what a task counts towards RELIER_ADMISSION_MAX_BYTES: its record from the options on (lib/enter.lua)."""
    return len(task.tail())
