"""Receipts of workflows: progress, result, cancel, members. One class awaits, the other blocks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from relier.errors import (
    BatchNotFoundError,
    ConfigurationError,
    RelierError,
    ResultTimeoutError,
    StoreUnavailableError,
    WorkflowCancelledError,
    WorkflowFailedError,
)
from relier.ledger.batches.records import BatchMember, BatchRecord, BatchState, Stage
from relier.states import State
from relier.store.sync_wire import run_sync
from relier.submit.client import Client, default_client
from relier.submit.ledger_access import LedgerAccess
from relier.submit.receipt import PollSchedule, cause_of_death
from relier.workflows.build import Shape, plain_shape
from relier.workflows.inputs import read_results

R = TypeVar("R")
PAGE = 100
MOST_PASSES = 100_000


@dataclass(frozen=True, slots=True)
class WorkflowProgress:
    """The progress of a workflow, in tasks: `done`, `failed` and `cancelled`, of `total`.

    `total` grows while tasks are added. Callbacks do not count. `state`: open, sealed (the producer has added all
    members) or ended.
    """

    done: int
    total: int
    failed: int
    cancelled: int
    state: BatchState
    succeeded: bool

    @property
    def ended(self) -> bool:
        return self.state is BatchState.ENDED


class WorkflowBase(Generic[R]):
    """Hold a workflow's id and ask the ledger about it.

    A receipt can be created from an id alone, for example in another process. Then the result consists of plain values
    instead of models.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - the word users know
        *,
        duplicate: bool = False,
        shape: Shape | None = None,
        client: Client | None = None,
    ) -> None:
        if not isinstance(id, str) or not id:
            raise ConfigurationError(f"a receipt needs the id of a workflow, as returned by a push, not {id!r:.60}")
        self.id = id
        self.duplicate = duplicate
        self._shape = shape
        self._client = (client or default_client()).of(id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}{', duplicate=True' if self.duplicate else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkflowBase) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    async def _batch(self, ledger: LedgerAccess[Any]) -> BatchRecord:
        found: BatchRecord = await ledger.run(self._client.ledger.batch(self.id))
        return found

    async def _progress(self, ledger: LedgerAccess[Any]) -> WorkflowProgress:
        return progress_of(await self._batch(ledger))

    async def _result(self, ledger: LedgerAccess[Any], timeout: float | None) -> R:  # noqa: ASYNC109 - as in TaskReceipt
        batch = await self._end(ledger, timeout)
        if not batch.succeeded:
            raise await self._failure(ledger, batch)
        if not batch.collects:
            return None  # type: ignore[return-value]  # a batch that only counts
        values = await read_results(self.id, ledger.run, self._client.ledger, self._client.keyring)
        shape: Callable[[Any], Any] = self._shape or plain_shape
        return shape(values[0] if batch.is_chain else values)  # type: ignore[no-any-return]

    async def _end(self, ledger: LedgerAccess[Any], timeout: float | None) -> BatchRecord:  # noqa: ASYNC109
        poll = PollSchedule(timeout, seen=self._client.namespace.opened)
        while True:
            try:
                batch: BatchRecord | None = await ledger.run(self._client.ledger.batch(self.id), poll.longest)
            except StoreUnavailableError as error:
                if not poll.missed(error):
                    raise
                batch = None
            else:
                poll.reached()
                if batch is not None and batch.state is BatchState.ENDED:
                    return batch
            pause = poll.pause()
            if pause is None:
                how = f"{batch.tasks_done} of {batch.tasks} tasks done" if batch else "the store is unreachable"
                raise ResultTimeoutError(
                    f"workflow {self.id} has not ended after {poll.waited:.1f} s ({how}); it continues; see `rl "
                    f"batches show {self.id}`"
                )
            await ledger.calls.sleep(pause)

    async def _failure(self, ledger: LedgerAccess[Any], batch: BatchRecord) -> RelierError:
        if batch.stopped:
            return WorkflowCancelledError(f"workflow {self.id} was cancelled")
        if not batch.failed:
            return WorkflowFailedError(
                self.id, f"workflow {self.id} was abandoned: its producer stopped before it had added all tasks"
            )
        failed = f"workflow {self.id} failed: task {batch.failed}"
        try:
            task = await ledger.run(self._client.ledger.get(batch.failed))
        except RelierError:
            return WorkflowFailedError(self.id, f"{failed} did not succeed, and its record is gone", batch.failed)
        record = task.record
        error = WorkflowFailedError(
            self.id,
            f"{failed} ({record.name}) is {record.state} ({record.reason or 'no reason given'}); see `rl why "
            f"{batch.failed}`; if you replay it, the workflow goes on",
            batch.failed,
        )
        if record.state is State.DEAD:
            error.__cause__ = cause_of_death(task)
        return error

    async def _cancel(self, ledger: LedgerAccess[Any]) -> bool:
        """Cancel the batch and its inner batches, page by page."""
        return await cancel_batches(self.id, self._client, ledger)

    async def _page(self, ledger: LedgerAccess[Any], stage: Stage | None, skip: int) -> tuple[BatchMember, ...]:
        call = self._client.ledger.members(self.id, stage, skip=skip, most=PAGE)
        found: tuple[BatchMember, ...] = await ledger.run(call)
        return found


