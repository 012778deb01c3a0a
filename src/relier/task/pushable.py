"""Push a task's calls: one, many, or with a database transaction; awaiting or blocking."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from relier.ledger.checks import check_submission
from relier.ledger.records import Accepted, Admission, Submission
from relier.options import PushOptions
from relier.outbox.push import Writer, outbox_of
from relier.outbox.row import NewRow, new_row
from relier.store.call import Durability
from relier.store.sync_wire import run_sync
from relier.submit.bulk import Bulk, blocks
from relier.submit.client import Client, default_client
from relier.submit.push import (
    Args,
    CallArguments,
    Kwargs,
    bytes_held,
    call_of,
    is_duplicate,
    level_of,
    refusal_in,
    submission_of,
)
from relier.submit.push_middleware import Push, push_middleware_of, send_through, send_through_sync
from relier.submit.receipt import SyncTaskReceipt, TaskReceipt
from relier.submit.shards.bulk import bulk_of
from relier.workflows.parts import Signature, signature_of

if TYPE_CHECKING:
    from relier.task import RlTask

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
Calls = Iterable[CallArguments]


class Pushable(Generic[P, R]):
    """Push a task, with the options of `with_options`."""

    def __init__(self, task: RlTask[P, R], push: PushOptions) -> None:
        self._task = task
        self._push = push

    async def apush(self, *args: P.args, **kwargs: P.kwargs) -> TaskReceipt[R]:
        """Push one call. When this returns, the ledger has the task's record."""
        around = push_middleware_of(self._task)
        if not around:
            return await apush_call(self._task, self._push, args, kwargs)

        async def send(push: Push) -> list[Any]:
            return [await apush_call(push.task, push.options, *call) for call in push.calls]

        return cast(TaskReceipt[R], (await send_through(around, self._described([(args, kwargs)]), send))[0])

    def push(self, *args: P.args, **kwargs: P.kwargs) -> SyncTaskReceipt[R]:
        """Push one call and block, in scripts, threads and sync frameworks. Also works where an event loop runs."""
        around = push_middleware_of(self._task)
        if not around:
            return push_call(self._task, self._push, args, kwargs)

        async def send(push: Push) -> list[Any]:
            return [push_call(push.task, push.options, *call) for call in push.calls]

        return cast(SyncTaskReceipt[R], send_through_sync(around, self._described([(args, kwargs)]), send)[0])

    async def apush_many(
        self, calls: Iterable[tuple[Any, ...] | dict[str, Any]], *, task_ids: Iterable[str] | None = None
    ) -> list[TaskReceipt[R]]:
        """Push any number of calls: tuples of positional, dicts of keyword arguments. Return the receipts in order.

        The calls are admitted or refused as a whole. If some fail for another reason, a PartialPushError names them.
        If it is unknown what was accepted, the error has `task_ids`: push the same calls again with these ids, and
        none becomes a second task.
        """
        around = push_middleware_of(self._task)
        if not around:
            return await apush_calls(self._task, self._push, map(call_of, calls), task_ids)

        async def send(push: Push) -> list[Any]:
            return await apush_calls(push.task, push.options, push.calls, task_ids)

        return await send_through(around, self._described(map(call_of, calls)), send)

    def push_many(
        self, calls: Iterable[tuple[Any, ...] | dict[str, Any]], *, task_ids: Iterable[str] | None = None
    ) -> list[SyncTaskReceipt[R]]:
        """Push any number of calls, like `apush_many`, but block."""
        around = push_middleware_of(self._task)
        if not around:
            return push_calls(self._task, self._push, map(call_of, calls), task_ids)

        async def send(push: Push) -> list[Any]:
            return push_calls(push.task, push.options, push.calls, task_ids)

        return send_through_sync(around, self._described(map(call_of, calls)), send)

    @overload
    def s(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R]: ...
    @overload
    def s(self: Pushable[Concatenate[Any, Q], R], *args: Q.args, **kwargs: Q.kwargs) -> Signature[R]: ...
    def s(self, *args: Any, **kwargs: Any) -> Signature[R]:
        """Return one call for a workflow. In a chain, the previous result comes as its first argument, before these."""
        return signature_of(self._task, self._push, args, kwargs, takes=True)

    def si(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R]:
        """Return one call for a workflow that takes no previous result."""
        return signature_of(self._task, self._push, args, kwargs, takes=False)

    def push_in(self, where: Any, /, *args: P.args, **kwargs: P.kwargs) -> SyncTaskReceipt[R]:
        """Push one call if and when a transaction commits. A relay sends the task after the commit.

        `where` is a SQLAlchemy session or connection, or the alias of a Django database (None: the default one). The
        task's id is known at once.
        """
        return self.write_to(outbox_of(where), where, args, kwargs)

    async def apush_in(self, where: Any, /, *args: P.args, **kwargs: P.kwargs) -> TaskReceipt[R]:
        """Push one call with a transaction, like `push_in`, from async code."""
        return await self.awrite_to(outbox_of(where), where, args, kwargs)

    def write_to(self, outbox: Writer, where: Any, args: Args, kwargs: Kwargs) -> SyncTaskReceipt[R]:
        """Push one call like `push_in`, into this outbox."""

        async def send(push: Push) -> list[Any]:
            rows = [row_of(push.task, push.options, *call) for call in push.calls]
            outbox.write(where, rows)
            return [SyncTaskReceipt(row.task_id, **about_row(push.task)) for row in rows]

        push = self._described([(args, kwargs)], in_transaction=True, where=where)
        return cast(SyncTaskReceipt[R], send_through_sync(push_middleware_of(self._task), push, send)[0])

    async def awrite_to(self, outbox: Writer, where: Any, args: Args, kwargs: Kwargs) -> TaskReceipt[R]:
        """Push one call like `apush_in`, into this outbox."""

        async def send(push: Push) -> list[Any]:
            rows = [row_of(push.task, push.options, *call) for call in push.calls]
            await outbox.awrite(where, rows)
            return [TaskReceipt(row.task_id, **about_row(push.task)) for row in rows]

        push = self._described([(args, kwargs)], in_transaction=True, where=where)
        return cast(TaskReceipt[R], (await send_through(push_middleware_of(self._task), push, send))[0])

    def _described(self, calls: Calls, *, in_transaction: bool = False, where: Any = None) -> Push:
        return Push(self._task, tuple(calls), self._push, in_transaction, where)


