"""Celery's request of an attempt: from the worker's main thread into the pool, and back as an outcome. Who makes it,
and gives it to the pool: strategy.py."""

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
GRACE_S = 10.0  # past its hard timeout a task of ours has this long to end


class JobMessage(LedgerMessage):
    """The message of an attempt."""

    def __init__(self, job: Job, message: Message, accept: Any) -> None:
        super().__init__(message, accept, redelivered=job.attempt.claimed.deaths > 0)
        self.job = job


def message_of(job: Job) -> Message:
    """What Celery is given for an attempt. An `@rl_task` has no message: it gets an empty one."""
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
    """One attempt. It has no message to acknowledge: what came of it is told to the ledger, by its job."""

    job: Job
    _failed = False
    _green = False  # it runs in a greenlet of this process

    def execute_using_pool(self, pool: Any, **_: Any) -> Any:
        if self.job.ended or self.revoked():  # it was handed back, or cancelled, while it waited for its turn
            task_ready(self)
            raise TaskRevokedError(self.id)
        self._green = bool(getattr(pool, "is_green", False))
        try:
            self.job.applied = True
            result = self._apply(pool)
        except Exception as error:
            log.exception("task %s could not be given to the pool", self.id)
            task_ready(self)
            self.job.settle(PutBack(error))
            raise TaskRevokedError(self.id) from error  # Celery's worker frees the place for the next
        self._apply_result = None if result is None else ref(result)
        if result is None and not self._green:  # the pool is closed; or it is a solo pool, which has run it by now
            self.job.settle(HandBack())
        return result

    def _apply(self, pool: Any) -> Any:
        run, args, limits = self._order()
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

    def _order(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """What the pool is to call, with what, and within which time."""
        claimed, task = self.job.attempt.claimed, self.job.attempt.task
        if not isinstance(task, AdoptedTask):
            hard = task.options.hard_timeout  # it stops itself; this is for one that does not
            limits = {"timeout": None if hard is None else hard + GRACE_S}
            return run_claimed, (msgspec.msgpack.encode(claimed),), limits
        time_limit, soft_time_limit = self._limits()
        order = (self.type, self.job.attempt.key, claimed.record.queue, dict(claimed.steps))
        limits = {"timeout": time_limit, "soft_timeout": soft_time_limit}
        content = (self.content_type, self.content_encoding)
        return run_message, (order, self.request_dict, self.body, content), limits

    def _limits(self) -> tuple[float | None, float | None]:
        if is_internal(self.type):  # the app's limits are for its own tasks
            return None, None
        hard, soft = self.time_limits
        return hard or self.task.time_limit, soft or self.task.soft_time_limit

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        process = os.getpid() if self._green else pid  # green pools name a greenlet instead
        if self.job.ended and process == os.getpid():  # a thread: it has not begun yet, and need not
            raise TaskRevokedError(self.id)
        self.job.started(process)
        try:
            super().on_accepted(pid, time_accepted)
        except Exception:  # an event that cannot be sent, say; a thread pool would not run the task for it
            log.warning("the start of task %s could not be told", self.id, exc_info=True)

    def on_success(self, answer: Any, **_: Any) -> None:
        if isinstance(answer, ExceptionInfo):  # the pool's way to tell of an exit
            self.on_failure(answer)
            return
        raw, traced = answer
        try:
            told = self._read(raw)
        except Exception as error:  # no attempt may vanish: whatever it is, it is an outcome
            log.exception("what came of task %s cannot be read", self.id)
            told = PutBack(error)
        if isinstance(told, TracerReport) and told.state == states.REJECTED:
            self._reject_it(told, traced)
            return
        self.job.settle(told.outcome() if isinstance(told, TracerReport) else told)
        Request.on_success(self, traced)  # never a subclass's: Celery does not call that either

    def _read(self, raw: bytes) -> TracerReport | Outcome:
        attempt = self.job.attempt
        if isinstance(attempt.task, AdoptedTask):
            return read_report(raw)
        report = msgspec.msgpack.decode(raw, type=ChildReport)
        if isinstance(attempt.stop, HandBack) and not report.handback:  # it came to an end of its own all the same
            attempt.stop = None
        return outcome_of(attempt, report)

    def _reject_it(self, report: TracerReport, traced: Any) -> None:
        """The body has rejected it: Celery's worker, not the tracer, says what follows from that."""
        try:
            with collecting(self._collector()) as collector:
                Request.on_success(self, traced)
        finally:
            if report.requeue:
                report.again = self._delivered_again()
            report.follow_ups, report.part = self._following(collector), collector.part
            self.job.settle(report.outcome())

    def _delivered_again(self) -> Submission:
        """The same message, as one that was rejected and comes once more."""
        record = self.job.attempt.claimed.record
        message = message_of(self.job)
        message.redelivered = True
        task = adoption_of(self.app).submission(message, record.queue, None)
        spec = record.spec
        return replace(task, id=record.id, priority=spec.priority, eta_ms=0, max_resurrections=spec.max_resurrections)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        if return_ok:  # the tracer has done what there is to do; this only tells it
            super().on_failure(exc_info, send_failed_event, return_ok)
            return
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if isinstance(error, Terminated):
            super().on_failure(exc_info, send_failed_event, return_ok)
        elif isinstance(error, WorkerLostError | SystemExit | KeyboardInterrupt):
            task_ready(self)
            if not isinstance(error, WorkerLostError):
                self.job.said = how_it_was_lost(error)
            self.job.died(how_it_was_lost(error))
        else:
            if isinstance(error, TimeLimitExceeded):
                error = self._too_long(error.args[0])
            self._fail(error, lambda: super(LedgerRequest, self).on_failure(exc_info, send_failed_event, return_ok))

    def on_timeout(self, soft: bool, timeout: float) -> None:
        if soft:
            super().on_timeout(soft, timeout)
        else:
            self._fail(self._too_long(timeout), lambda: super(LedgerRequest, self).on_timeout(soft, timeout))

    def tell_lost(self) -> None:
        """Its process died under it, and it is run again: as Celery tells of `reject_on_worker_lost`."""
        self.send_event("task-rejected", requeue=True)

    def lost_for_good(self, cause: str, reason: str = TOO_MANY_DEATHS) -> Failed:
        """Its process died under it once too often: Celery is told of a failure, and what it sends on that is kept."""
        error = WorkerLostError(f"{cause}, once too often")
        with collecting(self._collector()) as collector:
            self.tell_failed(error)
        dead = MaxResurrectionsExceededError(self.job.record_id, reason, str(error))
        return Failed(dead, True, None, self._following(collector), collector.part)

    def tell_failed(self, error: WorkerLostError) -> None:
        """As Celery tells of a lost process: backend, chord and error callbacks, signal, event. Not by `on_failure`, as
        that may find that the task is to be tried again (`reject_on_worker_lost`), or had a result before its process
        died, and then tells nobody."""
        try:
            raise error
        except WorkerLostError:
            info = ExceptionInfo()
        task_ready(self)
        self.task.backend.mark_as_failure(self.id, error, request=self._context, store_result=self.store_errors)
        told = {"task_id": self.id, "exception": error, "args": self.args, "kwargs": self.kwargs}
        self.task.request_stack.push(self._context)
        try:
            signals.task_failure.send(sender=self.task, traceback=info.traceback, einfo=info, **told)
        finally:
            self.task.request_stack.pop()
        self.send_event("task-failed", exception=repr(error), traceback=info.traceback)
        log.error("Task %s[%s] is lost: %r", self.name, self.id, error)

    def _collector(self) -> Collector:
        record = self.job.attempt.claimed.record
        return Collector(record.id, record.queue, settling=True)

    def _following(self, collector: Collector) -> tuple[Submission, ...]:
        return spread(adoption_of(self.app), collector)

    def _too_long(self, timeout: float) -> BaseException:
        limit = self.job.attempt.task.options.hard_timeout
        if limit is None:
            return TimeLimitExceeded(timeout)
        return HardTimeoutError(f"it ran longer than its hard timeout of {limit:g} s, did not stop, and was killed")

    def _fail(self, error: BaseException, tell: Callable[[], None]) -> None:
        """It failed without a word from the tracer. What Celery sends on that, error callbacks, is part of its end.

        The pool tells of a hard time limit twice, and Celery's events and handlers need both; its error callbacks do
        not."""
        if self._failed:
            self._context.errbacks = None
        self._failed = True
        collector = self._collector()
        try:
            with collecting(collector):
                tell()
        finally:
            self.job.settle(Failed(error, True, None, self._following(collector), collector.part))

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        """A chord it is a part of hears of it; and for that it must end as dead: what is cancelled leaves nothing."""
        with collecting(self._collector()) as collector:
            super()._announce_revoked(reason, terminated, signum, expired)
        if collector.follow_ups:
            revoked = TaskRevokedError(reason)
            self.job.settle(Failed(revoked, True, None, self._following(collector), collector.part))
        else:
            self.job.settle(Revoked())

    def cancel_unstarted(self) -> None:
        """A person asked for it to end, by `rl cancel`, before the pool began with it."""
        if not self._already_revoked:
            self._announce_revoked("revoked", False, None, False)

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """Do nothing. Losing the broker does not cancel tasks: the ledger holds them."""


@cache
def request_class(celerys: type[Request]) -> Any:
    """Ours, on top of the class that a task has for its requests: what that does on a failure, say, is done."""
    if celerys is Request:
        return LedgerRequest
    return type(celerys.__name__, (LedgerRequest, celerys), {})


def how_it_was_lost(error: BaseException) -> str:
    """Billiard's word on a process that ended, or what the task ended it with, in ours."""
    if isinstance(error, SystemExit):  # as Python means it: none is 0, words are 1
        given = 0 if error.code is None else error.code
        return how_it_ended(given & 0xFF if isinstance(given, int) else 1)
    code = re.search(r"exitcode (-?\d+)", str(error))
    return how_it_ended(int(code[1])) if code else str(error) or type(error).__name__


class Revoked(HandBack):
    """A person, or its expiry, ended it: it is cancelled, and then handed back."""
