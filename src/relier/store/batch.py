"""Represent one pipeline without its socket: the bytes to send, the replies, and the requests to send again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hiredis import ReplyError

from relier.errors import IndeterminateError, RelierError
from relier.store.call import Call, Durability
from relier.store.policy import AttemptError, Deadline
from relier.store.replies import failure_of
from relier.store.scripts import Script, Scripts
from relier.store.wire import pack

MOST_REQUESTS = 512
MOST_BYTES = 4 * 1024 * 1024


class Request:
    """Hold one command and its answer: a reply, or finally a RelierError. `waiter` is the async store's caller."""

    __slots__ = ("answer", "call", "level", "packed", "script", "waiter")

    def __init__(self, packed: bytes, script: Script | None = None, call: Call[Any] | None = None) -> None:
        self.packed = packed
        self.script = script
        self.call = call
        self.level = Durability.MEMORY if call is None else call.durability
        self.answer: Any = None
        self.waiter: asyncio.Future[Any] | None = None

    def inline(self) -> None:
        """Send the script's text instead of its SHA1 from now on, so that no server can answer NOSCRIPT."""
        if self.script is not None and self.call is not None:
            self.packed = pack(("EVAL", self.script.text, 1, self.call.key, *self.call.args))


def request_of(call: Call[Any], scripts: Scripts) -> Request:
    """Pack a call. A call that cannot be packed fails here, for its caller only, not in a pipeline with others."""
    script = scripts[call.script]
    return Request(pack(("EVALSHA", script.sha, 1, call.key, *call.args)), script, call)


def bounded_parts(calls: Iterable[Call[Any]], scripts: Scripts) -> Iterator[list[tuple[Call[Any], Request]]]:
    """Cut a long list of calls into parts that are sent one after another, each with its own deadline.

    Calls are read and packed only when their part is sent, so memory does not grow with the length of the list.
    """
    window: list[tuple[Call[Any], Request]] = []
    size = 0
    for call in calls:
        request = request_of(call, scripts)
        if window and (len(window) == MOST_REQUESTS or size + len(request.packed) > MOST_BYTES):
            yield window
            window, size = [], 0
        window.append((call, request))
        size += len(request.packed)
    if window:
        yield window


def pipelines_of(requests: Iterable[Request]) -> list[list[Request]]:
    """Split requests into one pipeline per durability level, and cut those that might exceed the read timeout."""
    open_by_level: dict[Durability, list[Request]] = {}
    sizes: dict[Durability, int] = {}
    full: list[list[Request]] = []
    for request in requests:
        level = request.level
        pipeline = open_by_level.setdefault(level, [])
        size = sizes.get(level, 0) + len(request.packed)
        if pipeline and (len(pipeline) >= MOST_REQUESTS or size > MOST_BYTES):
            full.append(pipeline)
            pipeline = open_by_level[level] = []
            size = len(request.packed)
        pipeline.append(request)
        sizes[level] = size
    return [*full, *open_by_level.values()]


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Describe the command that ends a pipeline above durability `memory`, and the count it must return."""

    command: str  # WAIT, WAITAOF, or "" if appendfsync is always: then the reply itself is the confirmation
    count: int = 1

    def packed(self, seconds: float) -> bytes:
        milliseconds = max(1, int(seconds * 1000))
        if self.command == "WAITAOF":
            return pack(("WAITAOF", self.count, 0, milliseconds))
        return pack(("WAIT", self.count, milliseconds))

    def unmet(self, reply: Any) -> str | None:
        """Return why the reply does not confirm the write, or None if it does."""
        if isinstance(reply, ReplyError):
            return f"{self.command} replied {str(reply)!r}"
        reached = reply[0] if self.command == "WAITAOF" else reply
        where = "disks" if self.command == "WAITAOF" else "replicas"
        return None if reached >= self.count else f"{self.command} confirmed {reached} of {self.count} {where}"


class RequestBatch:
    """Hold requests of one durability level that are sent together. An error reply affects only its own request."""

    __slots__ = ("_failed", "_loaded", "_missing", "_todo", "confirmation", "deadline", "level", "requests")

    def __init__(self, requests: list[Request], deadline: Deadline) -> None:
        self.requests = requests
        self.deadline = deadline
        self.level = requests[0].level
        self.confirmation: Confirmation | None = None
        self._failed = False
        self._todo = requests
        self._missing: dict[str, Script] = {}
        self._loaded: frozenset[str] = frozenset()  # scripts already loaded for this batch

    def encode(self, wait: float) -> tuple[bytes, int]:
        """Return the bytes to send now, and the number of replies to expect."""
        parts = [pack(("SCRIPT", "LOAD", script.text)) for script in self._missing.values()]
        for request in self._todo:
            request.answer = None
            parts.append(request.packed)
        if self.confirmation is not None and self.confirmation.command:
            parts.append(self.confirmation.packed(wait))
        return b"".join(parts), len(parts)

    def absorb(self, replies: list[Any]) -> AttemptError | None:
        """Process the replies. Return the error of requests to send again, or None if every request has its answer."""
        unmet = None
        if self.confirmation is not None and self.confirmation.command:
            unmet = self.confirmation.unmet(replies.pop())
        refused = _refused_loads(self._missing, replies)
        if self._missing:
            del replies[: len(self._missing)]
            self._loaded |= self._missing.keys()
            self._missing = {}
        todo, self._todo = self._todo, []
        worst: AttemptError | None = None
        for request, reply in zip(todo, replies, strict=True):
            if type(reply) is not ReplyError:
                request.answer = reply if unmet is None else _unconfirmed(request, unmet)
                continue
            self._failed = True
            failure = failure_of(reply)
            if failure.load_script and request.script is not None:  # report why the load was refused, if it was
                failure = refused.get(request.script.sha, failure)
            request.answer = failure
            if failure.retry:
                self._send_again(request, failure)
                if worst is None or failure.new_lookup or worst.load_script:
                    worst = failure
        return worst

    def fail(self, failure: AttemptError | RelierError) -> None:
        """Fail all requests without an answer. A request that got an error reply in this attempt keeps that error."""
        self._failed = True
        for request in self._todo:
            if request.answer is None:
                request.answer = type(failure)(*failure.args) if isinstance(failure, RelierError) else failure

    def finish(self, error_of: Callable[[AttemptError], RelierError]) -> None:
        """Turn failed requests into errors for the callers, each a separate object."""
        if not self._failed:
            return
        for request in self.requests:
            if isinstance(request.answer, AttemptError):
                request.answer = error_of(request.answer)

    def _send_again(self, request: Request, failure: AttemptError) -> None:
        self._todo.append(request)
        if not failure.load_script or request.script is None:
            return
        if request.script.sha in self._loaded:  # the server dropped it again, or never kept it: send the text
            request.inline()
        else:
            self._missing[request.script.sha] = request.script


def _refused_loads(missing: dict[str, Script], replies: list[Any]) -> dict[str, AttemptError]:
    """Return why scripts could not be loaded, by SHA1. The loads were sent first, so their replies come first."""
    loads = zip(missing, replies, strict=False)
    return {sha: failure_of(reply) for sha, reply in loads if type(reply) is ReplyError}


def _unconfirmed(request: Request, why: str) -> IndeterminateError:
    """Return the call's own error for a write that ran but whose durability was not confirmed."""
    error = (
        request.call.indeterminate()
        if request.call is not None
        else IndeterminateError("the command ran, but the server did not confirm its durability in time")
    )
    error.add_note(why)
    return error
