"""Record pushes instead of sending them: `with relier.testing.recorded() as pushed:`.

Each push is validated and encoded as usual, so a wrong argument fails the test. Then it is kept in a list. Nothing
runs, and no store is needed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

from relier.errors import ConfigurationError
from relier.ledger.records import Accepted, Submission
from relier.options import PushOptions
from relier.store import Call
from relier.submit.push_middleware import Push, innermost
from relier.submit.receipt import Receipt
from relier.task import RlTask
from relier.task.pushable import row_of
from relier.testing.declared import relier_task, seen_arguments, seen_call
from relier.testing.storeless import Taker, pushing_to

Task = RlTask[Any, Any]
NO_RESULT = (
    "the push was recorded, not sent, so the task has no state and no result; use relier.testing.inline() to run tasks "
    "at push, or the fixture `relier_store` and run_pending()"
)


@dataclass(frozen=True)
class PushedCall:
    """Describe one call that was pushed. `where`: the transaction it is part of, if it was pushed with push_in."""

    task: Task
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: PushOptions
    in_transaction: bool = False
    where: Any = None

    @property
    def queue(self) -> str:
        return self.options.queue or self.task.options.queue

    @property
    def delay(self) -> timedelta | None:
        """Return the delay of the push, or None if there is none."""
        return as_span(self.options.delay)

    @property
    def effective(self) -> dict[str, Any]:
        """Return the arguments by name, with defaults."""
        return seen_arguments(self.task, self.args, self.kwargs)

    def __str__(self) -> str:
        chosen = {"delay": self.delay, "eta": self.options.eta, "task_id": self.options.task_id}
        more = "".join(f", {name}={value}" for name, value in chosen.items() if value is not None)
        return f"{shown_call(self.task, self.args, self.kwargs)} to queue {self.queue}{more}"


class RecordedReceipt(Receipt[Any]):
    """Replace a receipt of push_in. Its methods raise, awaited or not."""

    def state(self) -> NoReturn:
        raise ConfigurationError(NO_RESULT)

    info = progress = cancel = replay = state

    def result(self, timeout: float | None = None) -> NoReturn:  # noqa: ARG002 - as in other receipts
        raise ConfigurationError(NO_RESULT)


class Recorder(Taker):
    """Accept every push and store nothing: `RecordedPushes` keeps the record."""

    def take(self, task: Submission) -> Accepted:
        return Accepted("new", task.id, None, 1)

    async def atake(self, task: Submission) -> Accepted:
        return self.take(task)

    def answer(self, call: Call[Any]) -> NoReturn:  # noqa: ARG002 - the contract of a Taker
        raise ConfigurationError(NO_RESULT)


class RecordedPushes:
    """Hold what was pushed inside a `recorded()` block, in order."""

    def __init__(self) -> None:
        self.all: list[PushedCall] = []

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[PushedCall]:
        return iter(self.all)

    def calls(self, task: Any) -> list[PushedCall]:
        """Return the calls of one task, which may be one of Django's."""
        name = relier_task(task).name
        return [call for call in self.all if call.task.name == name]

    def clear(self) -> None:
        self.all.clear()

    def assert_pushed(
        self,
        task: Any,
        /,
        *args: Any,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        times: int = 1,
        **kwargs: Any,
    ) -> list[PushedCall]:
        """Return the pushes of `task` with these arguments. Raise unless there are exactly `times`.

        Without arguments, every call of the task counts. If `queue` or `delay` is given, it must be that of the push.
        """
        task = relier_task(task)
        wanted = seen_arguments(task, args, kwargs) if args or kwargs else None
        found = [
            call
            for call in self.calls(task)
            if queue in (None, call.queue)
            and (delay is None or call.delay == as_span(delay))
            and (wanted is None or call.effective == wanted)
        ]
        if len(found) != times:
            expected = shown_call(task, args, kwargs) if wanted is not None else f"{task.name}(…)"
            expected += "" if queue is None else f" to queue {queue}"
            expected += "" if delay is None else f", delay={as_span(delay)}"
            raise AssertionError(
                f"{expected} should have been pushed {in_words(times)}, but was pushed {in_words(len(found))}. Pushed:"
                f"{self._listed()}"
            )
        return found

    def assert_not_pushed(self, task: Any, /, *args: Any, **kwargs: Any) -> None:
        """Raise if the task was pushed. With arguments, only a push with these arguments counts."""
        self.assert_pushed(task, *args, times=0, **kwargs)

    def _listed(self) -> str:
        return "".join(f"\n  {call}" for call in self.all) or " nothing"

    async def record(self, call_next: Callable[[Push], Awaitable[list[Any]]], push: Push) -> list[Any]:
        """Record a push. This is push middleware, the innermost."""
        seen = [seen_call(push.task, *call) for call in push.calls]
        calls = [PushedCall(push.task, *call, push.options, push.in_transaction, push.where) for call in seen]
        if push.in_transaction:
            ids = [row_of(push.task, push.options, *call).task_id for call in push.calls]
            receipts: list[Any] = [RecordedReceipt(task_id) for task_id in ids]
        else:
            receipts = await call_next(push)
        self.all += calls
        return receipts


@contextmanager
def recorded() -> Iterator[RecordedPushes]:
    """Record all pushes inside the block, of every task and every kind, instead of sending them."""
    pushed = RecordedPushes()
    with pushing_to(Recorder()), innermost(pushed.record):
        yield pushed


def as_span(delay: Any) -> timedelta | None:
    return delay if delay is None or isinstance(delay, timedelta) else timedelta(seconds=delay)


def shown_call(task: Task, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    words = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    return f"{task.name}({', '.join(words)})"


def in_words(times: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(times, f"{times} times")
