"""Run one attempt to its outcome in this process.

An `async def` task runs on the loop, a `def` task in a thread. If a `def` returns a coroutine, it runs on the loop.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from relier import background, trace
from relier.arguments.dependencies import Dependencies
from relier.errors import ExactlyOnceError, HardTimeoutError, LeaseLostError, NotAwaitedError
from relier.failure import message_of
from relier.outbox.inbox.exactly_once import earlier_result
from relier.run.application.django_connections import (
    django_is_used,
    with_fresh_connections,
    with_fresh_connections_async,
)
from relier.run.application.middleware import wrapped
from relier.run.attempt import Attempt
from relier.run.channel import LedgerChannel
from relier.run.current import enter_context
from relier.run.forks import end_copy
from relier.run.outcome import Failed, HandBack, Outcome, returned
from relier.run.threads import Threads
from relier.run.waits import LONG_S

log = logging.getLogger("relier.run")

CHECK_S = 0.05  # the shortest time between two checks of a hard timeout


async def execute(attempt: Attempt, threads: Threads, channel: LedgerChannel) -> Outcome:
    """Run the attempt and return its outcome, with the result encoded for storage.

    Call this in a separate asyncio task: the context variables it sets stay private to the attempt, and cancelling
    that task stops an `async def`.
    """
    if attempt.task.is_async and (runs := attempt.asyncio_task or asyncio.current_task()) is not None:
        attempt.stopper = runs.cancel
    enter_context(attempt.ctx)
    trace.inherited.set(attempt.envelope.trace)
    code, process = background.enter_attempt_code(), os.getpid()
    try:
        call: Any = partial(_call, threads)
        if attempt.task.is_async and django_is_used():
            call = partial(with_fresh_connections_async, call)
        value = await wrapped(attempt, call)
    except BaseException as error:  # noqa: BLE001 - whatever a task raises is its outcome
        ran = earlier_result(error)
        if ran is None:
            return _raised(attempt, error, disturbed=code.disturbed)
        value = ran.value  # an earlier attempt committed its effects, so its result counts
    finally:
        if os.getpid() != process:
            end_copy()
    if isinstance(attempt.stop, Failed):  # the task swallowed the hard timeout's cancellation and returned
        return attempt.stop
    lost_effects = attempt.ctx.lost_effects()
    if lost_effects is not None:
        return _raised(attempt, lost_effects, disturbed=False)
    return returned(attempt.task, value, channel.settings.max_payload_bytes, attempt.ctx.task_id, channel.keyring)


async def _call(threads: Threads, attempt: Attempt, provided: Dependencies | None = None) -> Any:
    if attempt.stop is not None:  # stopped before it began
        raise asyncio.CancelledError
    if provided is None and attempt.task.arguments.dependencies:
        async with Dependencies(attempt.task.arguments, attempt.ctx, on_loop=attempt.task.is_async) as provided:
            return await _call(threads, attempt, provided)
    if attempt.task.is_async:
        attempt.ctx.begin_here()
        await attempt.ctx.fetch_partial()
        args, kwargs = attempt.arguments(provided)
        return await _awaiting_all(attempt, attempt.task.fn(*args, **kwargs))
    work = threads.start(partial(with_fresh_connections, _in_thread, attempt, provided), asyncio.get_running_loop())
    attempt.stopper = work.stop
    if attempt.stop is not None:
        work.stop()
    value = await work.future
    return await _awaited(attempt, value) if inspect.iscoroutine(value) else value


def _in_thread(attempt: Attempt, provided: Dependencies | None) -> Any:
    attempt.ctx.begin_here()
    if provided is None:
        args, kwargs = attempt.arguments()
        return attempt.task.fn(*args, **kwargs)
    with provided:
        args, kwargs = attempt.arguments(provided)
        return attempt.task.fn(*args, **kwargs)


async def _awaited(attempt: Attempt, work: Coroutine[Any, Any, Any]) -> Any:
    """Run the coroutine that a `def` task returned, as if the task were an `async def`.

    This happens when a plain decorator wraps an `async def`.
    """
    current = asyncio.current_task()
    attempt.stopper = None if current is None else current.cancel
    try:
        if attempt.stop is not None:  # stopped after the thread ended
            raise asyncio.CancelledError
        attempt.ctx.begin_here()
        await attempt.ctx.fetch_partial()
        return await _awaiting_all(attempt, work)
    finally:
        work.close()


async def _awaiting_all(attempt: Attempt, body: Awaitable[Any]) -> Any:
    """Await the body of a task. Raise if it returned without having awaited a call of its context.

    This is checked before anything else can run on the loop: a step that was only planned must not start during the
    cleanup of a dependency or in middleware.
    """
    value = await body
    never_awaited = attempt.ctx.never_awaited()
    if never_awaited is not None:
        raise never_awaited
    return value


def _raised(attempt: Attempt, error: BaseException, *, disturbed: bool) -> Outcome:
    if attempt.stop is None:
        if disturbed and isinstance(error, asyncio.CancelledError):
            log.warning("task %s was cancelled by another task of its worker and runs again", attempt.ctx.task_id)
            return HandBack()
        if isinstance(error, LeaseLostError) and attempt.ctx.gave_up:
            return HandBack()
        if isinstance(error, ExactlyOnceError | NotAwaitedError) and error.final:
            return Failed(error, final=True)
        retries = attempt.task.options.retries
        return Failed(error, retryable=None if retries is None else retries.covers(error))
    if isinstance(attempt.stop, HandBack) and isinstance(error, Exception) and not isinstance(error, TimeoutError):
        log.info("task %s raised while it was being stopped: %s", attempt.ctx.task_id, _shown(attempt, error))
    return attempt.stop


def stop(attempt: Attempt, why: Outcome) -> None:
    """Tell a running attempt to end, once. Its outcome is `why`, unless it returns a result first."""
    if attempt.stop is not None:
        return
    attempt.stop = why
    if attempt.stopper is not None:
        attempt.stopper()


def arm_timeouts(attempt: Attempt, loop: asyncio.AbstractEventLoop, on_soft_timeout: Callable[[Attempt], None]) -> None:
    """Start the timers of an attempt that begins now. They are cancelled with `attempt.cancel_timers`."""
    options, attempt.began = attempt.task.options, time.monotonic()
    if options.soft_timeout is not None:
        attempt.timers.append(loop.call_later(options.soft_timeout, on_soft_timeout, attempt))
    if options.hard_timeout is not None:
        attempt.timers.append(HardTimeout(loop, attempt, options.hard_timeout))


class HardTimeout:
    """Stop an attempt at its hard timeout, not counting time it spent waiting for the store. Cancel it like a timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, attempt: Attempt, seconds: float) -> None:
        self._loop = loop
        self._attempt = attempt
        self._seconds = seconds
        self._until = loop.time() + seconds  # by the loop's clock, which tests may set
        self._timer = loop.call_later(seconds, self._check)

    def cancel(self) -> None:
        self._timer.cancel()

    def _check(self, last: bool = False) -> None:
        attempt = self._attempt
        left = self._until + attempt.ctx.kept_waiting - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(max(left, CHECK_S), self._check)
        elif not last and (attempt.ctx.waits.any or attempt.isolated):  # a short wait may become a long one
            self._timer = self._loop.call_later(LONG_S, self._check, True)
        else:
            self._stop()

    def _stop(self) -> None:
        why = f"the task ran longer than its hard timeout of {self._seconds:g} s and was stopped"
        stop(self._attempt, Failed(HardTimeoutError(why)))


