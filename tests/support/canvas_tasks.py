"""The tasks of random canvases. What each returns says who it is and what it was given, so that a value that ends up in
another place, or in another shape, is another result."""

from __future__ import annotations

from typing import Any

from celery import Task, chain, chord, group, shared_task
from celery.result import allow_join_result


@shared_task(bind=True)
def mark(self: Task, *given: Any, label: str) -> Any:
    """Every call leaves its label around its arguments, and the stamps it has seen."""
    stamps = {name: value for name, value in (self.request.stamps or {}).items() if value}
    return [label, *given, *([stamps] if stamps else [])]


@shared_task(bind=True, max_retries=2)
def twice(self: Task, *given: Any, label: str) -> Any:
    """Runs once more before it answers. Not at once: plain Celery may then tell of the retry after its end."""
    if not self.request.retries:
        raise self.retry(countdown=0.3)
    return [label, *given]


@shared_task
def broken(*given: Any, label: str) -> Any:
    raise ValueError(label)


@shared_task(bind=True)
def becomes(self: Task, *given: Any, label: str, kind: str) -> Any:
    """Is replaced by something of this kind."""

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
    """Adds something of this kind to the chord it is in, and ends before that does, or after it."""
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
