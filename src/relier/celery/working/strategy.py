"""Handle the messages of an adopted task in a worker.

A message from the ledger runs. A message from the broker, sent by a producer without Relier, becomes a record and is
acknowledged after that. Two kinds of messages stay with Celery: messages that go to every worker, because in the ledger
one id would run only once, and messages of a task with its own Strategy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from billiard.exceptions import WorkerLostError
from celery import signals
from celery.app import trace as celery_trace
from celery.exceptions import InvalidTaskError
from celery.utils.imports import instantiate, symbol_by_name
from celery.worker.state import task_reserved
from kombu.serialization import prepare_accept_content

from relier.celery.adoption import CELERY_STRATEGY, Adoption, adoption_of, has_own_strategy
from relier.celery.compat import wait_for_rate_limit
from relier.celery.internal import is_internal
from relier.celery.messages import LedgerMessage
from relier.celery.sending.control import message_in
from relier.celery.sending.publish import is_fanout
from relier.celery.working.jobs import Job
from relier.celery.working.request import JobMessage, LedgerRequest, request_class
from relier.celery.working.unreadable import TEMPORARY_ERRORS, UNREADABLE
from relier.errors import RelierError
from relier.ledger.records import Task

log = logging.getLogger("relier.celery")
celery_log = logging.getLogger("celery.worker.strategy")


def strategy(task: Any, app: Any, consumer: Any, **_: Any) -> Callable[..., Any]:
    """Return the handler for the messages of one task. Celery calls this through `task.Strategy`."""
    keeps_own = has_own_strategy(task)
    celery_strategy = instantiate(getattr(task, "original_strategy", CELERY_STRATEGY), task, app, consumer)

    def handle(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:
        if isinstance(message, JobMessage):
            req = request_of(message, task, app, consumer)
            req.job, message.job.request = message.job, req
            start_job(message.job, req, consumer, callbacks or ())
        elif keeps_own or is_fanout(app, (message.delivery_info or {}).get("exchange") or ""):
            celery_strategy(message, body, ack, reject, callbacks)
        else:
            accept_from_broker(message, body, ack, reject)

    def accept_from_broker(message: Any, body: Any, ack: Any, reject: Any) -> None:
        """Accept a message of a producer without Relier: acknowledge it once it is a record."""
        try:
            adoption_of(app).accept_from_broker(message, body)
        except TEMPORARY_ERRORS as error:
            log.warning("message returned to the broker, not accepted now: task=%s error=%s", task.name, error)
            reject(log, consumer.connection_errors, True)
            return
        except (RelierError, *UNREADABLE) as error:  # never acceptable: unreadable.py buries it
            raise InvalidTaskError(f"{type(error).__name__}: {error}") from error
        ack(log, consumer.connection_errors)

    return handle


def request_of(message: LedgerMessage, task: Any, app: Any, consumer: Any) -> LedgerRequest:
    """Return Celery's request for a message from the ledger."""
    return request_class(symbol_by_name(task.Request))(
        message,
        app=app,
        hostname=consumer.hostname,
        eventer=consumer.event_dispatcher,
        task=task,
        connection_errors=consumer.connection_errors,
        body=message.body,
        headers=message.headers,
    )


def report_dead(adoption: Adoption, consumer: Any, dead: Task) -> None:
    """Report a task that a sweep has buried to Celery. Runs in Celery's main thread."""
    message, app = message_in(dead, adoption.client.keyring), adoption.app
    if not message.content_type:  # the message is unreadable
        return
    accept = prepare_accept_content(app.conf.accept_content)
    received = LedgerMessage(message, accept, redelivered=True)
    req = request_of(received, app.tasks[message.task], app, consumer)
    req.report_failed(WorkerLostError("its worker died, once too often"))


def start_job(job: Job, req: LedgerRequest, consumer: Any, callbacks: Iterable[Callable[[Any], Any]]) -> None:
    """Start a job as Celery's own strategy does.

    Report it as received, check revokes and the rate limit, and pass it to the pool. Relier's internal tasks are only
    passed to the pool.
    """
    name = req.task.name
    if job.exhausted:
        job.settle(req.fail_as_lost("its worker died", job.exhausted))
        return
    if job.cancelled:
        req.cancel_unstarted()
        return
    if not is_internal(name):
        log_received(req)
        if (req.expires or req.id in consumer.controller.state.revoked) and req.revoked():
            return
        report_received(req, consumer)
        bucket = None if consumer.disable_rate_limits else consumer.task_buckets[name]
        if bucket:
            job.rate_limited = True
            wait_for_rate_limit(consumer, req, bucket)
            return
    task_reserved(req)
    for callback in callbacks:
        callback(req)
    consumer.on_task_request(req)


def report_received(req: LedgerRequest, consumer: Any) -> None:
    """Send Celery's signal and event for a received task."""
    signals.task_received.send(sender=consumer, request=req)
    req.send_event(
        "task-received",
        name=req.name,
        args=req.argsrepr,
        kwargs=req.kwargsrepr,
        root_id=req.root_id,
        parent_id=req.parent_id,
        retries=req.request_dict.get("retries", 0),
        eta=req.eta and req.eta.isoformat(),
        expires=req.expires and req.expires.isoformat(),
    )


def log_received(req: Any) -> None:
    """Log a received task as Celery does."""
    if celery_log.isEnabledFor(logging.INFO):
        context = {"id": req.id, "name": req.name, "args": req.argsrepr, "kwargs": req.kwargsrepr, "eta": req.eta}
        celery_log.info(celery_trace.LOG_RECEIVED, context, extra={"data": context})
