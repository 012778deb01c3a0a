"""Store a Celery message in the ledger: one record whose payload is the message, byte for byte.

The payload holds what plain Celery would send: headers, properties, and the serialized and perhaps compressed body. In
our envelope, the message is the only argument of a call. So signing, encryption, `rl` and dead letters treat it like
any other payload, and the worker gives Celery the message it would have received.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from celery.worker.strategy import proto1_to_proto2
from kombu.message import Message as KombuMessage
from kombu.serialization import dumps

from relier.codec import ENCODER, encode, pack
from relier.codec.keyring import Keyring
from relier.envelope import seal
from relier.ledger.checks import PRIORITIES
from relier.ledger.defaults import DEAD_TTL_MS, RESULT_TTL_MS
from relier.ledger.records import Submission
from relier.settings import Settings
from relier.store.call import Durability
from relier.submit.push import kept_ms
from relier.trace import current_trace


class Message(msgspec.Struct):
    """Hold one task message of protocol 2. `body` is bytes if the serializer or a compression produces bytes."""

    headers: dict[str, Any]
    properties: dict[str, Any]
    content_type: str
    content_encoding: str
    body: str | bytes
    exchange: str = ""
    routing_key: str = ""
    redelivered: bool = False

    @property
    def task(self) -> str:
        return str(self.headers["task"])

    @property
    def record_id(self) -> str:
        """Return the id of the task's record: Celery's id or, after `Task.replace`, that id with a suffix.

        The suffix is needed because the record under Celery's own id has ended by then.
        """
        nesting = self.headers.get("replaced_task_nesting") or 0
        return f"{self.headers['id']}.{nesting}" if nesting else str(self.headers["id"])

    @property
    def eta_ms(self) -> int:
        return epoch_ms(self.headers.get("eta"))

    @property
    def expires_ms(self) -> int:
        return epoch_ms(self.headers.get("expires"))

    @property
    def due_in_ms(self) -> int:
        """Return the milliseconds until the eta."""
        return max(0, self.eta_ms - time.time_ns() // 1_000_000) if self.eta_ms else 0


class LedgerMessage(KombuMessage):
    """Present a message from the ledger as kombu would have received it."""

    def __init__(self, message: Message, accept: Any, *, redelivered: bool) -> None:
        super().__init__(
            body=message.body,
            content_type=message.content_type,
            content_encoding=message.content_encoding,
            headers=dict(message.headers),
            properties=dict(message.properties),
            delivery_info={
                "exchange": message.exchange,
                "routing_key": message.routing_key,
                "redelivered": message.redelivered or redelivered,
            },
            accept=accept,
        )


def epoch_ms(header: Any) -> int:
    """Return an ISO 8601 time of a header in milliseconds, or 0 if there is none.

    A time without a zone is UTC, as in Celery.
    """
    if not header:
        return 0
    moment = datetime.fromisoformat(header) if isinstance(header, str) else header
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(1, (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))


def internal_message(
    task: str, task_id: str, args: Sequence[Any], root_id: str | None, parent_id: str | None, serializer: str = "json"
) -> Message:
    """Return the message of an internal task, which Celery did not send."""
    headers = {"lang": "py", "task": task, "id": task_id, "root_id": root_id, "parent_id": parent_id, "retries": 0}
    content_type, encoding, body = dumps((args, {}, {}), serializer=serializer)
    return Message(headers, {"correlation_id": task_id}, content_type, encoding, body)


def message_from_broker(message: Any, payload: Any, serializer: str) -> Message:
    """Return a message that kombu received, and so decompressed. A message of the old protocol 1 is rewritten."""
    headers = {name: value for name, value in (message.headers or {}).items() if name != "compression"}
    body, content_type, encoding = message.body, message.content_type, message.content_encoding
    if "task" not in headers:
        call, headers, _, _ = proto1_to_proto2(message, payload)
        headers = {name: value for name, value in headers.items() if name not in ("args", "kwargs", "headers")}
        content_type, encoding, body = dumps(call, serializer=serializer)
    delivery = message.delivery_info or {}
    return Message(
        headers,
        dict(message.properties or {}),
        content_type,
        encoding,
        body if isinstance(body, str) else text_or_bytes(bytes(body), encoding),
        delivery.get("exchange") or "",
        delivery.get("routing_key") or "",
    )


def is_failure_awaited(body: Any) -> bool:
    """Return whether something waits for a failure: a chord, the chord after its chain, or error callbacks.

    `body` is the decoded body of a message of either protocol.
    """
    embed = body if isinstance(body, dict) else body[2] if isinstance(body, list | tuple) and len(body) == 3 else None
    if not isinstance(embed, Mapping):
        return False
    steps = embed.get("chain") or ()
    return bool(embed.get("chord") or embed.get("errbacks") or any(_is_in_chord(step) for step in steps))


def _is_in_chord(step: Any) -> bool:
    return isinstance(step, Mapping) and bool((step.get("options") or {}).get("chord"))


def text_or_bytes(body: bytes, encoding: str) -> str | bytes:
    """Return the body as text if it can be decoded, else as bytes."""
    try:
        return body.decode(encoding) if encoding != "binary" else body
    except (LookupError, UnicodeDecodeError):
        return body


def read_message(given: Mapping[str, Any]) -> Message:
    """Return the message in a decoded payload."""
    return Message(**given)


def write_call(message: Message) -> bytes:
    """Encode the message as the only argument of a call."""
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    try:
        return ENCODER.encode(([pack(fields)], {}))
    except (ValueError, RecursionError):
        return b"[[" + encode(fields, "the message") + b"],{}]"  # the error names the value that cannot be encoded


def submission_of(
    message: Message,
    queue: str,
    priority: int,
    level: Durability,
    settings: Settings,
    keyring: Keyring,
    max_resurrections: int | None = None,
) -> Submission:
    """Return the submission of a message.

    The ledger does not get the expiry: a worker has to see an expired task, for Celery's events, signals and states.
    """
    task_id = message.record_id
    payload = seal(
        write_call(message),
        schema_version=1,
        pushed_ms=time.time_ns() // 1_000_000,
        trace=current_trace(),
        task_id=task_id,
        name=message.task,
        keyring=keyring,
    )
    return Submission(
        id=task_id,
        name=message.task,
        payload=payload,
        queue=queue,
        priority=min(max(priority, PRIORITIES[0]), PRIORITIES[-1]),
        eta_ms=message.eta_ms,
        max_resurrections=max_resurrections,
        result_ttl_ms=kept_ms(None, settings.result_ttl, RESULT_TTL_MS),
        dead_ttl_ms=kept_ms(None, settings.dead_ttl, DEAD_TTL_MS),
        durability=level,
    )
