"""The Celery worker's side of the ledger: claims for the pool's free hands, beats, commits, in a thread of its own.

CeleryWorker    the native worker, whose tasks run in Celery's pool
Children        the pool's processes: one that dies has its task back at once, without asking Celery's main thread

The broker is not asked for adopted tasks: the ledger's own doorbell says that there is something to claim. How the
thread starts and ends with Celery's worker, and how its main thread takes the jobs: bootsteps.py.
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

from billiard.pool import EX_RECYCLE
from celery.worker import state

from relier import background, registry
from relier.celery.adoption import AdoptedTask, Adoption
from relier.celery.internal import is_internal
from relier.celery.options import resurrections_in
from relier.celery.pool.adopted_child import LOOK
from relier.celery.pool.shared_orders import STOP, WARN, board
from relier.celery.working.broker import HELD_UP_S, BrokerCalls
from relier.celery.working.jobs import ACCEPT_S, BEGIN_S, RESULT_GRACE_S, Job, Jobs
from relier.celery.working.request import TOO_MANY_DEATHS, TOO_MANY_SCARES, Revoked
from relier.celery.working.strategy import tell_dead
from relier.engines.heartbeat import Heard, Liveness, News, Overdue
from relier.engines.worker import Worker, WorkerOptions
from relier.errors import RelierError
from relier.failure import how_it_ended
from relier.ledger.records import Claimed
from relier.run.attempt import Attempt
from relier.run.outcome import Died, Failed, HandBack, Outcome

log = logging.getLogger("relier.celery")

DEAF_S = 2.0  # a main thread that takes nothing for so long gets nothing more
KILL_AFTER_S = 5.0  # a task that was told to stop has this long to clean up, in a process of the pool's
EXIT_GRACE_S = 2.0  # a process that left by itself has told its result, and Celery will tell of one it has reaped
LIMITED_AHEAD = 16  # so many per hand may wait for their rate limit beside those that do not
PREFETCH_S = 0.05  # so much work may wait in a pool of processes, that they need not


class CeleryWorker(Worker):
    """One Celery worker, seen from the ledger. It has its own thread and loop, and is reached by jobs.

    `forks`: each task runs in a process of the pool's. `on_ready`: called when it is registered and begins to claim.
    """

    engine = "celery"

    def __init__(self, adoption: Adoption, worker: Any, jobs: Jobs, on_ready: Callable[[], None]) -> None:
        self._adoption = adoption
        self._celery = worker
        self._jobs = jobs
        self._on_ready = on_ready
        self._children = Children(jobs)
        self._telling: set[asyncio.Task[None]] = set()
        self.broker_calls = BrokerCalls()
        self._mean_s = 1.0  # how long a task takes, lately
        self.forks = worker.pool.uses_semaphore
        super().__init__(
            adoption.client,
            WorkerOptions(
                concurrency=self._hands,
                modules=modules_of(adoption.app),
                on_beat=_show,
                give_up=lambda: os._exit(1),
            ),
        )

    @property
    def _hands(self) -> int:
        """How many tasks the pool runs at once; where it may grow, how many then."""
        return self._celery.max_concurrency or self._celery.pool.num_processes or 1

    def _queues(self) -> Sequence[str]:
        """What the worker consumes; the default queue has two names, Celery's and ours."""
        app = self._adoption.app
        names = list(app.amqp.queues.consume_from)
        return [*names, "default"] if app.conf.task_default_queue in names and "default" not in names else names

    # --- claim ---------------------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        self._on_ready()
        await super()._pump()

    def _room(self) -> int:
        if not self._hears():
            return 0
        hands = self._hands
        ahead = min(16 * hands, int(hands * PREFETCH_S / max(self._mean_s, 1e-4))) if self.forks else 0
        limited = min(self._jobs.limited(), LIMITED_AHEAD * hands)
        return hands + ahead + limited - len(self._attempts)

    def _hears(self) -> bool:
        """Whether Celery's main thread takes what is claimed for it. What it does not take goes back to others."""
        if self._jobs.deaf_since(DEAF_S):
            for job in self._jobs.take_back():
                job.settle(HandBack())
            return False
        return self._jobs.listening

    def _start(self, claimed: Claimed, now_ms: int) -> None:
        self._notice_the_end()
        super()._start(claimed, now_ms)

    def _notice_the_end(self) -> None:
        """A signal has told Celery to stop: nothing is taken from then on, whenever its main thread comes to see it.
        (Not by Celery's `worker_shutting_down`: a second signal amid the first one's would wait for its lock.)"""
        if not self.draining and is_leaving():
            self.drain()
            self._jobs.wake()  # it may be asleep for seconds: a signal does not wake its poll

    def _turn(self) -> None:
        super()._turn()
        self._notice_the_end()
        if self._jobs.listening and self._jobs.under_way:
            self._jobs.ask()
        self.broker_calls.look(held_up=self._jobs.deaf_since(HELD_UP_S))
        self._hears()
        self._wake.set()  # the main thread may listen again, or the pool have grown

    # --- one attempt ---------------------------------------------------------------------------------------------

    def _isolates_it(self, attempt: Attempt) -> bool:
        """In a pool of processes every task has one to itself, suspects too."""
        return attempt.isolated and not self.forks and not isinstance(attempt.task, AdoptedTask)

    async def _run_here(self, attempt: Attempt) -> Outcome:
        if not self.forks and not isinstance(attempt.task, AdoptedTask):
            return await super()._run_here(attempt)
        job = Job(attempt, self._loop, self._begun)
        job.lost = why_not_again(attempt)
        attempt.stopper = lambda: self._stop_job(job)
        self._jobs.give(job)
        given = time.monotonic()
        try:
            outcome = await job.future
        finally:
            self._jobs.done(job)
            self._mean_s += (time.monotonic() - given - self._mean_s) / 20
        if isinstance(outcome, Revoked) and not job.cancelled:
            await self._cancel(attempt)
        if isinstance(outcome, Died) and attempt.stop is None and self._is_last_death(attempt):
            return await self._in_main_thread(partial(job.request.lost_for_good, outcome.cause))
        if isinstance(outcome, Died) and attempt.stop is None and job.request is not None:
            self._jobs.call(job.request.tell_lost)
        return outcome if attempt.stop is None or not isinstance(outcome, Died | HandBack) else attempt.stop

    async def _in_main_thread(self, act: Callable[[], Outcome]) -> Outcome:
        """What speaks to Celery's backend and events does it where Celery does: their connections have one thread, and
        a pool process that is forked meanwhile finds no lock taken."""
        done: asyncio.Future[Outcome] = self._loop.create_future()

        def run() -> None:
            try:
                outcome = act()
            except Exception as error:
                log.exception("Celery could not be told of a task's end")
                outcome = Failed(error, final=True)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(done.set_result, outcome)

        self._jobs.call(run)
        return await done

    def _begun(self, job: Job) -> None:
        """A process, or a thread, has it now. In the loop."""
        job.attempt.began = time.monotonic()
        if self.forks:
            self._children.watch(job)
            if job.future.done():  # it was handed back, or cancelled, just when the pool began with it
                self._stop_job(job)

    async def _cancel(self, attempt: Attempt) -> None:
        """Celery has revoked it: so it is cancelled, which its hand-back then carries out."""
        record = attempt.claimed.record
        with contextlib.suppress(RelierError):  # somebody else has asked for it, or the store is away: it runs again
            await self._store.run(self._ledger.cancel(record.id, record.version))

    def _is_last_death(self, attempt: Attempt) -> bool:
        """Whether it ends with this: then Celery's error callbacks are part of its end."""
        return is_celerys(attempt) and attempt.claimed.deaths >= most_deaths(attempt)

    async def _warn(self, attempt: Attempt) -> None:
        job = self._job_of(attempt)
        if job is not None:
            self._order(job, WARN)
        elif not self.forks:
            await super()._warn(attempt)

    def _stop_job(self, job: Job) -> None:
        """Told to stop: what has not begun does not, what runs in a process is told, and killed if it does not obey. A
        thread of Celery's cannot be stopped."""
        if not job.pid and job.cancelled:
            self._jobs.call(partial(cancel_unstarted, job))
        elif not job.pid:
            job.settle(HandBack())
        elif self.forks:
            self._order(job, STOP)
            self._loop.call_later(KILL_AFTER_S, self._children.kill, job)

    def _order(self, job: Job, what: int) -> None:
        if self.forks and job.pid:
            board.order(job.pid, job.attempt.key, what)
            with contextlib.suppress(ProcessLookupError):
                os.kill(job.pid, LOOK)

    def _job_of(self, attempt: Attempt) -> Job | None:
        return next((job for job in self._jobs.under_way if job.attempt is attempt), None)

    # --- what the sweep does -------------------------------------------------------------------------------------

    def _mourn(self, ids: Sequence[str]) -> None:
        telling = background.start(self._loop, self._tell_dead(ids))
        self._telling.add(telling)  # a loop holds its tasks by weak references only
        telling.add_done_callback(self._telling.discard)

    async def _tell_dead(self, ids: Sequence[str]) -> None:
        """A sweep has buried these, which no worker could tell Celery of: so this one does, as far as it can. Those
        whose end others wait for come back from a sweep (adoption.py) and are no matter of luck."""
        for task_id in ids:
            try:
                dead = await self._store.run(self._ledger.get(task_id))
            except RelierError as error:
                log.warning("Celery is not told of the end of task %s: %s", task_id, error)
                continue
            if isinstance(registry.find(dead.record.name), AdoptedTask) and not is_internal(dead.record.name):
                self._jobs.call(partial(tell_dead, self._adoption, self._celery.consumer, dead))

    # --- the end -------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        super().drain()
        self._jobs.forget_unstarted(BEGIN_S if self.forks else ACCEPT_S)

    async def _leave(self) -> int:
        try:
            return await super()._leave()
        finally:
            for job in list(self._jobs.under_way):  # it was handed back: nobody may wait for it any more
                self._children.kill(job)

    def _hear(self, news: News) -> None:
        if isinstance(news, Heard):
            for waiting in [job for job in self._jobs.under_way if not job.pid and is_celerys(job.attempt)]:
                waiting.cancelled = waiting.cancelled or waiting.attempt.key in news.beat.asked
        super()._hear(news)
        if isinstance(news, Overdue):
            job = self._job_of(news.attempt)
            if job is not None:
                self._children.kill(job)

    def recycle(self, why: str) -> None:
        """Nobody starts a Celery worker over: a process that would not end is killed, a thread stays behind."""
        if not self.forks:
            log.error("worker %s goes on, with a thread less: %s", self.boot, why)