async def cancel_batches(batch_id: str, client: Client, ledger: LedgerAccess[Any]) -> bool:
    """Cancel a batch with all its members. Return False if it had already ended."""
    left, verdict = [batch_id], ""
    while left:
        current, cursor = left.pop(), ""
        for _ in range(MOST_PASSES):
            answer = await ledger.run(client.ledger.cancel_batch(current, cursor))
            verdict = verdict or answer.verdict
            left += answer.inner
            cursor = answer.cursor
            if not cursor:
                break
    if verdict == "missing":
        raise BatchNotFoundError(
            f"there is no batch {batch_id}: it never existed, or its retention is over; check the id"
        )
    return verdict == "ok"


def progress_of(batch: BatchRecord) -> WorkflowProgress:
    return WorkflowProgress(
        batch.tasks_done, batch.tasks, batch.tasks_dead, batch.tasks_cancelled, batch.state, batch.succeeded
    )


class WorkflowReceipt(WorkflowBase[R]):
    """Represent a workflow that `apush` accepted. Its methods are awaited."""

    async def progress(self) -> WorkflowProgress:
        return await self._progress(self._client.awaiting)

    async def result(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - our error names the progress
        """Wait until the workflow has ended, and return its result.

        That is the last result of a chain, the list of a group's results, or None for a batch without `collect`.

        Raise WorkflowFailedError, which names the first task that failed, WorkflowCancelledError, or ResultTimeoutError
        after `timeout` seconds.
        """
        return await self._result(self._client.awaiting, timeout)

    async def cancel(self) -> bool:
        """Cancel the whole workflow: waiting tasks end now, running ones are asked to stop. No further task is queued,
        except `on_complete`, which runs once all members have ended.

        Return False if the workflow had already ended. Safe to repeat.
        """
        return await self._cancel(self._client.awaiting)

    async def members(self, stage: Stage | None = None) -> AsyncIterator[BatchMember]:
        """Yield the members of the outermost batch: those at one stage in order, or all of them, stage by stage."""
        skip = 0
        while page := await self._page(self._client.awaiting, stage, skip):
            skip += len(page)
            for member in page:
                yield member


class SyncWorkflowReceipt(WorkflowBase[R]):
    """Represent a workflow that `push` accepted. Its methods block."""

    def progress(self) -> WorkflowProgress:
        return run_sync(self._progress(self._client.blocking))

    def result(self, timeout: float | None = None) -> R:
        """Wait for the result of the workflow, like `WorkflowReceipt.result`, but block."""
        return run_sync(self._result(self._client.blocking, timeout))

    def cancel(self) -> bool:
        """Cancel the whole workflow, like `WorkflowReceipt.cancel`."""
        return run_sync(self._cancel(self._client.blocking))

    def members(self, stage: Stage | None = None) -> Iterator[BatchMember]:
        """Yield the members of the outermost batch, like `WorkflowReceipt.members`."""
        skip = 0
        while page := run_sync(self._page(self._client.blocking, stage, skip)):
            skip += len(page)
            yield from page
