"""Processes that tasks fork. A forked process inherits how ours listens to signals: a no-op in Python, and a socket of
our own loop to tell it. So the SIGTERM that is to end such a process would not, and would tell us to leave instead. It
also inherits our connections and our event loop, which must not turn there."""

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

END_THEMSELVES = ("multiprocessing.", "billiard.", "concurrent.")  # a process they fork never returns into its caller


@cache  # once: what is registered cannot be taken back
def let_forks_be_ended() -> None:
    """From here on a forked process ends by these signals, as any other does. One that is hit before it came to run
    this is not covered."""
    os.register_at_fork(after_in_child=_own_signals)
    end_copies_of_the_loop()


def _own_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in stop_signals():
        signal.signal(number, signal.SIG_DFL)


@cache
def end_copies_of_the_loop() -> None:
    """From here on a process that an `async def` forked ends where it would give control back to our event loop: there
    it would run everybody's tasks a second time, and take their answers from the connections it shares with us."""
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
    """Called at every return: when a coroutine that the loop runs returns or waits, the loop is next."""

    def __init__(self, outermost: FrameType) -> None:
        self._outermost = outermost

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame is self._outermost:
            end_copy()


def end_copy() -> None:
    """End a forked process that came back from a task's code. What it would report, its parent reports."""
    sys.setprofile(None)
    log.error(
        "a task forked, and came back in process %d as well, which is ended; end a forked process with os._exit, or "
        "use multiprocessing",
        os.getpid(),
    )
    os._exit(0)
