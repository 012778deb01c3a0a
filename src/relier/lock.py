"""`idempotency_lock`: a block of code that one caller at a time runs per key, and none again while its result is kept.

    async with idempotency_lock(f"charge:{order}", ttl=86_400) as lock:      # or `with`, in blocking code
        if lock.already_executed:
            return lock.cached_result
        receipt = await charge(order)
        lock.set_result(receipt)

CLAIMED     nobody has it: the block runs. Left cleanly, its result is kept for `ttl`; left by an exception, it is freed
IN_FLIGHT   another runs it right now: entering raises IdempotencyInFlightError. A task that lets it out is put back
COMPLETED   it was done: the block runs with `already_executed`, and nothing is written at its end

While the block runs its mark counts for RELIER_IDEMPOTENCY_INFLIGHT_TTL and is renewed at a third of that: by the event
loop or, for blocking code, by one thread of the process; over connections of their own, and again soon after one failed
(store/heartbeat.py). A process that dies frees its keys when that time is over;
inside a task at once when its worker is declared lost, and a later attempt of the same task takes its own over. That a
block was done is told until the store answers: by code outside tasks for as long as its mark may count. Inside a task
also the entry waits through an outage; code outside tasks gets the store's error.

It does not cover a holder that lives and cannot renew (a stopped process, an event loop that blocks, a store out of
reach) for longer than that time: then another may run the block too, and the first is told by LeaseLostError at its
end. Where even that must not be, hand `ctx.fence` to whoever does the effect. Nor does it cover what a store loses in a
failover, or that its clock jumps in one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from relier import background, codec
from relier.errors import IdempotencyInFlightError, InvalidSubmissionError, LeaseLostError, RelierError
from relier.keyring import NO_KEYS
from relier.ledger.checks import check_key
from relier.ledger.records import Lease, Locked, LockState, Verdict
from relier.options import seconds_of
from relier.run.channel import atell, tell
from relier.run.context import TaskContext, current_context
from relier.store.call import Call
from relier.store.heartbeat import retry_pause
from relier.submit.client import Client, default_client

__all__ = ["IdempotencyLock", "LockState", "idempotency_lock"]

T = TypeVar("T")
log = logging.getLogger("relier.lock")

NOTHING = b"null"
WHAT = "lock"  # a result bound to its key: moved to another it cannot be decrypted


def idempotency_lock(key: str, ttl: float | timedelta = 3600) -> IdempotencyLock:
    """A lock to enter with `with` or `async with`. `ttl`: how long its result is kept, in seconds."""
    check_key("the key of idempotency_lock", key)
    keep_ms = round(1000 * seconds_of("ttl", ttl))
    if keep_ms < 1:
        raise InvalidSubmissionError(f"ttl must be a millisecond or longer, not {ttl!r:.60}; nothing was locked")
    return IdempotencyLock(key, keep_ms)


class IdempotencyLock:
    """One key. It may be entered again after it was left; each time asks anew."""

    def __init__(self, key: str, keep_ms: int) -> None:
        self.key = key
        self.state: LockState | None = None
        self._keep_ms = keep_ms
        self._found = NOTHING
        self._keyring = NO_KEYS
        self._held: Held | None = None
        self._conclusion: Call[Verdict] | None = None
        self._renewal: LoopRenewal | None = None

    def __repr__(self) -> str:
        return f"IdempotencyLock({self.key!r:.80}, {self.state or 'not entered'})"

    @property
    def already_executed(self) -> bool:
        return self.state is LockState.COMPLETED

    @property
    def cached_result(self) -> Any:
        """What the block came to when it was run; None where it was not. PayloadIntegrityError where it cannot be
        decrypted: it was run none the less."""
        if not self.already_executed:
            return None
        return codec.decode(self._keyring.unwrap(self._found, self.key, WHAT, self._called), self._called)

    @property
    def lost(self) -> bool:
        """A renewal found that the mark is not this block's any more: stop, another may run it."""
        return self._held is not None and self._held.lost

    def set_result(self, value: Any) -> None:
        """What to keep when the block ends. A value that cannot be kept is refused here."""
        if self.already_executed:
            log.warning("lock %.80r has its result: the new one is dropped; look at already_executed first", self.key)
            return
        if self._held is None:
            raise RelierError(f"set_result of lock {self.key!r:.80} was called outside its block; nothing was kept")
        self._conclusion = self._held.conclude(self._keep_ms, codec.encode(value, self._called))

    @property
    def _named(self) -> str:
        return f"lock {self.key!r:.80}"

    @property
    def _called(self) -> str:
        return f"the result of {self._named}"

    # --- blocking ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        held, call = self._ask()
        run = held.client.run
        try:
            with held.waiting():
                answer = run(call) if held.ctx is None else tell(run, call, held.gives_up(), self._named)
        except Exception:
            raise
        except BaseException:  # interrupted: it may have been taken all the same
            _free(held)
            raise
        if self._answered(held, answer):
            _renewer.start(held)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        try:
            if error is None:
                with held.waiting():
                    verdict = tell(held.client.run, self._conclude(held), held.gives_up(), self._named)
                self._ended(verdict)
        finally:
            _renewer.end(held)
        if error is not None:
            _free(held)

    # --- on an event loop ----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        held, call = self._ask()
        run = held.client.arun
        try:
            with held.waiting():
                answer = await (run(call) if held.ctx is None else atell(run, call, held.gives_up(), self._named))
        except asyncio.CancelledError:  # it may have been taken all the same
            _spawn(_afree(held))
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
        # Shielded: a block that is cancelled at its very end is done, or must be freed, none the less.
        try:
            if error is None:
                telling = atell(held.client.arun, self._conclude(held), held.gives_up(), self._named)
                with held.waiting():
                    verdict = await asyncio.shield(_spawn(telling))
                self._ended(verdict)
        finally:
            if self._renewal is not None:
                self._renewal.end()
        if error is not None:
            await asyncio.shield(_spawn(_afree(held)))

    # --- both ----------------------------------------------------------------------------------------------------

    def _ask(self) -> tuple[Held, Call[Locked]]:
        if self._held is not None:
            raise RelierError(f"lock {self.key!r:.80} is entered already: make one for each block")
        self.state, self._conclusion = None, None
        client, ctx = default_client(), current_context()
        ms = max(1, round(1000 * client.settings.idempotency_inflight_ttl))
        held = Held(client, self.key, secrets.token_hex(16), ms, ctx)
        holder = place() if ctx is None else Lease(ctx.task_id, str(ctx.fence), ctx.worker_id)
        return held, client.ledger.lock(self.key, held.token, ms, holder)

    def _answered(self, held: Held, answer: Locked) -> bool:
        """Whether the block holds the key now."""
        self.state, self._found, self._keyring = answer.state, answer.result, held.client.keyring
        if answer.state is LockState.IN_FLIGHT:
            who = f"task {answer.task_id} on worker {answer.holder}" if answer.task_id else f"process {answer.holder}"
            raise IdempotencyInFlightError(
                f"{self.key!r:.80} is being worked on by {who}, which holds it for {answer.left_ms / 1000:g} s more at "
                f"the most unless it renews it; nothing was run; try again later",
                answer.task_id,
            )
        if answer.state is LockState.COMPLETED:
            return False
        self._held = held
        return True

    def _conclude(self, held: Held) -> Call[Verdict]:
        if held.lost:
            raise self._lost()
        if self._conclusion is None:
            log.warning("lock %.80r ends without a result, and None is kept: call lock.set_result(…)", self.key)
        held.concluding = True
        return self._conclusion or held.conclude(self._keep_ms, NOTHING)

    def _ended(self, verdict: Verdict) -> None:
        if verdict not in {Verdict.OK, Verdict.REPEAT}:
            raise self._lost()

    def _lost(self) -> LeaseLostError:
        return LeaseLostError(
            f"lock {self.key!r:.80} was lost while its block ran: it was not renewed in time, and another may have run "
            f"the block since; the result was not kept; find out what was done before you go on"
        )


