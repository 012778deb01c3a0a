"""Chords that nobody will complete: a join that has looked for its parts in vain while no live task leads to it.

A member of a chord carries the chord's group id in its message, and so does every task before it in a chain. A live
task whose message does not contain the id brings no part. Messages that hide what they contain (compressed, packed, or
encrypted with a key that is not at hand) may contain any id, and then no chord is blamed.

Not covered: members outside the ledger, on a broker or in an outbox. A join first looks after an hour, so they have had
their time, and the advice names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set

from relier.cli.audit.findings import Finding, Subject, shown
from relier.cli.namespace_reads import Reads, chunks
from relier.codec import decode
from relier.envelope import open_envelope
from relier.errors import CorruptRecordError, RelierError, StoreReplyError
from relier.keyring import Keyring
from relier.ledger import keys
from relier.ledger.ledger import Ledger
from relier.ledger.replies import read_record
from relier.store.sync_store import SyncStore

SUFFIX = ".chord"  # of a join's id, behind that of its group
PACKED = "relier.spread"
ENCRYPTED = b'"aes-gcm:'
AT_ONCE = 25  # records: each may be a megabyte
READ_ERRORS = (RelierError, ValueError, LookupError, TypeError, AttributeError)


class Joins:
    """Looks for those who could still bring a part."""

    def __init__(self, reads: Reads, store: SyncStore, ledger: Ledger, keyring: Keyring) -> None:
        self._reads = reads
        self._store = store
        self._prefix = ledger.prefix
        self._keyring = keyring

    def look(self, subjects: Iterable[Subject]) -> dict[Subject, Finding]:
        """What is wrong with some joins; each is a subject `join`."""
        waiting: dict[str, Subject] = {}
        for some in chunks(subjects):
            answers = self._reads.keys([("task", of, key) for _, of, key in some])
            waiting |= {group_of(join): join for join, facts in zip(some, answers, strict=True) if waits(facts)}
        try:
            reached = self._reached(set(waiting)) if waiting else set()
        except StoreReplyError:  # an index is of another type, which is a finding of its own
            return {}
        return {subject: _finding(subject) for group, subject in waiting.items() if group not in reached}

    def _reached(self, groups: Set[str]) -> Set[str]:
        """Which of these groups some live task leads to; all of them where that cannot be known."""
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
        """Of what lives now: queues and workers come and go between two looks."""
        yield keys.spell(self._prefix, "due").encode()
        for queue in self._store.command("SMEMBERS", keys.spell(self._prefix, "queues"), retry=True):
            yield keys.spell(self._prefix, "ready", shown(queue)).encode()
        for boots in self._reads.members(keys.spell(self._prefix, "boots").encode()):
            for boot in boots:
                yield keys.spell(self._prefix, "owned", shown(boot)).encode()


def group_of(join: Subject) -> str:
    return shown(join[1]).removesuffix(SUFFIX)


def waits(facts: list[object]) -> bool:
    """Whether a task, by what lua/keys.lua tells of it, is a join that has looked and waits on."""
    return len(facts) > 5 and facts[5] in (b"1", "1")


def text_of(task_id: str, raw: bytes, keyring: Keyring) -> str | None:
    """The Celery message in a record, as text to search; empty where there is none, None where it cannot be read."""
    try:
        record, payload = read_record(task_id, raw)
    except CorruptRecordError:
        return ""  # nobody can run it
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
        f"Chord {group_of(subject)} waits for parts, and no task in the ledger leads to it: its body will not run.",
        f"If members are elsewhere, on the broker as tasks that are not adopted or in an outbox, let them run. If not, "
        f"remove it with `rl tasks cancel {task_id}` and send the chord again.",
    )
