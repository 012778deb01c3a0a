"""Start, run and stop the ledger thread together with Celery's worker.

LedgerStep    a bootstep of the worker: starts the thread, passes its jobs to Celery's pool in the main thread, and at
              shutdown keeps the pool working until the thread has drained
ConsumerStep  a bootstep of the consumer: keeps the pool working while Celery has no broker, and hands back the jobs
              that Celery has forgotten
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import select
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from celery import bootsteps
from celery.worker import state
from celery.worker.components import Pool
from kombu.serialization import prepare_accept_content

from relier import background
from relier.celery.adoption import adoption_of
from relier.celery.compat import confirm_before_flush, is_fed_by_event_loop, pool_pids
from relier.celery.pool.coroutines import shared_loop
from relier.celery.pool.shared_orders import shared_orders
from relier.celery.working.jobs import PROCESS_START_S, Jobs
from relier.celery.working.request import JobMessage, message_of
from relier.celery.working.runner import PoolRunner, is_set, is_stopping, worker_for
from relier.celery.working.unreadable import UnreadableMessages, guard_consumer, guard_redis_channels
from relier.engines.monitoring.watched_worker import WorkerWatch
from relier.engines.shutdown import LEAVE_S
from relier.engines.worker import EXIT_FORCED, Worker
from relier.monitoring.health import STUCK_S
from relier.run.forks import end_copies_of_the_loop
from relier.run.outcome import PutBack
from relier.stop_signals import refuse_on_windows

log = logging.getLogger("relier.celery")

STOP_CHECK_S = 0.25  # while the worker waits for the store: how often to check whether Celery was told to stop
CONNECT_S = 0.05  # a broker that is up has answered by then
REAP_EVERY_S = 0.01
EXIT_FAILURE = 1


class LedgerStep(bootsteps.StartStopStep):
    """Start the ledger thread after the pool, and stop it before the pool."""

    requires = (Pool,)

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        refuse_on_windows("a Celery worker with Relier")
        super().__init__(parent, **kwargs)
        self.adoption = adoption_of(parent.app)
        self.jobs = Jobs()
        self.worker: Worker | None = None
        self.runner: PoolRunner | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._stopping = False
        self._code = 0
        self._error: BaseException | None = None
        parent.ledger_step = self
        self.adoption.adopt_tasks()
        shared_orders.open()
        if parent.pool_cls.uses_semaphore:
            gc.collect()
            gc.freeze()  # the pool forks next: frozen objects stay shared, because no collection touches them

    def start(self, parent: Any) -> None:
        self._accept = prepare_accept_content(parent.app.conf.accept_content)
        self._thread = threading.Thread(target=self._run, args=(parent,), name="relier", daemon=True)
        self._thread.start()
        while not self._ready.wait(STOP_CHECK_S):  # the thread waits until the store answers
            state.maybe_shutdown()
        if self._error is not None:
            raise self._error
        guard_redis_channels(self.bury_unreadable)
        if is_fed_by_event_loop(parent.pool):
            confirm_before_flush(parent.pool, partial(self.make_turn, parent), PROCESS_START_S)
        if parent.hub is None:  # this transport has no event loop, so a thread takes the jobs
            threading.Thread(target=self._deliver_all, args=(parent,), name="relier-jobs", daemon=True).start()

    # --- the ledger thread ---------------------------------------------------------------------------------------

    def _run(self, parent: Any) -> None:
        try:
            self._code = background.run(self._work(parent))
        except BaseException as error:  # the main thread raises it during the start, or stops the worker
            self._error = error
            log.exception("ledger thread failed")
        finally:
            # A worker that claims nothing is useless: stop Celery, too.
            if not self._stopping and not is_stopping() and self._ready.is_set():
                state.should_stop = EXIT_FAILURE
            self._ready.set()
            self.jobs.wake()

    async def _work(self, parent: Any) -> int:
        self._loop = asyncio.get_running_loop()
        runner = self.runner = PoolRunner(self.adoption, parent, self.jobs)
        watch = WorkerWatch(self.adoption.client)
        worker = self.worker = worker_for(self.adoption, runner, self._ready.set, watch)
        end_copies_of_the_loop()
        if not runner.forks:
            shared_loop.share(self._loop)
        self.bury_unreadable = UnreadableMessages(self.adoption, self._loop, lambda: worker.worker_id)
        with watch.serve(worker, runner.slots, self._stuck):
            return await worker.run()

    def _stuck(self) -> tuple[str, ...]:
        """Return a reason if Celery's main thread takes no jobs. The ledger thread then claims none either."""
        unresponsive = self.jobs.unresponsive_for(STUCK_S)
        return (f"Celery's main thread has taken no job for {STUCK_S:g} s",) if unresponsive else ()

    # --- from the ledger thread to the pool ----------------------------------------------------------------------

    def register_with_event_loop(self, parent: Any, hub: Any) -> None:
        hub.add_reader(self.jobs.fileno(), self.deliver, parent)
        self.jobs.main_thread_ready = True

    def deliver(self, parent: Any) -> None:
        """Pass the jobs that were given to the pool. Runs in Celery's main thread."""
        if self.jobs.dead_pids:
            self._reap_children(parent)
        given = self.jobs.take()
        for act in self.jobs.take_calls():
            try:
                act()
            except Exception:
                log.exception("report to Celery failed")
        for job in given:
            if job.ended:
                continue
            try:
                handle, callbacks = parent.consumer.strategies[job.attempt.task.name], parent.consumer.on_task_message
                handle(JobMessage(job, message_of(job), self._accept), None, None, None, callbacks)
            except Exception as error:  # every attempt needs an outcome
                log.exception("task not passed to the pool: task=%s", job.record_id)
                job.settle(PutBack(error))

    def _reap_children(self, parent: Any) -> None:
        """Make Celery reap dead pool processes at once, and again until all are reaped.

        Without this, Celery looks for dead processes every five seconds, and their slots stay taken until then.
        """
        parent.pool.maintain_pool()
        self.jobs.dead_pids &= pool_pids(parent.pool)
        if self.jobs.dead_pids and parent.hub is not None:
            parent.hub.call_later(REAP_EVERY_S, self._reap_children, parent)

    def _deliver_all(self, parent: Any) -> None:
        while not parent.consumer.strategies:  # the consumer has not started yet
            time.sleep(CONNECT_S)
        self.jobs.main_thread_ready = True
        while self._is_running():
            select.select([self.jobs.fileno()], [], [], 1.0)
            self.deliver(parent)

    # --- shutdown ------------------------------------------------------------------------------------------------

    def close(self, parent: Any) -> None:  # noqa: ARG002 - a bootstep's signature
        self.drain()

    def stop(self, parent: Any) -> None:
        self.drain()
        self._keep_pool_working(parent)

    def terminate(self, parent: Any) -> None:
        self.drain(now=True)
        self._keep_pool_working(parent)

    def drain(self, *, now: bool = False) -> None:
        """Stop claiming and hand back jobs that have not started.

        Running tasks get their grace period, or none with `now`.
        """
        self._stopping = True
        worker = self.worker
        if worker is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(worker.leave_now if now else worker.drain)

    def leave_now(self) -> None:
        """Hand back running tasks and stop them before Celery continues. Called from a signal handler."""
        self.drain(now=True)
        if self._thread is not None:
            self._thread.join(LEAVE_S)

    def _keep_pool_working(self, parent: Any) -> None:
        """Process the pool's results until the ledger thread has drained.

        Celery's own shutdown of a pool takes half a second per process, and does not return before the last task has
        ended.
        """
        until = time.monotonic() + self.adoption.client.settings.graceful_shutdown_timeout + LEAVE_S
        turn = self.make_turn(parent)
        while self._is_running() and time.monotonic() < until:
            if is_set(state.should_terminate):
                self.drain(now=True)
            turn()
        if self._code == EXIT_FORCED:
            parent.exitcode = EXIT_FORCED

    def make_turn(self, parent: Any) -> Callable[[], None]:
        """Return a function that runs one turn of Celery's event loop.

        Celery empties the loop when it loses its broker; Celery 5.4 and 5.5 also do so whenever they leave the loop. So
        the readers of the pool and of our jobs are registered again.
        """
        if parent.hub is not None and self.jobs.fileno() not in parent.hub.readers:
            parent.register_with_event_loop(parent.hub)
        return make_turn(parent.hub)

    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()