@dataclass(eq=False, slots=True)
class Held:
    """One taking of one key, by its token."""

    client: Client
    key: str
    token: str
    ms: int
    ctx: TaskContext | None = None  # of the task it was taken in
    lost: bool = False
    away: bool = False  # the store did not answer the last renewal
    concluding: bool = False

    def renew(self) -> Call[Verdict]:
        return self.client.ledger.renew(self.key, self.token, self.ms)

    def conclude(self, keep_ms: int, result: bytes) -> Call[Verdict]:
        kept = self.client.keyring.wrap(result, self.key, WHAT)
        return self.client.ledger.conclude(self.key, self.token, keep_ms, kept)

    def unlock(self) -> Call[Verdict]:
        return self.client.ledger.unlock(self.key, self.token)

    @property
    def pause(self) -> float:
        """Seconds from one renewal to the next."""
        return self.ms / 3000

    def gives_up(self) -> Callable[[], bool]:
        """Whether to tell no more that the block is done: in a task like all it did, when it is lost; outside, where
        nobody could tell it to stop, when its mark may have run out."""
        ctx, until = self.ctx, time.monotonic() + self.ms / 1000
        return (lambda: ctx.lost) if ctx is not None else (lambda: time.monotonic() > until)

    def waiting(self) -> contextlib.AbstractContextManager[None]:
        """Around a call: the time it takes is no part of the time of the task, if this is one."""
        return contextlib.nullcontext() if self.ctx is None else self.ctx.waiting()

    def renewed(self, answer: Verdict | RelierError) -> float | None:
        """Seconds until the next renewal; None: the key is another's, or nobody's."""
        if isinstance(answer, RelierError):
            if not self.away:  # once for an outage, however long it is
                log.warning("lock %.80r could not be renewed and is tried again: %s", self.key, answer)
            self.away = True
            return retry_pause(self.ms / 1000)
        self.away = False
        if answer is Verdict.OK:
            return self.pause
        if self.concluding:  # its result may be there, with the answer lost: who tells of it will hear
            return None
        log.error("lock %.80r is lost: its mark is %s", self.key, answer)
        self.lost = True
        return None


