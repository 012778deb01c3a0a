"""Bury messages that can never be accepted: not JSON, no id, no task, or larger than the ledger allows.

Celery drops some of them with a log line, exits on others, and reconnects forever on the rest. With Relier, each
becomes a dead letter named `relier.garbage`, with its bytes and the reason, and the worker continues.

A message that is too large even for a dead letter moves to a queue of the same name on the broker, which nobody
consumes. Its dead letter holds the beginning of the message, its size and its digest.

A message whose task is merely unknown to this worker is not buried. It becomes a record and waits for a worker that
knows the task.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from celery.exceptions import InvalidTaskError
from kombu import Exchange, Queue
from kombu.exceptions import OperationalError

from relier.codec import decode, encode
from relier.envelope import open_envelope, seal
from relier.errors import AdmissionRejectedError, IndeterminateError, RelierError, StoreError
from relier.failure import Failure, failure_of, write_failure
from relier.ledger.records import Claimed, Submission

if TYPE_CHECKING:
    from relier.celery.adoption import Adoption

log = logging.getLogger("relier.celery")

GARBAGE_NAME = GARBAGE_QUEUE = "relier.garbage"
CLAIM_LANE = "garbage"
BURY_TIMEOUT_S = 10.0
_PROPERTIES = frozenset({"correlation_id", "reply_to", "priority", "delivery_mode"})
MAX_HEAD_BYTES = 65_536  # how much of a message that is too large its dead letter keeps
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
TEMPORARY_ERRORS = (StoreError, IndeterminateError, AdmissionRejectedError)  # the message is accepted later

Bury = Callable[[Any, str, BaseException], bool]


class UnreadableMessages:
    """Bury unreadable messages for one worker. `worker_id` returns the id under whose lease they are claimed."""

    def __init__(self, adoption: Adoption, loop: asyncio.AbstractEventLoop, worker_id: Callable[[], str]) -> None:
        self._client = adoption.client
        self._loop = loop
        self._worker_id = worker_id
        self._seq = time.time_ns() // 1000

    def __call__(self, raw: Any, queue: str, error: BaseException) -> bool:
        """Bury a message from a queue. Return False if its dead letter holds only the beginning.

        Celery's main thread waits for this call, so that the broker keeps the message until it is buried.
        """
        letter, is_whole = self._dead_letter(raw, queue, failure_of(error))
        asyncio.run_coroutine_threadsafe(self._submit_and_bury(letter, error), self._loop).result(BURY_TIMEOUT_S)
        log.error(
            "unreadable message is now a dead letter: id=%s queue=%s error=%s: %s%s",
            letter.id,
            queue,
            type(error).__name__,
            error,
            "" if is_whole else f"; it is too large, and the whole message is in the broker's queue {GARBAGE_QUEUE}",
        )
        return is_whole

    async def _submit_and_bury(self, letter: Submission, error: BaseException) -> None:
        """Submit the dead letter and bury it.

        This also buries letters that another worker has submitted but not yet buried: that worker may have died.
        Each keeps its own reason.
        """
        client = self._client
        await client.arun(client.ledger.submit([letter]))
        self._seq += 1
        call = client.ledger.claim(self._worker_id(), self._seq, [GARBAGE_QUEUE], 100, lane=CLAIM_LANE)
        claim = await client.arun(call)
        for claimed in claim.tasks:
            failure = failure_of(error) if claimed.record.id == letter.id else self._failure_in(claimed)
            await client.arun(client.ledger.bury(claimed.lease, failure.name or "Garbage", write_failure(failure)))

    def _failure_in(self, claimed: Claimed) -> Failure:
        """Return the failure that a dead letter describes."""
        try:
            keyring = self._client.keyring
            opened = open_envelope(claimed.payload, task_id=claimed.record.id, name=GARBAGE_NAME, keyring=keyring)
            (fields,), _ = decode(opened.body)
            return Failure(fields["error"], fields["why"])
        except (RelierError, *UNREADABLE):
            return Failure()

    def _dead_letter(self, raw: Any, queue: str, failure: Failure) -> tuple[Submission, bool]:
        """Return the dead letter, and whether it holds the whole message.

        Messages with equal bytes become the same letter, so a message that is delivered twice is buried once.
        """
        message = raw if isinstance(raw, bytes | str) else repr(raw)
        content = message if isinstance(message, bytes) else message.encode("utf-8", "surrogatepass")
        digest, most = hashlib.sha256(content).hexdigest(), self._client.settings.max_payload_bytes
        fields = {"queue": queue, "error": failure.kind, "why": failure.message[:1000], "message": message}
        letter = self._sealed_letter(f"garbage-{digest[:32]}", fields)
        if len(letter.payload) <= most:
            return letter, True
        cut = {
            "message": message[: min(MAX_HEAD_BYTES, most // 8)],
            "bytes": len(content),
            "sha256": digest,
            "cut": True,
        }
        return self._sealed_letter(letter.id, fields | cut), False

    def _sealed_letter(self, task_id: str, fields: dict[str, Any]) -> Submission:
        payload = seal(
            b"[[" + encode(fields, "the message") + b"],{}]",
            schema_version=1,
            pushed_ms=time.time_ns() // 1_000_000,
            task_id=task_id,
            name=GARBAGE_NAME,
            keyring=self._client.keyring,
        )
        return Submission(id=task_id, name=GARBAGE_NAME, queue=GARBAGE_QUEUE, payload=payload)


def guard_consumer(consumer: Any, adoption: Adoption, bury: Bury) -> None:
    """Bury the messages that Celery's consumer gives up on.

    A consumer is guarded once and stays guarded after a reconnect.
    """
    if getattr(consumer, "relier_bury", False):
        return
    consumer.relier_bury = True

    def burying(give_up: Callable[..., Any], position: int) -> Callable[..., Any]:
        def bury_first(*args: Any) -> Any:
            try:
                _bury_message(adoption.app, bury, args[position], _error_in(args))
            except (RelierError, OSError, OperationalError) as error:
                return _return_to_queue(consumer, args[position], error)
            return give_up(*args)

        return bury_first

    def on_unknown_task(body: Any, message: Any, error: BaseException) -> Any:
        name = (message.headers or {}).get("task") or (body or {}).get("task", "")
        if not adoption.covers(name):
            return give_up_unknown(body, message, error)
        try:
            adoption.accept_from_broker(message, body)
        except TEMPORARY_ERRORS as error:
            return _return_to_queue(consumer, message, error)
        except (RelierError, *UNREADABLE) as error:
            return consumer.on_invalid_task(body, message, error)
        return message.ack_log_error(log, consumer.connection_errors)

    give_up_unknown = consumer.on_unknown_task
    consumer.on_unknown_task = on_unknown_task
    consumer.on_decode_error = burying(consumer.on_decode_error, 0)
    consumer.on_unknown_message = burying(consumer.on_unknown_message, 1)
    consumer.on_invalid_task = burying(consumer.on_invalid_task, 1)


def _error_in(args: tuple[Any, ...]) -> BaseException:
    """Return the error in a message, from the arguments of the consumer's method."""
    error = next((each for each in args if isinstance(each, BaseException)), None)
    if isinstance(error, InvalidTaskError) and error.__cause__ is not None:  # raised by strategy.py
        return error.__cause__
    return error or ValueError("the message is not a task message")


