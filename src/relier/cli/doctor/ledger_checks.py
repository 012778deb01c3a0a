"""Check a namespace: layout, workers, queues, scheduled tasks and dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from relier.cli.doctor.check_result import CheckResult, bad, ok, warn
from relier.cli.node_view import WorkerView
from relier.cli.output import ago, plural, span
from relier.cli.session import Session
from relier.errors import RelierError
from relier.ledger import keys
from relier.ledger.ledger import Ledger
from relier.ledger.schedule_records import CELERY, NATIVE
from relier.ledger.stats import Stats
from relier.settings import Settings
from relier.store.connect.address import target_of
from relier.store.sync_store import SyncStore

LONG_WAIT_MS = 300_000
LATE_MS = 10_000
CLOCKS_APART_MS = 2_000
LONG_RUN_MS = 86_400_000
EMPTIED_MS = 86_400_000  # an emptied store is reported as a problem this long, then as a warning


def check_namespace(session: Session, store: SyncStore) -> Iterator[CheckResult]:
    """Open an existing namespace, which also proves that the store accepts writes. Never create one."""
    name = session.settings.namespace
    if not store.command("EXISTS", keys.spell(session.ledger.prefix, "meta"), retry=True):
        yield warn(
            "namespace",
            f"Namespace {name!r} is empty: nothing was ever pushed to it.",
            "If you expected tasks, compare RELIER_NAMESPACE and RELIER_REDIS_URL with your application's.",
        )
        return
    try:
        store.run(session.ledger.open())
    except RelierError as error:
        yield bad("namespace", f"Namespace {name!r} cannot be used: {error}.", "Follow the message.")
    else:
        yield ok("namespace", f"Namespace {name!r} has layout {keys.LAYOUT}, like this version, and accepts writes.")


def check_birth(session: Session, store: SyncStore, stats: Stats) -> Iterator[CheckResult]:
    """Report an emptied or replaced store, as noted by processes that were running at the time."""
    yield from judge_birth(store.command("HGET", *birth_note(session.ledger), retry=True), stats)


def birth_note(ledger: Ledger) -> tuple[str, str]:
    """Return the key and the field of the note that a store was emptied."""
    return keys.spell(ledger.prefix, "meta"), "emptied"


def judge_birth(note: bytes | None, stats: Stats) -> Iterator[CheckResult]:
    if note is None:
        return
    at_ms, mark = note.decode().split()
    says = (
        f"The store was emptied or replaced: {ago(int(at_ms), stats.now_ms)} a process found that birth mark {mark} "
        f"was gone. Every task that was accepted before is lost, unless a backup or an outbox has it."
    )
    if stats.now_ms - int(at_ms) > EMPTIED_MS:
        yield warn("birth", says, "This was reported as a problem for a day, and is now a warning.")
    else:
        yield bad("birth", says, "Find the cause: FLUSHALL, a lost volume, or another server at this address.")


def check_workers(stats: Stats, workers: WorkerView) -> Iterator[CheckResult]:
    waiting = sum(queue.waiting for queue in stats.queues) + stats.scheduled
    if workers.alive:
        slots = sum(worker.concurrency or 0 for worker in workers.alive)
        running = sum(worker.owned for worker in workers.alive)
        of = f" in {plural(slots, 'slot')}" if slots else ""
        yield ok("workers", f"{plural(len(workers.alive), 'worker')} alive, running {plural(running, 'task')}{of}.")
        yield from _check_drained(waiting, workers)
    elif waiting:
        yield bad(
            "workers", f"No worker is alive, and {plural(waiting, 'task waits', 'tasks wait')}.", "Start `rl worker`."
        )
    else:
        yield warn("workers", "No worker is alive.", "No tasks are waiting. Start `rl worker` before pushing any.")
    gone = [worker for worker in workers.all if worker.health != "alive"]
    if gone:
        held = sum(worker.owned for worker in gone)
        says = f"{plural(len(gone), 'worker')} stopped sending heartbeats, holding {plural(held, 'task')}."
        if workers.alive:
            yield warn("workers", says, "A sweep returns the tasks within seconds. If this persists, see `rl workers`.")
        else:
            yield bad("workers", says, "No worker is left to return them: start `rl worker`.")
    for worker in workers.alive:
        idle = worker.polled_ms and stats.now_ms - worker.polled_ms
        if idle and idle > 60_000 and worker.concurrency and not worker.full and not worker.draining:
            yield warn(
                "workers",
                f"Worker {worker.node_id} sends heartbeats and has free slots, but has not asked for work for "
                f"{span(idle)}.",
                "Check its log, and restart it.",
            )


def _check_drained(waiting: int, workers: WorkerView) -> Iterator[CheckResult]:
    """Report workers that claim nothing because an operator drained them."""
    drained = [worker for worker in workers.alive if worker.draining]
    if drained:
        none_left = len(drained) == len(workers.alive) and waiting
        says = f"{plural(len(drained), 'worker is', 'workers are')} drained or stopping and will claim no task."
        advice = "Resume drained workers with `rl nodes resume`."
        yield (
            bad("workers", f"{says} No other worker is alive.", advice) if none_left else warn("workers", says, advice)
        )


def check_worker_clocks(workers: WorkerView) -> Iterator[CheckResult]:
    """Report workers whose clock is ahead of the store's.

    A worker reports when it last asked for work, by its own clock. That cannot be after the heartbeat that reports it.
    """
    for worker in workers.alive:
        ahead = (worker.polled_ms or 0) - worker.beat_ms
        if ahead > CLOCKS_APART_MS:
            yield warn(
                "clock",
                f"The clock of worker {worker.node_id} on {worker.host or 'an unknown host'} is at least {span(ahead)} "
                f"ahead of the store's clock.",
                "Leases are not affected, but times that its tasks compute are wrong: synchronise the host with NTP.",
            )


def check_embedded(settings: Settings, stats: Stats, workers: WorkerView) -> Iterator[CheckResult]:
    """Report an embedded store that serves more than development: a worker has run on it for a day."""
    oldest = min((worker.registered_ms for worker in workers.alive), default=stats.now_ms)
    if target_of(settings).kind == "embedded" and stats.now_ms - oldest > LONG_RUN_MS:
        yield warn(
            "store",
            f"A worker has run on the embedded store for {span(stats.now_ms - oldest)}: this store is for development, "
            f"on one machine, without replicas.",
            "In production, set RELIER_REDIS_URL to a server of your own.",
        )


def check_queues(stats: Stats, workers: WorkerView) -> Iterator[CheckResult]:
    waiting = [queue for queue in stats.queues if queue.waiting]
    alone = [queue for queue in waiting if workers.alive and workers.unattended(queue.queue)]
    for queue in alone:
        yield bad(
            "queues",
            f"{plural(queue.waiting, 'task waits', 'tasks wait')} in queue {queue.queue!r}, and no worker serves it.",
            "Start a worker for that queue.",
        )
    for queue in stats.queues:
        if queue.paused:
            yield warn(
                "queues",
                f"Queue {queue.queue!r} is paused; {plural(queue.waiting, 'task waits', 'tasks wait')} in it.",
                f"`rl queues pause` and `rl celery drain` pause queues. To continue: `rl queues resume {queue.queue}`.",
            )
    if not alone and not any(queue.paused for queue in stats.queues):
        ready = sum(queue.ready for queue in stats.queues)
        held = sum(queue.held_back for queue in stats.queues)
        behind = f", {plural(held, 'task')} held back by limits" if held else ""
        yield ok("queues", f"{plural(len(stats.queues), 'queue')}, {plural(ready, 'task')} ready{behind}.")
    oldest = min(((q.oldest_at_ms, q.queue) for q in waiting if q.oldest_at_ms), default=None)
    if oldest is not None and stats.now_ms - oldest[0] > LONG_WAIT_MS:
        yield warn(
            "queues",
            f"The oldest waiting task was queued {ago(oldest[0], stats.now_ms)} (queue {oldest[1]!r}).",
            "Workers are too few or stuck: start more, or see `rl workers`.",
        )


def check_schedule(session: Session, store: SyncStore, stats: Stats) -> Iterator[CheckResult]:
    """Check tasks that are scheduled for later, and schedules."""
    due = keys.spell(session.ledger.prefix, "due")
    yield from judge_schedule(store.command("ZRANGE", due, 0, 0, "WITHSCORES", retry=True), stats)
    yield from _check_schedules(session, store, stats)


def judge_schedule(first: Sequence[Any], stats: Stats) -> Iterator[CheckResult]:
    """Check whether scheduled tasks enter their queues. `first`: the one that is due first, and its score."""
    late = stats.now_ms - float(first[1]) if first else 0
    if late > LATE_MS:
        yield bad(
            "schedule",
            f"A scheduled task was due {span(late)} ago and has not entered its queue: no worker sweeps.",
            "Start `rl worker` or `rl resurrector`.",
        )
    else:
        yield ok("schedule", f"{plural(stats.scheduled, 'task')} scheduled, none late.")


def _check_schedules(session: Session, store: SyncStore, stats: Stats) -> Iterator[CheckResult]:
    """Report the most overdue schedule of each group. Say nothing about groups without schedules."""
    for group, starts in ((NATIVE, "`rl worker` or `rl scheduler`"), (CELERY, "`celery beat -S relier.celery:Beat`")):
        index = keys.spell(session.ledger.prefix, "schedules", group)
        first: Any = store.command("ZRANGE", index, 0, 0, "WITHSCORES", retry=True)
        late = stats.now_ms - float(first[1]) if first else 0
        if late > LATE_MS:
            says = f"Schedule {first[0].decode(errors='replace')!r} was due {span(late)} ago: nobody fires it."
            yield bad("schedules", says, f"Start {starts}.")
        elif first:
            every = store.command("ZCARD", index, retry=True)
            yield ok("schedules", f"{plural(every, 'schedule')}, none late.")


def check_dead(stats: Stats) -> Iterator[CheckResult]:
    if dead := stats.ended["dead"]:
        yield warn(
            "dead letters", f"{plural(dead, 'dead letter')}.", "List them with `rl dlq`, then replay or discard them."
        )
    else:
        yield ok("dead letters", "No dead letters.")
    if strays := stats.counts.get("strays", 0):
        yield warn(
            "records",
            f"{plural(strays, 'index entry', 'index entries')} had no record: another program deleted records.",
            "Run `rl audit`.",
        )
