"""Failures as stored with dead letters: exceptions as JSON (class, message, traceback, arguments), exits in words.

Failures are meant for people and are never encrypted. The redaction hook decides what may be stored: it sees message,
traceback and arguments before they are truncated, so that no half of a secret remains at a cut.
"""

from __future__ import annotations

import contextlib
import os
import signal
import traceback as tracebacks
from typing import Any

import msgspec

from relier import codec
from relier.errors import PayloadEncodingError
from relier.redact import Show

OUR_CALLS = tuple(os.path.join(os.path.dirname(__file__), each, "") for each in ("run", "arguments"))
MOST_MESSAGE = 4_000
MOST_TRACEBACK = 24_000
MOST_BYTES = 60_000  # of the whole JSON: the ledger would truncate it anywhere beyond that
MOST_UNCUT = 256_000  # in memory, and in messages from an isolated process


class Failure(msgspec.Struct, frozen=True, rename={"kind": "type"}, omit_defaults=True):
    """`kind` is `module:Name` of the exception class; `args` are its arguments, if they can be encoded."""

    kind: str = ""
    message: str = ""
    traceback: str = ""
    args: str = ""

    @property
    def name(self) -> str:
        return self.kind.rpartition(":")[2].rpartition(".")[2]

    def rebuild(self) -> BaseException | None:
        """Return the exception, if its class is already imported and accepts these arguments. Nothing is imported."""
        found = self._class()
        if found is None:
            return None
        try:
            args = codec.decode(self.args.encode()) if self.args else (self.message,)
            return found(*args)
        except Exception:  # noqa: BLE001 - user code: if the constructor raises, the exception cannot be rebuilt
            return None

    def _class(self) -> type[Exception] | None:
        module, _, name = self.kind.partition(":")
        for home in codec.modules_named(module):
            found: Any = home
            for part in name.split("."):
                found = getattr(found, part, None)
            if isinstance(found, type) and issubclass(found, Exception):
                return found
        return None


def failure_of(error: BaseException) -> Failure:
    kind = type(error)
    return Failure(
        f"{kind.__module__}:{kind.__qualname__}",
        message_of(error)[:MOST_UNCUT],
        _traceback(error)[-MOST_UNCUT:],
        _args(error),
    )


def redacted(failure: Failure, show: Show | None) -> Failure:
    """Return the failure without the values that the hook hides."""
    if show is None:
        return failure
    message, traceback = _as_text(show(failure.message)), _as_text(show(failure.traceback))
    return Failure(failure.kind, message, traceback, _redacted_args(failure.args, show))


def write_failure(failure: Failure) -> str:
    """Return the failure as stored, truncated. A character may take six bytes; then less traceback is kept."""
    for most in (MOST_TRACEBACK, MOST_TRACEBACK // 3, MOST_TRACEBACK // 24):
        traceback = _tail(failure.traceback, most)
        raw = msgspec.json.encode(Failure(failure.kind, failure.message[:MOST_MESSAGE], traceback, failure.args))
        if len(raw) <= MOST_BYTES:
            break
    return raw.decode()


def read_failure(detail: str) -> Failure:
    """Read a failure from a history entry. Plain text, such as the cause of a death, becomes its message."""
    try:
        return msgspec.json.decode(detail, type=Failure)
    except (msgspec.DecodeError, UnicodeError):
        return Failure(message=detail)


def message_of(error: BaseException) -> str:
    try:
        return _writable(str(error))
    except Exception:  # noqa: BLE001 - a failing __str__ must not hide the failure itself
        return f"(its __str__ failed) {type(error).__name__}"


def _traceback(error: BaseException) -> str:
    try:
        shown = tracebacks.TracebackException(type(error), error, error.__traceback__, compact=True)
        shown.stack[:] = _users_part(shown.stack)
        return _writable("".join(shown.format()))
    except Exception:  # noqa: BLE001
        return ""


def _tail(text: str, most: int) -> str:
    return text if len(text) <= most else "…" + text[-most:]


def _users_part(frames: list[tracebacks.FrameSummary]) -> list[tracebacks.FrameSummary]:
    """Return the frames of user code and all frames after them, without our own calls of tasks and providers.

    If there is no user code, return all frames.
    """
    ours: list[bool] = []
    for frame in frames:
        entered = frame.filename == contextlib.__file__ and ours[-1:] == [True]  # a generator that we use
        ours.append(entered or frame.filename.startswith(OUR_CALLS))
    last = max((n for n, each in enumerate(ours) if not each), default=-1)
    return [frame for n, frame in enumerate(frames) if n > last or not ours[n]]


def _args(error: BaseException) -> str:
    return _written_args(error.args)


def _written_args(args: Any) -> str:
    try:
        raw = codec.encode(args).decode()
    except Exception:  # noqa: BLE001 - a failing argument must not hide the failure itself
        return ""
    return raw if len(raw) <= MOST_MESSAGE else ""


def _redacted_args(written: str, show: Show) -> str:
    """Return the redacted arguments. Without any, an exception is rebuilt from its redacted message."""
    try:
        args = show(list(codec.decode(written.encode()))) if written else None
    except (PayloadEncodingError, UnicodeError):
        return ""
    return _written_args(tuple(args)) if isinstance(args, list | tuple) else ""


def _as_text(value: Any) -> str:
    try:
        return "" if value is None else _writable(str(value))
    except Exception:  # noqa: BLE001 - the hook may return anything
        return "(hidden: the redaction hook did not return text)"


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def how_it_ended(code: int) -> str:
    """Describe an exit code in words, for dead letters."""
    if code >= 0:
        return f"its process exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    hint = "; often the system's out-of-memory killer" if name == "SIGKILL" else ""
    return f"its process was killed by signal {-code} ({name}){hint}"
