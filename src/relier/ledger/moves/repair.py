"""The move that repairs damage from outside: one page of keys and index entries at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from relier.ledger.moves.base import MoveBase
from relier.ledger.replies import text
from relier.store.call import Arg, Call

REPAIR_SUBJECTS = 190  # per call: up to 11 commands each, for a running task with five limits


class Subject(NamedTuple):
    """Name a subject to check: a key, by its kind (see keys.py) and its subject, or one `member` of it."""

    kind: str
    of: bytes
    member: bytes = b""


class Repairs(msgspec.Struct, frozen=True):
    """One answer. `cursor`: where the next check begins, by whichever worker. `pages`: how many the caller may check
    now. `looked`: how many of its subjects this call checked. `counts`: repairs by kind of damage.
    """

    cursor: str
    pages: int
    looked: int
    counts: Mapping[str, int]


class RepairMoves(MoveBase):
    def reconcile(self, subjects: Sequence[Subject] = (), cursor: str = "", after: str = "") -> Call[Repairs]:
        """Check these subjects and repair the damaged ones. Without `cursor`, only ask for the next turn.

        `cursor`: where the page began. Once all its subjects were looked at, the next page begins at `after`.
        """
        args: list[Arg] = [cursor, after]
        for subject in subjects[:REPAIR_SUBJECTS] if cursor else ():
            args += subject
        return self._call("reconcile", args, repairs)


def repairs(raw: Any) -> Repairs:
    cursor, pages, looked, *counts = raw
    by_kind = {text(kind): int(n) for kind, n in zip(counts[::2], counts[1::2], strict=True)}
    return Repairs(text(cursor), int(pages), int(looked), by_kind)
