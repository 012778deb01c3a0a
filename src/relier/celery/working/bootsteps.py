"""How the ledger's thread starts, works and ends with Celery's worker.

LedgerStep      a bootstep of the worker: starts the thread, gives Celery's main thread what to run, and at the end
                keeps the pool going until the thread has drained
ConsumerStep    a bootstep of the consumer: while Celery has no broker, its pool works on; what it forgot goes back
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
from relier.celery.compat import hear_before_flush, is_fed_by_event_loop, pool_pids
from relier.celery.pool.coroutines import shared_loop
from relier.celery.pool.shared_orders import shared_orders
from relier.celery.working.jobs import BEGIN_S, Jobs
from relier.celery.working.request import JobMessage, message_of
from relier.celery.working.runner import PoolRunner, is_leaving, is_set, worker_for
from relier.celery.working.unreadable import Parking, guard_consumer, guard_redis_channels
from relier.engines.shutdown import LEAVE_S
from relier.engines.worker import EXIT_FORCED, Worker
from relier.errors import RelierError
from relier.run.forks import end_copies_of_the_loop
from relier.run.outcome import PutBack

log = logging.getLogger("relier.celery")

START_S = 30.0
CONNECT_S = 0.05  # a broker that answers has answered by then
REAP_EVERY_S = 0.01
EXIT_TROUBLE = 1


class LedgerStep(bootsteps.StartStopStep):
    """Starts after the pool and stops before it."""

    requires = (Pool,)

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self.adoption = adoption_of(parent.app)
        self.jobs = Jobs()
        self.worker: Worker | None = None
        self.runner: PoolRunner | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._leaving = False
        self._code = 0
        self._trouble: BaseException | None = None
        parent.ledger_step = self
        self.adoption.take_over()
        shared_orders.open()
        if parent.pool_cls.uses_semaphore:
            gc.collect()
            gc.freeze()  # processes are forked next: what is here stays shared, as no collection touches it

    def start(self, parent: Any) -> None:
        self._accept = prepare_accept_content(parent.app.conf.accept_content)
        self._thread = threading.Thread(target=self._run, args=(parent,), name="relier", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_S) or self._trouble is not None:
            raise self._trouble or RelierError(f"the ledger was not reached within {START_S:g} s")
        guard_redis_channels(self.park)
        if is_fed_by_event_loop(parent.pool):
            hear_before_flush(parent.pool, partial(self.turns, parent), BEGIN_S)
        if parent.hub is None:  # this transport has no event loop: a thread takes what is given
            threading.Thread(target=self._deliver_all, args=(parent,), name="relier-jobs", daemon=True).start()

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self, parent: Any) -> None:
        try:
            self._code = background.run(self._work(parent))
        except BaseException as error:  # the main thread raises it, or tells
            self._trouble = error
            log.exception("the ledger's thread ended")
        finally:
            if not self._leaving and not is_leaving() and self._ready.is_set():  # a worker that claims nothing is none
                state.should_stop = EXIT_TROUBLE
            self._ready.set()
            self.jobs.wake()

    async def _work(self, parent: Any) -> int:
        self._loop = asyncio.get_running_loop()
        runner = self.runner = PoolRunner(self.adoption, parent, self.jobs)
        worker = self.worker = worker_for(self.adoption, runner, self._ready.set)
        end_copies_of_the_loop()
        if not runner.forks:
            shared_loop.share(self._loop)
        self.park = Parking(self.adoption, self._loop, lambda: worker.worker_id)
        return await worker.run()

    # --- from the thread to the pool -----------------------------------------------------------------------------

    def register_with_event_loop(self, parent: Any, hub: Any) -> None:
        hub.add_reader(self.jobs.fileno(), self.deliver, parent)
        self.jobs.listening = True

    def deliver(self, parent: Any) -> None:
        """In Celery's main thread: hand over what was given."""
        if self.jobs.died:
            self._bury_children(parent)
        given = self.jobs.take()
        for act in self.jobs.calls():
            try:
                act()
            except Exception:
                log.exception("Celery could not be told")
        for job in given:
            if job.ended:
                continue
            try:
                handle, callbacks = parent.consumer.strategies[job.attempt.task.name], parent.consumer.on_task_message
                handle(JobMessage(job, message_of(job), self._accept), None, None, None, callbacks)
            except Exception as error:  # no attempt may vanish here
                log.exception("task %s could not be given to the pool", job.record_id)
                job.settle(PutBack(error))

    def _bury_children(self, parent: Any) -> None:
        """Celery looks for dead processes every five seconds, and as long their slots are taken. Here it looks at once,
        and again until they can be reaped."""
        parent.pool.maintain_pool()
        self.jobs.died &= pool_pids(parent.pool)
        if self.jobs.died and parent.hub is not None:
            parent.hub.call_later(REAP_EVERY_S, self._bury_children, parent)

    def _deliver_all(self, parent: Any) -> None:
        while not parent.consumer.strategies:  # not there yet
            time.sleep(CONNECT_S)
        self.jobs.listening = True
        while self._alive():
            select.select([self.jobs.fileno()], [], [], 1.0)
            self.deliver(parent)

    # --- the end -------------------------------------------------------------------------------------------------

    def close(self, parent: Any) -> None:  # noqa: ARG002 - a bootstep's signature
        self.drain()

    def stop(self, parent: Any) -> None:
        self.drain()
        self._work_on(parent)

    def terminate(self, parent: Any) -> None:
        self.drain(now=True)
        self._work_on(parent)

    def drain(self, *, now: bool = False) -> None:
        """Nothing more is claimed, what has not begun goes back; what runs has its time, or none."""
        self._leaving = True
        worker = self.worker
        if worker is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(worker.leave_now if now else worker.drain)

    def leave_now(self) -> None:
        """From a signal's handler: the thread hands back what runs, and ends what runs it, before Celery goes on."""
        self.drain(now=True)
        if self._thread is not None:
            self._thread.join(LEAVE_S)

    def _work_on(self, parent: Any) -> None:
        """The pool's results are taken until the thread has drained: Celery's own waiting for a pool takes half a
        second a process, and does not end before the last task does."""
        until = time.monotonic() + self.adoption.client.settings.graceful_shutdown_timeout + LEAVE_S
        turn = self.turns(parent)
        while self._alive() and time.monotonic() < until:
            if is_set(state.should_terminate):
                self.drain(now=True)
            turn()
        if self._code == EXIT_FORCED:
            parent.exitcode = EXIT_FORCED

    def turns(self, parent: Any) -> Callable[[], None]:
        """One turn of Celery's event loop after the other. Celery has emptied it when its broker was lost, and 5.4 and
        5.5 whenever they leave it: what the pool and our thread say is listened to again."""
        if parent.hub is not None and self.jobs.fileno() not in parent.hub.readers:
            parent.register_with_event_loop(parent.hub)
        return turns_of(parent.hub)

    def _alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()


