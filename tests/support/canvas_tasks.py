"""The tasks of random canvases. Each returns its own label and its arguments, so that a value in another place or of
another shape changes the result."""

from __future__ import annotations

from typing import Any

from celery import Task, chain, chord, group, shared_task
from celery.result import allow_join_result


@shared_task(bind=True)
def mark(self: Task, *given: Any, label: str) -> Any:
    """Return the label around the arguments, with the stamps of the request."""
    stamps = {name: value for name, value in (self.request.stamps or {}).items() if value}
    return [label, *given, *([stamps] if stamps else [])]


@shared_task(bind=True, max_retries=2)
def twice(self: Task, *given: Any, label: str) -> Any:
    """Retry once before returning. Not at once: plain Celery might otherwise report the retry after the end."""
    if not self.request.retries:
        raise self.retry(countdown=0.3)
    return [label, *given]


@shared_task
def broken(*given: Any, label: str) -> Any:
    raise ValueError(label)


@shared_task(bind=True)
def becomes(self: Task, *given: Any, label: str, kind: str) -> Any:
    """Replace the task by a canvas of this kind."""

    def step(name: str, *args: Any) -> Any:
        return mark.s(*args, label=f"{label}{name}")

    first = step("a", *given)
    instead = {
        "task": lambda: first,
        "chain": lambda: chain(first, step("b")),
        "group": lambda: group(first, step("b", *given)),
        "chord": lambda: chord([first, step("b", *given)], step("c")),
        "broken": lambda: broken.s(label=f"{label}x"),
    }
    raise self.replace(instead[kind]())


@shared_task(bind=True)
def adds(self: Task, *given: Any, label: str, kind: str, first: bool) -> Any:
    """Add a task of this kind to the chord that this task is in, and end before the added task, or after it."""
    added = {
        "task": lambda: mark.s(label=f"{label}a"),
        "chain": lambda: chain(mark.s(label=f"{label}a"), mark.s(label=f"{label}b")),
        "chord": lambda: chord([mark.s(label=f"{label}a"), mark.s(label=f"{label}b")], mark.s(label=f"{label}c")),
        "replaced": lambda: becomes.s(label=f"{label}a", kind="chord"),
    }[kind]()
    result = self.add_to_chord(added)
    if not first:
        with allow_join_result():
            result.get(timeout=20)
    return [label, *given]
