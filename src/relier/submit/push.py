"""A call of a task becomes a Submission, and what the ledger answers becomes a receipt."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from relier.envelope import seal
from relier.errors import (
    CorruptRecordError,
    DuplicateTaskError,
    IdempotencyInFlightError,
    InvalidSubmissionError,
    PartialPushError,
    RelierError,
)
from relier.keyring import NO_KEYS, Keyring
from relier.ledger.records import Accepted, Submission, new_task_id
from relier.options import PushOptions
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
RESULT_TTL_S, DEAD_TTL_S = 3600.0, 30 * 86_400.0  # what the scripts do where a record says nothing


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
) -> Submission:
    """What enters the ledger. Arguments that do not fit or cannot travel are refused here, in the caller's face."""
    options = task.options
    task_id = new_task_id() if push.task_id is None else push.task_id
    key = push.idempotency_key or (task.guards.key(args, kwargs) if options.keyed else "")
    payload = seal(
        task.arguments.encode(args, kwargs),
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
        max_resurrections=options.max_resurrections,
        on_lost=options.on_lost,
        result_ttl_ms=_kept_ms(options.result_ttl, settings.result_ttl, RESULT_TTL_S),
        dead_ttl_ms=_kept_ms(options.dead_ttl, settings.dead_ttl, DEAD_TTL_S),
        durability=level,
        **times,
    )


def _kept_ms(own: float | None, usual: float, silent: float) -> int | None:
    """How long an ended record is kept: None where the scripts do that anyway, so that the record stays plain."""
    seconds = usual if own is None else own
    return None if seconds == silent else round(1000 * seconds)


def level_of(task: RlTask[Any, Any], push: PushOptions, client: Client) -> Durability:
    """The durability of one push: its own, else the task's, else the setting."""
    return push.durability or task.options.durability or Durability(client.settings.durability)


def is_duplicate(task: Submission, answer: Accepted) -> bool:
    """Whether the task was here before. A fresh id that "exists" is this very push, sent again after a lost reply."""
    if answer.status == "corrupt":
        raise CorruptRecordError(
            f"push of {task.id} was refused: something that is no task holds its key; nothing was written; look at it"
        )
    return answer.status != "new" and not (answer.status == "exists" and not task.nonce and answer.id == task.id)


def refuse_duplicate(answer: Accepted) -> RelierError:
    """The error of a push whose task says `on_duplicate="raise"`."""
    if answer.state in LIVE:
        return IdempotencyInFlightError(
            f"task {answer.id} with the same idempotency key is {answer.state}; nothing was pushed; await that one",
            answer.id,
        )
    return DuplicateTaskError(
        f"task {answer.id} with the same idempotency key is {answer.state or 'ended'} already; nothing was pushed",
        answer.id,
    )


def all_accepted(chunks: Sequence[list[Submission]], answers: Sequence[Any]) -> list[tuple[Submission, Accepted]]:
    """Each task with its answer, in order. Where some chunks failed, a PartialPushError tells which."""
    pairs: list[tuple[Submission, Accepted | RelierError]] = []
    for chunk, answer in zip(chunks, answers, strict=True):
        pairs += zip(chunk, [answer] * len(chunk) if isinstance(answer, RelierError) else answer, strict=True)
    errors = [answer for _, answer in pairs if isinstance(answer, RelierError)]
    if not errors:
        return pairs  # type: ignore[return-value]
    if len(errors) == len(pairs):
        raise errors[0]
    raise PartialPushError({task.id: answer if isinstance(answer, RelierError) else None for task, answer in pairs})