def turns_of(hub: Any) -> Callable[[], None]:
    """One turn of Celery's event loop after the other; without one, a moment each."""
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
        except Exception as error:  # noqa: BLE001 - its broker is gone, or whatever: the pool must work on
            log.info("the event loop stumbled, and goes on: %r", error)
            loop = None

    return turn


class ConsumerStep(bootsteps.StartStopStep):
    """Between two connections to the broker Celery forgets what its pool has not begun, and waits. Its pool goes on."""

    requires = ("celery.worker.consumer:Tasks",)

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self._consumer = parent
        self._step: LedgerStep = parent.controller.ledger_step
        self._ensure_connected = parent.ensure_connected
        parent.ensure_connected = self._connect
        for name in ("cancel_active_requests", "cancel_all_unacked_requests"):  # the same, by the version of Celery
            if hasattr(parent, name):
                setattr(parent, name, self._leave_then(getattr(parent, name)))

    def start(self, parent: Any) -> None:
        self._step.adoption.take_over()
        guard_consumer(parent, self._step.adoption, self._step.park)

    def stop(self, parent: Any) -> None:  # noqa: ARG002
        self._step.jobs.forget_taken()

    shutdown = stop

    def _leave_then(self, cancel: Callable[[], None]) -> Callable[[], None]:
        """Celery's cold shutdown: our attempts are handed back, not cancelled."""

        def leave() -> None:
            self._step.leave_now()
            cancel()

        return leave

    def _connect(self, connection: Any) -> Any:
        """Celery's own way to connect, in a thread beside: the main thread lets the pool work on until it succeeds."""
        if self._consumer.hub is None:
            return self._ensure_connected(connection)
        done, answer = threading.Event(), list[Any]()

        def connect() -> None:
            try:
                answer.append(self._ensure_connected(connection))
            except BaseException as error:  # noqa: BLE001 - the main thread raises it
                answer.append(error)
            done.set()
            self._step.jobs.wake()

        threading.Thread(target=connect, name="relier-connects", daemon=True).start()
        if not done.wait(CONNECT_S):
            self._work_on(done)
        if isinstance(answer[0], BaseException):
            raise answer[0]
        runner = self._step.runner
        return answer[0] if runner is None else runner.broker_calls.watch(answer[0])

    def _work_on(self, done: threading.Event) -> None:
        consumer = self._consumer
        if not consumer.strategies:
            consumer.update_strategies()
        turn = self._step.turns(consumer.controller)
        while not done.is_set():
            state.maybe_shutdown()
            turn()
