"""Run one attempt of an adopted task inside the pool, with Celery's own tracer.

The tracer does everything Celery does around a task: signals, states in the result backend, callbacks, retries. The
tasks that it sends meanwhile are collected (sending/collect.py) and returned to the worker with the outcome. Only the
worker calls the ledger about the attempt, so each worker has one lease and one heartbeat, whatever the pool.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

from billiard.einfo import ExceptionInfo
from billiard.process import current_process
from celery import signals, states
from celery.app.trace import build_tracer
from celery.exceptions import Reject
from kombu.serialization import loads, prepare_accept_content

from relier.celery.adoption import adoption_of
from relier.celery.canvas.large_values import fetch_stored_values
from relier.celery.canvas.parts import PART_TASK, result_to_store
from relier.celery.compat import running_app
from relier.celery.internal import is_internal, run_internal
from relier.celery.pool.shared_orders import STOP, Key, shared_orders
from relier.celery.sending.collect import Collector, collecting
from relier.celery.sending.spread import spread, submit_in_batches
from relier.celery.working.report import TracerReport, write_report
from relier.failure import failure_of
from relier.run.application.django_connections import with_fresh_connections
from relier.run.forks import end_copies_of_the_loop, end_copy

log = logging.getLogger("relier.celery")

PoolResult = tuple[
    int, Any, float | None
]  # failed, result or exception, run time: as Celery's pool function returns it
PoolCall = tuple[str, Key, str, dict[str, bytes]]  # task name, attempt, queue, and the parts of a join

PR_SET_PDEATHSIG = 1
ORPHAN_CHECK_S = 1.0
# One of these modules is on the stack while a task runs.
TASK_RUNNING_MODULES = ("celery.app.trace", "relier.celery.pool.rl_child")
CHECK_ORDERS_SIGNAL = getattr(signal, "SIGUSR2", 0)  # the worker sends it with an order; Celery uses SIGUSR1
_order_handler: Callable[[], Any] | None = None  # set while an attempt runs


@contextmanager
def handling_orders(obey: Callable[[], Any]) -> Iterator[None]:
    """Call `obey` in the main thread when the worker has an order for the attempt that runs inside the block."""
    global _order_handler
    _order_handler = obey
    try:
        yield
    finally:
        _order_handler = None


def in_pool_process() -> bool:
    return bool(current_process().name != "MainProcess")


@signals.worker_process_init.connect(weak=False)
def install_order_handler(**_: Any) -> None:
    """Prepare a new pool process to receive the worker's orders, and to notice the worker's death."""
    end_copies_of_the_loop()
    if in_pool_process():
        signal.signal(CHECK_ORDERS_SIGNAL, _on_check_orders)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, CHECK_ORDERS_SIGNAL)
        exit_if_orphaned(sys._getframe())  # noqa: SLF001 - the parent may be gone already


def _on_check_orders(_: int, frame: FrameType | None) -> None:
    if _order_handler is not None:
        _order_handler()
    exit_if_orphaned(frame)


def exit_if_orphaned(frame: FrameType | None) -> None:
    """Exit if the worker of this process has died. A process that runs a task exits after the task, as in plain Celery.

    An idle process cannot wait for its input pipe to close: its sibling processes keep the other end open.
    """
    if not shared_orders.opened_by or os.getppid() == shared_orders.opened_by:
        return
    if not is_running_task(frame):
        raise SystemExit(0)
    again = threading.Timer(ORPHAN_CHECK_S, os.kill, (os.getpid(), CHECK_ORDERS_SIGNAL))
    again.daemon = True
    again.start()


def is_running_task(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") in TASK_RUNNING_MODULES:
            return True
        frame = frame.f_back
    return False


def run_message(
    pool_call: PoolCall, request: dict[str, Any], body: Any, content: tuple[str, str]
) -> tuple[bytes, PoolResult]:
    """Run a message. Return the report for the ledger and the result that Celery's request expects."""
    app = running_app()
    name, attempt, queue, parts = pool_call
    record_id, process = attempt[0], os.getpid()
    collector = Collector(record_id, queue, parts)

    def obey() -> None:
        if shared_orders.orders_for(os.getpid(), attempt) & STOP:
            signal.raise_signal(signal.SIGTERM)  # as Celery's own `terminate` does

    try:
        with collecting(collector), handling_orders(obey) if in_pool_process() else nullcontext():
            args, kwargs, embed = loads(body, *content, accept=prepare_accept_content(app.conf.accept_content))
            request.update({"args": args, "kwargs": kwargs, "is_eager": False}, **embed or {})
            if is_internal(name):
                return write_report(run_internal(app, collector, name, request)), (0, "", 0.0)
            args = fetch_stored_values(app, collector, request)
            retval, info, runtime, retval_repr = with_fresh_connections(
                tracer_for(app, name), request["id"], args, kwargs, request
            )
            if os.getpid() != process:
                end_copy()
            report = report_of(app, collector, retval, info, store_result=not request.get("ignore_result"))
            return write_report(report), ((1, retval, runtime) if info else (0, retval_repr, runtime))
    except Reject as error:
        return write_report(rejected(error)), (1, ExceptionInfo(), None)
    except Exception as error:  # every attempt needs an outcome, whatever the error
        log.exception("tracer failed: task=%s", record_id)
        follow_ups = spread(adoption_of(app), collector)
        report = TracerReport(states.FAILURE, failure=failure_of(error), follow_ups=follow_ups, part=collector.part)
        return write_report(report), (1, ExceptionInfo(), None)


def tracer_for(app: Any, name: str) -> Callable[..., Any]:
    """Return Celery's tracer of a task.

    A worker builds all tracers at its start, so a task that was registered later has none yet.
    """
    task = app.tasks[name]
    if task.__trace__ is None:
        task.__trace__ = build_tracer(name, task, app.loader, app=app)
    return task.__trace__


def report_of(app: Any, collector: Collector, retval: Any, info: Any, *, store_result: bool) -> TracerReport:
    """Return the report for a result of the tracer. For a success, `info` is None and `retval` is the result."""
    state = states.SUCCESS if info is None else info.state
    follow_ups = spread(adoption_of(app), collector)
    if collector.again is not None:
        message, again = collector.again
        run = f"{collector.record_id}.run{message.headers.get('retries')}"
        # After `retry(throw=False)` the body ran to its end: its callbacks run, too, as in Celery. A chord gets no part
        # of this run; it waits for the next.
        now = [task for task in follow_ups if task.join is None and task.name != PART_TASK]
        submit_in_batches(adoption_of(app), collector.queue, now, run)
        cause = None if info is None else getattr(info.retval, "exc", None) or info.retval
        return TracerReport(
            states.RETRY,
            failure=None if cause is None else failure_of(cause),
            again=again,
            delay_ms=message.due_in_ms,
        )
    if state == states.SUCCESS:
        joins = any(task.join is not None for task in follow_ups)
        result = result_to_store(app, collector.record_id, retval, joins=joins) if store_result or joins else None
        return TracerReport(state, result, follow_ups=follow_ups)
    if state == states.REJECTED:
        return rejected(info.retval)
    if state == states.IGNORED:
        return TracerReport(state, follow_ups=follow_ups)
    return TracerReport(state, failure=failure_of(info.retval), follow_ups=follow_ups, part=collector.part)


def rejected(error: Reject) -> TracerReport:
    return TracerReport(states.REJECTED, failure=failure_of(error), requeue=bool(error.requeue))
