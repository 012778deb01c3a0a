"""Hooks: functions of the application that are called with the events of tasks.

    @rl_task(on_dead=alert)                 of one task
    relier.use_hooks(on_dead=alert)         of all tasks

Hooks run in the worker's process, even if the task runs in another: a `def` in a thread, an `async def` on the worker's
event loop. The hooks of one task are called one after the other, in the order of its events. They are best effort: an
error in a hook is logged and changes nothing, and a process that dies calls no more of them. Work that must not be
lost belongs in the task itself.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from relier import background
from relier.errors import ConfigurationError
from relier.failure import message_of
from relier.logs.record_fields import TASK_FIELDS
from relier.options import EventHook
from relier.redact import showing
from relier.run.current import enter_hook
from relier.run.threads import Threads

if TYPE_CHECKING:
    from relier.engines.task_events import TaskEvent
    from relier.task import RlTask

log = logging.getLogger("relier.hooks")

OPTION_OF = {
    "started": "on_start",
    "succeeded": "on_success",
    "retried": "on_retry",
    "dead": "on_dead",
    "revived": "on_revived",
}
AT_ONCE = 10  # hooks that run at the same time in one worker
MOST_WAITING = 1000  # hooks that wait for their turn; later events are dropped

_for_all: dict[str, list[EventHook]] = {kind: [] for kind in OPTION_OF}


def use_hooks(
    *,
    on_start: EventHook | None = None,
    on_success: EventHook | None = None,
    on_retry: EventHook | None = None,
    on_dead: EventHook | None = None,
    on_revived: EventHook | None = None,
) -> None:
    """Call these functions with the events of all tasks, in addition to earlier ones and to the hooks of each task.

    Call this in a module that workers import.
    """
    given = {"on_start": on_start, "on_success": on_success, "on_retry": on_retry}
    given |= {"on_dead": on_dead, "on_revived": on_revived}
    for option, hook in given.items():
        if hook is not None and not callable(hook):
            raise ConfigurationError(f"use_hooks: {option} must be a function, not {hook!r:.60}")
    for kind, option in OPTION_OF.items():
        hook = given[option]
        if hook is not None and hook not in _for_all[kind]:
            _for_all[kind].append(hook)


def has_global_hook(kind: str) -> bool:
    """Return whether a hook for all tasks wants this kind of event."""
    return bool(_for_all[kind])


def hooks_for(kind: str, task: RlTask[Any, Any] | None) -> Iterator[EventHook]:
    """Yield the hooks for one event of a task: its own, then those of all tasks."""
    if kind not in OPTION_OF:
        return
    own = None if task is None else getattr(task.options, OPTION_OF[kind])
    if own is not None:
        yield own
    yield from _for_all[kind]


class HookRunner:
    """Run hooks on the current event loop, a limited number at once."""

    def __init__(self, redact: str = "") -> None:
        self._redact = redact
        self._threads = Threads()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._dropping = False
        self._latest: dict[str, asyncio.Task[None]] = {}  # by task id
        self.running: set[asyncio.Task[None]] = set()

    def start(self, hook: EventHook, event: TaskEvent) -> None:
        """Call a hook in the background. Drop the call if too many calls wait, because they would fill the memory."""
        if len(self.running) >= MOST_WAITING:
            if not self._dropping:
                log.error("hooks are too slow, events are dropped: waiting=%d hook=%s", MOST_WAITING, _name_of(hook))
            self._dropping = True
            return
        self._dropping = False
        before = self._latest.get(event.task_id)
        running = background.start(asyncio.get_running_loop(), self._run(hook, event, before))
        self._latest[event.task_id] = running
        self.running.add(running)
        running.add_done_callback(partial(self._ended, event.task_id))

    def _ended(self, task_id: str, running: asyncio.Task[None]) -> None:
        self.running.discard(running)
        if self._latest.get(task_id) is running:
            del self._latest[task_id]

    async def _run(self, hook: EventHook, event: TaskEvent, before: asyncio.Task[None] | None) -> None:
        """Call a hook, once the previous hook of the same task has ended."""
        enter_hook(**{name: getattr(event, name) for name in TASK_FIELDS})
        if before is not None:
            await asyncio.wait({before})
        async with self._turns:
            try:
                if inspect.iscoroutinefunction(hook):
                    await hook(event)
                    return
                answer = await self._threads.start(lambda: hook(event), asyncio.get_running_loop()).future
                if inspect.isawaitable(answer):
                    await answer
            except asyncio.CancelledError:  # the worker shuts down
                raise
            except BaseException as error:  # noqa: BLE001 - sys.exit() in a hook must not end the worker
                self._log_failure(hook, event, error)

    def _log_failure(self, hook: EventHook, event: TaskEvent, error: BaseException) -> None:
        show = showing(self._redact, event.task_name)
        said = f"{type(error).__name__}: {message_of(error) if show is None else show(message_of(error))}"
        whole = error if show is None else None  # a traceback quotes the message
        option, name = OPTION_OF[event.kind], _name_of(hook)
        log.error("hook failed: %s=%s task=%s error=%s", option, name, event.task_id, said, exc_info=whole)

    def close(self) -> None:
        self._threads.close()


def _name_of(hook: EventHook) -> str:
    return str(getattr(hook, "__qualname__", None) or type(hook).__qualname__)
