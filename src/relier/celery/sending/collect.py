"""What an attempt sends while it runs: what its body sends goes out at once; what Celery sends after it (links, the
next step of a chain, error callbacks) is gathered and enters the ledger with the commit, or not at all.

A message under the attempt's own id is no new task: `self.retry()` asks for another run of this one.
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

ADDED = "relier_added"  # in a chord's body: who has it was added to that chord


@dataclass(eq=False)
class Collector:
    """Of one attempt. `parts`: what it waited for, if it is a join. `depth`: how many bodies run inside each other, for
    a task may call another as a function. `settling`: the outermost has come to an end."""

    record_id: str
    queue: str
    parts: dict[str, bytes] = field(default_factory=dict)
    depth: int = 0
    settling: bool = False
    follow_ups: list[Submission] = field(default_factory=list)
    again: tuple[Message, Submission] | None = None
    part: bytes = b""  # what those who wait for it get, if it fails
    added: int = 0  # how many members it has added to the chord it is in
    is_added: bool = False  # and whether it is such a one
    aside: tuple[Any, Any] | None = (
        None  # its first argument, if that was too large for its message, and what stood there
    )

    def takes(self, message: Message, task: Submission) -> bool:
        """Keep what is not to be sent now."""
        if task.id == self.record_id:
            self.again = message, replace(task, eta_ms=0, expires_at_ms=0)  # the ledger's retry says when
            return True
        if self.settling:
            self.follow_ups.append(task)
        return self.settling


_running: ContextVar[Collector | None] = ContextVar("relier_celery_attempt", default=None)


def running() -> Collector | None:
    """The attempt that runs here, if one does."""
    return _running.get()


@contextmanager
def collecting(collector: Collector) -> Iterator[Collector]:
    token = _running.set(collector)
    try:
        yield collector
    finally:
        _running.reset(token)


def settle_after(body: Callable[..., Any]) -> Callable[..., Any]:
    """A body after whose end everything that is sent is a follow-up."""

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


def settle_during(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that ends the attempt: what it sends is a follow-up."""

    @wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        collector = _running.get()
        if collector is not None:
            collector.settling = True
        return method(*args, **kwargs)

    return run


def mark_added(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Task.add_to_chord`, so that what it adds says so itself: it may end before the task that added it.

    The mark travels in the chord's body. Only the task whose end is the part has that: the last task of a chain, the
    body of a chord. A header would go to other tasks as well."""

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
