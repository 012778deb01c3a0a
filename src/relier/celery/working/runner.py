"""Run attempts in Celery's pool, for a worker that claims from the ledger in a separate thread.

The broker plays no part for adopted tasks: the ledger's own doorbell announces tasks to claim. bootsteps.py shows how
the thread starts and stops with Celery's worker, and how Celery's main thread takes the jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from celery.worker import state

from relier import background, registry
from relier.celery.adoption import AdoptedTask, Adoption
from relier.celery.internal import is_internal
from relier.celery.options import max_resurrections_in
from relier.celery.pool.adopted_child import CHECK_ORDERS_SIGNAL
from relier.celery.pool.shared_orders import STOP, WARN, shared_orders
from relier.celery.working.broker import BLOCKED_S, BrokerCalls
from relier.celery.working.children import PoolProcesses
from relier.celery.working.jobs import PROCESS_START_S, THREAD_START_S, Job, Jobs
from relier.celery.working.request import TOO_MANY_DEATHS, TOO_MANY_SCARES, Revoked
from relier.celery.working.strategy import report_dead
from relier.engines.heartbeat import Liveness
from relier.engines.local_runner import LocalRunner
from relier.engines.monitoring.watched_worker import WorkerWatch
from relier.engines.task_events import Audience, TaskEvents
from relier.engines.worker import Worker, WorkerOptions
from relier.errors import RelierError
from relier.ledger.records import Beat
from relier.run.attempt import Attempt
from relier.run.channel import LedgerChannel
from relier.run.isolated.origin import Origin
from relier.run.outcome import Died, Failed, HandBack, Outcome

log = logging.getLogger("relier.celery")

UNRESPONSIVE_S = 2.0  # a main thread that has taken nothing for this long gets no more jobs
KILL_AFTER_S = 5.0  # how long a task in a pool process may clean up after the order to stop
MAX_RATE_LIMITED = 16  # how many attempts per slot may wait for their rate limit
PREFETCH_S = 0.05  # how many seconds of work may wait in a pool of processes, so that they do not idle
MAX_ISOLATED = 4  # the most isolated processes of a pool of threads


def worker_for(adoption: Adoption, runner: PoolRunner, on_ready: Callable[[], None], watch: WorkerWatch) -> Worker:
    """Return the worker of one Celery process. `on_ready` is called when the worker begins to claim."""
    options = WorkerOptions(
        concurrency=runner.slots,
        engine="celery",
        queues_now=partial(consumed_queues, adoption.app),
        recycles=False,  # nothing would restart a Celery worker
        stop_requested=is_stopping,
        on_ready=on_ready,
        on_buried=runner.report_buried,
        audience=audience_of,
        on_beat=_share_lease,
        give_up=lambda: os._exit(1),
        on_stop_order=lambda: os.kill(os.getpid(), signal.SIGTERM),
    )
    return Worker(adoption.client, watch.observed(options), runner)


class PoolRunner:
    """Run attempts as jobs of Celery's pool, whose main thread takes them.

    `forks`: each attempt runs in a process of the pool. In a pool of threads, an `@rl_task` runs on the worker's own
    loop, as it does in a native worker.
    """

    def __init__(self, adoption: Adoption, celery_worker: Any, jobs: Jobs) -> None:
        self._adoption = adoption
        self._celery = celery_worker
        self._jobs = jobs
        self._processes = PoolProcesses(jobs)
        self._reports: set[asyncio.Task[None]] = set()
        self._mean_run_s = 1.0  # moving average of a task's time in the pool
        self.broker_calls = BrokerCalls()
        self.forks: bool = celery_worker.pool.uses_semaphore
        settings = adoption.client.settings
        self._local = LocalRunner(settings, self.slots, modules_of(adoption.app), MAX_ISOLATED, Origin.here())

    @property
    def slots(self) -> int:
        """Return how many tasks the pool runs at once, when it has grown to its largest size."""
        return self._celery.max_concurrency or self._celery.pool.num_processes or 1

    async def start(self, channel: LedgerChannel, trusted_until: Callable[[], float], events: TaskEvents) -> None:
        self._loop = asyncio.get_running_loop()
        self._events = events
        if not self.forks:
            await self._local.start(channel, trusted_until, events)

    # --- claim ---------------------------------------------------------------------------------------------------

    def room(self, running: int) -> int:
        if is_stopping() or not self._main_thread_takes_jobs():
            return 0
        slots = self.slots
        ahead = min(16 * slots, int(slots * PREFETCH_S / max(self._mean_run_s, 1e-4))) if self.forks else 0
        limited = min(self._jobs.count_rate_limited(), MAX_RATE_LIMITED * slots)
        return slots + ahead + limited - running

    def _main_thread_takes_jobs(self) -> bool:
        """Return whether Celery's main thread takes jobs. Hand back those that it does not take."""
        if self._jobs.unresponsive_for(UNRESPONSIVE_S):
            for job in self._jobs.take_back():
                job.settle(HandBack())
            return False
        return self._jobs.main_thread_ready

    def refusal(self, attempt: Attempt) -> Outcome | None:
        if is_stopping():  # Celery got a signal to stop, which its main thread may notice only seconds later
            return HandBack()
        return self._local.refusal(attempt) if self._runs_locally(attempt) else None

    def on_tick(self) -> None:
        if self._jobs.main_thread_ready and self._jobs.in_progress:
            self._jobs.request_pickup()
        self.broker_calls.check(blocked=self._jobs.unresponsive_for(BLOCKED_S))
        self._main_thread_takes_jobs()

    # --- one attempt ---------------------------------------------------------------------------------------------

    def _runs_locally(self, attempt: Attempt) -> bool:
        return not self.forks and not isinstance(attempt.task, AdoptedTask)

    async def run(self, attempt: Attempt) -> Outcome:
        if self._runs_locally(attempt):
            return await self._local.run(attempt)
        job = Job(attempt, self._loop, self._on_started)
        job.exhausted = exhaustion_reason(attempt)
        attempt.stopper = lambda: self._stop_job(job)
        self._jobs.give(job)
        given_at = time.monotonic()
        try:
            outcome = await job.future
        finally:
            self._jobs.done(job)
            self._mean_run_s += (time.monotonic() - given_at - self._mean_run_s) / 20
        if isinstance(outcome, Revoked) and not job.cancelled:
            await self._cancel(attempt)
        if isinstance(outcome, Died) and attempt.stop is None and is_last_death(attempt):
            return await self._in_main_thread(partial(job.request.fail_as_lost, outcome.cause))
        if isinstance(outcome, Died) and attempt.stop is None and job.request is not None:
            self._jobs.call_in_main_thread(job.request.report_rejected)
        return outcome if attempt.stop is None or not isinstance(outcome, Died | HandBack) else attempt.stop

    async def _in_main_thread(self, act: Callable[[], Outcome]) -> Outcome:
        """Run `act` in Celery's main thread.

        Code that uses Celery's backend or events must run there: their connections belong to one thread, and a pool
        process must not be forked while another thread holds one of their locks.
        """
        done: asyncio.Future[Outcome] = self._loop.create_future()

        def run() -> None:
            try:
                outcome = act()
            except Exception as error:
                log.exception("task end not reported to Celery")
                outcome = Failed(error, final=True)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(done.set_result, outcome)

        self._jobs.call_in_main_thread(run)
        return await done

    def _on_started(self, job: Job) -> None:
        """Record that a process or thread of the pool has started the job. Called on the loop."""
        job.attempt.began = time.monotonic()
        if self._events.wants_started or job.attempt.task.options.on_start is not None:
            self._events.started(job.attempt)
        if self.forks:
            self._processes.watch(job)
            if job.future.done():  # the job was handed back, or cancelled, just when the pool started it
                self._stop_job(job)

    async def _cancel(self, attempt: Attempt) -> None:
        """Cancel a task that Celery has revoked. Handing it back then carries out the cancellation."""
        record, client = attempt.claimed.record, self._adoption.client
        with contextlib.suppress(
            RelierError
        ):  # already cancelled, or the store is unreachable: then the task runs again
            await client.arun(client.ledger.cancel(record.id, record.version))

    async def warn(self, attempt: Attempt) -> None:
        job = self._job_of(attempt)
        if job is not None:
            self._send_order(job, WARN)
        elif not self.forks:
            await self._local.warn(attempt)

    def _stop_job(self, job: Job) -> None:
        """Stop a job.

        A job that has not started will not start. A pool process gets an order to stop, and is killed if it does not. A
        thread of Celery cannot be stopped.
        """
        if not job.pid and job.cancelled:
            self._jobs.call_in_main_thread(partial(cancel_unstarted, job))
        elif not job.pid:
            job.settle(HandBack())
        elif self.forks:
            self._send_order(job, STOP)
            self._loop.call_later(KILL_AFTER_S, self._processes.kill, job)

    def _send_order(self, job: Job, what: int) -> None:
        if self.forks and job.pid:
            shared_orders.order(job.pid, job.attempt.key, what)
            with contextlib.suppress(ProcessLookupError):
                os.kill(job.pid, CHECK_ORDERS_SIGNAL)

    def _job_of(self, attempt: Attempt) -> Job | None:
        return next((job for job in self._jobs.in_progress if job.attempt is attempt), None)

    # --- what the worker reports ---------------------------------------------------------------------------------

    def on_beat(self, beat: Beat) -> None:
        for job in self._jobs.in_progress:
            if not job.pid and is_app_task(job.attempt):
                job.cancelled = job.cancelled or job.attempt.key in beat.asked
        if not self.forks:
            self._local.on_beat(beat)

    def report_buried(self, ids: Sequence[str]) -> None:
        """Report to Celery the tasks that a sweep has buried, as far as is possible without the workers that ran them.

        Tasks whose failure a chord or an error callback needs are handled elsewhere: a sweep hands them to a worker
        (options.py).
        """
        report = background.start(self._loop, self._report_buried(ids))
        self._reports.add(report)  # a loop holds its tasks by weak references only
        report.add_done_callback(self._reports.discard)

    async def _report_buried(self, ids: Sequence[str]) -> None:
        client = self._adoption.client
        for task_id in ids:
            try:
                dead = await client.arun(client.ledger.get(task_id))
            except RelierError as error:
                log.warning("task end not reported to Celery: task=%s error=%s", task_id, error)
                continue
            if isinstance(registry.find(dead.record.name), AdoptedTask) and not is_internal(dead.record.name):
                self._jobs.call_in_main_thread(partial(report_dead, self._adoption, self._celery.consumer, dead))

    # --- shutdown ------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        self._jobs.hand_back_unstarted(PROCESS_START_S if self.forks else THREAD_START_S)
        self._jobs.wake()  # the main thread may sleep for seconds: a signal does not end its poll

    def abandon(self, attempt: Attempt) -> None:
        if not self.forks:
            log.error("task did not stop, the worker continues with one thread fewer: task=%s", attempt.ctx.task_id)
        job = self._job_of(attempt)
        if job is not None:
            self._processes.kill(job)

    async def close(self) -> None:
        for job in list(self._jobs.in_progress):  # they were handed back: nothing may wait for them
            self._processes.kill(job)
        await self._local.close()