def is_celerys(attempt: Attempt) -> bool:
    """Whether it is a task of the app's: neither an `@rl_task`, nor one of ours behind the scenes."""
    return isinstance(attempt.task, AdoptedTask) and not is_internal(attempt.task.name)


def why_not_again(attempt: Attempt) -> str:
    """Why it must not run any more, if so: a sweep gave it back only because somebody has to be told of its end."""
    if not is_celerys(attempt):
        return ""
    most = most_deaths(attempt)
    if attempt.claimed.deaths > most:
        return TOO_MANY_DEATHS
    return TOO_MANY_SCARES if attempt.claimed.scares > 2 + 2 * most else ""


def most_deaths(attempt: Attempt) -> int:
    return resurrections_in(attempt.claimed.record.spec.max_resurrections)


def cancel_unstarted(job: Job) -> None:
    """In Celery's main thread. It hears of one that it has not taken yet when it does."""
    if job.request is not None and not job.ended:
        job.request.cancel_unstarted()


def is_told(code: Any) -> bool:
    """Celery's way to say it: the exit code, 0 among them."""
    return code is not None and code is not False


def is_leaving() -> bool:
    """Whether a signal has told Celery to stop. Our thread may be gone by the time its main thread looks."""
    return is_told(state.should_stop) or is_told(state.should_terminate)


