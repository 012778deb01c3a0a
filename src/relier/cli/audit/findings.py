"""The values of an audit: the keys it observed, and its findings."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import Any

from relier.ledger import keys

Subject = tuple[str, bytes, bytes]  # kind of key (or `entry`, `boot`), id it belongs to, key (for an entry: its index)

# Kinds of findings that running workers repair (ledger/lua/reconcile.lua).
REPAIRED_BY_WORKERS = frozenset(
    {"record_in_no_index", "record_in_wrong_index", "entry_without_record", "owned_without_boot"}
    | {"worker_key_without_boot", "side_without_record", "side_without_batch", "key_without_record"}
    | {"queue_unknown", "bell_too_long", "live_with_expiry", "batch_counts", "batch_stuck", "batch_in_no_index"}
    | {"run_without_slot", "slot_without_run", "lane_unknown", "lane_without_head", "lane_empty", "lane_not_asleep"}
    | {"sleepers_unknown", "sleeper_awake", "pacer_not_scheduled", "limits_miscounted"}
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem: its kind (for programs), the key, a description and advice."""

    kind: str
    key: str
    problem: str
    advice: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit: `keys` by kind, `records` by state, `books` (counters and live tasks).

    `untold` counts suspects beyond MOST_SUSPECTS, which were not checked again.
    """

    keys: dict[str, int]
    records: dict[str, int]
    entries: int
    overdue: int
    books: dict[str, int]
    findings: tuple[Finding, ...]
    untold: int
    seconds: float
    repaired: dict[str, int]  # by workers, since the namespace exists

    @property
    def ok(self) -> bool:
        return not self.findings and not self.untold

    @property
    def equation(self) -> str:
        b = self.books
        ended = b["done"] + b["dead"] + b["cancelled"]
        live = f"{b['scheduled']:,} scheduled + {b['queued']:,} queued + {b['running']:,} running"
        return (
            f"{b['submitted']:,} accepted + {b['replayed']:,} replayed − {ended:,} ended "
            f"({b['done']:,} done, {b['dead']:,} dead, {b['cancelled']:,} cancelled) "
            f"{'=' if b['missing'] == 0 else '≠'} {b['live']:,} live ({live})."
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ObservedKey:
    """One key as read by lua/keys.lua: kind, subject, type, time to live (ms, -1 for none) and facts."""

    prefix: str
    kind: str
    of: str
    key: str
    type: str
    ttl: int
    facts: tuple[Any, ...]

    @classmethod
    def read(cls, prefix: str, subject: Subject, answer: list[Any]) -> ObservedKey:
        kind, of, key = subject
        return cls(prefix, kind, shown(of), shown(key), shown(answer[0]), int(answer[1]), tuple(answer[2:]))

    def fact(self, n: int) -> str:
        return shown(self.facts[n])

    def spell(self, name: str) -> str:
        return keys.spell(self.prefix, name)

    def finding(self, kind: str, problem: str, advice: str) -> Finding:
        return Finding(kind, self.key, problem, advice)


def command(*words: str) -> str:
    """Return a command as it is typed into redis-cli."""
    return f"`{' '.join(shlex.quote(word) for word in words)}`"


def shown(raw: Any) -> str:
    return raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else str(raw)
