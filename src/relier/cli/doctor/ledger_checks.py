"""What `rl doctor` says of the namespace: its layout, workers, queues, schedule and dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from relier.cli.doctor.verdict import Verdict, bad, ok, warn
from relier.cli.output import ago, many, span
from relier.cli.session import Session
from relier.cli.worker_view import Staff
from relier.errors import RelierError
from relier.ledger import keys
from relier.ledger.stats import Stats
from relier.store.sync_store import SyncStore

LONG_WAIT_MS = 300_000
LATE_MS = 10_000
EMPTIED_MS = 86_400_000  # so long after it an emptied store is wrong, not only worth a look


def check_namespace(session: Session, store: SyncStore) -> Iterator[Verdict]:
    """A namespace that is there is opened, which also proves that the store takes writes; none is made by looking."""
    name = session.settings.namespace
    if not store.command("EXISTS", keys.spell(session.ledger.prefix, "meta"), retry=True):
        yield warn(
            "namespace",
            f"Namespace {name!r} is empty: nothing was ever pushed here.",
            "If you expected tasks, RELIER_NAMESPACE or RELIER_REDIS_URL differs from your application's.",
        )
        return
    try:
        store.run(session.ledger.open())
    except RelierError as error:
        yield bad("namespace", f"Namespace {name!r} cannot be used: {error}.", "See the message.")
    else:
        yield ok("namespace", f"Namespace {name!r} has layout {keys.LAYOUT}, as this code, and takes writes.")


def check_birth(session: Session, store: SyncStore, stats: Stats) -> Iterator[Verdict]:
    """Whether processes that were running saw the store emptied or replaced. Nobody else can tell."""
    note = store.command("HGET", keys.spell(session.ledger.prefix, "meta"), "emptied", retry=True)
    if note is None:
        return
    at_ms, mark = note.decode().split()
    says = (
        f"The store was emptied or replaced: {ago(int(at_ms), stats.now_ms)} a process found that birth mark {mark} "
        f"was gone. Every task that was accepted before is lost, unless a backup or an outbox has it."
    )
    if stats.now_ms - int(at_ms) > EMPTIED_MS:
        yield warn("birth", says, "It was reported as wrong for a day.")
    else:
        yield bad("birth", says, "Find out who emptied it (FLUSHALL, a lost volume, another server at this address).")


def check_workers(stats: Stats, staff: Staff) -> Iterator[Verdict]:
    waiting = sum(queue.ready for queue in stats.queues) + stats.scheduled
    if staff.alive:
        slots = sum(worker.concurrency or 0 for worker in staff.alive)
        running = sum(worker.owned for worker in staff.alive)
        of = f" in {many(slots, 'slot')}" if slots else ""
        yield ok("workers", f"{many(len(staff.alive), 'worker')} alive, running {many(running, 'task')}{of}.")
    elif waiting:
        yield bad(
            "workers", f"No worker is alive, and {many(waiting, 'task waits', 'tasks wait')}.", "Start `rl worker`."
        )
    else:
        yield warn("workers", "No worker is alive.", "Nothing waits yet; start `rl worker` before something does.")
    gone = [worker for worker in staff.workers if worker.health != "alive"]
    if gone:
        held = sum(worker.owned for worker in gone)
        says = f"{many(len(gone), 'worker')} stopped giving signs of life, with {many(held, 'task')} in hand."
        if staff.alive:
            yield warn("workers", says, "A sweep returns the tasks within seconds; if this stays so, see `rl workers`.")
        else:
            yield bad("workers", says, "Nobody is left to return them: start `rl worker`.")
    for worker in staff.alive:
        idle = worker.polled_ms and stats.now_ms - worker.polled_ms
        if idle and idle > 60_000 and worker.concurrency and not worker.full:
            yield warn(
                "workers",
                f"Worker {worker.worker_id} sends heartbeats and has free slots, but has not asked for work for "
                f"{span(idle)}.",
                "See its log; restart it.",
            )


def check_queues(stats: Stats, staff: Staff) -> Iterator[Verdict]:
    waiting = [queue for queue in stats.queues if queue.ready]
    alone = [queue for queue in waiting if staff.alive and staff.unattended(queue.queue)]
    for queue in alone:
        yield bad(
            "queues",
            f"{many(queue.ready, 'task waits', 'tasks wait')} in queue {queue.queue!r}, and no worker listens to it.",
            "Start a worker for that queue.",
        )
    for queue in stats.queues:
        if queue.paused:
            yield warn(
                "queues",
                f"Queue {queue.queue!r} is paused; {many(queue.ready, 'task waits', 'tasks wait')} in it.",
                f"When it may go on: `rl queues resume {queue.queue}`.",
            )
    if not alone and not any(queue.paused for queue in stats.queues):
        ready = sum(queue.ready for queue in stats.queues)
        yield ok("queues", f"{many(len(stats.queues), 'queue')}, {many(ready, 'task')} ready.")
    oldest = min(((q.oldest_at_ms, q.queue) for q in waiting if q.oldest_at_ms), default=None)
    if oldest is not None and stats.now_ms - oldest[0] > LONG_WAIT_MS:
        yield warn(
            "queues",
            f"The oldest waiting task came {ago(oldest[0], stats.now_ms)} (queue {oldest[1]!r}).",
            "The workers do not keep up, or are stuck: start more, or see `rl workers`.",
        )


def check_schedule(session: Session, store: SyncStore, stats: Stats) -> Iterator[Verdict]:
    due = keys.spell(session.ledger.prefix, "due")
    first: Any = store.command("ZRANGE", due, 0, 0, "WITHSCORES", retry=True)
    late = stats.now_ms - float(first[1]) if first else 0
    if late > LATE_MS:
        yield bad(
            "schedule",
            f"A scheduled task was due {span(late)} ago and has not entered its queue: nobody sweeps.",
            "Start `rl worker` or `rl resurrector`.",
        )
    else:
        yield ok("schedule", f"{many(stats.scheduled, 'task')} scheduled, none late.")


def check_dead(stats: Stats) -> Iterator[Verdict]:
    if dead := stats.ended["dead"]:
        yield warn("dead letters", f"{many(dead, 'dead letter')}.", "Look with `rl dlq`; then replay or discard them.")
    else:
        yield ok("dead letters", "No dead letters.")
    if strays := stats.counts.get("strays", 0):
        yield warn(
            "records",
            f"{many(strays, 'entry of an index', 'entries of an index')} led to no record: something deleted records.",
            "Run `rl audit`.",
        )