def _show(pulse: Liveness) -> None:
    board.show(pulse.boot, pulse.trusted_until)


def modules_of(app: Any) -> tuple[str, ...]:
    """What a process of its own must import to know the app's tasks: the app, what it imports, what holds tasks."""
    holds = [name for name, module in list(sys.modules.items()) if _holds(module, app)]
    tasks = [task.fn.__module__ for task in registry.known_tasks() if not isinstance(task, AdoptedTask)]
    return tuple(dict.fromkeys(_importable(name) for name in [*holds[:1], "relier.celery.imports", *tasks]))


def _holds(module: Any, app: Any) -> bool:
    if getattr(module, "__name__", "").startswith("celery."):  # there every app is known
        return False
    return any(value is app for value in list(getattr(module, "__dict__", {}).values()))


def _importable(name: str) -> str:
    """A script that is run is imported by its file."""
    if name != "__main__":
        return name
    main = sys.modules[name]
    return main.__spec__.name if main.__spec__ is not None else str(getattr(main, "__file__", name))


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
            self._gone(job.pid, "", EXIT_GRACE_S)
            return
        self._watched[job.pid] = fd
        asyncio.get_running_loop().add_reader(fd, self._ended, job.pid)

    def kill(self, job: Job) -> None:
        """End its process, if it still runs that job and nothing else."""
        if not job.pid or job.pid == os.getpid() or self._last_of(job.pid) is not job:
            return
        with contextlib.suppress(ProcessLookupError):
            fd = self._watched.get(job.pid)
            if fd is None:
                os.kill(job.pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(fd, signal.SIGKILL)

    def _last_of(self, pid: int) -> Job | None:
        """The one it runs, or ran last: those before have come to an end, and it has told of that."""
        mine = [job for job in self._jobs.under_way if job.pid == pid]
        return max(mine, key=lambda job: job.attempt.began or 0.0, default=None)

    def _ended(self, pid: int) -> None:
        fd = self._watched.pop(pid)
        asyncio.get_running_loop().remove_reader(fd)
        cause, grace = "", EXIT_GRACE_S
        with contextlib.suppress(OSError):  # reaped by Celery meanwhile, which then tells at once how it ended
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
