"""Decide which signals stop our processes, whatever signal handling they inherited.

SIGTERM always does: a worker that ignored it would be killed, and could not hand back its tasks. SIGINT does unless the
process was started with SIGINT ignored, as shells do for commands that a script starts with `&`: a Ctrl-C there is
meant for another process. SIGHUP, which `nohup` ignores, is left as it is.
"""

from __future__ import annotations

import signal
from functools import cache


@cache  # as it was when the process started: a task's code may change it
def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop this process. Call this before the first handler is set."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return (signal.SIGTERM, signal.SIGINT)