def consumed_queues(app: Any) -> Sequence[str]:
    """Return the queues that the Celery worker consumes. The default queue has two names, Celery's and ours."""
    names = list(app.amqp.queues.consume_from)
    return [*names, "default"] if app.conf.task_default_queue in names and "default" not in names else names


def audience_of(name: str) -> Audience:
    """Return where the events of a task go. Celery itself logs what happens to adopted tasks."""
    if is_internal(name):
        return "nobody"
    return "hooks" if isinstance(registry.find(name), AdoptedTask) else "all"


def is_app_task(attempt: Attempt) -> bool:
    """Return whether the app defines the task: neither an `@rl_task` nor one of our internal tasks."""
    return isinstance(attempt.task, AdoptedTask) and not is_internal(attempt.task.name)


def exhaustion_reason(attempt: Attempt) -> str:
    """Return why the task must not run again, or "". A sweep then returned it only so that its failure is reported."""
    if not is_app_task(attempt):
        return ""
    most = max_deaths(attempt)
    if attempt.claimed.deaths > most:
        return TOO_MANY_DEATHS
    return TOO_MANY_SCARES if attempt.claimed.scares > 2 + 2 * most else ""


def is_last_death(attempt: Attempt) -> bool:
    """Return whether one more death ends the task. Celery's error callbacks are then part of its end."""
    return is_app_task(attempt) and attempt.claimed.deaths >= max_deaths(attempt)


