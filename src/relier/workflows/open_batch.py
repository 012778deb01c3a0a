"""Add tasks to an existing batch: from a producer while the batch is open, or from a running member."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from msgspec.structs import replace

from relier.errors import ConfigurationError
from relier.ledger.batches.membership import Member
from relier.ledger.records import Lease
from relier.store.sync_wire import run_sync
from relier.submit.client import Client, default_client
from relier.submit.ledger_access import LedgerAccess
from relier.workflows.build import Builder, lease_ms, shape_of
from relier.workflows.parts import Batch, Part
from relier.workflows.plan import compile_member, empty_batch
from relier.workflows.push import check_sealed, shard_by_limits, submit_plan
from relier.workflows.receipt import SyncWorkflowReceipt, WorkflowReceipt


class OpenBatch:
    """Hold a batch open while its producer adds tasks: `async with batch(…).open() as b`, or `with` in blocking code.

    Each task that is added extends the batch's lease, and so does `aextend`. If the lease runs out, or an exception
    leaves the block, the batch is abandoned: its members continue, `on_failure` and `on_complete` run, but `then` never
    does.
    """

    def __init__(self, part: Batch[Any], workflow_id: str | None = None) -> None:
        self._part = part
        self._builder = Builder(default_client(), workflow_id)
        self._node = self._builder.batch(Batch((), *(getattr(part, name) for name in _KEPT)))
        self._place = 0
        self.id = self._node.header.id
        self._client = default_client().of(self.id)

    def __repr__(self) -> str:
        return f"OpenBatch({self.id!r})"

    @property
    def receipt(self) -> WorkflowReceipt[Any]:
        return WorkflowReceipt(self.id, shape=shape_of(self._part), client=self._client)

    @property
    def sync_receipt(self) -> SyncWorkflowReceipt[Any]:
        return SyncWorkflowReceipt(self.id, shape=shape_of(self._part), client=self._client)

    async def __aenter__(self) -> OpenBatch:
        await self._open(self._client.awaiting)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close(self._client.awaiting, failed=kind is not None)

    def __enter__(self) -> OpenBatch:
        run_sync(self._open(self._client.blocking))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run_sync(self._close(self._client.blocking, failed=kind is not None))

    async def aadd(self, *parts: Part[Any]) -> None:
        """Add tasks, chains or groups. When this returns, they are in the ledger."""
        await self._add(self._client.awaiting, parts)

    def add(self, *parts: Part[Any]) -> None:
        """Add tasks, chains or groups, like `aadd`, but block."""
        run_sync(self._add(self._client.blocking, parts))

    async def aextend(self) -> bool:
        """Extend the batch's lease. Return False if the batch is no longer open."""
        answer = await self._client.awaiting.run(self._client.ledger.extend_batch(self.id))
        return answer.verdict == "ok"

    def extend(self) -> bool:
        """Extend the batch's lease, like `aextend`, but block."""
        answer = run_sync(self._client.blocking.run(self._client.ledger.extend_batch(self.id)))
        return answer.verdict == "ok"

    async def _open(self, ledger: LedgerAccess[Any]) -> None:
        header = replace(empty_batch(self._node), open=True, lease_ms=lease_ms(self._part))
        await ledger.run(self._client.ledger.open_batch(header))
        await self._add(ledger, self._part.members)

    async def _add(self, ledger: LedgerAccess[Any], parts: tuple[Part[Any], ...]) -> None:
        for part in parts:
            member = Member(batch=self.id, place=self._place)
            self._place += 1
            await add_part(part, member, self._builder, self._client, ledger, lease_ms(self._part))

    async def _close(self, ledger: LedgerAccess[Any], *, failed: bool) -> None:
        answer = await ledger.run(self._client.ledger.seal_batch(self.id, abandoned=failed))
        if not failed:
            check_sealed(self.id, answer.verdict)


_KEPT = ("then", "on_failure", "on_complete", "collect", "name", "lease")


class OwnBatch:
    """The batch of a running task. The task may add to it even after it was sealed: the batch cannot end before it
    does.

    Each added task gets an id derived from the id of the running task and the order of its calls. A later attempt that
    makes the same calls adds no duplicates.
    """

    def __init__(self, id: str, lease: Lease, client: Client) -> None:  # noqa: A002 - the word users know
        self.id = id
        self._lease = lease
        self._client = client
        self._builder = Builder(client, lease.task_id, 1, client.settings.shard)

    def __repr__(self) -> str:
        return f"OwnBatch({self.id!r})"

    async def aadd(self, *parts: Part[Any]) -> None:
        """Add tasks, chains or groups to the batch. Raise BatchClosedError if the batch was cancelled, or if this
        attempt no longer holds its task."""
        for part in parts:
            await self._add(part, self._client.awaiting)

    def add(self, *parts: Part[Any]) -> None:
        """Add tasks, chains or groups to the batch, like `aadd`, but block. For `def` tasks."""
        for part in parts:
            run_sync(self._add(part, self._client.blocking))

    async def _add(self, part: Part[Any], ledger: LedgerAccess[Any]) -> None:
        member = Member(batch=self.id, adder=(self._lease.task_id, self._lease.fence, self._lease.worker_id))
        await add_part(part, member, self._builder, self._client, ledger, lease_ms(part))


async def add_part(
    part: Any, member: Member, builder: Builder, client: Client, ledger: LedgerAccess[Any], lease: int
) -> None:
    """Add one part to an existing batch."""
    if not isinstance(part, Part):
        raise ConfigurationError(f"a batch takes signatures (task.s(…)), chains and groups, not {part!r:.60}")
    part.check(given=False)
    plan = compile_member(builder.node(part), member, lease)
    if builder.limits:
        shard_by_limits(builder, exists=True)
    await submit_plan(plan, builder, client, ledger, lease / 1000)
