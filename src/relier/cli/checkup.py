"""What `rl doctor` looks at, and what it says of it: each check yields verdicts in words.

Levels: ok, warn (it works, but look at it), bad (tasks cannot run, or may be lost). Each warn and bad says what to do.
"""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from relier.cli.session import Session
from relier.cli.show import ago, many, one_line, span
from relier.cli.staff import Staff
from relier.errors import ConfigurationError, RelierError, StoreReplyError
from relier.ledger import keys
from relier.ledger.records import Stats
from relier.redact import check_hook
from relier.run.checkpoint_files import Named, folder_for
from relier.settings import OUTBOX_DATABASE, Settings
from relier.store.call import Durability
from relier.store.connect.address import redact
from relier.store.connect.probe import Capabilities
from relier.store.sync_store import SyncStore
from relier.task import RlTask

Level = Literal["ok", "warn", "bad"]
SLOW_MS = 50
CLOCKS_APART_MS = 2_000
LONG_WAIT_MS = 300_000
LATE_MS = 10_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the doctor's: what was looked at, how it is, in words, and what to do about it."""

    check: str
    level: Level
    says: str
    advice: str = ""


def ok(check: str, says: str) -> Verdict:
    return Verdict(check, "ok", says)


def warn(check: str, says: str, advice: str) -> Verdict:
    return Verdict(check, "warn", says, advice)


def bad(check: str, says: str, advice: str) -> Verdict:
    return Verdict(check, "bad", says, advice)


# --- settings ----------------------------------------------------------------------------------------------------


def check_settings(session: Session, environment: Mapping[str, str]) -> Iterator[Verdict]:
    """Which settings are not the default, and who said so. A misspelt variable does nothing."""
    settings = session.settings
    fields = type(settings).model_fields
    changed = [name for name, field in fields.items() if getattr(settings, name) != field.default]
    told = ", ".join(f"{name} = {_value(settings, name)} ({_source(session, name)})" for name in changed)
    yield ok("settings", f"Settings are valid; {f'not the defaults: {told}' if told else 'all are the defaults'}.")
    known = {OUTBOX_DATABASE, *(f"RELIER_{name}".upper() for name in fields)}
    for variable in sorted(environment):
        if variable.upper().startswith("RELIER_") and variable.upper() not in known:
            near = difflib.get_close_matches(variable.upper(), known, 1)
            yield warn(
                "settings",
                f"{variable} is set, but there is no such setting: it does nothing.",
                f"Did you mean {near[0]}?" if near else "Remove it, or correct its name.",
            )


def _value(settings: Settings, name: str) -> str:
    value = getattr(settings, name)
    return one_line(redact(value) if isinstance(value, str) else str(value))


def _source(session: Session, name: str) -> str:
    if (name == "redis_url" and session.url is not None) or (name == "namespace" and session.namespace is not None):
        return "--url" if name == "redis_url" else "--namespace"
    return f"RELIER_{name.upper()}"


def environment() -> Mapping[str, str]:
    """Settings are read in one place. This only looks for variables that no setting took."""
    return os.environ


def check_keys(session: Session) -> Iterator[Verdict]:
    """Whether what the settings name can be used: keys, and the hook that decides what people see."""
    try:
        keyring = session.keyring
        check_hook(session.settings)
    except ConfigurationError as error:
        yield bad("keys", f"{error}.", "Correct it: with this nothing is pushed, and no worker starts.")
        return
    if keyring.signs:
        told = f"{keyring!r}; the first of each is in use"
        yield ok("keys", f"What is pushed is signed{' and encrypted' if keyring.encrypts else ''}. {told}.")
    elif keyring.encrypts:
        yield warn(
            "keys",
            "Values are encrypted, but nothing is signed: who can write to the store can have a worker run anything.",
            "Set RELIER_SIGNING_KEYS too.",
        )


# --- the server --------------------------------------------------------------------------------------------------


def info_of(store: SyncStore) -> dict[str, str]:
    """INFO, as far as the server tells."""
    try:
        raw = store.command("INFO", retry=True)
    except StoreReplyError:
        return {}
    except RelierError as error:
        if "NOPERM" in str(error):
            return {}
        raise
    lines = raw.decode("utf-8", "replace").splitlines() if isinstance(raw, bytes) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