async def run_soft_hook(attempt: Attempt, channel: LedgerChannel) -> None:
    """Call the task's `on_soft_timeout` hook, once. An error in the hook is logged and changes nothing."""
    hook = attempt.task.options.on_soft_timeout
    if hook is None or attempt.warned:
        return
    attempt.warned = True
    enter_context(attempt.ctx)
    try:
        if inspect.iscoroutinefunction(hook):
            await hook(attempt.ctx)
        else:
            answer = await channel.in_own_thread(hook, attempt.ctx)
            if inspect.isawaitable(answer):
                await answer
    except asyncio.CancelledError:  # the task has ended in the meantime
        raise
    except BaseException as error:  # noqa: BLE001 - sys.exit() in a hook must not end the worker
        _report_hook(attempt, error)


def _report_hook(attempt: Attempt, error: BaseException) -> None:
    whole = error if attempt.show is None else None  # a traceback quotes the message
    shown = _shown(attempt, error)
    log.error("on_soft_timeout of task %s failed; the task continues: %s", attempt.ctx.task_id, shown, exc_info=whole)


def _shown(attempt: Attempt, error: BaseException) -> str:
    """Return the error's type and message for the log, redacted if the task's values must not be shown."""
    message = message_of(error)
    return f"{type(error).__name__}: {message if attempt.show is None else attempt.show(message)}"
