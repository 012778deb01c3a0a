"""Watch the processes of Celery's pool, so that a task whose process died is reported at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from billiard.pool import EX_RECYCLE

from relier.celery.working.jobs import RESULT_GRACE_S, Job, Jobs
from relier.failure import how_it_ended

EXIT_GRACE_S = 2.0  # a process that exited by itself has sent its result, or Celery reports its exit code


class PoolProcesses:
    """Watch the processes that run a job. Without pidfds, only Celery's own supervision notices a death."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._watched: dict[int, int] = {}

    def watch(self, job: Job) -> None:
        """Watch the process that runs this job. Call this on the loop."""
        if job.pid in self._watched or job.pid == os.getpid() or not hasattr(os, "pidfd_open"):
            return
        try:
            fd = os.pidfd_open(job.pid)
        except OSError:  # the process has exited already
            self._report_gone(job.pid, "", EXIT_GRACE_S)
            return
        self._watched[job.pid] = fd
        asyncio.get_running_loop().add_reader(fd, self._on_exit, job.pid)

    def kill(self, job: Job) -> None:
        """Kill the job's process, if it still runs that job and nothing else."""
        if not job.pid or job.pid == os.getpid() or self._latest_job_of(job.pid) is not job:
            return
        with contextlib.suppress(ProcessLookupError):
            fd = self._watched.get(job.pid)
            if fd is None:
                os.kill(job.pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(fd, signal.SIGKILL)

    def _latest_job_of(self, pid: int) -> Job | None:
        """Return the job that the process runs, or ran last. Earlier jobs have ended and were reported."""
        jobs = [job for job in self._jobs.in_progress if job.pid == pid]
        return max(jobs, key=lambda job: job.attempt.began or 0.0, default=None)

    def _on_exit(self, pid: int) -> None:
        fd = self._watched.pop(pid)
        asyncio.get_running_loop().remove_reader(fd)
        cause, grace = "", EXIT_GRACE_S
        with contextlib.suppress(OSError):  # Celery has reaped the process, and reports how it ended
            status = os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOWAIT)
            if status is not None:
                by_itself = status.si_code == os.CLD_EXITED
                cause = how_it_ended(status.si_status if by_itself else -status.si_status)
                grace = EXIT_GRACE_S if by_itself and status.si_status in (0, EX_RECYCLE) else RESULT_GRACE_S
        os.close(fd)
        self._report_gone(pid, cause, grace)

    def _report_gone(self, pid: int, cause: str, grace: float) -> None:
        self._jobs.dead_pids.add(pid)
        self._jobs.wake()
        latest = self._latest_job_of(pid)
        for job in [job for job in self._jobs.in_progress if job.pid == pid]:
            job.process_died(cause, grace if job is latest else EXIT_GRACE_S)
