"""Collect the tasks that Celery sends after the body of a task: links, the next step of a chain, error callbacks.

These tasks enter the ledger with the commit of the attempt, or not at all. Tasks that the body itself sends are
submitted at once.

A message under the attempt's own id is not a new task: with it, `self.retry()` asks for another run of the same task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from msgspec.structs import replace

from relier.celery.messages import Message
from relier.ledger.records import Submission

ADDED = "relier_added"  # in a chord's body: the task that has this body was added to the chord


@dataclass(eq=False)
class Collector:
    """Collect the tasks that one attempt sends.

    parts            the parts that the attempt waited for, if it is a join
    depth            how many task bodies run inside each other: a task may call another task as a function
    settling         the outermost body has ended
    again            the next run of the same task, if the attempt asked for a retry
    part             what a chord gets instead of the result, if the attempt fails
    added            how many members the attempt has added to the chord it is in
    is_added         the attempt itself was added to its chord
    stored_argument  the first argument and its reference, if it was too large for the message
    """

    record_id: str
    queue: str
    parts: dict[str, bytes] = field(default_factory=dict)
    depth: int = 0
    settling: bool = False
    follow_ups: list[Submission] = field(default_factory=list)
    again: tuple[Message, Submission] | None = None
    part: bytes = b""
    added: int = 0
    is_added: bool = False
    stored_argument: tuple[Any, Any] | None = None

    def captures(self, message: Message, task: Submission) -> bool:
        """Keep a task that must not be submitted now. Return whether it was kept."""
        if task.id == self.record_id:
            self.again = message, replace(task, eta_ms=0, expires_at_ms=0)  # the retry in the ledger carries the delay
            return True
        if self.settling:
            self.follow_ups.append(task)
        return self.settling


_running: ContextVar[Collector | None] = ContextVar("relier_celery_attempt", default=None)


def current_collector() -> Collector | None:
    """Return the collector of the attempt that runs here, or None outside an attempt."""
    return _running.get()


@contextmanager
def collecting(collector: Collector) -> Iterator[Collector]:
    """Make `collector` the current collector inside the block."""
    token = _running.set(collector)
    try:
        yield collector
    finally:
        _running.reset(token)


def collect_after(body: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a task body: tasks that are sent after it ends are follow-ups of the attempt."""

    @wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        collector = _running.get()
        if collector is None:
            return body(*args, **kwargs)
        collector.depth += 1
        try:
            return body(*args, **kwargs)
        finally:
            collector.depth -= 1
            collector.settling = collector.settling or collector.depth == 0

    return run


def collect_during(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method that ends the attempt: tasks that it sends are follow-ups of the attempt."""

    @wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        collector = _running.get()
        if collector is not None:
            collector.settling = True
        return method(*args, **kwargs)

    return run


def mark_added(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Task.add_to_chord`, so that an added member is marked as added: it may end before the task that added it.

    The mark is stored in the chord's body, not in a header, because only the task that delivers the part carries the
    body: the last task of a chain, or the body of a chord. A header would also reach other tasks.
    """

    @wraps(method)
    def run(sig: Any, *args: Any, **kwargs: Any) -> Any:
        request = method.__self__.request  # type: ignore[attr-defined]
        chord = request.chord
        if _running.get() is None or not chord:
            return method(sig, *args, **kwargs)
        request.chord = {**chord, ADDED: True}
        try:
            return method(sig, *args, **kwargs)
        finally:
            request.chord = chord

    return run
