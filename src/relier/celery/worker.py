"""The Celery worker's side of the ledger: claims for the pool's free hands, beats, commits, in a thread of its own.

LedgerStep      a bootstep of the worker: starts the thread, gives Celery's main thread what to run
ConsumerStep    a bootstep of the consumer: when Celery loses its broker, what its pool has not begun goes back
CeleryWorker    the native worker, whose tasks run in Celery's pool
Children        the pool's processes: one that dies has its task back at once, without asking Celery's main thread

The broker is not asked for adopted tasks: the ledger's own doorbell says that there is something to claim.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from celery import bootsteps
from celery.worker.components import Pool
from kombu.serialization import prepare_accept_content

from relier.celery.adoption import AdoptedTask, Adoption, adoption_of
from relier.celery.board import board
from relier.celery.coroutines import shared_loop
from relier.celery.garbage import Parking, guard_consumer, guard_redis_channels
from relier.celery.jobs import Job, Jobs
from relier.celery.request import JobMessage, Revoked, message_of
from relier.celery.rl_child import STOP
from relier.engines.heart import News
from relier.engines.native import Worker, WorkerOptions
from relier.errors import RelierError
from relier.failure import how_it_ended
from relier.run.attempt import Attempt
from relier.run.outcome import Died, HandBack, Outcome, PutBack

log = logging.getLogger("relier.celery")

MAX_RESURRECTIONS = 5  # what the scripts allow where a record does not say
START_S = 30.0
DEAF_S = 2.0  # a main thread that takes nothing for so long gets nothing more
KILL_AFTER_S = 2.0
RESULT_GRACE_S = 0.1  # a process that was killed may have told its result just before
EXIT_GRACE_S = 2.0  # one that left by itself surely has
REAP_EVERY_S = 0.01
PREFETCH_S = 0.05  # so much work may wait in a pool of processes, that they need not


class CeleryWorker(Worker):
    """One Celery worker, seen from the ledger. It has its own thread and loop, and is reached by jobs."""

    engine = "celery"

    def __init__(self, adoption: Adoption, worker: Any, jobs: Jobs, on_joined: Callable[[], None]) -> None:
        self._joined = on_joined  # type: ignore[method-assign]
        self._adoption = adoption
        self._celery = worker
        self._jobs = jobs
        self._children = Children(jobs)
        self._mean_s = 1.0  # how long a task takes, lately
        self._taken_at = time.monotonic()
        options = WorkerOptions(concurrency=worker.pool.num_processes or 1, give_up=lambda: os._exit(1))
        super().__init__(adoption.client, options)

    @property
    def forks(self) -> bool:
        """Whether each task runs in a process of the pool's."""
        return getattr(self._celery.pool, "_pool", None) is not None and not getattr(
            self._celery.pool, "is_green", False
        )

    def _queues(self) -> Sequence[str]:
        """What the worker consumes; the default queue has two names, Celery's and ours."""
        app = self._adoption.app
        names = list(app.amqp.queues.consume_from)
        return [*names, "default"] if app.conf.task_default_queue in names and "default" not in names else names

    def _room(self) -> int:
        hands = self._celery.pool.num_processes or 1
        ahead = min(16 * hands, int(hands * PREFETCH_S / max(self._mean_s, 1e-4))) if self.forks else 0
        if self._jobs.waits_since(DEAF_S):
            return 0
        return hands + ahead - len(self._attempts)

    def _isolates_it(self, attempt: Attempt) -> bool:
        """In a pool of processes every task has one to itself, suspects too."""
        return attempt.isolated and not self.forks and not isinstance(attempt.task, AdoptedTask)

    async def _run_here(self, attempt: Attempt) -> Outcome:
        if not self.forks and not isinstance(attempt.task, AdoptedTask):
            return await super()._run_here(attempt)
        job = Job(attempt, self._loop, self._children.watch)
        attempt.stopper = lambda: self._stop_job(job)
        self._jobs.give(job)
        begun = time.monotonic()
        try:
            outcome = await job.future
        finally:
            self._jobs.done(job)
            self._mean_s += (time.monotonic() - begun - self._mean_s) / 20
        if isinstance(outcome, Revoked):
            await self._cancel(attempt)
        if isinstance(outcome, Died) and attempt.stop is None and self._is_last_death(attempt):
            return await asyncio.to_thread(job.request.lost_for_good, outcome.cause)
        return outcome if attempt.stop is None or not isinstance(outcome, Died | HandBack) else attempt.stop

    def _hear(self, news: News) -> None:
        super()._hear(news)
        board.show(self._pulse.trusted_until)

    async def _cancel(self, attempt: Attempt) -> None:
        """Celery has revoked it: so it is cancelled, which its hand-back then carries out."""
        record = attempt.claimed.record
        with contextlib.suppress(
            RelierError
        ):  # somebody else has asked for it, or the store is away: then it runs again
            await self._store.run(self._ledger.cancel(record.id, record.version))

    def _is_last_death(self, attempt: Attempt) -> bool:
        """Whether the ledger would bury it for this: then Celery's error callbacks are part of its end."""
        most = attempt.claimed.record.spec.max_resurrections
        limit = MAX_RESURRECTIONS if most is None else most
        return isinstance(attempt.task, AdoptedTask) and attempt.claimed.deaths >= limit

    def _stop_job(self, job: Job) -> None:
        """Told to stop: what has not begun does not, a process is ended, a thread cannot be."""
        if not job.pid:
            job.settle(HandBack())
        elif self.forks:
            if job.attempt.ctx.lost or isinstance(job.attempt.task, AdoptedTask):
                _signal(job.pid, signal.SIGTERM)
            else:
                _signal(job.pid, STOP)
            self._loop.call_later(KILL_AFTER_S, self._kill_job, job)

    @staticmethod
    def _kill_job(job: Job) -> None:
        if not job.future.done():
            _signal(job.pid, signal.SIGKILL)


