"""Which signals tell a process of ours to stop, whatever it inherited.

SIGTERM always does: a worker that cannot be told to leave would be killed, and could hand back nothing. SIGINT does
unless the process was started with SIGINT ignored, as shells do for what a script starts with `&`: a Ctrl-C there is
meant for somebody else. `nohup` ignores SIGHUP, which is left as it is.
"""

from __future__ import annotations

import signal
from functools import cache


@cache  # as it was when the process started: a task's code may change it
def stop_signals() -> tuple[signal.Signals, ...]:
    """What this process listens to. Call it before the first handler is set."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return (signal.SIGTERM, signal.SIGINT)
