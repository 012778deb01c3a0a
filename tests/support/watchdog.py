"""`python watchdog.py user signal folder command…`: run a server that does not outlive the process that started it.

Standard input is a pipe from the starter. When the pipe ends, however the starter ended, the server gets the signal and
the folder is removed. If a byte came before the end, the folder stays. The server ends with this process too. Not
covered: a process that the starter forked holds the pipe as well, and must end first; and without PDEATHSIG (macOS), a
server outlives this process if only this process is killed by SIGKILL.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

GRACE_S = 10.0
LOOK_S = 0.1
PR_SET_PDEATHSIG = 1


def main(user: str, ending: str, folder: str, *command: str) -> int:
    how = signal.Signals[ending]

    def die_with_parent() -> None:  # runs after the change of user, which would clear it
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, how)

    server = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        user=user or None,
        group=user or None,
        extra_groups=[] if user else None,
        preexec_fn=die_with_parent,
    )
    while server.poll() is None and not select.select([0], [], [], LOOK_S)[0]:
        pass
    if server.poll() is not None:
        return server.returncode  # the starter reads why, in the folder
    stays = os.read(0, 1)
    server.send_signal(how)
    try:
        server.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if not stays:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
