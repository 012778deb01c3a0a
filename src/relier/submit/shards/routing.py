"""Choose the shard of a task, and with it the id: ids that Relier makes are drawn until they belong to the right shard.

Usually any shard will do. But tasks that share an idempotency key, a limit at run time or an order key must lie in one
shard, or the key would not hold. Then the key decides the shard, and a task has at most one such key. Which tasks fit
is known from their definition, not from the hash of one key: a task that is refused is refused at every push, and
workers refuse to start with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from relier.errors import InvalidSubmissionError, ShardsError
from relier.ledger.limit_records import RunLimit
from relier.ledger.records import new_task_id
from relier.options import PushOptions
from relier.settings.shards import drawn, shard_of

if TYPE_CHECKING:
    from relier.task import RlTask

FIXED = {None, "namespace"}  # `per` of limits whose key is the same for all calls of a task


def routed_id(
    task: RlTask[Any, Any], push: PushOptions, task_id: str, key: str, limits: Sequence[RunLimit], shards: int
) -> str:
    """Return the id of a push in a namespace with shards. Raise if the task, or the chosen id, does not fit them.

    `task_id`: the chosen id, or one that was made for this push. The latter is replaced if it belongs to another shard
    than the task's key.
    """
    deciding = deciding_key(task, push, key, limits)
    if push.task_id is not None:
        return _chosen(task_id, deciding, shards)
    if not deciding or shard_of(task_id, shards) == shard_of(deciding, shards):
        return task_id
    return drawn(new_task_id, shard_of(deciding, shards), shards)


def deciding_key(task: RlTask[Any, Any], push: PushOptions, key: str, limits: Sequence[RunLimit]) -> str:
    """Return the key that decides the shard of a push: of a limit, the order key or the idempotency key; "" if none."""
    check_fits_shards(task)
    if limits and push.idempotency_key is not None and not _has_fixed_limits(task):
        raise ShardsError(_refused(task, "a limit per key, and this push has an idempotency_key", "leave one out"))
    if push.order_key and (limits or key):
        what = "a limit" if limits else "an idempotency key"
        raise ShardsError(_refused(task, f"{what}, and this push has an order_key", "leave one out"))
    return limits[0].key if limits else push.order_key or key


def check_fits_shards(task: RlTask[Any, Any]) -> None:
    """Raise ShardsError if two keys of a task could belong to different shards."""
    options = task.options
    pers = {limit.per for limit in options.limits}
    if len(pers) > 1:
        raise ShardsError(_refused(task, f"limits with {len(pers)} different keys", "keep one of them"))
    has_key = options.idempotency_key is not None or options.idempotent
    if not has_key or not pers or pers <= FIXED:
        return
    if options.idempotency_key is not None or "queue" in pers:
        raise ShardsError(
            _refused(
                task,
                f"an idempotency key and a limit per {next(iter(pers))!r}",
                'use `idempotent=True` with a limit per key, or a limit without `per` or with per="namespace"',
            )
        )


def _has_fixed_limits(task: RlTask[Any, Any]) -> bool:
    return {limit.per for limit in task.options.limits} <= FIXED


def _chosen(task_id: str, deciding: str, shards: int) -> str:
    if deciding and shard_of(task_id, shards) != shard_of(deciding, shards):
        raise InvalidSubmissionError(
            f"task id {task_id!r:.80} belongs to shard {shard_of(task_id, shards)}, but its key {deciding!r:.80} to "
            f"shard {shard_of(deciding, shards)}, and both must be the same; nothing was pushed; leave task_id out, so "
            f"that Relier draws an id on the key's shard"
        )
    return task_id


def _refused(task: RlTask[Any, Any], has: str, advice: str) -> str:
    return (
        f"task {task.name} does not work with RELIER_SHARDS: it has {has}, which may belong to different shards; "
        f"nothing was pushed; {advice}"
    )
