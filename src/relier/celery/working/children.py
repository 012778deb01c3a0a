"""Watch the processes of Celery's pool: a task whose process died is reported at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from billiard.pool import EX_RECYCLE

from relier.celery.working.jobs import RESULT_GRACE_S, Job, Jobs
from relier.failure import how_it_ended

EXIT_GRACE_S = 2.0  # a process that exited by itself has sent its result, or Celery reports how it was reaped


class PoolProcesses:
    """Watch the processes that run something. Without pidfds, Celery's own supervision is all there is."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._watched: dict[int, int] = {}

    def watch(self, job: Job) -> None:
        """Watch the process that runs this job. Call this on the loop."""
        if job.pid in self._watched or job.pid == os.getpid() or not hasattr(os, "pidfd_open"):
            return
        try:
            fd = os.pidfd_open(job.pid)
        except OSError:  # gone already
            self._gone(job.pid, "", EXIT_GRACE_S)
            return
        self._watched[job.pid] = fd
        asyncio.get_running_loop().add_reader(fd, self._ended, job.pid)

    def kill(self, job: Job) -> None:
        """Kill the job's process, if it still runs that job and nothing else."""
        if not job.pid or job.pid == os.getpid() or self._last_of(job.pid) is not job:
            return
        with contextlib.suppress(ProcessLookupError):
            fd = self._watched.get(job.pid)
            if fd is None:
                os.kill(job.pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(fd, signal.SIGKILL)

    def _last_of(self, pid: int) -> Job | None:
        """Return the job that the process runs, or ran last. Earlier ones have ended and were reported."""
        mine = [job for job in self._jobs.under_way if job.pid == pid]
        return max(mine, key=lambda job: job.attempt.began or 0.0, default=None)

    def _ended(self, pid: int) -> None:
        fd = self._watched.pop(pid)
        asyncio.get_running_loop().remove_reader(fd)
        cause, grace = "", EXIT_GRACE_S
        with contextlib.suppress(OSError):  # Celery has reaped it meanwhile, and reports at once how it ended
            told = os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOWAIT)
            if told is not None:
                by_itself = told.si_code == os.CLD_EXITED
                cause = how_it_ended(told.si_status if by_itself else -told.si_status)
                grace = EXIT_GRACE_S if by_itself and told.si_status in (0, EX_RECYCLE) else RESULT_GRACE_S
        os.close(fd)
        self._gone(pid, cause, grace)

    def _gone(self, pid: int, cause: str, grace: float) -> None:
        self._jobs.died.add(pid)
        self._jobs.wake()
        last = self._last_of(pid)
        for job in [job for job in self._jobs.under_way if job.pid == pid]:
            job.died(cause, grace if job is last else EXIT_GRACE_S)
