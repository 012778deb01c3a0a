"""Messages nobody can take: no JSON, no id, no task, or more than the ledger may hold. Celery drops some of them with a
log line, exits on others, and reconnects for ever on the rest. Here each becomes a dead letter under the name
`relier.garbage`, with its bytes and the reason, and the worker goes on.

One that is too large even for that is put aside on the broker, whole, in a queue of the same name that nobody consumes;
its dead letter has its beginning, its size and its digest.

A message whose task is only unknown to this worker is no garbage: it becomes a record and waits for one that knows it.
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

NAME = QUEUE = "relier.garbage"
LANE = "garbage"
PARK_S = 10.0
_PROPERTIES = frozenset({"correlation_id", "reply_to", "priority", "delivery_mode"})
HEAD_BYTES = 65_536  # of a message that is too large
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
PASSES = (StoreError, IndeterminateError, AdmissionRejectedError)  # what is refused for these is accepted later

Park = Callable[[Any, str, BaseException], bool]


class Parking:
    """Buries garbage for one worker. `boot`: under whose lease."""

    def __init__(self, adoption: Adoption, loop: asyncio.AbstractEventLoop, boot: Callable[[], str]) -> None:
        self._client = adoption.client
        self._loop = loop
        self._boot = boot
        self._seq = time.time_ns() // 1000

    def __call__(self, raw: Any, queue: str, error: BaseException) -> bool:
        """Park what a queue brought. From Celery's main thread, which waits: only then may the message go. False: it
        was too large, and the letter has only its beginning."""
        letter, is_whole = self._letter(raw, queue, failure_of(error))
        asyncio.run_coroutine_threadsafe(self._park(letter, error), self._loop).result(PARK_S)
        log.error(
            "a message in %s cannot be taken (%s: %s); it is a dead letter now%s",
            queue,
            type(error).__name__,
            error,
            "" if is_whole else f", cut; the whole of it is in the broker's queue {QUEUE}",
        )
        return is_whole

    async def _park(self, letter: Submission, error: BaseException) -> None:
        """What a worker left behind that died between the two steps, or another has just submitted, is buried along,
        each for its own reason."""
        client = self._client
        await client.arun(client.ledger.submit([letter]))
        self._seq += 1
        claim = await client.arun(client.ledger.claim(self._boot(), self._seq, [QUEUE], 100, lane=LANE))
        for claimed in claim.tasks:
            failure = failure_of(error) if claimed.record.id == letter.id else self._failure_in(claimed)
            await client.arun(client.ledger.bury(claimed.lease, failure.name or "Garbage", write_failure(failure)))

    def _failure_in(self, claimed: Claimed) -> Failure:
        """Why a letter was written, by its own word."""
        try:
            opened = open_envelope(claimed.payload, task_id=claimed.record.id, name=NAME, keyring=self._client.keyring)
            (told,), _ = decode(opened.body)
            return Failure(told["error"], told["why"])
        except (RelierError, *UNREADABLE):
            return Failure()

    def _letter(self, raw: Any, queue: str, failure: Failure) -> tuple[Submission, bool]:
        """The letter, and whether it has the whole message. The same bytes are the same letter: one that is delivered
        again is parked once."""
        told = raw if isinstance(raw, bytes | str) else repr(raw)
        content = told if isinstance(told, bytes) else told.encode("utf-8", "surrogatepass")
        digest, most = hashlib.sha256(content).hexdigest(), self._client.settings.max_payload_bytes
        fields = {"queue": queue, "error": failure.kind, "why": failure.message[:1000], "message": told}
        letter = self._sealed(f"garbage-{digest[:32]}", fields)
        if len(letter.payload) <= most:
            return letter, True
        cut = {"message": told[: min(HEAD_BYTES, most // 8)], "bytes": len(content), "sha256": digest, "cut": True}
        return self._sealed(letter.id, fields | cut), False

    def _sealed(self, task_id: str, fields: dict[str, Any]) -> Submission:
        payload = seal(
            b"[[" + encode(fields, "the message") + b"],{}]",
            schema_version=1,
            pushed_ms=time.time_ns() // 1_000_000,
            task_id=task_id,
            name=NAME,
            keyring=self._client.keyring,
        )
        return Submission(id=task_id, name=NAME, queue=QUEUE, payload=payload)


def guard_consumer(consumer: Any, adoption: Adoption, park: Park) -> None:
    """Whatever Celery's consumer gives up on is kept. Once: it is the same one after a reconnect."""
    if getattr(consumer, "parks", False):
        return
    consumer.parks = True

    def keeping(give_up: Callable[..., Any], where: int) -> Callable[..., Any]:
        def keep(*args: Any) -> Any:
            try:
                _park_message(adoption.app, park, args[where], _why(args))
            except (RelierError, OSError, OperationalError) as trouble:
                return _send_back(consumer, args[where], trouble)
            return give_up(*args)

        return keep

    def unknown(body: Any, message: Any, error: BaseException) -> Any:
        name = (message.headers or {}).get("task") or (body or {}).get("task", "")
        if not adoption.covers(name):
            return give_up_unknown(body, message, error)
        try:
            adoption.take_in(message, body)
        except PASSES as error:
            return _send_back(consumer, message, error)
        except (RelierError, *UNREADABLE) as error:
            return consumer.on_invalid_task(body, message, error)
        return message.ack_log_error(log, consumer.connection_errors)

    give_up_unknown = consumer.on_unknown_task
    consumer.on_unknown_task = unknown
    consumer.on_decode_error = keeping(consumer.on_decode_error, 0)
    consumer.on_unknown_message = keeping(consumer.on_unknown_message, 1)
    consumer.on_invalid_task = keeping(consumer.on_invalid_task, 1)


