"""Encode the members of batches for the store: a task's place in its batch, headers of new batches, and plans.

A plan holds tasks that the store itself submits later: the next link of a chain, or a callback of a batch. It is packed
as MessagePack, with every text as a raw string, because the decoder in the store supports no other type for bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from relier.ledger.limit_records import RunLimit
    from relier.ledger.records import Join, Submission

Packable: TypeAlias = "bytes | str | int | Sequence[Packable]"
INHERITED = -1  # in `place`: the task follows another member, and takes its place


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a task, or of an inner batch, in a batch.

    place   its position; None means the next free one, INHERITED that of the member which it follows
    next    the plan to submit once this member is done
    input   the field of the batch's results that this member takes
    tasks   how many tasks it adds to the workflow; None if it follows another member at the same place
    how     `opens`: the call creates the batch with this task; `with`: the call creates it with another task; `adds`:
            the batch exists; `stored`: the store submits the task from a plan
    parent  the batch to which a new inner batch is added
    adder   id, fence and worker id of the running member that adds this one; it may add to a sealed batch
    """

    batch: str
    place: int | None = None
    next: str = ""
    input: str = ""
    tasks: int | None = 1
    how: Literal["opens", "with", "adds", "stored"] = "adds"
    parent: str = ""
    adder: tuple[str, str, str] | None = None
    opens: tuple[BatchHeader | AddedPlans, ...] = ()

    def words(self) -> str:
        """Return the words that the record stores (lib/batch.lua)."""
        place = "-" if self.place is None else "=" if self.place == INHERITED else str(self.place)
        tasks = "-" if self.tasks is None else str(self.tasks)
        return f"{self.batch} {place} {self.next or '-'} {self.input or '-'} {tasks}"

    def claim(self) -> str:
        """Return the words that ask for a place in the batch (lib/item.lua)."""
        adder = "- - -" if self.adder is None else " ".join(self.adder)
        return f"member {self.batch} {self.how} {self.parent or '-'} {adder}"

    def fields(self) -> list[Packable]:
        """Return the fields stored alongside the record, and the headers of batches that the task opens."""
        opens: list[Packable] = ["opens", [header.values() for header in self.opens]] if self.opens else []
        return ["batch", self.words(), *opens]


class BatchHeader(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A batch to create.

    `collects`: keep the members' results. `chain`: the batch represents a chain, its only member, and keeps the chain's
    result. `plans`: name -> packed plan. `lease_ms`: how long it stays open unless its producer extends the lease.
    """

    id: str
    open: bool = False
    collects: bool = False
    chain: bool = False
    name: str = ""
    parent: Member | None = None
    lease_ms: int = 0
    result_ttl_ms: int | None = None
    dead_ttl_ms: int | None = None
    plans: tuple[tuple[str, bytes], ...] = ()

    def values(self) -> list[Packable]:
        words: list[Packable] = [
            self.id,
            "open" if self.open else "sealed",
            "last" if self.chain else "1" if self.collects else "",
            self.name,
            "" if self.parent is None else self.parent.words(),
            self.lease_ms,
            "-" if self.result_ttl_ms is None else self.result_ttl_ms,
            "-" if self.dead_ttl_ms is None else self.dead_ttl_ms,
        ]
        return words + [part for plan in self.plans for part in plan]


class AddedPlans(msgspec.Struct, frozen=True, tag=True):
    """Plans for an existing batch: the links of a chain that becomes its member."""

    batch: str
    plans: tuple[tuple[str, bytes], ...]

    def values(self) -> list[Packable]:
        return [self.batch, "plans", *(part for plan in self.plans for part in plan)]


def packed_plan(headers: Iterable[BatchHeader | AddedPlans], tasks: Sequence[Submission]) -> bytes:
    """Return a packed plan: tasks that the store submits later, with the batches to create for them."""
    return pack([[header.values() for header in headers], *(list(task.args()) for task in tasks)])


def entry_word(on_conflict: str, join: Join | None, member: Member | None) -> str:
    """Return how a task is submitted: the value on_conflict of lib/item.lua."""
    if join is not None:
        return f"join {join.size} {join.part}"
    return on_conflict if member is None else member.claim()


def packed_extra(limits: Sequence[RunLimit], member: Member | None) -> bytes:
    """Return the flags of a record and the fields stored alongside it, as lib/enter.lua reads them. Empty if none."""
    if not limits and member is None:
        return b""
    flags = ("l" if limits else "") + ("" if member is None else "b")
    fields: list[Packable] = ["limits", "\n".join(limit.words() for limit in limits)] if limits else []
    return pack([flags, *fields, *([] if member is None else member.fields())])


def pack(value: Packable) -> bytes:
    """Return a text, a number as text, or a list, as MessagePack."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        head = struct.pack(">BI", 0xDD, len(value)) if len(value) > 15 else bytes((0x90 | len(value),))
        return head + b"".join(map(pack, value))
    raw = value if isinstance(value, bytes) else str(value).encode()
    if len(raw) < 32:
        return bytes((0xA0 | len(raw),)) + raw
    return (struct.pack(">BH", 0xDA, len(raw)) if len(raw) < 65_536 else struct.pack(">BI", 0xDB, len(raw))) + raw
