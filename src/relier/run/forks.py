"""Processes that tasks fork. They inherit how ours listens to signals: a no-op in Python, and a socket of our own loop
to tell it. So the SIGTERM that is to end such a process would not, and would tell us to leave instead."""

from __future__ import annotations

import os
import signal
from functools import cache

HEARD = (signal.SIGTERM, signal.SIGINT)  # what our processes listen to, and do not die of


@cache  # once: what is registered cannot be taken back
def let_forks_be_ended() -> None:
    """From here on a forked process ends by these signals, as any other does. One that is hit before it came to run
    this is not covered."""
    os.register_at_fork(after_in_child=_own_signals)


def _own_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in HEARD:
        signal.signal(number, signal.SIG_DFL)
