"""Find what lies in the wrong shard, and shards that an earlier number of shards left behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relier.cli.namespace_reads import NamespaceReads
from relier.cli.session import Session
from relier.ledger import keys
from relier.settings import Settings
from relier.settings.shards import shard_of, shards_in_mark

PER_ID = {"task": "task", "batch": "workflow", "schedule": "schedule"}  # kinds of keys, as people call them
HOLDING = {"task", "batch", "schedule", "worker"}


@dataclass(frozen=True, slots=True)
class Misplaced:
    """Something that lies in one shard and belongs to another."""

    kind: str
    id: str
    found_in: int
    belongs_to: int


def misplaced(session: Session) -> Iterator[Misplaced]:
    """Yield the tasks, workflows and schedules of a shard that belong to another one."""
    reads, settings = NamespaceReads(session.store, session.ledger), session.settings
    for found in reads.scan():
        for key in found:
            kind, of = keys.kind_of(reads.prefix, key)
            name = of.decode("utf-8", "surrogateescape")
            if kind in PER_ID and (home := shard_of(name, settings.shards)) != (settings.shard or 0):
                yield Misplaced(PER_ID[kind], name, settings.shard or 0, home)


def leftovers(session: Session) -> list[str]:
    """Return the namespaces that hold data of this application but belong to an earlier number of shards.

    These are the namespaces `<name>` and `<name><number>` that hold tasks, schedules or nodes and are not among the
    shards that RELIER_SHARDS describes now. Only the servers of the current shards are searched.
    """
    whole = session.settings.whole
    present = {whole.of_shard(number).namespace for number in range(whole.shards)}
    found: set[str] = set()
    for each in session.shards if session.is_sharded else [session]:
        found |= set(_namespaces(each, whole)) - present
    return sorted(found)


def _namespaces(session: Session, whole: Settings) -> Iterator[str]:
    """Yield the namespaces on the server of a session that hold data: the root, and those that are or were shards."""
    reads = NamespaceReads(session.store, session.ledger)
    before = f"{whole.key_prefix}{{{whole.namespace}".encode()
    seen: dict[bytes, bool] = {b"": True}
    for some in reads.scan_for(before):
        for key in some:
            name, closed, rest = key[len(before) :].partition(b"}:")
            if not closed or keys.kind_of(b"", rest)[0] not in HOLDING:
                continue
            if name not in seen:
                meta = keys.spell((before + name + b"}:").decode(), "meta")
                born = session.store.command("HGET", meta, "born", retry=True) or b""
                seen[name] = name[1:].isdigit() and shards_in_mark(born.decode()) > 1
            if seen[name]:
                yield f"{whole.namespace}{name.decode()}"
