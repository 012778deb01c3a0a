"""Find out what the server can do by trying commands, never by its version string."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from hiredis import ReplyError

from relier.errors import StoreSetupError
from relier.settings import Settings
from relier.store.batch import Confirmation
from relier.store.call import Durability
from relier.store.replies import code_of, failure_of

log = logging.getLogger("relier.store")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Hold what the probe found. None means unknown: the server did not report it (ACL, managed service)."""

    scripts: bool | None
    streams: bool | None
    wait: bool | None
    waitaof: bool | None
    hash_field_expiry: bool | None
    role: str | None
    aof: bool | None
    appendfsync: str | None
    rdb: bool | None
    eviction_policy: str | None

    @property
    def persistent(self) -> bool | None:
        """Return whether the server writes data to disk, or None if that is unknown."""
        if self.aof or self.rdb:
            return True
        return False if self.aof is False and self.rdb is False else None


def probe_commands(settings: Settings) -> list[tuple[Any, ...]]:
    """Return the probe's commands, which form one pipeline. None of them writes."""
    key = f"{settings.key_prefix}{{{settings.namespace}}}:probe"
    return [
        ("EVAL", "return 1", 0),
        ("XLEN", key),
        ("WAIT", 0, 1),
        ("WAITAOF", 0, 0, 1),
        ("HTTL", key, "FIELDS", 1, "f"),
        ("ROLE",),
        ("CONFIG", "GET", "appendonly"),
        ("CONFIG", "GET", "appendfsync"),
        ("CONFIG", "GET", "save"),
        ("CONFIG", "GET", "maxmemory-policy"),
        ("INFO", "persistence"),
        ("INFO", "memory"),
        ("INFO", "replication"),
    ]


def capabilities_of(replies: list[Any]) -> Capabilities:
    """Parse the probe's replies. Raise AttemptError if the server cannot answer at the moment (LOADING)."""
    for reply in replies:
        if isinstance(reply, ReplyError) and (failure := failure_of(reply)).retry:
            raise failure
    scripts, streams, wait, waitaof, expiry, role, *rest = replies
    aof, fsync, save, policy = (_config_value(reply) for reply in rest[:4])
    info = _info_fields(rest[4:])
    return Capabilities(
        scripts=_is_supported(scripts),
        streams=_is_supported(streams),
        wait=_is_supported(wait),
        waitaof=_is_supported(waitaof),
        hash_field_expiry=_is_supported(expiry),
        role=info.get("role") if isinstance(role, ReplyError) else role[0].decode(),
        aof=aof == "yes" if aof is not None else _is_one(info.get("aof_enabled")),
        appendfsync=fsync,
        rdb=None if save is None else save != "",
        eviction_policy=policy or info.get("maxmemory_policy"),
    )


def check_server(found: Capabilities, settings: Settings, redacted_url: str, *, warn: bool) -> None:
    """Refuse a server that would lose tasks by design; warn about one that may lose them by accident."""
    if found.scripts is False:
        raise StoreSetupError(
            f"the store at {redacted_url} cannot be used: it cannot run scripts; use Redis 6.2, Valkey 7.2 or newer"
        )
    policy = found.eviction_policy
    if policy not in (None, "noeviction") and not settings.redis_allow_eviction:
        raise StoreSetupError(
            f"the store at {redacted_url} cannot be used: its maxmemory-policy {policy} deletes tasks when memory "
            f"runs short; set maxmemory-policy noeviction, or accept the loss with RELIER_REDIS_ALLOW_EVICTION=true"
        )
    if warn and found.persistent is False:
        log.warning(
            "store is not persistent: store=%s aof=off rdb=off; a restart loses every task; "
            "turn on appendonly, or ignore this in tests",
            redacted_url,
        )


def confirmation_of(level: Durability, found: Capabilities, replicas: int) -> Confirmation:
    """Return how a write of that level is confirmed on this server. Raise StoreSetupError if it cannot be."""
    if level is Durability.REPLICATED:
        return Confirmation("WAIT", replicas)
    if found.aof is False:
        raise StoreSetupError(
            "cannot confirm durability 'fsync': the server's AOF is off; set appendonly yes, or use durability 'memory'"
        )
    if found.waitaof:
        return Confirmation("WAITAOF")
    if found.aof and found.appendfsync == "always":
        return Confirmation("")
    raise StoreSetupError(
        f"cannot confirm durability 'fsync': the server has no WAITAOF, and its appendfsync is "
        f"{found.appendfsync or 'unknown'}; set appendfsync always, or use Redis 7.2, Valkey 7.2 or newer"
    )


def _is_supported(reply: Any) -> bool | None:
    if not isinstance(reply, ReplyError):
        return True
    if code_of(reply) == "NOPERM":
        return None
    return "unknown command" not in str(reply).lower()


def _config_value(reply: Any) -> str | None:
    """Return the value of one CONFIG GET, or None if it was denied or the server does not know the setting."""
    return reply[1].decode() if isinstance(reply, list) and len(reply) == 2 else None


def _info_fields(replies: list[Any]) -> dict[str, str]:
    lines = b"\n".join(reply for reply in replies if isinstance(reply, bytes)).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _is_one(text: str | None) -> bool | None:
    return None if text is None else text == "1"
