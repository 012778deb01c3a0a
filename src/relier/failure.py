"""A failure as dead letters keep it: an exception as JSON (class, message, traceback, arguments), an exit in words.

Failures are read by people and are never encrypted. What of them may be kept is for the redaction hook to say: it sees
message, traceback and arguments before they are cut to length, so that no half of a secret is left at a cut.
"""

from __future__ import annotations

import signal
import traceback as tracebacks
from types import TracebackType
from typing import Any

import msgspec

from relier import codec
from relier.errors import PayloadEncodingError
from relier.redact import Show

MOST_MESSAGE = 4_000
MOST_TRACEBACK = 24_000
MOST_BYTES = 60_000  # of all of it as JSON: the ledger cuts what is longer, anywhere
MOST_UNCUT = 256_000  # in memory, and on the way from an isolated process


class Failure(msgspec.Struct, frozen=True, rename={"kind": "type"}, omit_defaults=True):
    """`kind` is `module:Name` of the exception's class; `args` its arguments, where they can travel."""

    kind: str = ""
    message: str = ""
    traceback: str = ""
    args: str = ""

    @property
    def name(self) -> str:
        return self.kind.rpartition(":")[2].rpartition(".")[2]

    def rebuild(self) -> BaseException | None:
        """The exception again, if its class is imported here and takes those arguments. Nothing is imported for it."""
        found = self._class()
        if found is None:
            return None
        try:
            args = codec.decode(self.args.encode()) if self.args else (self.message,)
            return found(*args)
        except Exception:  # noqa: BLE001 - a constructor of the user's: whatever it raises, there is no rebuilding
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
    """What people may see of it; all, without a hook."""
    if show is None:
        return failure
    message, traceback = _as_text(show(failure.message)), _as_text(show(failure.traceback))
    return Failure(failure.kind, message, traceback, _redacted_args(failure.args, show))


def write_failure(failure: Failure) -> str:
    """As it is kept, cut to length. A letter may take six bytes: then less of the traceback is kept."""
    for most in (MOST_TRACEBACK, MOST_TRACEBACK // 3, MOST_TRACEBACK // 24):
        traceback = _tail(failure.traceback, most)
        raw = msgspec.json.encode(Failure(failure.kind, failure.message[:MOST_MESSAGE], traceback, failure.args))
        if len(raw) <= MOST_BYTES:
            break
    return raw.decode()


def read_failure(detail: str) -> Failure:
    """A failure out of a history's detail. Plain text, such as the cause of a death, is its message."""
    try:
        return msgspec.json.decode(detail, type=Failure)
    except (msgspec.DecodeError, UnicodeError):
        return Failure(message=detail)


def message_of(error: BaseException) -> str:
    try:
        return _writable(str(error))
    except Exception:  # noqa: BLE001 - a __str__ that fails must not hide the failure it should tell of
        return f"(its __str__ failed) {type(error).__name__}"


def _traceback(error: BaseException) -> str:
    try:
        return _writable("".join(tracebacks.format_exception(type(error), error, _users_part(error.__traceback__))))
    except Exception:  # noqa: BLE001
        return ""


def _tail(text: str, most: int) -> str:
    return text if len(text) <= most else "…" + text[-most:]


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the user's first frame on: how we got there is of no interest to anybody."""
    inner = trace
    while inner is not None and inner.tb_frame.f_globals.get("__name__", "").startswith("relier.run."):
        inner = inner.tb_next
    return inner or trace


def _args(error: BaseException) -> str:
    return _written_args(error.args)


def _written_args(args: Any) -> str:
    try:
        raw = codec.encode(args).decode()
    except Exception:  # noqa: BLE001 - an argument that fails when it is looked at must not hide the failure it is of
        return ""
    return raw if len(raw) <= MOST_MESSAGE else ""


def _redacted_args(written: str, show: Show) -> str:
    """Without arguments an exception is rebuilt from its message, which has passed the hook too."""
    try:
        args = show(list(codec.decode(written.encode()))) if written else None
    except (PayloadEncodingError, UnicodeError):
        return ""
    return _written_args(tuple(args)) if isinstance(args, list | tuple) else ""


def _as_text(value: Any) -> str:
    try:
        return "" if value is None else _writable(str(value))
    except Exception:  # noqa: BLE001 - whatever the hook made of it
        return "(hidden: what the redaction hook returned is no text)"


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def how_it_ended(code: int) -> str:
    """An exit code in words, for dead letters."""
    if code >= 0:
        return f"its process exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    hint = "; often the system's out-of-memory killer" if name == "SIGKILL" else ""
    return f"its process was killed by signal {-code} ({name}){hint}"
