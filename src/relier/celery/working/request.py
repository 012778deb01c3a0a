"""Carry an attempt as a Celery request from the worker's main thread into the pool, and back as an outcome.

strategy.py makes the request and passes it to the pool.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import ref

import msgspec
from billiard.einfo import ExceptionInfo
from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery import signals, states
from celery.exceptions import TaskRevokedError
from celery.worker.request import Request
from celery.worker.state import task_ready
from msgspec.structs import replace

from relier.celery.adoption import AdoptedTask, adoption_of
from relier.celery.internal import is_internal
from relier.celery.messages import LedgerMessage, Message, read_message
from relier.celery.pool.adopted_child import run_message
from relier.celery.pool.rl_child import run_claimed
from relier.celery.sending.collect import Collector, collecting
from relier.celery.sending.spread import spread
from relier.celery.working.jobs import Job
from relier.celery.working.report import TracerReport, read_report
from relier.errors import HardTimeoutError, MaxResurrectionsExceededError
from relier.failure import how_it_ended
from relier.ledger.records import Submission
from relier.run.isolated.messages import ChildReport, outcome_of
from relier.run.outcome import Failed, HandBack, Outcome, PutBack

log = logging.getLogger("relier.celery")

TOO_MANY_DEATHS, TOO_MANY_SCARES = "max_resurrections_exceeded", "workers_kept_dying"
HARD_TIMEOUT_GRACE_S = 10.0  # how long an `@rl_task` may run past its hard timeout before the pool kills it


class JobMessage(LedgerMessage):
    """Present an attempt as the message that Celery's worker expects."""

    def __init__(self, job: Job, message: Message, accept: Any) -> None:
        super().__init__(message, accept, redelivered=job.attempt.claimed.deaths > 0)
        self.job = job


def message_of(job: Job) -> Message:
    """Return the message of an attempt. An `@rl_task` has none and gets an empty one."""
    attempt = job.attempt
    if attempt.args and isinstance(attempt.args[0], dict) and "headers" in attempt.args[0]:
        message = read_message(attempt.args[0])
        message.headers["retries"] = max(int(message.headers.get("retries") or 0), 0)
        return message
    record = attempt.claimed.record
    headers = {
        "task": record.name,
        "id": record.id,
        "root_id": record.id,
        "lang": "py",
        "argsrepr": "",
        "kwargsrepr": "",
    }
    return Message(
        headers, {"correlation_id": record.id}, "application/json", "utf-8", "[[], {}, {}]", "", record.queue
    )


