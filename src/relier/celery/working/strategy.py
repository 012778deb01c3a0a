"""How a worker handles the messages of an adopted task. Those from the ledger run. Those from the broker, sent by
producers that do not have Relier yet, become records first, and are acknowledged when they are. But one that is for
every worker stays Celery's, as one id is one task, and would run once; and so do those of a task with a Strategy of its
own.
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

from relier.celery.adoption import CELERYS, Adoption, adoption_of, has_own_strategy
from relier.celery.compat import wait_for_rate_limit
from relier.celery.internal import is_internal
from relier.celery.messages import LedgerMessage
from relier.celery.sending.control import message_in
from relier.celery.sending.publish import is_fanout
from relier.celery.working.jobs import Job
from relier.celery.working.request import JobMessage, LedgerRequest, request_class
from relier.celery.working.unreadable import PASSES, UNREADABLE
from relier.errors import RelierError
from relier.ledger.records import Task

log = logging.getLogger("relier.celery")
received = logging.getLogger("celery.worker.strategy")


def strategy(task: Any, app: Any, consumer: Any, **_: Any) -> Callable[..., Any]:
    """How one task's messages are handled: for `task.Strategy`."""
    keeps = has_own_strategy(task)
    celerys = instantiate(getattr(task, "celerys_strategy", CELERYS), task, app, consumer)

    def handle(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:
        if isinstance(message, JobMessage):
            req = request_of(message, task, app, consumer)
            req.job, message.job.request = message.job, req
            take_up(message.job, req, consumer, callbacks or ())
        elif keeps or is_fanout(app, (message.delivery_info or {}).get("exchange") or ""):
            celerys(message, body, ack, reject, callbacks)
        else:
            take_in(message, body, ack, reject)

    def take_in(message: Any, body: Any, ack: Any, reject: Any) -> None:
        """A message of a producer without Relier: accepted once it is a record."""
        try:
            adoption_of(app).take_in(message, body)
        except PASSES as error:
            log.warning("a message of %s could not be taken in, and goes back to the broker: %s", task.name, error)
            reject(log, consumer.connection_errors, True)
            return
        except (RelierError, *UNREADABLE) as error:  # it never will: unreadable.py keeps it
            raise InvalidTaskError(f"{type(error).__name__}: {error}") from error
        ack(log, consumer.connection_errors)

    return handle


def request_of(message: LedgerMessage, task: Any, app: Any, consumer: Any) -> LedgerRequest:
    """Celery's request of a message out of the ledger."""
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


def tell_dead(adoption: Adoption, consumer: Any, dead: Task) -> None:
    """Celery hears of a task that a sweep has buried. In its main thread."""
    message, app = message_in(dead, adoption.client.keyring), adoption.app
    if not message.content_type:  # nobody can read it
        return
    accept = prepare_accept_content(app.conf.accept_content)
    received = LedgerMessage(message, accept, redelivered=True)
    req = request_of(received, app.tasks[message.task], app, consumer)
    req.tell_failed(WorkerLostError("its worker died under it, once too often"))


def take_up(job: Job, req: LedgerRequest, consumer: Any, callbacks: Iterable[Callable[[Any], Any]]) -> None:
    """As Celery's own strategy does: tell of it, look whether it was revoked, mind its rate limit, give it to the pool.
    Tasks of ours behind the scenes are only given to it."""
    name = req.task.name
    if job.lost:
        job.settle(req.lost_for_good("its worker died under it", job.lost))
        return
    if job.cancelled:
        req.cancel_unstarted()
        return
    if not is_internal(name):
        announce(req)
        if (req.expires or req.id in consumer.controller.state.revoked) and req.revoked():
            return
        tell_received(req, consumer)
        bucket = None if consumer.disable_rate_limits else consumer.task_buckets[name]
        if bucket:
            job.limited = True
            wait_for_rate_limit(consumer, req, bucket)
            return
    task_reserved(req)
    for callback in callbacks:
        callback(req)
    consumer.on_task_request(req)


def tell_received(req: LedgerRequest, consumer: Any) -> None:
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


def announce(req: Any) -> None:
    if received.isEnabledFor(logging.INFO):
        context = {"id": req.id, "name": req.name, "args": req.argsrepr, "kwargs": req.kwargsrepr, "eta": req.eta}
        received.info(celery_trace.LOG_RECEIVED, context, extra={"data": context})
