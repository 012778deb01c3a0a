"""Parse the replies of the scripts for batches."""

from __future__ import annotations

from typing import Any, Literal, cast

from relier.errors import BatchNotFoundError
from relier.ledger.batches.records import (
    BatchAnswer,
    BatchCancelled,
    BatchMember,
    BatchPage,
    BatchRecord,
    BatchState,
    Stage,
)
from relier.ledger.defaults import MEMBER_SPAN
from relier.ledger.replies import number, pairs, text, word

CALLBACKS = {"t": "then", "f": "on_failure", "c": "on_complete"}
STAGES = tuple(Stage)
COUNTS = ("size", "done", "dead", "cancelled", "tasks", "tasks_done", "tasks_dead", "tasks_cancelled")
MARKS = ("stopped", "abandoned")
TEXTS = ("name", "parent", "root", "failed")


def answered(raw: Any) -> BatchAnswer:
    verdict = word(raw[0], "ok", "repeat", "closed", "abandoned", "missing")
    return BatchAnswer(cast(Literal["ok"], verdict), text(raw[1]))


def cancelled(raw: Any) -> BatchCancelled:
    verdict = word(raw[0], "ok", "ended", "missing")
    return BatchCancelled(cast(Literal["ok"], verdict), text(raw[1]), tuple(map(text, raw[2])))


def batch(batch_id: str, raw: Any) -> BatchRecord:
    if not raw:
        raise BatchNotFoundError(
            f"there is no batch {batch_id}: it never existed, or its retention is over; check the id"
        )
    return _record(batch_id, raw)


def _record(batch_id: str, raw: Any) -> BatchRecord:
    fields = {name: text(value) for name, value in pairs(raw)}
    known: dict[str, Any] = {name: number(fields.get(name)) for name in COUNTS}
    known |= {name: fields.get(name) == "1" for name in MARKS}
    known |= {name: fields.get(name, "") for name in TEXTS}
    return BatchRecord(
        id=batch_id,
        state=BatchState(fields["state"]),
        fired=frozenset(CALLBACKS[letter] for letter in fields.get("fired", "") if letter in CALLBACKS),
        callbacks={name: fields[f"{name}_id"] for name in CALLBACKS.values() if fields.get(f"{name}_id")},
        collects=bool(fields.get("collects")),
        is_chain=fields.get("collects") == "last",
        created_ms=number(fields.get("created")),
        ended_ms=number(fields.get("ended")),
        **known,
    )


def batches(raw: Any) -> BatchPage:
    found = tuple(_record(text(row[0]), row[2]) for row in raw[1:] if row[2])
    return BatchPage(found, text(raw[0]) or None)


def members(raw: Any) -> tuple[BatchMember, ...]:
    return tuple(_member(member, int(float(score))) for member, score in pairs(raw))


def _member(member: str, score: int) -> BatchMember:
    stage, rest = divmod(score, 2 * MEMBER_SPAN)
    inner, place = divmod(rest, MEMBER_SPAN)
    return BatchMember(member.removeprefix("@") if inner else member, place, STAGES[stage], bool(inner))


def results(raw: Any) -> tuple[dict[str, bytes], str]:
    found, left = raw
    return dict(pairs(found)), str(int(left)) if left else ""