def max_deaths(attempt: Attempt) -> int:
    return max_resurrections_in(attempt.claimed.record.spec.max_resurrections)


def cancel_unstarted(job: Job) -> None:
    """Cancel a job that has not started.

    Runs in Celery's main thread. A job not yet picked up is cancelled on pickup.
    """
    if job.request is not None and not job.ended:
        job.request.cancel_unstarted()


def is_set(code: Any) -> bool:
    """Return whether one of Celery's stop flags is set. A flag may hold an exit code, and that may be 0."""
    return code is not None and code is not False


def is_stopping() -> bool:
    """Return whether a signal has asked Celery to stop.

    Celery's signal `worker_shutting_down` cannot be used here: a second Unix signal during the handler of the first
    would wait for a lock.
    """
    return is_set(state.should_stop) or is_set(state.should_terminate)


def _share_lease(liveness: Liveness) -> None:
    shared_orders.share_lease(liveness.worker_id, liveness.trusted_until)


def modules_of(app: Any) -> tuple[str, ...]:
    """Return the modules that an isolated process must import to know the app's tasks.

    These are the module of the app, the app's imports, and the modules of `@rl_task`s.
    """
    holds = [name for name, module in list(sys.modules.items()) if _holds_app(module, app)]
    tasks = [task.fn.__module__ for task in registry.known_tasks() if not isinstance(task, AdoptedTask)]
    return tuple(dict.fromkeys(_importable(name) for name in [*holds[:1], "relier.celery.imports", *tasks]))


def _holds_app(module: Any, app: Any) -> bool:
    if getattr(module, "__name__", "").startswith("celery."):  # Celery's own modules refer to every app
        return False
    return any(value is app for value in list(getattr(module, "__dict__", {}).values()))


def _importable(name: str) -> str:
    """Return a name by which the module can be imported: for a script that is run, its file."""
    if name != "__main__":
        return name
    main = sys.modules[name]
    return main.__spec__.name if main.__spec__ is not None else str(getattr(main, "__file__", name))
