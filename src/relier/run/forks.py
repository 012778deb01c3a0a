"""Handle processes that tasks fork.

A forked process inherits the worker's signal handling: a handler in Python, and a wakeup socket of the worker's event
loop. So a SIGTERM for the forked process would not end it, but would tell the worker to shut down. The forked process
also inherits the worker's connections and its event loop, which must not run there.
"""

from __future__ import annotations

import inspect
import logging
import os
import signal
import sys
from functools import cache
from types import FrameType
from typing import Any

from relier.stop_signals import stop_signals

log = logging.getLogger("relier.worker")

END_THEMSELVES = ("multiprocessing.", "billiard.", "concurrent.")  # the processes these fork never return to the caller


@cache  # once: a registered hook cannot be removed
def let_forks_be_ended() -> None:
    """Make forked processes end on the stop signals, as any other process does.

    Not covered: a process that gets a signal before it has run this hook.
    """
    os.register_at_fork(after_in_child=_own_signals)
    end_copies_of_the_loop()


def _own_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in stop_signals():
        signal.signal(number, signal.SIG_DFL)


@cache
def end_copies_of_the_loop() -> None:
    """Make a process that an `async def` forked end before it returns control to the worker's event loop.

    On that loop, the copy would run all tasks a second time, and read their answers from the worker's connections.
    """
    os.register_at_fork(after_in_child=_never_back_to_the_loop)


def _never_back_to_the_loop() -> None:
    frame, outermost = sys._getframe(1), None  # noqa: SLF001 - the stack that forked
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(END_THEMSELVES):
            return
        if frame.f_code.co_flags & inspect.CO_COROUTINE:
            outermost = frame
        frame = frame.f_back  # type: ignore[assignment]
    if outermost is not None:
        sys.setprofile(_Leaving(outermost))


class _Leaving:
    """End the process when the outermost coroutine returns or suspends, because the event loop would run next.

    Python calls this profile function at every call and return.
    """

    def __init__(self, outermost: FrameType) -> None:
        self._outermost = outermost

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame is self._outermost:
            end_copy()


def end_copy() -> None:
    """End a forked process that returned from a task's code. Its parent reports the task's outcome."""
    sys.setprofile(None)
    log.error(
        "a task forked, and the child process %d also returned from the task's code; it was terminated; end a forked "
        "process with os._exit, or use multiprocessing",
        os.getpid(),
    )
    os._exit(0)
