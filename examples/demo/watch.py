"""The state of the ledger at one moment. `stats` is one script, so its numbers belong together."""

from __future__ import annotations

import json
from dataclasses import dataclass

from relier import Client
from relier.ledger.pages import read_stats

from .crew import Crew, Member


@dataclass(frozen=True, slots=True)
class Row:
    """One worker as the view shows it. `held`: how many tasks it runs, according to the ledger."""

    name: str
    pids: tuple[int, ...]
    held: int
    state: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`lost`: accepted, and neither ended nor live. `twice`: commits beyond the records that are done."""

    pushed: int
    done: int
    revived: int
    refused: int
    live: int
    running: int
    lost: int
    twice: int
    held: dict[int, int]  # pid of a worker process -> tasks it holds
    rows: tuple[Row, ...]


class Watch:
    """Read the ledger."""

    def __init__(self, client: Client, crew: Crew) -> None:
        self._client = client
        self._crew = crew

    def look(self) -> Snapshot:
        stats = read_stats(self._client.run, self._client.ledger)
        counts, states = stats.counts, stats.by_state()
        ended = sum(counts.get(state, 0) for state in ("done", "dead", "cancelled"))
        live = states["scheduled"] + states["queued"] + states["running"]
        alive = {json.loads(worker.about)["pid"]: worker.owned for worker in stats.workers if worker.lease_left_ms > 0}
        return Snapshot(
            pushed=counts.get("submitted", 0),
            done=counts.get("done", 0),
            revived=counts.get("revived", 0),
            refused=counts.get("refused", 0),
            live=live,
            running=states["running"],
            lost=counts.get("submitted", 0) - ended - live,
            twice=counts.get("done", 0) - states["done"],
            held=alive,
            rows=tuple(self._row(member, alive) for member in self._crew.members),
        )

    def _row(self, member: Member, alive: dict[int, int]) -> Row:
        if member.supervised and member.running:
            others = {each.pid for each in self._crew.members}
            member.children = set(alive) - others
        pids = tuple(sorted(member.children)) if member.supervised else (member.pid,)
        known = any(pid in alive for pid in pids)
        if not member.running:
            state = "killed" if member.process.returncode < 0 else "left"
        elif member.frozen:
            state = "frozen" if known else "frozen, declared lost"
        else:
            state = "works" if known else "starts"
        return Row(member.name, pids, sum(alive.get(pid, 0) for pid in pids), state)
