"""Push workflows: small ones in one call, larger ones in several calls, into open batches."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from relier.errors import (
    BatchClosedError,
    CorruptRecordError,
    PushIndeterminate,
    RelierError,
    ShardsError,
    StoreUnavailableError,
)
from relier.ledger.records import Accepted, Admission, Submission
from relier.settings.shards import shard_of
from relier.store.call import Durability
from relier.store.sync_wire import run_sync
from relier.submit.client import Client, default_client
from relier.submit.ledger_access import LedgerAccess
from relier.workflows.build import Builder, lease_ms, shape_of
from relier.workflows.parts import Workflow
from relier.workflows.plan import BatchNode, Unit, WorkflowPlan, compile_workflow, empty_batch
from relier.workflows.receipt import SyncWorkflowReceipt, WorkflowReceipt

A = TypeVar("A")
log = logging.getLogger("relier.submit")
PIECE_UNITS = 5  # units per round trip: about 500 tasks
MORE_TRIES = 3  # for one round trip of a large workflow; the ids stay the same
EXTEND_SHARE = 0.25  # of the lease: extend it after this time


async def apush_workflow(part: Workflow[A], workflow_id: str | None) -> WorkflowReceipt[A]:
    client = default_client()
    found, duplicate = await _push(part, workflow_id, client, attrgetter("awaiting"))
    return WorkflowReceipt(found, duplicate=duplicate, shape=shape_of(part), client=client)


def push_workflow(part: Workflow[A], workflow_id: str | None) -> SyncWorkflowReceipt[A]:
    client = default_client()
    found, duplicate = run_sync(_push(part, workflow_id, client, attrgetter("blocking")))
    return SyncWorkflowReceipt(found, duplicate=duplicate, shape=shape_of(part), client=client)


async def _push(
    part: Workflow[Any], workflow_id: str | None, client: Client, access_of: Callable[[Client], LedgerAccess[Any]]
) -> tuple[str, bool]:
    """Push a workflow. Return its id, and whether it had been pushed before."""
    part.check(given=False)
    builder = Builder(client, workflow_id)
    root = builder.node(part)
    if isinstance(root, BatchNode) and not root.members:
        client = client.of(root.header.id)
        answer = await access_of(client).run(client.ledger.open_batch(empty_batch(root)))
        return root.header.id, answer.verdict == "repeat"
    plan = compile_workflow(root, lease_ms(part))  # type: ignore[arg-type]  # a Workflow is a chain or a batch
    if builder.limits:
        shard = shard_by_limits(builder, workflow_id is not None)
        if shard != builder.shard:
            builder = Builder(client, shard=shard)
            plan = compile_workflow(builder.node(part), lease_ms(part))  # type: ignore[arg-type]
    client = client.of(plan.id)
    duplicate = await submit_plan(plan, builder, client, access_of(client), lease_ms(part) / 1000)
    return plan.id, duplicate


def shard_by_limits(builder: Builder, exists: bool) -> int:
    """Return the shard to which the limit of a workflow's tasks belongs, and therefore the workflow.

    `exists`: the workflow has an id already, and with it a shard. Raise ShardsError if the two may differ.
    """
    if exists or len(builder.limits) > 1:
        why = "its id decides the shard" if exists else f"their keys differ ({', '.join(sorted(builder.limits)[:3])})"
        raise ShardsError(
            f"the workflow was not pushed: with RELIER_SHARDS, all its tasks lie in one shard, and its tasks have "
            f"limits that may belong to another one, because {why}; push the tasks with limits by themselves, or "
            f"give all of them the same limit and the workflow no id"
        )
    return shard_of(next(iter(builder.limits)), builder.shards)


async def submit_plan(
    plan: WorkflowPlan, builder: Builder, client: Client, ledger: LedgerAccess[Any], lease_s: float
) -> bool:
    """Submit all units of a plan, then seal its open batches. Return whether all its tasks existed before."""
    level = strongest(builder.levels)
    answers = await _submit(plan.units[:1], client, ledger, level)
    extended = time.monotonic()
    for first in range(1, len(plan.units), PIECE_UNITS):
        answers += await _submit_again(plan.units[first : first + PIECE_UNITS], client, ledger, level)
        if time.monotonic() - extended > EXTEND_SHARE * lease_s:
            extended = time.monotonic()
            for batch in plan.open:
                await ledger.run(client.ledger.extend_batch(batch))
    for batch in plan.open:
        check_sealed(batch, (await ledger.run(client.ledger.seal_batch(batch))).verdict)
    return all(answer.status != "new" for answer in answers)


async def _submit_again(
    units: Sequence[Unit], client: Client, ledger: LedgerAccess[Any], level: Durability
) -> list[Accepted]:
    """Submit more units of a workflow whose first unit is stored. Retry if the store is unreachable for a moment."""
    for _ in range(MORE_TRIES):
        try:
            return await _submit(units, client, ledger, level)
        except (StoreUnavailableError, PushIndeterminate) as error:
            log.warning("a part of a workflow was not pushed, will retry: %s", error)
    return await _submit(units, client, ledger, level)


async def _submit(
    units: Sequence[Unit], client: Client, ledger: LedgerAccess[Any], level: Durability
) -> list[Accepted]:
    settings = client.settings
    guard = Admission(max_depth=settings.admission_max_depth, max_bytes=settings.admission_max_bytes)
    admission = guard if guard.max_depth or guard.max_bytes else None
    chunks = [unit.submissions() for unit in units]
    found: list[Accepted] = []
    for chunk, answer in zip(chunks, await ledger.submit_all(chunks, admission, level), strict=True):
        if isinstance(answer, RelierError):
            raise answer
        check_accepted(chunk, answer)
        found += answer
    return found


def check_accepted(tasks: Sequence[Submission], answers: Sequence[Accepted]) -> None:
    """Raise if the ledger refused a task of a workflow."""
    for task, answer in zip(tasks, answers, strict=True):
        if answer.status == "closed":
            batch = task.member.batch if task.member is not None else ""
            raise BatchClosedError(
                f"task {task.id} was refused: batch {batch} takes no more tasks, because it was sealed, has ended, was "
                f"cancelled or was abandoned, or another workflow has its id; see `rl batches show {batch}`"
            )
        if answer.status == "corrupt":
            raise CorruptRecordError(
                f"push of {task.id} was refused: its key in the store holds something that is not a task; find out "
                f"what wrote it"
            )


def check_sealed(batch: str, verdict: str) -> None:
    """Raise BatchClosedError if a batch was abandoned or removed before its producer sealed it."""
    if verdict in {"abandoned", "missing"}:
        raise BatchClosedError(
            f"batch {batch} was abandoned: its lease ran out before the producer had added all tasks; tasks already "
            f"added continue, but `then` will never run; push the workflow again, with a longer lease=…"
        )


def strongest(levels: set[Durability]) -> Durability:
    """Return the strongest of the durability levels, which then applies to the whole call."""
    return max(levels, key=list(Durability).index, default=Durability.MEMORY)
