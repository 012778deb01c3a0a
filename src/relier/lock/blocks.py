"""Run a block of code once per key: `idempotency_lock`. Only one caller at a time runs the block of a key, and nobody
runs it again while its result is kept.

    async with idempotency_lock(f"charge:{order}", ttl=86_400) as lock:      # or `with`, in blocking code
        if lock.already_executed:
            return lock.cached_result
        receipt = await charge(order)
        lock.set_result(receipt)

CLAIMED     nobody holds the key: the block runs. If it ends normally, its result is kept for `ttl`; if it raises, the
            key is freed
IN_FLIGHT   another caller runs the block now: entering raises IdempotencyInFlightError. A task that lets this error out
            is put back for a while
COMPLETED   the block has run: it is entered with `already_executed`, and nothing is written at its end

While the block runs, its mark in the store is valid for RELIER_IDEMPOTENCY_INFLIGHT_TTL and is renewed in time
(renewal.py). If the process dies, its keys are free when that time is over. Inside a task they are free as soon
as the task's worker is declared lost, and a later attempt of the same task takes over its own keys.

During an outage, the lock keeps reporting the end of a block until the store answers. Outside tasks it gives up when
the mark may have expired, inside a task when the attempt is lost. Entering a block waits through an outage only inside
a task; code outside tasks gets the store's error.

Not covered: a holder that is alive but cannot renew for longer than that time, because its process is stopped, its
event loop is blocked or the store is unreachable. Then another caller may run the block too, and the first one gets
LeaseLostError at its end. If even that must not happen, pass `ctx.fence` to the system that performs the effect. Also
not covered: data that the store loses in a failover, and a jump of its clock during a failover.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import secrets
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from relier import codec
from relier.codec.keyring import NO_KEYS
from relier.errors import IdempotencyInFlightError, InvalidSubmissionError, LeaseLostError, RelierError
from relier.ledger.checks import check_key
from relier.ledger.records import Lease, Locked, LockState, Verdict
from relier.lock.renewal import RESULT, HeldKey, LoopRenewal, start_uncancelled, thread_renewals
from relier.options import seconds_of
from relier.run.channel import arun_until_answered
from relier.run.current import current_context
from relier.store.call import Call
from relier.store.sync_wire import run_sync
from relier.submit.client import default_client
from relier.submit.ledger_access import LedgerAccess

__all__ = ["IdempotencyLock", "LockState", "idempotency_lock"]

T = TypeVar("T")
log = logging.getLogger("relier.lock")

NO_RESULT = b"null"


def idempotency_lock(key: str, ttl: float | timedelta = 3600) -> IdempotencyLock:
    """Return a lock to enter with `with` or `async with`. `ttl`: how long its result is kept, in seconds."""
    check_key("the key of idempotency_lock", key)
    keep_ms = round(1000 * seconds_of("ttl", ttl))
    if keep_ms < 1:
        raise InvalidSubmissionError(f"ttl must be a millisecond or longer, not {ttl!r:.60}; nothing was locked")
    return IdempotencyLock(key, keep_ms)


class IdempotencyLock:
    """Lock one key. A lock may be entered again after it was left; each entry asks the store again."""

    def __init__(self, key: str, keep_ms: int) -> None:
        self.key = key
        self.state: LockState | None = None
        self._keep_ms = keep_ms
        self._found = NO_RESULT
        self._keyring = NO_KEYS
        self._held: HeldKey | None = None
        self._conclusion: Call[Verdict] | None = None
        self._renewal: LoopRenewal | None = None

    def __repr__(self) -> str:
        return f"IdempotencyLock({self.key!r:.80}, {self.state or 'not entered'})"

    @property
    def already_executed(self) -> bool:
        return self.state is LockState.COMPLETED

    @property
    def cached_result(self) -> Any:
        """Return the result that was kept when the block ran, or None if the block has not run.

        Raise PayloadIntegrityError if the result cannot be decrypted. In that case, too, the block has run.
        """
        if not self.already_executed:
            return None
        what = self._named_result
        return codec.decode(self._keyring.unwrap(self._found, self.key, RESULT, what), what)

    @property
    def lost(self) -> bool:
        """Return whether a renewal found that another caller may run the block now. If so, stop."""
        return self._held is not None and self._held.lost

    def set_result(self, value: Any) -> None:
        """Set the result to keep when the block ends. Raise if the value cannot be stored."""
        if self.already_executed:
            log.warning("lock %.80r already has a result, the new one is dropped; check already_executed", self.key)
            return
        if self._held is None:
            raise RelierError(f"set_result of lock {self.key!r:.80} was called outside its block; nothing was stored")
        self._conclusion = self._held.conclude(self._keep_ms, codec.encode(value, self._named_result))

    @property
    def _named(self) -> str:
        return f"lock {self.key!r:.80}"

    @property
    def _named_result(self) -> str:
        return f"the result of {self._named}"

    # --- blocking ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        held = self._new_hold()
        ledger = held.client.blocking
        try:
            answer = run_sync(self._ask(held, ledger))
        except Exception:
            raise
        except BaseException:  # interrupted, but the key may be taken already
            run_sync(free(held, ledger))
            raise
        if self._answered(held, answer):
            thread_renewals.start(held)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        ledger = held.client.blocking
        try:
            if error is None:
                with held.waiting():
                    verdict = run_sync(self._report(held, self._conclude(held), ledger))
                self._check(verdict)
        finally:
            thread_renewals.end(held)
        if error is not None:
            run_sync(free(held, ledger))

    # --- on an event loop ----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        held = self._new_hold()
        ledger = held.client.awaiting
        try:
            answer = await self._ask(held, ledger)
        except asyncio.CancelledError:  # the key may be taken already
            start_uncancelled(free(held, ledger))
            raise
        if self._answered(held, answer):
            self._renewal = LoopRenewal(held)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        ledger = held.client.awaiting
        # Shielded: a block that is cancelled at its very end must still be concluded, or freed.
        try:
            if error is None:
                report = self._report(held, self._conclude(held), ledger)
                with held.waiting():
                    verdict = await asyncio.shield(start_uncancelled(report))
                self._check(verdict)
        finally:
            if self._renewal is not None:
                self._renewal.end()
        if error is not None:
            await asyncio.shield(start_uncancelled(free(held, ledger)))

    # --- both: coroutines that never suspend for blocking callers ------------------------------------------------

    def _new_hold(self) -> HeldKey:
        if self._held is not None:
            raise RelierError(f"lock {self.key!r:.80} is already entered; create a separate lock for each block")
        self.state, self._conclusion = None, None
        client = default_client().of(self.key)
        ms = max(1, round(1000 * client.settings.idempotency_inflight_ttl))
        return HeldKey(client, self.key, secrets.token_hex(16), ms, current_context())

    async def _ask(self, held: HeldKey, ledger: LedgerAccess[Any]) -> Locked:
        """Ask the store for the key; inside a task, until the store answers."""
        ctx = held.ctx
        holder = Lease(ctx.task_id, str(ctx.fence), ctx.worker_id) if ctx is not None and held.is_here else place()
        call = held.client.ledger.lock(held.key, held.token, held.ms, holder)
        if ctx is None:
            return await ledger.run(call)
        with held.waiting():
            return await self._report(held, call, ledger)

    async def _report(self, held: HeldKey, call: Call[T], ledger: LedgerAccess[Any]) -> T:
        return await arun_until_answered(ledger.run, call, held.gives_up(), self._named, ledger.calls.sleep)

    def _answered(self, held: HeldKey, answer: Locked) -> bool:
        """Return whether the block holds the key now."""
        self.state, self._found, self._keyring = answer.state, answer.result, held.client.keyring
        if answer.state is LockState.IN_FLIGHT:
            who = f"task {answer.task_id} on worker {answer.holder}" if answer.task_id else f"process {answer.holder}"
            raise IdempotencyInFlightError(
                f"{self.key!r:.80} is in progress: {who} runs its block and holds the key for at most "
                f"{answer.left_ms / 1000:g} s unless the lock is renewed; nothing was run; try again later",
                answer.task_id,
            )
        if answer.state is LockState.COMPLETED:
            return False
        self._held = held
        return True

    def _conclude(self, held: HeldKey) -> Call[Verdict]:
        if held.lost:
            raise self._lost()
        if self._conclusion is None:
            log.warning("lock %.80r ended without a result, None is kept; call lock.set_result(…)", self.key)
        held.concluding = True
        return self._conclusion or held.conclude(self._keep_ms, NO_RESULT)

    def _check(self, verdict: Verdict) -> None:
        if verdict not in {Verdict.OK, Verdict.REPEAT}:
            raise self._lost()

    def _lost(self) -> LeaseLostError:
        return LeaseLostError(
            f"lock {self.key!r:.80} was lost while its block ran: it was not renewed in time, and another may have run "
            f"the block since; the result was not kept; find out what was done before you go on"
        )


async def free(held: HeldKey, ledger: LedgerAccess[Any]) -> None:
    """Free the key. Only log a failure, which must not hide the error that ended the block."""
    try:
        await ledger.run(held.unlock())
    except RelierError as error:
        log.warning(
            "lock %.80r could not be released and stays in flight for %g s: %s", held.key, held.ms / 1000, error
        )


def place() -> str:
    """Return the host and the process id of code that runs outside tasks, for messages to people."""
    host = "".join(platform.node().encode("ascii", "ignore").decode().split())[:40]
    return f"{host or 'host'}.{os.getpid()}"