def _return_to_queue(consumer: Any, message: Any, error: BaseException) -> Any:
    log.warning("message returned to the broker, not accepted now: error=%s", error)
    return message.reject_log_error(log, consumer.connection_errors, requeue=True)


def _bury_message(app: Any, bury: Bury, message: Any, error: BaseException) -> None:
    delivery = message.delivery_info or {}
    body = bytes(message.body) if isinstance(message.body, bytes | memoryview | bytearray) else message.body
    raw = {"headers": message.headers, "content_type": message.content_type, "body": body}
    if not bury(repr(raw), str(delivery.get("routing_key") or ""), error):
        _move_to_garbage_queue(app, message)


def _move_to_garbage_queue(app: Any, message: Any) -> None:
    """Publish the message to the garbage queue of the broker, unchanged except for a compression of its body."""
    headers = {name: value for name, value in (message.headers or {}).items() if name != "compression"}
    kept = {name: value for name, value in (message.properties or {}).items() if name in _PROPERTIES}
    with app.producer_pool.acquire(block=True) as producer:
        producer.publish(
            message.body,
            content_type=message.content_type,
            content_encoding=message.content_encoding,
            headers=headers,
            exchange="",
            routing_key=GARBAGE_QUEUE,
            declare=[Queue(GARBAGE_QUEUE, Exchange(""), GARBAGE_QUEUE, durable=True)],
            retry=True,
            retry_policy={"max_retries": 3},
            **kept,
        )


def guard_redis_channels(bury: Bury) -> None:
    """Replace kombu's Redis channels in this process with channels whose poll survives an unreadable message."""
    try:
        from kombu.transport import redis as transport
    except ImportError:
        return
    for kind in (transport.Transport, transport.SentinelTransport):
        if not getattr(kind.Channel, "relier_bury", False):
            kind.Channel = _guarded_channel(kind.Channel)
        kind.Channel.relier_bury = staticmethod(bury)


def _guarded_channel(base: type[Any]) -> type[Any]:
    class GuardedChannel(base):
        def _brpop_read(self, **options: Any) -> Any:
            """Remember the reply while kombu reads it: if kombu raises, the message is buried and not lost."""
            client = self.client
            seen: list[bytes] = []
            parse = client.parse_response

            def remember_reply(*args: Any, **kwargs: Any) -> Any:
                reply = parse(*args, **kwargs)
                seen[:] = reply or ()
                return reply

            client.parse_response = remember_reply
            try:
                return super()._brpop_read(**options)
            except UNREADABLE as error:
                if not seen:
                    raise
                self._bury_or_requeue(seen[0], seen[1], error)
                return True
            finally:
                client.__dict__.pop("parse_response", None)

        def _bury_or_requeue(self, queue: bytes, raw: bytes, error: BaseException) -> None:
            try:
                if not type(self).relier_bury(raw, queue.decode("utf-8", "replace"), error):
                    with self.conn_or_acquire() as client:
                        client.lpush(GARBAGE_QUEUE, raw)
            except (RelierError, TimeoutError):
                log.exception("unreadable message not buried, moved to the end of its queue: queue=%s", queue)
                with self.conn_or_acquire() as client:
                    client.lpush(queue, raw)

    return GuardedChannel