def _signal(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)


class Children:
    """Watches the processes that run something. Where the system has no pidfds, Celery's own supervision has to do."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._watched: dict[int, int] = {}

    def watch(self, job: Job) -> None:
        """It runs in that process now. In the loop."""
        if job.pid in self._watched or job.pid == os.getpid() or not hasattr(os, "pidfd_open"):
            return
        try:
            fd = os.pidfd_open(job.pid)
        except OSError:  # gone already
            self._gone(job.pid, "its process is gone", RESULT_GRACE_S)
            return
        self._watched[job.pid] = fd
        asyncio.get_running_loop().add_reader(fd, self._ended, job.pid)

    def _ended(self, pid: int) -> None:
        fd = self._watched.pop(pid)
        asyncio.get_running_loop().remove_reader(fd)
        cause, grace = "its process is gone", RESULT_GRACE_S
        with contextlib.suppress(OSError):  # reaped meanwhile
            told = os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOWAIT)
            if told is not None:
                by_itself = told.si_code == os.CLD_EXITED
                cause = how_it_ended(told.si_status if by_itself else -told.si_status)
                grace = EXIT_GRACE_S if by_itself and told.si_status == 0 else RESULT_GRACE_S
        os.close(fd)
        self._gone(pid, cause, grace)

    def _gone(self, pid: int, cause: str, grace: float) -> None:
        self._jobs.died.add(pid)
        self._jobs.wake()
        for job in [job for job in self._jobs.under_way if job.pid == pid]:
            asyncio.get_running_loop().call_later(grace, job.settle, Died(cause))


class LedgerStep(bootsteps.StartStopStep):
    """Starts after the pool and stops before it: while the pool finishes the thread goes on, and is waited for last."""

    requires = (Pool,)

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self.adoption = adoption_of(parent.app)
        self.jobs = Jobs()
        self.worker: CeleryWorker | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._trouble: BaseException | None = None
        parent.ledger_step = self
        self.adoption.take_over()
        board.open()

    def start(self, parent: Any) -> None:
        self._accept = prepare_accept_content(parent.app.conf.accept_content)
        self._thread = threading.Thread(target=self._run, args=(parent,), name="relier", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_S) or self._trouble is not None:
            raise self._trouble or RelierError(f"the ledger was not reached within {START_S:g} s")
        guard_redis_channels(self.park)

    def _run(self, parent: Any) -> None:
        try:
            asyncio.run(self._work(parent))
        except BaseException as error:
            self._trouble = error
            log.critical("the ledger's thread ended, and with it the worker", exc_info=True)
            if self._ready.is_set():  # else `start` raises it
                os.kill(os.getpid(), signal.SIGTERM)
            self._ready.set()

    async def _work(self, parent: Any) -> None:
        worker = self.worker = CeleryWorker(self.adoption, parent, self.jobs, self._ready.set)
        self._loop = asyncio.get_running_loop()
        if not worker.forks:
            shared_loop.share(self._loop)
        self.park = Parking(self.adoption, self._loop, lambda: worker.boot)
        await self.worker.run()

    def register_with_event_loop(self, parent: Any, hub: Any) -> None:
        hub.add_reader(self.jobs.fileno(), self.deliver, parent)

    def deliver(self, parent: Any) -> None:
        """In Celery's main thread: hand over what was given."""
        if self.jobs.died:
            self._bury_children(parent)
        for job in self.jobs.take():
            try:
                strategies = parent.consumer.strategies
                strategies[job.attempt.task.name](JobMessage(job, message_of(job), self._accept), None, None, None, ())
            except Exception as error:  # no attempt may vanish here
                log.exception("task %s could not be given to the pool", job.record_id)
                job.settle(PutBack(error))

    def _bury_children(self, parent: Any) -> None:
        """Celery looks for dead processes every five seconds, and as long their slots are taken. Here it looks at once,
        and again until they can be reaped."""
        parent.pool.maintain_pool()
        processes = getattr(getattr(parent.pool, "_pool", None), "_pool", ())
        self.jobs.died &= {process.pid for process in processes}
        if self.jobs.died and parent.hub is not None:
            parent.hub.call_later(REAP_EVERY_S, self._bury_children, parent)

    def close(self, parent: Any) -> None:  # noqa: ARG002 - a bootstep's signature
        self._drain()

    def stop(self, parent: Any) -> None:  # noqa: ARG002
        self._drain()

    def terminate(self, parent: Any) -> None:  # noqa: ARG002
        self._drain(now=True)

    def _drain(self, *, now: bool = False) -> None:
        """Nothing more is claimed, what has not begun goes back; what runs has its time."""
        worker = self.worker
        if worker is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(worker.leave_now if now else worker.drain)
        self.jobs.forget_unstarted()

    def join(self) -> None:
        """The last thing a worker does: what its tasks left is told."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(self.adoption.client.settings.graceful_shutdown_timeout + 15)


class ConsumerStep(bootsteps.StartStopStep):
    """Between two connections to the broker Celery forgets what its pool has not begun."""

    requires = ("celery.worker.consumer:Tasks",)

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self._step: LedgerStep = parent.controller.ledger_step

    def start(self, parent: Any) -> None:
        self._step.adoption.take_over()
        guard_consumer(parent, self._step.adoption, self._step.park)

    def stop(self, parent: Any) -> None:  # noqa: ARG002
        self._step.jobs.forget_unstarted()

    shutdown = stop
