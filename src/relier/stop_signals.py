"""Decide which signals stop our processes, whatever signal handling they inherited.

SIGTERM always does: a worker that ignored it would be killed, and could not hand back its tasks. SIGINT does unless the
process was started with SIGINT ignored, as shells do for commands that a script starts with `&`: a Ctrl-C there is
meant for another process. SIGHUP, which `nohup` ignores, is left as it is.

Windows has no such signals, and no way for a process to hand back its tasks when it is stopped: no worker runs there.
"""

from __future__ import annotations

import signal
import sys
from functools import cache

from relier.errors import ConfigurationError


@cache  # as it was when the process started: a task's code may change it
def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop this process. Call this before the first handler is set."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return (signal.SIGTERM, signal.SIGINT)


def refuse_on_windows(what: str) -> None:
    """Raise an error if this is Windows, where `what` cannot run. Pushing tasks and waiting for results work there."""
    if sys.platform == "win32":
        raise ConfigurationError(
            f"{what} cannot run on Windows, which lacks the signals and file locks it needs; run it on Linux or macOS, "
            "for example in a container or in WSL 2, with the same RELIER_REDIS_URL; pushing tasks and waiting for "
            "their results work on Windows: see docs/reference/versions.md"
        )