def _why(told: tuple[Any, ...]) -> BaseException:
    """What is wrong with a message, by what Celery's consumer was told."""
    error = next((each for each in told if isinstance(each, BaseException)), None)
    if isinstance(error, InvalidTaskError) and error.__cause__ is not None:  # by our strategy
        return error.__cause__
    return error or ValueError("it is no task message")


def _send_back(consumer: Any, message: Any, trouble: BaseException) -> Any:
    log.warning("a message cannot be taken now, and goes back to the broker: %s", trouble)
    return message.reject_log_error(log, consumer.connection_errors, requeue=True)


def _park_message(app: Any, park: Park, message: Any, error: BaseException) -> None:
    told = message.delivery_info or {}
    body = bytes(message.body) if isinstance(message.body, bytes | memoryview | bytearray) else message.body
    raw = {"headers": message.headers, "content_type": message.content_type, "body": body}
    if not park(repr(raw), str(told.get("routing_key") or ""), error):
        _put_aside(app, message)


def _put_aside(app: Any, message: Any) -> None:
    """On the broker, as it came, but for a compression of its body."""
    headers = {name: value for name, value in (message.headers or {}).items() if name != "compression"}
    kept = {name: value for name, value in (message.properties or {}).items() if name in _PROPERTIES}
    with app.producer_pool.acquire(block=True) as producer:
        producer.publish(
            message.body,
            content_type=message.content_type,
            content_encoding=message.content_encoding,
            headers=headers,
            exchange="",
            routing_key=QUEUE,
            declare=[Queue(QUEUE, Exchange(""), QUEUE, durable=True)],
            retry=True,
            retry_policy={"max_retries": 3},
            **kept,
        )


def guard_redis_channels(park: Park) -> None:
    """kombu's Redis channels, of this process, whose poll survives what it cannot read."""
    try:
        from kombu.transport import redis as transport
    except ImportError:
        return
    for kind in (transport.Transport, transport.SentinelTransport):
        if not getattr(kind.Channel, "parks", False):
            kind.Channel = _parking_channel(kind.Channel)
        kind.Channel.parks = staticmethod(park)


def _parking_channel(base: type[Any]) -> type[Any]:
    class ParkingChannel(base):
        def _brpop_read(self, **options: Any) -> Any:
            """The reply is kept at hand while kombu reads it: what it raises at is not lost."""
            client = self.client
            seen: list[bytes] = []
            parse = client.parse_response

            def keep(*args: Any, **kwargs: Any) -> Any:
                reply = parse(*args, **kwargs)
                seen[:] = reply or ()
                return reply

            client.parse_response = keep
            try:
                return super()._brpop_read(**options)
            except UNREADABLE as error:
                if not seen:
                    raise
                self._keep(seen[0], seen[1], error)
                return True
            finally:
                client.__dict__.pop("parse_response", None)

        def _keep(self, queue: bytes, raw: bytes, error: BaseException) -> None:
            try:
                if not type(self).parks(raw, queue.decode("utf-8", "replace"), error):
                    with self.conn_or_acquire() as client:
                        client.lpush(QUEUE, raw)
            except (RelierError, TimeoutError):
                log.exception("a message in %s cannot be read, nor parked: it goes to the end of its queue", queue)
                with self.conn_or_acquire() as client:
                    client.lpush(queue, raw)

    return ParkingChannel
