"""What travels as a task's payload: the encoded arguments, and what the worker must know before it reads them.

    {"v":1,"schema":2,"at":1794720833000,"trace":"00-…","sum":"sha256:…","body":[["cus_1",5000],{}]}

`v` is the version of this layout, `schema` that of the task's arguments, `at` when it was pushed, `trace` the caller's
trace, left out when empty. Any JSON parser reads it. The checksum is over the bytes of `body` as they stand here.

Where the namespace has keys (keyring.py), it is signed, and its body is encrypted:

    …,"sum":"sha256:…","sig":"hmac-sha256:<key id>:<hex>","body":"aes-gcm:<key id>:<base64 of nonce, ciphertext, tag>"}

The signature is over the task's id and name, `schema`, `at`, `trace` and the body as it stands here. It is made and
checked where `push` and the worker know the id and the name; a reader without keys checks the sum alone.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from hashlib import sha256

import msgspec

from relier.codec import encode
from relier.errors import PayloadIntegrityError
from relier.keyring import NO_KEYS, Keyring

VERSION = 1
ENCRYPTED = b'"aes-gcm:'  # no call, which is a list, begins so


class Envelope(msgspec.Struct, frozen=True):
    """An opened envelope. `body` is the call, decrypted."""

    schema_version: int
    pushed_ms: int
    trace: str
    body: bytes


class _Wire(msgspec.Struct, frozen=True):
    v: int
    schema: int
    at: int
    sum: str
    body: msgspec.Raw
    trace: str = ""
    sig: str = ""


class _Version(msgspec.Struct, frozen=True):
    v: int


_WIRE = msgspec.json.Decoder(_Wire)
_VERSION = msgspec.json.Decoder(_Version)
# A text that is not Unicode is a ValueError, not one of msgspec's own.
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
) -> bytes:
    """The envelope around `body`, which must be a call as JSON. Joined by hand: the body's bytes are those summed.

    With keys it holds for the task of that id and name alone.
    """
    carried = f'"trace":{encode(trace, "the trace").decode()},' if trace else ""
    signed = ""
    if keyring.encrypts:
        body = _encrypted(body, task_id, keyring)
    if keyring.signs:
        signed = f'"sig":"{keyring.sign(_signed(task_id, name, schema_version, pushed_ms, trace, body))}",'
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
    """The envelope of the same task with another body: what a person replays a dead letter with.

    It keeps what the old one says. An old one that cannot be trusted or read is a PayloadIntegrityError, unless the
    schema version of the new body is given: then nothing of the old one is signed anew.
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
    )


def open_envelope(raw: bytes, *, task_id: str = "", name: str = "", keyring: Keyring = NO_KEYS) -> Envelope:
    """The envelope, or PayloadIntegrityError for any other bytes, and with signing keys for any other task's.

    The checksum finds a changed body. It does not cover `schema`, `at` and `trace`, and it is no signature: who can
    write to the store can write a fitting sum. A signature covers all of them, but not how often, and in which queue,
    the same envelope is put before the same task's id.
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
            f"the payload's checksum does not fit: expected {wire.sum!r:.80}, found {found!r}; the body changed after "
            f"the push; {_KEPT}"
        )
    if keyring.signs:
        trouble = keyring.distrust(_signed(task_id, name, wire.schema, wire.at, wire.trace, body), wire.sig)
        if trouble:
            raise PayloadIntegrityError(f"the payload {trouble}; {_KEPT}")
    if body.startswith(ENCRYPTED):
        body = _decrypted(body, task_id, keyring)
    return Envelope(wire.schema, wire.at, wire.trace, body)


def _signed(task_id: str, name: str, schema: int, at: int, trace: str, body: bytes) -> bytes:
    """What a signature is over. Texts stand behind their lengths: no two envelopes have the same."""
    head = f"relier envelope {VERSION}\n{len(task_id)}:{task_id}{len(name)}:{name}{schema}:{at}:{len(trace)}:{trace}"
    return head.encode("utf-8", "surrogatepass") + body


def _encrypted(body: bytes, task_id: str, keyring: Keyring) -> bytes:
    key_id, sealed = keyring.encrypt(body, task_id, "payload")
    return b'%b%b:%b"' % (ENCRYPTED, key_id.encode(), b2a_base64(sealed, newline=False))


def _decrypted(body: bytes, task_id: str, keyring: Keyring) -> bytes:
    key_id, _, text = body[len(ENCRYPTED) : -1].partition(b":")
    try:
        sealed = a2b_base64(text, strict_mode=True)
    except ValueError:  # nothing that decrypts, then
        sealed = b""
    return keyring.decrypt(key_id.decode("utf-8", "replace"), sealed, task_id, "payload", "the payload")


_KEPT = "it was not run and its bytes are kept: look at them, then push the task anew"


def _unreadable(raw: bytes, error: Exception) -> str:
    """A layout of another version need not fit this one's fields; then that is what to say."""
    try:
        version = _VERSION.decode(raw).v
    except _UNREADABLE:
        version = VERSION
    return f"is not an envelope: {error}" if version == VERSION else _unknown(version)


def _unknown(version: int) -> str:
    return f"is an envelope of version {version}, and this code reads version {VERSION}; run a newer worker"
