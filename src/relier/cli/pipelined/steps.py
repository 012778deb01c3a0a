"""Read several things in shared round trips.

A reading is a generator: each step yields what to read, and gets the answers. Readings that run together share the
round trip of each step. So all of them take as many round trips as the longest of them has steps.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from relier.cli.namespace_reads import load_read_scripts
from relier.errors import RelierError
from relier.ledger.ledger import Ledger
from relier.store.call import Call
from relier.store.sync_store import SyncStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RawRead:
    """A command that only reads."""

    words: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ScriptRead:
    """A script of cli/lua with its arguments."""

    name: str
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TriedRead:
    """A read whose error is an answer like any other. Without this, an error is raised in the reading."""

    of: Call[Any] | RawRead | ScriptRead


Read = Call[Any] | RawRead | ScriptRead | TriedRead
Reading = Generator[Sequence[Read], list[Any], T]


def raw(*words: Any) -> RawRead:
    return RawRead(words)


def script(name: str, *args: Any) -> ScriptRead:
    return ScriptRead(name, args)


def answers_to(*reads: Read) -> Reading[list[Any]]:
    """Return a reading of one step: these reads."""
    found = yield reads
    return found


def together(*readings: Reading[Any]) -> Reading[list[Any]]:
    """Return a reading that runs these side by side. An error that one does not handle ends all of them."""
    results: list[Any] = [None] * len(readings)
    waiting: list[tuple[int, Sequence[Read]]] = []

    def advance(nth: int, answers: list[Any] | None) -> None:
        try:
            waiting.append((nth, _stepped(readings[nth], answers)))
        except StopIteration as done:
            results[nth] = done.value

    for nth in range(len(readings)):
        advance(nth, None)
    while waiting:
        asked, waiting = waiting, []
        answers = iter((yield [read for _, reads in asked for read in reads]))
        for nth, reads in asked:
            advance(nth, [next(answers) for _ in reads])
    return results


def _stepped(reading: Reading[Any], answers: list[Any] | None) -> Sequence[Read]:
    """Give a reading its answers, or the first error among them. Return what it reads next."""
    if answers is None:
        return next(reading)
    failed = next((one.error for one in answers if isinstance(one, _Failed)), None)
    return reading.send(answers) if failed is None else reading.throw(failed)


def read_all(store: SyncStore, ledger: Ledger, *readings: Reading[Any]) -> list[Any]:
    """Run readings side by side, and return their results."""
    whole = together(*readings)
    asked = next(whole, None)
    while asked is not None:
        try:
            asked = whole.send(_sent(store, ledger, asked))
        except StopIteration as done:
            results: list[Any] = done.value
            return results
    return []


@dataclass(frozen=True, slots=True)
class _Failed:
    """The error of a read that was not tried."""

    error: RelierError


def _sent(store: SyncStore, ledger: Ledger, reads: Sequence[Read]) -> list[Any]:
    """Send all reads in one round trip. Scripts are loaded by the same round trip: only `rl` has them."""
    inner = [read.of if isinstance(read, TriedRead) else read for read in reads]
    scripts = load_read_scripts()
    names = dict.fromkeys(read.name for read in inner if isinstance(read, ScriptRead))
    loads: list[Call[Any] | tuple[Any, ...]] = [("SCRIPT", "LOAD", scripts[name].text) for name in names]
    prefix = ledger.prefix.encode()
    answers = store.read_together([*loads, *(_plain(read, prefix) for read in inner)])[len(loads) :]
    return [
        _Failed(answer) if isinstance(answer, RelierError) and not isinstance(read, TriedRead) else answer
        for read, answer in zip(reads, answers, strict=True)
    ]


def _plain(read: Call[Any] | RawRead | ScriptRead, prefix: bytes) -> Call[Any] | tuple[Any, ...]:
    match read:
        case RawRead(words):
            return words
        case ScriptRead(name, args):
            return ("EVALSHA", load_read_scripts()[name].sha, 1, prefix, *args)
    return read


def cut(items: Iterable[T], size: int) -> list[list[T]]:
    """Cut a list into parts of this size."""
    whole = list(items)
    return [whole[at : at + size] for at in range(0, len(whole), size)]
