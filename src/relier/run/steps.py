"""Durable steps: `await ctx.step("charge", charge, order)` records what it returned, under the fence, before the next
line runs. A revived task skips what is recorded; a zombie cannot record.

The journal keeps each step with its place in the order. Steps that do not fit it any more (the code was changed under a
task that had begun) are refused: skipping the wrong ones would be worse than stopping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relier.arguments import Arguments
from relier.errors import StepJournalError
from relier.keyring import NO_KEYS, Keyring
from relier.ledger.checks import check_name


class Journal:
    """The steps of one attempt: those recorded by earlier ones, and those called so far."""

    def __init__(self, recorded: Mapping[str, bytes], task_id: str = "", keyring: Keyring = NO_KEYS) -> None:
        self._task_id = task_id
        self._keyring = keyring
        self._recorded = {name: _split(name, self._opened(name, raw)) for name, raw in recorded.items()}
        self._names = {place: name for name, (place, _) in self._recorded.items()}
        self._called: dict[str, int] = {}
        self._raised: set[str] = set()

    def begin(self, name: str) -> bytes | None:
        """Take the next place for a step, or, after it raised, its own again. What was recorded for it, if anything."""
        check_name("the name of a step", name)
        if name in self._raised:
            self._raised.discard(name)
            return None
        place = len(self._called) + 1
        if name in self._called:
            raise StepJournalError(f"the step {name!r} was called twice in one run: give each call a name of its own")
        self._called[name] = place
        was = self._names.get(place)
        if (was is not None and was != name) or (name in self._recorded and self._recorded[name][0] != place):
            raise StepJournalError(
                f"step {place} is {name!r} now, but was {was or 'another'!r} when this task's journal was written: the "
                f"code changed under it; run it with the code it began with, or afresh (`rl dlq replay --fresh`)"
            )
        return self._recorded[name][1] if name in self._recorded else None

    def raised(self, name: str) -> None:
        """Nothing was recorded: it may be called again."""
        self._raised.add(name)

    def entry(self, name: str, result: bytes) -> bytes:
        """What to record for a step that was begun: its place and its result, wrapped where there are keys."""
        return self._keyring.wrap(b"%d:" % self._called[name] + result, self._task_id, f"step:{name}")

    def result_in(self, name: str, entry: bytes) -> bytes:
        """The result in an entry somebody recorded."""
        return _split(name, self._opened(name, entry))[1]

    def _opened(self, name: str, entry: bytes) -> bytes:
        return self._keyring.unwrap(entry, self._task_id, f"step:{name}")


def write_result(fn: Callable[..., Any], value: Any) -> bytes:
    """A step's result as bytes, by the function's return annotation."""
    return Arguments.of(fn).encode_result(value) or b"null"


def read_result(fn: Callable[..., Any], raw: bytes) -> Any:
    return Arguments.of(fn).decode_result(raw)


def _split(name: str, raw: bytes) -> tuple[int, bytes]:
    place, colon, result = raw.partition(b":")
    if not colon or not place.isdigit():
        raise StepJournalError(f"the journal entry of step {name!r} cannot be read: something else wrote it")
    return int(place), result
