"""Find chords that will never complete: a join waits for parts, and no live task can deliver one.

Every member of a chord, and every task before it in a chain, carries the chord's group id in its message. A live task
whose message does not contain the id cannot deliver a part. Some messages cannot be searched: compressed or packed
ones, and those encrypted with a missing key. They may contain any id, so while one is live no chord is reported.

Not covered: members outside the ledger, on a broker or in an outbox. A join is checked only after an hour, which gives
such members time to arrive, and the advice mentions them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set

from relier.cli.audit.findings import Finding, Subject, shown
from relier.cli.namespace_reads import NamespaceReads, chunks
from relier.codec import decode
from relier.codec.keyring import Keyring
from relier.envelope import open_envelope
from relier.errors import CorruptRecordError, RelierError, StoreReplyError
from relier.ledger import keys
from relier.ledger.ledger import Ledger
from relier.ledger.replies import read_record
from relier.store.sync_store import SyncStore

SUFFIX = ".chord"  # a join's id is the group id with this suffix
PACKED = "relier.spread"
ENCRYPTED = b'"aes-gcm:'
AT_ONCE = 25  # records: each may be a megabyte
READ_ERRORS = (RelierError, ValueError, LookupError, TypeError, AttributeError)


class ChordCheck:
    """Determines which chords can still get a part."""

    def __init__(self, reads: NamespaceReads, store: SyncStore, ledger: Ledger, keyring: Keyring) -> None:
        self._reads = reads
        self._store = store
        self._prefix = ledger.prefix
        self._keyring = keyring

    def look(self, subjects: Iterable[Subject]) -> dict[Subject, Finding]:
        """Return a finding for each of these joins that can get no further part from a live task."""
        waiting: dict[str, Subject] = {}
        for some in chunks(subjects):
            answers = self._reads.keys([("task", of, key) for _, of, key in some])
            waiting |= {group_of(join): join for join, facts in zip(some, answers, strict=True) if waits(facts)}
        try:
            reached = self._reached(set(waiting)) if waiting else set()
        except StoreReplyError:  # an index has the wrong type, which is a separate finding
            return {}
        return {subject: _finding(subject) for group, subject in waiting.items() if group not in reached}

    def _reached(self, groups: Set[str]) -> Set[str]:
        """Return the groups for which a live task may deliver a part, or all groups if a message cannot be searched."""
        pattern = re.compile("|".join(map(re.escape, sorted(groups, key=len, reverse=True))))
        found: set[str] = set()
        for task_id, raw in self._live():
            group = task_id.removesuffix(SUFFIX)
            text = text_of(task_id, raw, self._keyring)
            if text is None:
                return groups
            found.update(each for each in pattern.findall(text) if each != group)
        return found

    def _live(self) -> Iterator[tuple[str, bytes]]:
        for index in self._indexes():
            for ids in self._reads.members(index):
                for some in chunks(ids, AT_ONCE):
                    names = [keys.spell(self._prefix, "task", shown(each)) for each in some]
                    for task_id, raw in zip(some, self._store.command("MGET", *names, retry=True), strict=True):
                        if raw is not None:
                            yield shown(task_id), raw

    def _indexes(self) -> Iterator[bytes]:
        """Yield the indexes of live tasks. They are read each time, because queues and workers come and go."""
        yield keys.spell(self._prefix, "due").encode()
        for queue in self._store.command("SMEMBERS", keys.spell(self._prefix, "queues"), retry=True):
            yield keys.spell(self._prefix, "ready", shown(queue)).encode()
        for lane in self._store.command("HKEYS", keys.spell(self._prefix, "lanes"), retry=True):
            yield keys.spell(self._prefix, "lane", shown(lane)).encode()
        for worker_ids in self._reads.members(keys.spell(self._prefix, "boots").encode()):
            for worker_id in worker_ids:
                yield keys.spell(self._prefix, "owned", shown(worker_id)).encode()


def group_of(join: Subject) -> str:
    return shown(join[1]).removesuffix(SUFFIX)


def waits(facts: list[object]) -> bool:
    """Return whether the facts of lua/keys.lua describe a join that checked for its parts and still waits."""
    return len(facts) > 5 and facts[5] in (b"1", "1")


def text_of(task_id: str, raw: bytes, keyring: Keyring) -> str | None:
    """Return the Celery message in a record as searchable text: empty if there is none, None if it is unreadable."""
    try:
        record, payload = read_record(task_id, raw)
    except CorruptRecordError:
        return ""  # no worker can run it
    if record.name == PACKED:
        return None
    try:
        args, _ = decode(open_envelope(payload, task_id=record.id, name=record.name, keyring=keyring).body)
        message = args[0] if args and isinstance(args[0], dict) else {}
        body = message.get("body", "")
        if message.get("headers", {}).get("compression"):
            return None
        return f"{message.get('headers')}{body if isinstance(body, str) else body.decode('latin-1')}"
    except READ_ERRORS:
        return None if ENCRYPTED in payload else payload.decode("latin-1")


def _finding(subject: Subject) -> Finding:
    task_id = shown(subject[1])
    return Finding(
        "join_without_members",
        shown(subject[2]),
        f"Chord {group_of(subject)} waits for parts, and no task in the ledger can bring one: its body will not run.",
        f"If members wait elsewhere (on the broker, not adopted, or in an outbox), let them run. Otherwise cancel it "
        f"with `rl tasks cancel {task_id}` and send the chord again.",
    )
