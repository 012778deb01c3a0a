"""Inside the pool: one attempt in the hands of Celery's own tracer.

The tracer does everything Celery does around a task: signals, states in the result backend, callbacks, retries. What
it sends meanwhile is collected (sending/collect.py) and returned to the worker with the outcome. Only the worker
talks to the ledger about the attempt, so there is one lease and one heartbeat per worker, whatever the pool.
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
from relier.run.forks import end_copies_of_the_loop, end_copy

log = logging.getLogger("relier.celery")

Traced = tuple[int, Any, float | None]  # what Celery's own pool function returns: failed, result or exception, run time
Order = tuple[str, Key, str, dict[str, bytes]]  # the task, its attempt, its queue, the parts it waited for

PR_SET_PDEATHSIG = 1
ORPHAN_LOOKS_S = 1.0
RUNNERS = ("celery.app.trace", "relier.celery.pool.rl_child")  # what is on the stack of a process that runs a task
LOOK = signal.SIGUSR2  # what the worker sends when there is an order; SIGUSR1 is Celery's
_obey: Callable[[], Any] | None = None  # what the attempt that runs does then


@contextmanager
def obeying(obey: Callable[[], Any]) -> Iterator[None]:
    """While an attempt runs here: `obey` is called, in the main thread, when the worker has an order for it."""
    global _obey
    _obey = obey
    try:
        yield
    finally:
        _obey = None


def in_pool_process() -> bool:
    return bool(current_process().name != "MainProcess")


@signals.worker_process_init.connect(weak=False)
def watch_for_orders(**_: Any) -> None:
    """A process of the pool has started."""
    end_copies_of_the_loop()
    if in_pool_process():
        signal.signal(LOOK, _look)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, LOOK)
        leave_if_orphaned(sys._getframe())  # noqa: SLF001 - the parent may be gone already


def _look(_: int, frame: FrameType | None) -> None:
    if _obey is not None:
        _obey()
    leave_if_orphaned(frame)


def leave_if_orphaned(frame: FrameType | None) -> None:
    """End this process if its worker is gone. An idle process would notice by the end of its input, but its siblings
    hold the other end of that open, as it holds theirs. One that runs a task ends after it, as in plain Celery."""
    if not shared_orders.opened_by or os.getppid() == shared_orders.opened_by:
        return
    if not runs_a_task(frame):
        raise SystemExit(0)
    again = threading.Timer(ORPHAN_LOOKS_S, os.kill, (os.getpid(), LOOK))
    again.daemon = True
    again.start()


def runs_a_task(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") in RUNNERS:
            return True
        frame = frame.f_back
    return False


def run_message(order: Order, request: dict[str, Any], body: Any, content: tuple[str, str]) -> tuple[bytes, Traced]:
    """Run a message. The report for the ledger, and what Celery's request wants to know."""
    app = running_app()
    name, attempt, queue, parts = order
    record_id, process = attempt[0], os.getpid()
    collector = Collector(record_id, queue, parts)

    def obey() -> None:
        if shared_orders.orders_for(os.getpid(), attempt) & STOP:
            signal.raise_signal(signal.SIGTERM)  # as Celery's own `terminate`

    try:
        with collecting(collector), obeying(obey) if in_pool_process() else nullcontext():
            args, kwargs, embed = loads(body, *content, accept=prepare_accept_content(app.conf.accept_content))
            request.update({"args": args, "kwargs": kwargs, "is_eager": False}, **embed or {})
            if is_internal(name):
                return write_report(run_internal(app, collector, name, request)), (0, "", 0.0)
            args = fetch_stored_values(app, collector, request)
            told, info, runtime, shown = tracer_of(app, name)(request["id"], args, kwargs, request)
            if os.getpid() != process:
                end_copy()
            report = report_of(app, collector, told, info, keeps=not request.get("ignore_result"))
            return write_report(report), ((1, told, runtime) if info else (0, shown, runtime))
    except Reject as error:
        return write_report(rejected(error)), (1, ExceptionInfo(), None)
    except Exception as error:  # no attempt may vanish: whatever it is, it is an outcome
        log.exception("task %s could not be traced", record_id)
        follow_ups = spread(adoption_of(app), collector)
        report = TracerReport(states.FAILURE, failure=failure_of(error), follow_ups=follow_ups, part=collector.part)
        return write_report(report), (1, ExceptionInfo(), None)


def tracer_of(app: Any, name: str) -> Callable[..., Any]:
    """Celery's, which a worker has built for every task; one that was registered later has none yet."""
    task = app.tasks[name]
    if task.__trace__ is None:
        task.__trace__ = build_tracer(name, task, app.loader, app=app)
    return task.__trace__


def report_of(app: Any, collector: Collector, told: Any, info: Any, *, keeps: bool) -> TracerReport:
    """What the tracer's answer means. `info` is None for a success, whose result `told` is."""
    state = states.SUCCESS if info is None else info.state
    follow_ups = spread(adoption_of(app), collector)
    if collector.again is not None:
        message, again = collector.again
        run = f"{collector.record_id}.run{message.headers.get('retries')}"
        # `retry(throw=False)`, and then the body came to an end: both happen, as in Celery. A chord waits for the next.
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
        result = result_to_store(app, collector.record_id, told, joins=joins) if keeps or joins else None
        return TracerReport(state, result, follow_ups=follow_ups)
    if state == states.REJECTED:
        return rejected(info.retval)
    if state == states.IGNORED:
        return TracerReport(state, follow_ups=follow_ups)
    return TracerReport(state, failure=failure_of(info.retval), follow_ups=follow_ups, part=collector.part)


def rejected(error: Reject) -> TracerReport:
    return TracerReport(states.REJECTED, failure=failure_of(error), requeue=bool(error.requeue))
