"""Messages nobody can read: no JSON, no id, no task. Celery drops some of them with a log line, exits on others, and
reconnects for ever on the rest. Here each becomes a dead letter under the name `relier.garbage`, with its bytes and
the reason, and the worker goes on.

A message whose task is only unknown to this worker is no garbage: it becomes a record and waits for one that knows it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from relier.codec import encode
from relier.envelope import seal
from relier.errors import RelierError
from relier.failure import failure_of, write_failure
from relier.ledger.records import Submission

if TYPE_CHECKING:
    from relier.celery.adoption import Adoption

log = logging.getLogger("relier.celery")

NAME = QUEUE = "relier.garbage"
LANE = "garbage"
PARK_S = 10.0
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)

Park = Callable[[Any, str, BaseException], None]


class Parking:
    """Buries garbage for one worker. `boot`: under whose lease."""

    def __init__(self, adoption: Adoption, loop: asyncio.AbstractEventLoop, boot: Callable[[], str]) -> None:
        self._client = adoption.client
        self._loop = loop
        self._boot = boot
        self._seq = time.time_ns() // 1000

    def __call__(self, raw: Any, queue: str, error: BaseException) -> None:
        """Park what a queue brought. From Celery's main thread, which waits: only then may the message go."""
        asyncio.run_coroutine_threadsafe(self._park(raw, queue, error), self._loop).result(PARK_S)
        log.error(
            "a message in %s cannot be read (%s: %s); it is a dead letter now", queue, type(error).__name__, error
        )

    async def _park(self, raw: Any, queue: str, error: BaseException) -> None:
        client = self._client
        await client.arun(client.ledger.submit([self._letter(raw, queue)]))
        self._seq += 1
        claim = await client.arun(client.ledger.claim(self._boot(), self._seq, [QUEUE], 100, lane=LANE))
        for claimed in claim.tasks:
            detail = write_failure(failure_of(error))
            await client.arun(client.ledger.bury(claimed.lease, type(error).__name__, detail))

    def _letter(self, raw: Any, queue: str) -> Submission:
        """The same bytes are the same letter: one that is delivered again is parked once."""
        told = raw if isinstance(raw, bytes | str) else repr(raw)
        digest = hashlib.sha256(told if isinstance(told, bytes) else told.encode("utf-8", "surrogatepass")).hexdigest()
        task_id = f"garbage-{digest[:32]}"
        body = b"[[" + encode({"queue": queue, "message": told}, "the message") + b"],{}]"
        payload = seal(
            body,
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
            message = args[where]
            error = next((arg for arg in args if isinstance(arg, BaseException)), None)
            _park_message(park, message, error or ValueError("it is no task message"))
            return give_up(*args)

        return keep

    def unknown(body: Any, message: Any, error: BaseException) -> Any:
        name = (message.headers or {}).get("task") or (body or {}).get("task", "")
        if not adoption.covers(name):
            return give_up_unknown(body, message, error)
        try:
            adoption.take_in(message, body)
        except RelierError:
            log.exception("a message of the unknown task %s goes back to the broker", name)
            return message.reject_log_error(log, consumer.connection_errors, requeue=True)
        return message.ack_log_error(log, consumer.connection_errors)

    give_up_unknown = consumer.on_unknown_task
    consumer.on_unknown_task = unknown
    consumer.on_decode_error = keeping(consumer.on_decode_error, 0)
    consumer.on_unknown_message = keeping(consumer.on_unknown_message, 1)
    consumer.on_invalid_task = keeping(consumer.on_invalid_task, 1)


def _park_message(park: Park, message: Any, error: BaseException) -> None:
    told = message.delivery_info or {}
    body = bytes(message.body) if isinstance(message.body, bytes | memoryview | bytearray) else message.body
    raw = {"headers": message.headers, "content_type": message.content_type, "body": body}
    park(repr(raw), str(told.get("routing_key") or ""), error)


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
                type(self).parks(raw, queue.decode("utf-8", "replace"), error)
            except (RelierError, TimeoutError):
                log.exception("a message in %s cannot be read, nor parked: it goes to the end of its queue", queue)
                with self.conn_or_acquire() as client:
                    client.lpush(queue, raw)

    return ParkingChannel
