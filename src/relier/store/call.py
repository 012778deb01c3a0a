"""Define a call: one script, its arguments, and how to read the reply. No IO here: the stores execute calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

from relier.errors import IndeterminateError, RelierError, StoreReplyError

T = TypeVar("T")
Arg = bytes | str | int


class Durability(StrEnum):
    """Say what must be true of a write before it counts as accepted."""

    MEMORY = "memory"  # in the master's memory; AOF and replicas depend on the server's configuration
    FSYNC = "fsync"  # on the master's disk: WAITAOF, or appendfsync always
    REPLICATED = "replicated"  # in the memory of every replica that could be promoted


def _indeterminate() -> IndeterminateError:
    return IndeterminateError(
        "the call ran, but the server did not confirm its durability in time; repeating it is safe"
    )


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """Describe one run of one script. `key` is the script's KEYS[1] and determines the cluster slot.

    `parse` turns the raw reply into the result, or raises the RelierError that the reply describes. Every script is
    safe to repeat, so a store may send a call again if it did not get the reply.
    """

    script: str
    key: str
    args: tuple[Arg, ...]
    parse: Callable[[Any], T]
    durability: Durability = Durability.MEMORY
    indeterminate: Callable[[], IndeterminateError] = _indeterminate

    def read(self, answer: Any) -> T:
        """Return the result in a reply. Raise StoreReplyError if the script cannot have sent the reply."""
        try:
            return self.parse(answer)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise StoreReplyError(
                f"cannot read the store's reply to the script {self.script}: {answer!r:.80}; "
                f"the script may have run, and repeating the call is safe"
            ) from error

    def when_indeterminate(self, error: Callable[[], IndeterminateError]) -> Call[T]:
        """Return the same call, which raises this error if its durability is not confirmed."""
        return replace(self, indeterminate=error)


def result_or_error(call: Call[Any], answer: Any) -> Any:
    """Return a call's result, or the error in its answer, as a value."""
    if isinstance(answer, RelierError):
        return answer
    try:
        return call.read(answer)
    except RelierError as error:
        return error
