"""A call: one script, its arguments, and how to read the reply. Sans IO: the stores execute it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Arg = bytes | str | int


class Durability(StrEnum):
    """What must be true of a write before it counts as accepted."""

    MEMORY = "memory"  # the master has it; what AOF and replicas do is the server's configuration
    FSYNC = "fsync"  # on the master's disk: WAITAOF, or appendfsync always
    REPLICATED = "replicated"  # in the memory of every replica that could be promoted


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One run of one script. `key` is the script's KEYS[1] and decides the cluster slot.

    `parse` turns the raw reply into the result, or raises a RelierError the reply stands for. Every script is safe to
    repeat, so a store may send a call again whenever it did not see the reply.
    """

    script: str
    key: str
    args: tuple[Arg, ...]
    parse: Callable[[Any], T]
    durability: Durability = Durability.MEMORY
