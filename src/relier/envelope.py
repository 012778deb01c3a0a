"""What travels as a task's payload: the encoded arguments, and what the worker must know before it reads them.

    {"v":1,"schema":2,"at":1794720833000,"trace":"00-…","sum":"sha256:…","body":[["cus_1",5000],{}]}

`v` is the version of this layout, `schema` that of the task's arguments, `at` when it was pushed, `trace` the caller's
trace, left out when empty. Any JSON parser reads it. The checksum is over the bytes of `body` as they stand here.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from relier.codec import encode
from relier.errors import PayloadIntegrityError

VERSION = 1


class Envelope(msgspec.Struct, frozen=True):
    """An opened envelope. `body` is what the checksum was made over."""

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


class _Version(msgspec.Struct, frozen=True):
    v: int


_WIRE = msgspec.json.Decoder(_Wire)
_VERSION = msgspec.json.Decoder(_Version)
# A text that is not Unicode is a ValueError, not one of msgspec's own.
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


def seal(body: bytes, *, schema_version: int, pushed_ms: int, trace: str = "") -> bytes:
    """The envelope around `body`, which must be JSON. Joined by hand: the body's bytes are the ones that are summed."""
    carried = f'"trace":{encode(trace, "the trace").decode()},' if trace else ""
    head = f'{{"v":{VERSION},"schema":{schema_version},"at":{pushed_ms},{carried}'
    return f'{head}"sum":"sha256:{sha256(body).hexdigest()}","body":'.encode() + body + b"}"


def open_envelope(raw: bytes) -> Envelope:
    """The envelope, or PayloadIntegrityError for any other bytes.

    The checksum finds a changed body. It does not cover `schema`, `at` and `trace`, and it is no signature: who can
    write to the store can write a fitting sum.
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
    return Envelope(wire.schema, wire.at, wire.trace, body)


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
