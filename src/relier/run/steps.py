"""Record durable steps. `await ctx.step("charge", charge, order)` records the result under the fence, then returns.

A revived task skips recorded steps. A zombie cannot record any.

A step is identified by its name and by how many times the attempt has used that name: the second `mail` is `mail#2`.
The order in which steps begin is checked only on the task's main line (the asyncio task or thread that runs its body),
where the code fixes that order. Branches (gather, create_task, other threads) may run in a different order each time.
So a name may be repeated only if its uses follow each other: all in one asyncio task, or all in one thread.

An entry of the journal is `<place>:<result>`. Leading zeros say what the place counts:
    0<n>     the n-th step of the main line: a different step there means that the code changed, and is refused
    00<n>    a step of a branch, the n-th of its attempt: its place is not checked
    <n>      written by a release that counted all steps alike: checked while no branch has begun a step
That release reads all three forms as the number, so it accepts what it would have written itself and refuses the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from relier.arguments import Arguments
from relier.codec.keyring import NO_KEYS, Keyring
from relier.errors import StepJournalError
from relier.ledger.checks import check_name

MAIN, BRANCH, ANY = b"0", b"00", b""


class Progress(Enum):
    """The stages of a step in this attempt."""

    RUNS = auto()
    BROKEN_OFF = auto()  # the step or the wait for its record raised: it may be called again
    RECORDED = auto()


@dataclass(slots=True)
class Step:
    """Represent one step of this attempt: the `use`-th call of `ctx.step` with this name."""

    name: str
    use: int
    place: bytes
    line: object
    progress: Progress = Progress.RUNS
    entry: bytes = b""  # the entry to record; once set, `fn` has returned and is not called again
    result: bytes = b""

    @property
    def field(self) -> str:
        """Return the step's name in the journal."""
        return self.name if self.use == 1 else f"{self.name}#{self.use}"


@contextlib.contextmanager
def doing(step: Step) -> Iterator[None]:
    """Wrap a step's call and its recording. At the end, mark the step as recorded, or as broken off on an error."""
    try:
        yield
    except BaseException:
        step.progress = Progress.BROKEN_OFF
        raise
    step.progress = Progress.RECORDED


class JournalEntry(NamedTuple):
    """Hold the journal's entry for a step."""

    kind: bytes
    place: int
    result: bytes


class Journal:
    """Hold the steps of one attempt: those that earlier attempts recorded, and those called so far."""

    def __init__(self, recorded: Mapping[str, bytes], task_id: str = "", keyring: Keyring = NO_KEYS) -> None:
        self._task_id = task_id
        self._keyring = keyring
        self._recorded = {field: _read(field, self._opened(field, raw)) for field, raw in recorded.items()}
        self._names = {(entry.kind, entry.place): field for field, entry in self._recorded.items()}
        self._lock = threading.Lock()
        self._last: dict[str, Step] = {}  # the last use of each name
        self._called: dict[str, Step] = {}  # by field
        self._branched = 0  # steps that began in branches

    def begin(self, name: str, main_line: object) -> Step:
        """Begin a step, or continue one that was broken off."""
        check_name("the name of a step", name)
        line = current_line()
        with self._lock:
            last = self._last.get(name)
            if last is not None and last.progress is Progress.BROKEN_OFF:
                last.line, last.progress = line, Progress.RUNS
                return last
            if last is not None and (last.line is not line or last.progress is Progress.RUNS):
                raise StepJournalError(
                    f"the step {name!r} was called by two branches of one attempt (gather, create_task, threads), and "
                    f"which of them comes first may change: give each call its own name, such as {name + ' 2'!r}"
                )
            return self._begin(name, 1 if last is None else last.use + 1, line, line is main_line)

    def _begin(self, name: str, use: int, line: object, main: bool) -> Step:
        place = len(self._called) - self._branched + 1 if main else len(self._called) + 1
        step = Step(name, use, b"%s%d:" % (MAIN if main else BRANCH, place), line)
        check_name("the name of a step, with the number of its use,", step.field)
        if step.field in self._called:
            raise StepJournalError(
                f"the step name {step.field!r} is used twice: a repeated step gets a number as its suffix, and another "
                f"step already has that name; rename one of them"
            )
        if main:
            self._check_order(step.field, place)
        self._called[step.field] = self._last[name] = step
        self._branched += not main
        entry = self._recorded.get(step.field)
        if entry is not None:
            step.result, step.progress = entry.result, Progress.RECORDED
        return step

    def _check_order(self, field: str, place: int) -> None:
        """Refuse a step of the main line if the journal has a different step at its place, or has this step at a
        different place."""
        for kind in (MAIN,) if self._branched else (MAIN, ANY):
            was, entry = self._names.get((kind, place)), self._recorded.get(field)
            elsewhere = entry is not None and entry.kind == kind and entry.place != place
            if elsewhere or was not in (None, field):
                done = ", ".join(self._recorded)
                raise StepJournalError(
                    f"step {place} is {field!r} now, but was {was or 'another'!r} when this task's journal was "
                    f"written: the code has changed since; replay the task with the code it began with, or use `rl dlq "
                    f"replay --fresh`, which deletes the journal and repeats its steps: {done:.300}"
                )

    def entry_for(self, step: Step, result: bytes) -> bytes:
        """Return the entry to record for a step: its place and its result, encrypted if there are keys."""
        return self._keyring.wrap(step.place + result, self._task_id, f"step:{step.field}")

    def result_in(self, step: Step, entry: bytes) -> bytes:
        """Return the result in an entry that another call recorded."""
        return _read(step.field, self._opened(step.field, entry)).result

    def _opened(self, field: str, entry: bytes) -> bytes:
        return self._keyring.unwrap(entry, self._task_id, f"step:{field}")


def current_line() -> object:
    """Return a weak reference to the current asyncio task, or to the thread if no loop runs.

    Steps of one line run one after the other. Each task or thread has a single weak reference, so references can be
    compared by identity. A strong reference would make a cycle: the asyncio task keeps the attempt alive.
    """
    try:
        return weakref.ref(asyncio.current_task() or threading.current_thread())
    except RuntimeError:
        return weakref.ref(threading.current_thread())


def write_result(fn: Callable[..., Any], value: Any) -> bytes:
    """Encode a step's result as bytes, by the function's return annotation."""
    return Arguments.of(fn).encode_result(value) or b"null"


def read_result(fn: Callable[..., Any], raw: bytes) -> Any:
    return Arguments.of(fn).decode_result(raw)


def _read(field: str, raw: bytes) -> JournalEntry:
    place, colon, result = raw.partition(b":")
    if not colon or not place.isdigit():
        raise StepJournalError(
            f"the journal entry of step {field!r} cannot be read: another program wrote it; replay the task with "
            f"`rl dlq replay --fresh`, which drops its steps"
        )
    number = place.lstrip(b"0")
    return JournalEntry(place.removesuffix(number)[:2], int(number or b"0"), result)