async def apush_call(task: RlTask[Any, Any], options: PushOptions, args: Args, kwargs: Kwargs) -> TaskReceipt[Any]:
    client = default_client()
    level, submission, admission = _submission(task, options, client, args, kwargs)
    client = client.of(submission.id)
    (answer,) = await client.awaiting.submit([submission], admission, level)
    return TaskReceipt(answer.id, **_about(task, client, level, _is_duplicate(task, submission, answer)))


def push_call(task: RlTask[Any, Any], options: PushOptions, args: Args, kwargs: Kwargs) -> SyncTaskReceipt[Any]:
    client = default_client()
    level, submission, admission = _submission(task, options, client, args, kwargs)
    client = client.of(submission.id)
    (answer,) = run_sync(client.blocking.submit([submission], admission, level))
    return SyncTaskReceipt(answer.id, **_about(task, client, level, _is_duplicate(task, submission, answer)))


async def apush_calls(
    task: RlTask[Any, Any], options: PushOptions, calls: Calls, task_ids: Iterable[str] | None
) -> list[TaskReceipt[Any]]:
    client = default_client()
    bulk = bulk_of(task, options, client, task_ids)
    for block in blocks(calls):
        bulk.add(block)
        await asyncio.sleep(0)
    parts = bulk.parts()
    if len(parts) == 1:
        await _send(parts[0])
    else:
        await asyncio.gather(*map(_send, parts))
    return [
        TaskReceipt(each.id, **_about(task, client.of(each.id), bulk.level, each.duplicate)) for each in bulk.pushed()
    ]


async def _send(bulk: Bulk) -> None:
    while chunks := bulk.next_piece():
        bulk.answered(await bulk.client.awaiting.submit_all(chunks, bulk.admission(), bulk.level))


def push_calls(
    task: RlTask[Any, Any], options: PushOptions, calls: Calls, task_ids: Iterable[str] | None
) -> list[SyncTaskReceipt[Any]]:
    client = default_client()
    bulk = bulk_of(task, options, client, task_ids)
    for block in blocks(calls):
        bulk.add(block)
    for part in bulk.parts():
        while chunks := part.next_piece():
            part.answered(run_sync(part.client.blocking.submit_all(chunks, part.admission(), part.level)))
    return [
        SyncTaskReceipt(each.id, **_about(task, client.of(each.id), bulk.level, each.duplicate))
        for each in bulk.pushed()
    ]


def row_of(task: RlTask[Any, Any], options: PushOptions, args: Args, kwargs: Kwargs) -> NewRow:
    """Return the outbox row of one call. Raise here, where the caller gets the error, if a relay could not send it."""
    client = default_client()
    _, submission, admission = _submission(task, options, client, args, kwargs)
    check_submission(submission, client.settings.max_payload_bytes)
    return new_row(submission, admission, options.order_key or "")


def about_row(task: RlTask[Any, Any]) -> dict[str, Any]:
    """Return what a receipt of an outbox row knows. It has no durability: the ledger has not accepted the task yet."""
    return {"read_result": task.arguments.decode_result, "client": default_client()}


def _submission(
    task: RlTask[Any, Any], options: PushOptions, client: Client, args: Args, kwargs: Kwargs
) -> tuple[Durability, Submission, Admission | None]:
    settings = client.settings
    level = level_of(task, options, client)
    submission = submission_of(task, args, kwargs, options, level, settings, client.keyring)
    held = bytes_held(submission) if settings.admission_max_bytes else 0
    return level, submission, task.guards.admission(settings, task.guards.load(settings, [(args, kwargs)], held))


def _is_duplicate(task: RlTask[Any, Any], submission: Submission, answer: Accepted) -> bool:
    """Return whether the push is a duplicate. Raise if the answer refuses the push."""
    error = refusal_in(submission, answer, task.options.on_duplicate)
    if error is not None:
        raise error
    return is_duplicate(submission, answer)


def _about(task: RlTask[Any, Any], client: Client, level: Durability, duplicate: bool) -> dict[str, Any]:
    return {
        "duplicate": duplicate,
        "durability": level,
        "read_result": task.arguments.decode_result,
        "client": client,
        "born": client.birth.mark,
    }
