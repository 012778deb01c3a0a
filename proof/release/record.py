"""The record of the release's schedules: proof/record.toml, and the page that quotes it.

A proof belongs to a digest (digest.py). It has ranges of seeds without a violation, and how many calls each made.
Ranges come from any number of runs, on any number of machines, so they may touch or overlap: what overlaps counts once.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from proof.release.digest import ROOT

RECORD = ROOT / "proof" / "record.toml"
PAGE = ROOT / "docs" / "explanation" / "proof.md"
GOAL = 1_000_000
KEPT = 5  # proofs of earlier states of the code
BEGIN, END = "<!-- The record, written by `make prove-release` -->\n", "<!-- End of the record -->\n"
HEAD = """\
# Simulated schedules without a violation, in ranges of seeds, the newest state of the code first.
# `make prove-release` writes this file, and quotes it in docs/explanation/proof.md. proof/release/ explains both.
"""


@dataclass(frozen=True, slots=True)
class SeedRange:
    """Seeds from `first` up to `last`, all without a violation, and the number of calls they made."""

    first: int
    last: int
    calls: int

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Proof:
    """What holds for one state of the code."""

    digest: str
    until: date
    ranges: tuple[SeedRange, ...] = ()

    @property
    def schedules(self) -> int:
        return sum(map(len, self.ranges))

    @property
    def calls(self) -> int:
        return sum(each.calls for each in self.ranges)

    def plus(self, run: SeedRange) -> Proof:
        """Return the proof with a range more, as of today."""
        return Proof(self.digest, datetime.now(UTC).date(), joined([*self.ranges, run]))

    def gap(self, start: int = 0, goal: int = GOAL) -> tuple[int, int] | None:
        """Return the first seeds from `start` on that are not proved yet: the first one, and the one after the last."""
        for each in self.ranges:
            if each.first > start:
                return start, min(each.first, goal)
            start = max(start, each.last + 1)
        return (start, goal) if start < goal else None


def joined(ranges: Iterable[SeedRange]) -> tuple[SeedRange, ...]:
    """Join ranges that touch. Of two that overlap, the calls of the overlap are counted once, by proportion."""
    found: list[SeedRange] = []
    for each in sorted(ranges, key=lambda run: (run.first, -run.last)):
        before = found[-1] if found else None
        if before is None or each.first > before.last + 1:
            found.append(each)
        elif each.last > before.last:
            calls = each.calls * (each.last - before.last) // len(each)
            found[-1] = SeedRange(before.first, each.last, before.calls + calls)
    return tuple(found)


# --- the file ------------------------------------------------------------------------------------------------------


def read(path: Path = RECORD) -> list[Proof]:
    """Return all proofs, the newest first."""
    if not path.exists():
        return []
    return [
        Proof(row["digest"], row["until"], joined(SeedRange(*each) for each in row["ranges"]))
        for row in tomllib.loads(path.read_text(encoding="utf-8")).get("proof", [])
    ]


def of_digest(proofs: Iterable[Proof], digest: str) -> Proof:
    """Return the proof of a state of the code, or an empty one."""
    found = (proof for proof in proofs if proof.digest == digest)
    return next(found, Proof(digest, datetime.now(UTC).date()))


def save(proof: Proof, path: Path = RECORD, page: Path = PAGE) -> None:
    """Write a proof beside the others, and quote the newest one."""
    others = [each for each in read(path) if each.digest != proof.digest]
    proofs = [proof, *others[:KEPT]]
    _replace(path, HEAD + "".join(map(_written, proofs)))
    requote(path, page)


def _written(proof: Proof) -> str:
    rows = "".join(f"    [{each.first}, {each.last}, {each.calls}],\n" for each in proof.ranges)
    head = f'digest = "{proof.digest}"\nuntil = {proof.until.isoformat()}\n'
    return f"\n[[proof]]\n{head}ranges = [  # first seed, last seed, calls\n{rows}]\n"


def _replace(path: Path, text: str) -> None:
    """Write a whole file or none of it: a run may be killed at any time."""
    draft = path.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


# --- the page ------------------------------------------------------------------------------------------------------


def requote(path: Path = RECORD, page: Path = PAGE) -> None:
    """Bring the page up to date with the record."""
    before = page.read_text(encoding="utf-8")
    after = quoted(before, read(path))
    if after != before:
        _replace(page, after)


def quoted(page: str, proofs: list[Proof]) -> str:
    """Return the page with what the record says now."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"the page has no place for the record: {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}{quote(proofs)}{END}{after}"


def quote(proofs: list[Proof]) -> str:
    """Return what the page says of the newest proof."""
    if not proofs:
        return "No schedules are recorded yet.\n"
    proof = proofs[0]
    seeds = ", ".join(f"{each.first:,}–{each.last:,}" for each in proof.ranges)
    done = f"**{proof.schedules:,} of {GOAL:,} schedules, {proof.calls:,} calls: 0 violations.**"
    state = f"for the state `{proof.digest[:12]}` of the scripts and of what checks them"
    return f"{done} Seeds {seeds}, the last\nof them on {proof.until.isoformat()}, {state}.\n"
