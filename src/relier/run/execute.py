"""Running one attempt to its outcome: `async def` on the loop, `def` in a thread, an isolated one in its process."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from typing import TYPE_CHECKING, Any

from relier import trace
from relier.failure import message_of
from relier.keyring import NO_KEYS, Keyring
from relier.run.attempt import Attempt
from relier.run.context import TaskContext, enter_context
from relier.run.outcome import Failed, HandBack, Outcome, returned, wrapped
from relier.run.threads import Threads

if TYPE_CHECKING:
    from relier.run.isolate import Isolates

log = logging.getLogger("relier.run")


async def execute(
    attempt: Attempt, threads: Threads, isolates: Isolates | None, most_bytes: int, keyring: Keyring = NO_KEYS
) -> Outcome:
    """What came of it, its result as it is stored. Runs in an asyncio task of its own, so that the context it sets is
    its own."""
    enter_context(attempt.ctx)
    trace.inherited.set(attempt.envelope.trace)
    if isolates is not None and attempt.isolated:
        return wrapped(await isolates.run(attempt), attempt.ctx.task_id, keyring, most_bytes)
    try:
        value = await _call(attempt, threads)
    except BaseException as error:  # noqa: BLE001 - whatever a task raises is its outcome
        return _raised(attempt, error)
    if isinstance(attempt.stop, Failed):  # it swallowed the hard timeout's cancel, and came to an end after all
        return attempt.stop
    return wrapped(returned(attempt.task, value, most_bytes), attempt.ctx.task_id, keyring, most_bytes)


async def _call(attempt: Attempt, threads: Threads) -> Any:
    args, kwargs = attempt.arguments()
    if attempt.stop is not None:  # before it had begun
        raise asyncio.CancelledError
    if attempt.task.is_async:
        return await attempt.task.fn(*args, **kwargs)
    work = threads.start(functools.partial(attempt.task.fn, *args, **kwargs), asyncio.get_running_loop())
    attempt.stopper = work.stop
    if attempt.stop is not None:
        work.stop()
    return await work.future


def _raised(attempt: Attempt, error: BaseException) -> Outcome:
    if attempt.stop is None:
        return Failed(error)
    if isinstance(attempt.stop, HandBack) and isinstance(error, Exception) and not isinstance(error, TimeoutError):
        log.info("task %s raised while it was being stopped: %s", attempt.ctx.task_id, _told(attempt, error))
    return attempt.stop


def stop(attempt: Attempt, why: Outcome) -> None:
    """Tell a running attempt to end, once. What comes of it is `why`, unless it returns a result first."""
    if attempt.stop is not None:
        return
    attempt.stop = why
    if attempt.stopper is not None:
        attempt.stopper()


async def run_soft_hook(attempt: Attempt) -> None:
    """Call `on_soft_timeout`, once. What it raises is reported and changes nothing."""
    hook = attempt.task.options.on_soft_timeout
    if hook is None or attempt.warned:
        return
    attempt.warned = True
    try:
        await call_hook(hook, attempt.ctx)
    except Exception as error:  # noqa: BLE001 - the application's own; reported there
        _report_hook(attempt, error)


async def call_hook(hook: Any, ctx: TaskContext) -> None:
    enter_context(ctx)
    if inspect.iscoroutinefunction(hook):
        await hook(ctx)
    else:
        answer = await asyncio.to_thread(hook, ctx)
        if inspect.isawaitable(answer):
            await answer


def _told(attempt: Attempt, error: Exception) -> str:
    """An error for the log: what people may see of it."""
    message = message_of(error)
    return f"{type(error).__name__}: {message if attempt.show is None else attempt.show(message)}"


def _report_hook(attempt: Attempt, error: Exception) -> None:
    shown_whole = error if attempt.show is None else None  # a traceback quotes the message
    where, told = attempt.ctx.task_id, _told(attempt, error)
    log.error("on_soft_timeout of task %s failed; the task goes on: %s", where, told, exc_info=shown_whole)