def make_turn(hub: Any) -> Callable[[], None]:
    """Return a function that runs one turn of Celery's event loop.

    Without an event loop, it only sleeps for a moment.
    """
    loop: Any = None

    def turn() -> None:
        nonlocal loop
        if hub is None:
            time.sleep(CONNECT_S)
            return
        try:
            loop = loop or hub.create_loop()
            next(loop)
        except StopIteration:
            loop = None
        except Exception as error:  # noqa: BLE001 - a lost broker, or any other error: the pool must keep working
            log.info("error in Celery's event loop, continuing: error=%r", error)
            loop = None

    return turn


class ConsumerStep(bootsteps.StartStopStep):
    """Keep the pool working between two connections to the broker.

    Between two connections Celery itself only waits, and it forgets the jobs that its pool has not started.
    """

    requires = ("celery.worker.consumer:Tasks",)

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self._consumer = parent
        self._step: LedgerStep = parent.controller.ledger_step
        self._ensure_connected = parent.ensure_connected
        parent.ensure_connected = self._connect
        for name in ("cancel_active_requests", "cancel_all_unacked_requests"):  # depends on the version of Celery
            if hasattr(parent, name):
                setattr(parent, name, self._hand_back_then(getattr(parent, name)))

    def start(self, parent: Any) -> None:
        self._step.adoption.adopt_tasks()
        guard_consumer(parent, self._step.adoption, self._step.bury_unreadable)

    def stop(self, parent: Any) -> None:  # noqa: ARG002
        self._step.jobs.hand_back_forgotten()

    shutdown = stop

    def _hand_back_then(self, cancel: Callable[[], None]) -> Callable[[], None]:
        """Wrap Celery's cold shutdown: our attempts are handed back to the ledger, not cancelled."""

        def leave() -> None:
            self._step.leave_now()
            cancel()

        return leave

    def _connect(self, connection: Any) -> Any:
        """Connect in another thread, as Celery does it, while the main thread keeps the pool working."""
        if self._consumer.hub is None:
            return self._ensure_connected(connection)
        done, result = threading.Event(), list[Any]()

        def connect() -> None:
            try:
                result.append(self._ensure_connected(connection))
            except BaseException as error:  # noqa: BLE001 - the main thread raises it
                result.append(error)
            done.set()
            self._step.jobs.wake()

        threading.Thread(target=connect, name="relier-connects", daemon=True).start()
        if not done.wait(CONNECT_S):
            self._keep_pool_working(done)
        if isinstance(result[0], BaseException):
            raise result[0]
        runner = self._step.runner
        return result[0] if runner is None else runner.broker_calls.watch(result[0])

    def _keep_pool_working(self, done: threading.Event) -> None:
        consumer = self._consumer
        if not consumer.strategies:
            consumer.update_strategies()
        turn = self._step.make_turn(consumer.controller)
        while not done.is_set():
            state.maybe_shutdown()
            turn()
