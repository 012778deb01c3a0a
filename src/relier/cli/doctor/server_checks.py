"""Check the server behind the store: latency, version, persistence, replicas, memory and clock."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from relier.cli.doctor.check_result import CheckResult, bad, ok, warn
from relier.cli.output import plural, span
from relier.errors import RelierError, StoreReplyError
from relier.settings import Settings
from relier.store.call import Durability
from relier.store.connect.probe import Capabilities
from relier.store.sync_store import SyncStore
from relier.task import RlTask

SLOW_MS = 50
CLOCKS_APART_MS = 2_000


def info_of(store: SyncStore) -> dict[str, str]:
    """Return the fields of INFO, empty if the server does not allow it."""
    try:
        raw = store.command("INFO", retry=True)
    except StoreReplyError:
        return {}
    except RelierError as error:
        if "NOPERM" in str(error):
            return {}
        raise
    return info_fields(raw)


def info_fields(raw: Any) -> dict[str, str]:
    """Return the fields in the reply to INFO."""
    lines = raw.decode("utf-8", "replace").splitlines() if isinstance(raw, bytes) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


def check_reach(store: SyncStore) -> Iterator[CheckResult]:
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
        yield warn("reach", says, "High latency: run workers and producers closer to the store.")


def check_clock(store: SyncStore) -> Iterator[CheckResult]:
    before = time.time()
    reply = store.command("TIME", retry=True)
    yield from judge_clock(reply, before, time.time())


def judge_clock(reply: Sequence[bytes], before: float, after: float) -> Iterator[CheckResult]:
    """Compare the reply to TIME with the local clock before and after the question."""
    seconds, micros = reply
    apart = (int(seconds) + int(micros) / 1e6 - (before + after) / 2) * 1000
    if abs(apart) <= max(CLOCKS_APART_MS, (after - before) * 1000):
        yield ok("clock", f"The store's clock and the local clock differ by {span(abs(apart))}.")
        return
    yield warn(
        "clock",
        f"The store's clock is {span(abs(apart))} {'ahead of' if apart > 0 else 'behind'} the local clock.",
        "Leases are not affected, but delayed tasks start by the store's clock: synchronise both with NTP.",
    )


def check_server(info: Mapping[str, str], found: Capabilities) -> Iterator[CheckResult]:
    kind = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version") or "of unknown version"
    lacks = [
        name
        for name, has in (("scripts", found.scripts), ("streams", found.streams), ("WAIT", found.wait))
        if has is False
    ]
    if found.role in {"slave", "replica"}:
        yield bad("server", f"{kind} {version} is a replica.", "Set RELIER_REDIS_URL to the primary, or use Sentinel.")
    if lacks:
        yield bad("server", f"{kind} {version} lacks {', '.join(lacks)}.", "Use Redis 6.2 or Valkey 7.2, or newer.")
    else:
        waitaof = {True: "WAITAOF", False: "no WAITAOF", None: "WAITAOF unknown"}[found.waitaof]
        yield ok("server", f"{kind} {version}: scripts, streams, WAIT, {waitaof}.")


def check_persistence(info: Mapping[str, str], found: Capabilities) -> Iterator[CheckResult]:
    if found.persistent is False:
        yield bad(
            "persistence",
            "The store does not persist to disk: a restart loses every task.",
            "Enable the AOF with `CONFIG SET appendonly yes`, and in the server's configuration file.",
        )
    elif found.persistent is None:
        yield warn(
            "persistence",
            "The server does not report whether it writes to disk.",
            "Ask its operator for the AOF.",
        )
    elif found.aof:
        says = {"always": "nothing", "everysec": "up to a second of work", "no": "up to half a minute of work"}
        lost = says.get(found.appendfsync or "", "some work")
        told = f"The AOF is on (appendfsync {found.appendfsync or 'unknown'}): power loss costs {lost}."
        advice = "Run `CONFIG SET appendfsync everysec`, and set it in the server's configuration file."
        yield warn("persistence", told, advice) if found.appendfsync == "no" else ok("persistence", told)
    else:
        yield warn(
            "persistence",
            "Only snapshots (RDB) are written to disk: a crash loses the tasks since the last snapshot.",
            "Enable the AOF with `CONFIG SET appendonly yes`, and in the server's configuration file.",
        )
    for field, what in (("aof_last_write_status", "AOF"), ("rdb_last_bgsave_status", "snapshot")):
        if info.get(field, "ok") != "ok":
            yield bad("persistence", f"The last write of the {what} failed.", "Check the server's log and disk space.")


def check_durability(
    settings: Settings,
    info: Mapping[str, str],
    found: Capabilities,
    known: int | None = None,
    tasks: Iterable[RlTask[Any, Any]] = (),
) -> Iterator[CheckResult]:
    """Check that the store can confirm the durability that the settings and these tasks ask for.

    `known`: the number of replicas the store waits for if RELIER_REDIS_REPLICAS is not set.
    """
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
        yield trouble or ok("durability", f"Durability is {level}; {plural(online, 'replica')} connected.")


def _cannot_sync(who: str, found: Capabilities) -> CheckResult | None:
    if found.aof is not False and (found.waitaof or (found.aof and found.appendfsync == "always")):
        return None
    return bad(
        "durability",
        f"{who}, but this server cannot confirm it: every push would fail.",
        "Set appendonly yes and appendfsync always, or use Redis 7.2, Valkey 7.2 or newer with the AOF on.",
    )


def _cannot_replicate(who: str, pinned: int | None, online: int) -> CheckResult | None:
    """Return why `replicated` cannot be kept, or None. Every replica that could be promoted must confirm a write."""
    if not pinned:
        why = (
            "the number of replicas that could be promoted is unknown"
            if pinned is None
            else "the number of replicas is 0"
        )
        return bad(
            "durability",
            f"{who}, but {why}: every push would be refused.",
            "Set RELIER_REDIS_REPLICAS to the number of replicas, or use a sentinel:// URL; or ask for fsync.",
        )
    if online < pinned:
        return bad(
            "durability",
            f"{who}, but {plural(online, 'replica is', 'replicas are')} connected, not {pinned}: pushes will fail.",
            "Restore the replicas, or lower RELIER_REDIS_REPLICAS if one is gone permanently.",
        )
    if online > pinned:
        return bad(
            "durability",
            f"{who}, but {online} replicas are connected and only {pinned} must confirm: a failover to another one "
            f"loses acknowledged tasks.",
            f"Set RELIER_REDIS_REPLICAS to {online}.",
        )
    return None


def _online(info: Mapping[str, str]) -> int:
    replicas = [line for name, line in info.items() if re.fullmatch(r"slave\d+", name)]
    return sum("state=online" in line for line in replicas) if replicas else int(info.get("connected_slaves") or 0)


def check_memory(info: Mapping[str, str], found: Capabilities, settings: Settings) -> Iterator[CheckResult]:
    policy = found.eviction_policy
    if policy not in (None, "noeviction"):
        advice = "Run `CONFIG SET maxmemory-policy noeviction`, and set it in the server's configuration file."
        says = f"maxmemory-policy is {policy}: the store deletes tasks when memory runs out."
        yield warn("memory", says, advice) if settings.redis_allow_eviction else bad("memory", says, advice)
    used, most = int(info.get("used_memory", "0") or 0), int(info.get("maxmemory", "0") or 0)
    if not used:
        yield warn("memory", "The server does not report its memory use.", "Ask its operator.")
    elif not most:
        yield from _check_unlimited(used, info)
    else:
        if settings.admission_max_bytes >= most:
            yield warn(
                "memory",
                f"RELIER_ADMISSION_MAX_BYTES is {_bytes(settings.admission_max_bytes)}, and maxmemory is "
                f"{_bytes(most)}: the store is full before that limit refuses a push.",
                "Set RELIER_ADMISSION_MAX_BYTES to half of maxmemory, or raise maxmemory.",
            )
        share = used / most
        says = f"The store uses {_bytes(used)} of {_bytes(most)} ({share:.0%})."
        if share < 0.8:
            yield ok("memory", says)
        else:
            make = bad if share >= 0.95 else warn
            yield make("memory", says, "Raise maxmemory, or let workers catch up: a full store accepts no tasks.")


def _check_unlimited(used: int, info: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check a server without maxmemory. When the host has no memory left, the system kills the server."""
    says, host = (
        f"The store uses {_bytes(used)} and has no memory limit",
        int(info.get("total_system_memory", "0") or 0),
    )
    if host and used > host / 2:
        yield warn(
            "memory",
            f"{says}, on a host with {_bytes(host)}: without memory, the system kills the store.",
            "Set maxmemory to less than the host has, so that a full store refuses tasks instead.",
        )
    else:
        yield ok("memory", f"{says}.")


def _bytes(n: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"