def check_reach(store: SyncStore) -> Iterator[Verdict]:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        store.command("PING", retry=True)
        times.append((time.perf_counter() - began) * 1000)
    typical = sorted(times)[2]
    says = f"The store answers in {typical:.2f} ms."
    if typical <= SLOW_MS:
        yield ok("reach", says)
    else:
        yield warn("reach", says, "That is far away: run workers and producers nearer to it.")


def check_clock(store: SyncStore) -> Iterator[Verdict]:
    before = time.time()
    seconds, micros = store.command("TIME", retry=True)
    after = time.time()
    apart = (int(seconds) + int(micros) / 1e6 - (before + after) / 2) * 1000
    if abs(apart) <= max(CLOCKS_APART_MS, (after - before) * 1000):
        yield ok("clock", f"The store's clock and this one are {span(abs(apart))} apart.")
        return
    yield warn(
        "clock",
        f"The store's clock is {span(abs(apart))} {'ahead of' if apart > 0 else 'behind'} this one.",
        "Leases do not mind, but delayed tasks begin by the store's clock: set both by NTP.",
    )


def check_server(info: Mapping[str, str], found: Capabilities) -> Iterator[Verdict]:
    kind = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version") or "of unknown version"
    lacks = [
        name
        for name, has in (("scripts", found.scripts), ("streams", found.streams), ("WAIT", found.wait))
        if has is False
    ]
    if found.role in {"slave", "replica"}:
        yield bad("server", f"{kind} {version} is a replica.", "Point RELIER_REDIS_URL to the master, or at Sentinel.")
    if lacks:
        yield bad("server", f"{kind} {version} has no {', '.join(lacks)}.", "Use Redis 6.2 or Valkey 7.2, or newer.")
    else:
        waitaof = {True: "WAITAOF", False: "no WAITAOF", None: "WAITAOF unknown"}[found.waitaof]
        yield ok("server", f"{kind} {version}: scripts, streams, WAIT, {waitaof}.")


def check_persistence(info: Mapping[str, str], found: Capabilities) -> Iterator[Verdict]:
    if found.persistent is False:
        yield bad(
            "persistence",
            "The store keeps nothing on disk: a restart loses every task.",
            "Turn on the AOF: `CONFIG SET appendonly yes`, and in its configuration file.",
        )
    elif found.persistent is None:
        yield warn(
            "persistence", "The store does not say whether it writes to disk.", "Ask whoever runs it for its AOF."
        )
    elif found.aof:
        says = {"always": "nothing", "everysec": "up to a second of work", "no": "up to half a minute of work"}
        lost = says.get(found.appendfsync or "", "some work")
        yield ok("persistence", f"AOF is on (appendfsync {found.appendfsync or 'unknown'}): a power cut loses {lost}.")
    else:
        yield warn(
            "persistence",
            "Only snapshots (RDB) reach the disk: a crash of the store loses the tasks since the last one.",
            "Turn on the AOF: `CONFIG SET appendonly yes`, and in its configuration file.",
        )
    for field, what in (("aof_last_write_status", "AOF"), ("rdb_last_bgsave_status", "snapshot")):
        if info.get(field, "ok") != "ok":
            yield bad(
                "persistence", f"The last write of the {what} failed.", "See the server's log and its disk space."
            )


def check_durability(
    settings: Settings,
    info: Mapping[str, str],
    found: Capabilities,
    known: int | None = None,
    tasks: Iterable[RlTask[Any, Any]] = (),
) -> Iterator[Verdict]:
    """Whether this store can confirm what the setting and these tasks ask for. `known`: how many replicas the store
    would wait for, where the setting does not say."""
    pinned = known if settings.redis_replicas is None else settings.redis_replicas
    online = _online(info)
    wanted = {Durability(settings.durability): f"RELIER_DURABILITY is {settings.durability}"}
    for task in tasks:
        if task.options.durability is not None:
            wanted.setdefault(task.options.durability, f"Task {task.name} asks for {task.options.durability}")
    for level, who in wanted.items():
        trouble = None
        if level is Durability.FSYNC:
            trouble = _cannot_sync(who, found)
        elif level is Durability.REPLICATED:
            trouble = _cannot_replicate(who, pinned, online)
        yield trouble or ok("durability", f"Tasks are accepted at {level}; {many(online, 'replica')} connected.")


