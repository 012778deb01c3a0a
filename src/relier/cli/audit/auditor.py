"""Audit a namespace while workers keep running.

The audit walks both ways: from each record to the index it belongs in, and from each index entry to its record.
Together they show that every record is in exactly one index, and the audit has to remember only the suspects. Each read
is one small script, which sees a consistent state. A suspect is read twice more, with a pause before each read, and
becomes a finding only if all three reads show the same problem. chord_rules.py finds chords that will never complete,
schedule_rules.py schedules that will never fire.

Not covered: records past their end of life, which the ledger removes by design, and a store that lost the whole
namespace including its counters.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from relier.cli.audit import limit_counts, limit_rules
from relier.cli.audit.chord_rules import ChordCheck, waits
from relier.cli.audit.findings import AuditReport, Finding, ObservedKey, Subject
from relier.cli.audit.rules import LEASE_INDEXES, judge_books, judge_entry, judge_key, kind_of, unreadable_books
from relier.cli.namespace_reads import NamespaceReads, chunks
from relier.codec.keyring import NO_KEYS, Keyring
from relier.errors import StoreReplyError
from relier.ledger import keys
from relier.ledger.ledger import Ledger
from relier.ledger.pages import read_stats
from relier.store.sync_store import SyncStore

LOOKS = 3
PAUSE = 0.2
MOST_SUSPECTS = 10_000  # suspects kept in memory; further ones are only counted
OVERDUE_MS = 60_000
REPAIRED = "repaired_"


def audit(
    store: SyncStore,
    ledger: Ledger,
    *,
    keyring: Keyring = NO_KEYS,
    pause: float = PAUSE,
    sleep: Callable[[float], None] = time.sleep,
    advance: Callable[[int], None] = lambda _: None,
) -> AuditReport:
    """Read the whole namespace, a hundred keys at a time. `sleep` waits before suspects are read again. `advance` is
    called with the number of keys that were read."""
    reads = NamespaceReads(store, ledger)
    joins = ChordCheck(reads, store, ledger, keyring)
    return _Audit(reads, store, ledger, joins, lambda: sleep(pause), advance).report()


class _Audit:
    def __init__(
        self,
        reads: NamespaceReads,
        store: SyncStore,
        ledger: Ledger,
        joins: ChordCheck,
        wait: Callable[[], None],
        advance: Callable[[int], None],
    ) -> None:
        self._reads = reads
        self._advance = advance
        self._joins = joins
        self._waiting: list[Subject] = []
        self._store = store
        self._ledger = ledger
        self._wait = wait
        self._suspects: dict[Subject, Finding] = {}
        self._untold = 0
        self._indexes: list[tuple[str, bytes]] = []
        self._limit_keys: list[tuple[str, bytes]] = []
        self._worker_ids: set[bytes] = set()
        self._planned: set[bytes] = set()  # the indexes of schedules
        self._kinds: Counter[str] = Counter()
        self._states: Counter[str] = Counter()
        self._entries = 0
        self._overdue = 0
        self._repaired: dict[str, int] = {}

    def report(self) -> AuditReport:
        began = time.monotonic()
        self._walk_keys()
        self._walk_indexes()
        findings = self._confirmed()
        books, wrong = self._books()
        wrong += limit_counts.miscounted(self._store, self._ledger, self._wait)
        return AuditReport(
            keys=dict(sorted(self._kinds.items())),
            records=dict(sorted(self._states.items())),
            entries=self._entries,
            overdue=self._overdue,
            books=books,
            findings=(*wrong, *findings),
            untold=self._untold,
            seconds=round(time.monotonic() - began, 3),
            repaired=dict(sorted(self._repaired.items())),
        )

    # --- first pass ----------------------------------------------------------------------------------------------

    def _walk_keys(self) -> None:
        for found in self._reads.scan():
            self._advance(len(found))
            subjects = [kind_of(self._reads.prefix, key) for key in found]
            self._suspect(self._look_at_keys(subjects, count=True))
            for kind, of, key in subjects:
                if kind in {"due", "ready", "lane", "owned", "ended"}:
                    self._indexes.append((kind, key))
                elif kind in limit_rules.WALKED:
                    self._limit_keys.append((kind, key))
                elif kind == "worker":
                    self._worker_ids.add(of)
                elif kind == "schedules":
                    self._planned.add(key)

    def _walk_indexes(self) -> None:
        for _, index in dict.fromkeys(self._indexes):
            for ids in self._members(index):
                self._entries += len(ids)
                self._suspect(self._look_at_entries([("entry", task_id, index) for task_id in ids], count=True))
        for index in self._planned:
            for names in self._members(index):
                self._suspect(self._look_at_keys([("planned", name, index) for name in names]))
        for name in ("boots", *LEASE_INDEXES):
            index = keys.spell(self._ledger.prefix, name).encode()
            self._worker_ids.update(worker_id for ids in self._members(index) for worker_id in ids)
        boots = keys.spell(self._ledger.prefix, "boots").encode()  # a key of ours: an ACL may refuse any other
        for some in chunks(sorted(self._worker_ids)):
            self._suspect(self._look_at_keys([("boot", worker_id, boots) for worker_id in some]))
        for kind, key in dict.fromkeys(self._limit_keys):
            for members in chunks(limit_rules.walk(self._store, kind, key)):
                self._suspect(self._look_at_keys(members))
        self._suspect(self._joins.look(self._waiting))

    def _members(self, index: bytes) -> Iterator[list[bytes]]:
        """Yield the members of an index: none if its key is not a sorted set, which is a separate finding."""
        if self._store.command("TYPE", index, retry=True) in (b"zset", "zset"):
            yield from self._reads.members(index)

    def _suspect(self, found: Mapping[Subject, Finding]) -> None:
        for subject, finding in found.items():
            if len(self._suspects) < MOST_SUSPECTS:
                self._suspects[subject] = finding
            else:
                self._untold += 1

    # --- reading and judging -----------------------------------------------------------------------

    def _look_at_keys(self, subjects: list[Subject], *, count: bool = False) -> dict[Subject, Finding]:
        found = {}
        for subject, answer in zip(subjects, self._reads.keys(subjects), strict=True):
            seen = ObservedKey.read(self._ledger.prefix, subject, answer)
            if count and seen.type != "none":
                self._kinds[seen.kind or "unknown"] += 1
                if seen.kind == "task":
                    self._states[seen.fact(0)] += 1
                    if waits(answer) and len(self._waiting) < MOST_SUSPECTS:
                        self._waiting.append(("join", *subject[1:]))
            finding = judge_key(seen)
            if finding is not None:
                found[subject] = finding
        return found

    def _look_at_entries(self, subjects: list[Subject], *, count: bool = False) -> dict[Subject, Finding]:
        """Check entries of one index."""
        index = subjects[0][2]
        now, answers = self._reads.entries(index, [task_id for _, task_id, _ in subjects])
        found = {}
        for subject, (score, what, home) in zip(subjects, answers, strict=True):
            past = bool(score) and index.startswith(self._reads.prefix + b"e:") and float(score) < now
            if past and count and float(score) < now - OVERDUE_MS:
                self._overdue += 1
            finding = judge_entry(self._ledger.prefix, subject, score, what, home)
            # The record expired before the reaper removed its entry: nothing is lost.
            if finding is not None and not (past and not what):
                found[subject] = finding
        return found

    def _confirmed(self) -> list[Finding]:
        """Return the suspects that show the same problem in every read."""
        suspects = self._suspects
        for _ in range(LOOKS - 1):
            if not suspects:
                break
            self._wait()
            again = self._look_again(suspects)
            suspects = {
                subject: again[subject]
                for subject, finding in suspects.items()
                if subject in again and again[subject].kind == finding.kind
            }
        return list(suspects.values())

    def _look_again(self, subjects: Iterable[Subject]) -> dict[Subject, Finding]:
        keys: list[Subject] = []
        joins: list[Subject] = []
        by_index: dict[bytes, list[Subject]] = {}
        for subject in subjects:
            if subject[0] == "entry":
                by_index.setdefault(subject[2], []).append(subject)
            else:
                (joins if subject[0] == "join" else keys).append(subject)
        found = self._joins.look(joins)
        for some in chunks(keys):
            found |= self._look_at_keys(some)
        for entries in by_index.values():
            for some in chunks(entries):
                found |= self._look_at_entries(some)
        return found

    # --- the books -----------------------------------------------------------------------------------------------

    def _books(self) -> tuple[dict[str, int], list[Finding]]:
        """Check that accepted + replayed − ended = live. `stats` reads all counters at one moment.

        Queues and workers that fill more than one page are read page by page, while counts change. In that case, a
        difference is a finding only if every reading shows the same one.
        """
        differences = set()
        for look in range(LOOKS):
            try:
                stats = read_stats(self._store.run, self._ledger)
                books, finding = judge_books(stats)
                self._repaired = {
                    name.removeprefix(REPAIRED): n for name, n in stats.counts.items() if name.startswith(REPAIRED)
                }
            except StoreReplyError as error:  # a key has the wrong type, which is a finding of its own
                return judge_books(None)[0], [unreadable_books(str(error))]
            differences.add(books["missing"])
            if finding is None or (stats.pages > 1 and len(differences) > 1):
                return books, []
            if look < LOOKS - 1:
                self._wait()
        return books, [finding] if finding else []