def place() -> str:
    """Where code outside tasks runs, for people: host and process."""
    host = "".join(platform.node().encode("ascii", "ignore").decode().split())[:40]
    return f"{host or 'host'}.{os.getpid()}"


# --- giving up -----------------------------------------------------------------------------------------------------


def _free(held: Held) -> None:
    """What led here is the caller's to see: that the key could not be freed at once must not hide it."""
    try:
        held.client.run(held.unlock())
    except RelierError as error:
        _not_freed(held, error)


async def _afree(held: Held) -> None:
    try:
        await held.client.arun(held.unlock())
    except RelierError as error:
        _not_freed(held, error)


def _not_freed(held: Held, error: RelierError) -> None:
    log.warning("lock %.80r could not be freed and is in flight for %g s more: %s", held.key, held.ms / 1000, error)


# --- renewing ------------------------------------------------------------------------------------------------------

_spawned: set[asyncio.Task[Any]] = set()


def _spawn(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that no caller's cancellation ends; loops keep only weak references."""
    task = background.start(asyncio.get_running_loop(), work)
    _spawned.add(task)
    task.add_done_callback(_spawned.discard)
    return task


class LoopRenewal:
    """Renews one key from the event loop its block runs on. Most blocks end before the first renewal: only a timer."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(held.pause, self._begin)

    def end(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = background.start(self._loop, self._renew())

    async def _renew(self) -> None:
        answer: Verdict | RelierError
        try:
            answer = await self._held.client.renewals.run(self._held.renew())
        except RelierError as error:
            answer = error
        pause = self._held.renewed(answer)
        if pause is not None:
            self._timer = self._loop.call_later(pause, self._begin)


class Renewer:
    """Renews the keys that blocking code holds: one thread a process, started with the first of them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """A forked child has no thread, and holds nothing."""
        self._turn = threading.Condition()
        self._due: dict[Held, float] = {}
        self._wakes = math.inf
        self._thread: threading.Thread | None = None

    def start(self, held: Held) -> None:
        due = time.monotonic() + held.pause
        with self._turn:
            self._due[held] = due
            if due >= self._wakes:  # early enough: short blocks do not wake it at all
                return
            self._wakes = due
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="relier-locks", daemon=True)
                self._thread.start()
            else:
                self._turn.notify()

    def end(self, held: Held) -> None:
        with self._turn:
            self._due.pop(held, None)

    def _run(self) -> None:
        while True:
            with self._turn:
                now = time.monotonic()
                due = [held for held, at in self._due.items() if at <= now]
                if not due:
                    if self._due or self._wakes <= now:
                        self._wakes = min(self._due.values(), default=math.inf)
                    self._turn.wait(None if self._wakes == math.inf else self._wakes - now)
                    continue
            for client in {held.client for held in due}:
                self._renew(client, [held for held in due if held.client is client])

    def _renew(self, client: Client, due: Sequence[Held]) -> None:
        answers = _ask_for_all(client, due)
        with self._turn:
            for held, answer in zip(due, answers, strict=True):
                if held in self._due:  # else its block ended meanwhile, and its mark with it
                    pause = held.renewed(answer)
                    self._due[held] = math.inf if pause is None else time.monotonic() + pause


def _ask_for_all(client: Client, due: Sequence[Held]) -> list[Verdict | RelierError]:
    """In one pipeline: a store that is out of reach costs one deadline, not one each."""
    try:
        answers = client.sync_renewals.run_many([held.renew() for held in due])
    except Exception as error:  # noqa: BLE001 - whatever it is: the thread goes on, for all the others too
        return [error if isinstance(error, RelierError) else RelierError(repr(error))] * len(due)
    return answers


_renewer = Renewer()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renewer.forget)
