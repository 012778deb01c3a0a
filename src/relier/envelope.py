"""The payload of a task: its encoded arguments, with what the worker must know before it decodes them.

    {"v":1,"schema":2,"at":1794720833000,"trace":"00-…","sum":"sha256:…","body":[["cus_1",5000],{}]}

`v` is the version of this format, `schema` the version of the task's arguments, `at` the time of the push and `trace`
the caller's trace, omitted if empty. A task of a workflow also has `flow`, after `at`: `<batch> <input>`, its batch and
where it finds its first argument (workflows/inputs.py), each `-` if there is none. The checksum covers the bytes of
`body` exactly as they appear here.

If the namespace has keys (keyring.py), the envelope is signed and its body encrypted:

    …,"sum":"sha256:…","sig":"hmac-sha256:<key id>:<hex>","body":"aes-gcm:<key id>:<base64 of nonce, ciphertext, tag>"}

The signature covers the task's id and name, `schema`, `at`, `trace`, `flow` and the body as it appears here. A reader
without keys verifies only the checksum.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from hashlib import sha256

import msgspec

from relier.codec import encode
from relier.codec.keyring import NO_KEYS, Keyring
from relier.errors import PayloadIntegrityError

VERSION = 1
ENCRYPTED = b'"aes-gcm:'  # a call is a list, so it never begins like this


class Envelope(msgspec.Struct, frozen=True):
    """An opened envelope. `body` is the call, decrypted."""

    schema_version: int
    pushed_ms: int
    trace: str
    body: bytes
    flow: str = ""


class _Wire(msgspec.Struct, frozen=True):
    v: int
    schema: int
    at: int
    sum: str
    body: msgspec.Raw
    trace: str = ""
    sig: str = ""
    flow: str = ""


class _Version(msgspec.Struct, frozen=True):
    v: int


_WIRE = msgspec.json.Decoder(_Wire)
_VERSION = msgspec.json.Decoder(_Version)
# For text that is not valid Unicode msgspec raises a plain ValueError.
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


def seal(
    body: bytes,
    *,
    schema_version: int,
    pushed_ms: int,
    trace: str = "",
    task_id: str = "",
    name: str = "",
    keyring: Keyring = NO_KEYS,
    flow: str = "",
) -> bytes:
    """Return an envelope around `body`, a call as JSON.

    The JSON is put together by hand, so that the checksum covers exactly the bytes of the body. With keys, the envelope
    is valid only for the task with this id and name.
    """
    carried = f'"flow":{encode(flow, "the batch").decode()},' if flow else ""
    carried += f'"trace":{encode(trace, "the trace").decode()},' if trace else ""
    signed = ""
    if keyring.encrypts:
        body = _encrypted(body, task_id, keyring)
    if keyring.signs:
        signed = f'"sig":"{keyring.sign(_signed(task_id, name, schema_version, pushed_ms, trace, body, flow))}",'
    head = f'{{"v":{VERSION},"schema":{schema_version},"at":{pushed_ms},{carried}'
    return f'{head}"sum":"sha256:{sha256(body).hexdigest()}",{signed}"body":'.encode() + body + b"}"


def reseal(
    raw: bytes,
    body: bytes,
    task_id: str,
    name: str,
    keyring: Keyring,
    *,
    schema_version: int | None = None,
    pushed_ms: int = 0,
) -> bytes:
    """Return an envelope for the same task with a new body, to replay a dead letter.

    The new envelope keeps the other fields of the old one. If the old envelope cannot be trusted or read, raise
    PayloadIntegrityError, unless the schema version of the new body is given. In that case, nothing of the old envelope
    is signed again.
    """
    try:
        old = open_envelope(raw, task_id=task_id, name=name, keyring=keyring)
    except PayloadIntegrityError:
        if schema_version is None:
            raise
        old = Envelope(schema_version, pushed_ms, "", b"")
    return seal(
        body,
        schema_version=old.schema_version if schema_version is None else schema_version,
        pushed_ms=old.pushed_ms,
        trace=old.trace,
        task_id=task_id,
        name=name,
        keyring=keyring,
        flow=old.flow,
    )


def open_envelope(raw: bytes, *, task_id: str = "", name: str = "", keyring: Keyring = NO_KEYS) -> Envelope:
    """Open an envelope. Raise PayloadIntegrityError if it is damaged or, with keys, if it belongs to another task.

    The checksum detects a changed body. It does not cover `schema`, `at` and `trace`, and it is not a signature: anyone
    who can write to the store can compute it. A signature covers all of these, but not how often or in which queue the
    same envelope is used under the same task id.
    """
    try:
        wire = _WIRE.decode(raw)
    except _UNREADABLE as error:
        raise PayloadIntegrityError(f"the payload {_unreadable(raw, error)}; {_KEPT}") from error
    if wire.v != VERSION:
        raise PayloadIntegrityError(f"the payload {_unknown(wire.v)}; {_KEPT}")
    body = bytes(wire.body)
    found = f"sha256:{sha256(body).hexdigest()}"
    if found != wire.sum:
        raise PayloadIntegrityError(
            f"the payload's checksum is wrong: expected {wire.sum!r:.80}, found {found!r}; the body changed after "
            f"the push; {_KEPT}"
        )
    if keyring.signs:
        trouble = keyring.distrust(_signed(task_id, name, wire.schema, wire.at, wire.trace, body, wire.flow), wire.sig)
        if trouble:
            raise PayloadIntegrityError(f"the payload {trouble}; {_KEPT}")
    if body.startswith(ENCRYPTED):
        body = _decrypted(body, task_id, keyring)
    return Envelope(wire.schema, wire.at, wire.trace, body, wire.flow)


def flow_of(raw: bytes) -> str:
    """Return the `flow` of an envelope that may not be trusted yet, or nothing. This is cheap if there is none."""
    if raw.find(b'"flow":', 0, 80) < 0:
        return ""
    try:
        return _WIRE.decode(raw).flow
    except _UNREADABLE:
        return ""


def _signed(task_id: str, name: str, schema: int, at: int, trace: str, body: bytes, flow: str = "") -> bytes:
    """Return the bytes to sign. Each text is preceded by its length, so different envelopes never give the same
    bytes."""
    head = f"relier envelope {VERSION}\n{len(task_id)}:{task_id}{len(name)}:{name}{schema}:{at}:{len(trace)}:{trace}"
    head += f"{len(flow)}:{flow}" if flow else ""
    return head.encode("utf-8", "surrogatepass") + body


def _encrypted(body: bytes, task_id: str, keyring: Keyring) -> bytes:
    key_id, sealed = keyring.encrypt(body, task_id, "payload")
    return b'%b%b:%b"' % (ENCRYPTED, key_id.encode(), b2a_base64(sealed, newline=False))


def _decrypted(body: bytes, task_id: str, keyring: Keyring) -> bytes:
    key_id, _, text = body[len(ENCRYPTED) : -1].partition(b":")
    try:
        sealed = a2b_base64(text, strict_mode=True)
    except ValueError:  # decryption fails below
        sealed = b""
    return keyring.decrypt(key_id.decode("utf-8", "replace"), sealed, task_id, "payload", "the payload")


_KEPT = "the task was not run, and its bytes are kept; inspect them, then push it again"


def _unreadable(raw: bytes, error: Exception) -> str:
    """Return why the bytes cannot be read. The reason may be a newer format with other fields."""
    try:
        version = _VERSION.decode(raw).v
    except _UNREADABLE:
        version = VERSION
    return f"is not an envelope: {error}" if version == VERSION else _unknown(version)


def _unknown(version: int) -> str:
    return f"is an envelope of version {version}, but this code reads version {VERSION}; run a newer worker"