class LedgerRequest(Request):
    """Run one attempt. There is no message to acknowledge: the outcome goes to the ledger through the job."""

    job: Job
    _failed = False
    _in_greenlet = False  # the attempt runs in a greenlet of this process

    def execute_using_pool(self, pool: Any, **_: Any) -> Any:
        if self.job.ended or self.revoked():  # handed back or cancelled while it waited for its turn
            task_ready(self)
            raise TaskRevokedError(self.id)
        self._in_greenlet = bool(getattr(pool, "is_green", False))
        try:
            self.job.in_pool = True
            result = self._apply(pool)
        except Exception as error:
            log.exception("task not passed to the pool: task=%s", self.id)
            task_ready(self)
            self.job.settle(PutBack(error))
            raise TaskRevokedError(self.id) from error  # Celery's worker then frees the slot
        self._apply_result = None if result is None else ref(result)
        if result is None and not self._in_greenlet:  # a closed pool, or a solo pool, which has run the task by now
            self.job.settle(HandBack())
        return result

    def _apply(self, pool: Any) -> Any:
        run, args, limits = self._pool_call()
        return pool.apply_async(
            run,
            args=args,
            accept_callback=self.on_accepted,
            timeout_callback=self.on_timeout,
            callback=self.on_success,
            error_callback=self.on_failure,
            correlation_id=self.id,
            **limits,
        )

    def _pool_call(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Return the function that the pool will call, its arguments and its time limits."""
        claimed, task = self.job.attempt.claimed, self.job.attempt.task
        if not isinstance(task, AdoptedTask):
            hard = task.options.hard_timeout  # a task stops itself; this limit is for a task that does not
            limits = {"timeout": None if hard is None else hard + HARD_TIMEOUT_GRACE_S}
            return run_claimed, (msgspec.msgpack.encode(claimed),), limits
        time_limit, soft_time_limit = self._limits()
        call = (self.type, self.job.attempt.key, claimed.record.queue, dict(claimed.steps))
        limits = {"timeout": time_limit, "soft_timeout": soft_time_limit}
        content = (self.content_type, self.content_encoding)
        return run_message, (call, self.request_dict, self.body, content), limits

    def _limits(self) -> tuple[float | None, float | None]:
        if is_internal(self.type):  # the app's limits are for its own tasks
            return None, None
        hard, soft = self.time_limits
        return hard or self.task.time_limit, soft or self.task.soft_time_limit

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        process = os.getpid() if self._in_greenlet else pid  # green pools name a greenlet instead
        if self.job.ended and process == os.getpid():  # in a thread, the body has not started yet and need not
            raise TaskRevokedError(self.id)
        self.job.started(process)
        try:
            super().on_accepted(pid, time_accepted)
        except Exception:  # for example, an event that cannot be sent; a thread pool would not run the task then
            log.warning("task start not reported: task=%s", self.id, exc_info=True)

    def on_success(self, answer: Any, **_: Any) -> None:
        if isinstance(answer, ExceptionInfo):  # the pool reports an exit in this way
            self.on_failure(answer)
            return
        raw, pool_result = answer
        try:
            report = self._read(raw)
        except Exception as error:  # every attempt needs an outcome, whatever the error
            log.exception("task report not readable: task=%s", self.id)
            report = PutBack(error)
        if isinstance(report, TracerReport) and report.state == states.REJECTED:
            self._on_rejected(report, pool_result)
            return
        self.job.settle(report.outcome() if isinstance(report, TracerReport) else report)
        Request.on_success(self, pool_result)  # not that of a subclass: Celery does not call it either

    def _read(self, raw: bytes) -> TracerReport | Outcome:
        attempt = self.job.attempt
        if isinstance(attempt.task, AdoptedTask):
            return read_report(raw)
        report = msgspec.msgpack.decode(raw, type=ChildReport)
        if isinstance(attempt.stop, HandBack) and not report.handback:  # the attempt ended by itself before the stop
            attempt.stop = None
        return outcome_of(attempt, report)

    def _on_rejected(self, report: TracerReport, pool_result: Any) -> None:
        """Settle a task that its own body rejected. Celery's worker, not the tracer, decides what happens next."""
        try:
            with collecting(self._collector()) as collector:
                Request.on_success(self, pool_result)
        finally:
            if report.requeue:
                report.again = self._redelivery()
            report.follow_ups, report.part = self._follow_ups_of(collector), collector.part
            self.job.settle(report.outcome())

    def _redelivery(self) -> Submission:
        """Return a submission of the same message, marked as redelivered."""
        record = self.job.attempt.claimed.record
        message = message_of(self.job)
        message.redelivered = True
        task = adoption_of(self.app).submission(message, record.queue, None)
        spec = record.spec
        return replace(task, id=record.id, priority=spec.priority, eta_ms=0, max_resurrections=spec.max_resurrections)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        if return_ok:  # the tracer has handled the failure; this only reports it
            super().on_failure(exc_info, send_failed_event, return_ok)
            return
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if isinstance(error, Terminated):
            super().on_failure(exc_info, send_failed_event, return_ok)
        elif isinstance(error, WorkerLostError | SystemExit | KeyboardInterrupt):
            task_ready(self)
            if not isinstance(error, WorkerLostError):
                self.job.own_exit = exit_cause(error)
            self.job.process_died(exit_cause(error))
        else:
            if isinstance(error, TimeLimitExceeded):
                error = self._time_limit_error(error.args[0])
            self._fail(error, lambda: super(LedgerRequest, self).on_failure(exc_info, send_failed_event, return_ok))

    def on_timeout(self, soft: bool, timeout: float) -> None:
        if soft:
            super().on_timeout(soft, timeout)
        else:
            self._fail(self._time_limit_error(timeout), lambda: super(LedgerRequest, self).on_timeout(soft, timeout))

    def report_rejected(self) -> None:
        """Report that the process died and that the task runs again, as Celery does for `reject_on_worker_lost`."""
        self.send_event("task-rejected", requeue=True)

    def fail_as_lost(self, cause: str, reason: str = TOO_MANY_DEATHS) -> Failed:
        """Report to Celery that the task failed because its process died too often, and return that outcome.

        The tasks that Celery sends on the failure, such as error callbacks, are follow-ups of the outcome.
        """
        error = WorkerLostError(f"{cause}, once too often")
        with collecting(self._collector()) as collector:
            self.report_failed(error)
        dead = MaxResurrectionsExceededError(self.job.record_id, reason, str(error))
        return Failed(dead, True, None, self._follow_ups_of(collector), collector.part)

    def report_failed(self, error: WorkerLostError) -> None:
        """Report the failure as Celery does for a lost process: backend, chord and error callbacks, signal, event.

        Celery's own `on_failure` cannot be used here. It reports nothing if it decides that the task is to be retried
        (`reject_on_worker_lost`), or that the task had a result before its process died.
        """
        try:
            raise error
        except WorkerLostError:
            info = ExceptionInfo()
        task_ready(self)
        self.task.backend.mark_as_failure(self.id, error, request=self._context, store_result=self.store_errors)
        fields = {"task_id": self.id, "exception": error, "args": self.args, "kwargs": self.kwargs}
        self.task.request_stack.push(self._context)
        try:
            signals.task_failure.send(sender=self.task, traceback=info.traceback, einfo=info, **fields)
        finally:
            self.task.request_stack.pop()
        self.send_event("task-failed", exception=repr(error), traceback=info.traceback)
        log.error("Task %s[%s] is lost: %r", self.name, self.id, error)

    def _collector(self) -> Collector:
        record = self.job.attempt.claimed.record
        return Collector(record.id, record.queue, settling=True)

    def _follow_ups_of(self, collector: Collector) -> tuple[Submission, ...]:
        return spread(adoption_of(self.app), collector)

    def _time_limit_error(self, timeout: float) -> BaseException:
        limit = self.job.attempt.task.options.hard_timeout
        if limit is None:
            return TimeLimitExceeded(timeout)
        return HardTimeoutError(f"it ran longer than its hard timeout of {limit:g} s, did not stop and was killed")

    def _fail(self, error: BaseException, report: Callable[[], None]) -> None:
        """Settle an attempt that failed outside the tracer. Error callbacks that Celery sends then are follow-ups.

        The pool reports a hard time limit twice. Both reports go to Celery's events and handlers, but error callbacks
        are sent only once.
        """
        if self._failed:
            self._context.errbacks = None
        self._failed = True
        collector = self._collector()
        try:
            with collecting(collector):
                report()
        finally:
            self.job.settle(Failed(error, True, None, self._follow_ups_of(collector), collector.part))

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        """Announce that the task was revoked, also to its chord.

        A chord needs an outcome for each member, so a member becomes a dead letter. Any other task is just cancelled.
        """
        with collecting(self._collector()) as collector:
            super()._announce_revoked(reason, terminated, signum, expired)
        if collector.follow_ups:
            revoked = TaskRevokedError(reason)
            self.job.settle(Failed(revoked, True, None, self._follow_ups_of(collector), collector.part))
        else:
            self.job.settle(Revoked())

    def cancel_unstarted(self) -> None:
        """Cancel the task, as requested, before the pool has started it."""
        if not self._already_revoked:
            self._announce_revoked("revoked", False, None, False)

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """Do nothing. Losing the broker does not cancel tasks: the ledger holds them."""


@cache
def request_class(base: type[Request]) -> Any:
    """Return LedgerRequest on top of the request class of a task, so that the methods of that class still run."""
    if base is Request:
        return LedgerRequest
    return type(base.__name__, (LedgerRequest, base), {})


def exit_cause(error: BaseException) -> str:
    """Return how a process ended, from billiard's error or from the exception with which the task ended it."""
    if isinstance(error, SystemExit):  # as in Python: None means 0, a text means 1
        given = 0 if error.code is None else error.code
        return how_it_ended(given & 0xFF if isinstance(given, int) else 1)
    code = re.search(r"exitcode (-?\d+)", str(error))
    return how_it_ended(int(code[1])) if code else str(error) or type(error).__name__


class Revoked(HandBack):
    """Hand back a task that was revoked or has expired, after it was cancelled in the ledger."""