def _cannot_sync(who: str, found: Capabilities) -> Verdict | None:
    if found.aof is not False and (found.waitaof or (found.aof and found.appendfsync == "always")):
        return None
    return bad(
        "durability",
        f"{who}, but this server cannot confirm it: every push would fail.",
        "Set appendonly yes and appendfsync always, or use Redis 7.2, Valkey 7.2 or newer with the AOF on.",
    )


def _cannot_replicate(who: str, pinned: int | None, online: int) -> Verdict | None:
    """`replicated` holds only where every replica that could be promoted confirms: none may be left uncounted."""
    if not pinned:
        why = "how many replicas could be promoted is not known" if pinned is None else "there are to be 0 replicas"
        return bad(
            "durability",
            f"{who}, but {why}: every push would be refused.",
            "Set RELIER_REDIS_REPLICAS to the number of replicas, or use a sentinel:// URL; or ask for fsync.",
        )
    if online < pinned:
        return bad(
            "durability",
            f"{who}, but {many(online, 'replica is', 'replicas are')} connected of {pinned}: pushes are not confirmed.",
            "Bring the replicas back, or lower RELIER_REDIS_REPLICAS if one is gone for good.",
        )
    if online > pinned:
        return bad(
            "durability",
            f"{who}, but {online} replicas are connected and {pinned} of them need to confirm: a failover to another "
            f"loses acknowledged tasks.",
            f"Set RELIER_REDIS_REPLICAS to {online}.",
        )
    return None


def _online(info: Mapping[str, str]) -> int:
    replicas = [line for name, line in info.items() if re.fullmatch(r"slave\d+", name)]
    return sum("state=online" in line for line in replicas) if replicas else int(info.get("connected_slaves") or 0)


def check_checkpoints(settings: Settings) -> Iterator[Verdict]:
    """Whether large checkpoints could be kept from here: one is written, read and removed."""
    if not settings.checkpoint_dir:
        return
    where, name = redact(settings.checkpoint_dir), Named("doctor", "0", os.getpid()).file
    try:
        folder = folder_for(settings)
        if folder is not None:
            folder.write(name, b"j1")
            folder.read(name)
            folder.remove(name)
    except RelierError as error:
        yield bad("checkpoints", f"Large checkpoints cannot be kept: {error}.", "Correct RELIER_CHECKPOINT_DIR.")
    else:
        yield ok("checkpoints", f"Large checkpoints are kept in {where}, which can be written from here.")


def check_memory(info: Mapping[str, str], found: Capabilities, settings: Settings) -> Iterator[Verdict]:
    policy = found.eviction_policy
    if policy not in (None, "noeviction"):
        advice = "`CONFIG SET maxmemory-policy noeviction`, and in its configuration file."
        says = f"maxmemory-policy is {policy}: under memory pressure the store deletes tasks."
        yield warn("memory", says, advice) if settings.redis_allow_eviction else bad("memory", says, advice)
    used, most = int(info.get("used_memory", "0") or 0), int(info.get("maxmemory", "0") or 0)
    if not used:
        yield warn("memory", "The store does not say how much memory it uses.", "Ask whoever runs it.")
    elif not most:
        yield ok("memory", f"The store uses {_bytes(used)} and has no limit of its own.")
    else:
        share = used / most
        says = f"The store uses {_bytes(used)} of {_bytes(most)} ({share:.0%})."
        if share < 0.8:
            yield ok("memory", says)
        else:
            make = bad if share >= 0.95 else warn
            yield make("memory", says, "Raise maxmemory or let queues drain: a full store accepts no task.")


def _bytes(n: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


# --- the ledger --------------------------------------------------------------------------------------------------


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
                f"Worker {worker.boot} beats, but has not asked for work for {span(idle)}, though it has free slots.",
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
