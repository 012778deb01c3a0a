"""Compare a live server with scripts/redis/redis.conf: disk settings that weaken what a push promises."""

from __future__ import annotations

from collections.abc import Iterator

from relier.cli.doctor.check_result import CheckResult, warn
from relier.errors import RelierError
from relier.settings import Settings
from relier.store.connect.address import target_of
from relier.store.connect.probe import Capabilities
from relier.store.sync_store import SyncStore

FULL_COVERAGE = "cluster-require-full-coverage"
WEAKER = (  # setting, the weak value, what it costs
    (
        "no-appendfsync-on-rewrite",
        "yes",
        "while the AOF is rewritten nothing reaches the disk, so a power cut costs the whole rewrite",
    ),
    ("auto-aof-rewrite-percentage", "0", "the AOF is never rewritten: it grows until the disk is full"),
    ("aof-use-rdb-preamble", "no", "the AOF holds only commands, so a restart takes several times as long"),
    ("aof-load-truncated", "no", "after a power cut the server does not start until a person repairs its AOF"),
)
STRONG = {
    "no-appendfsync-on-rewrite": "no",
    "auto-aof-rewrite-percentage": "100",
    "aof-use-rdb-preamble": "yes",
    "aof-load-truncated": "yes",
}


def check_server_config(settings: Settings, store: SyncStore, found: Capabilities) -> Iterator[CheckResult]:
    """Warn about each weaker setting of a cluster with shards, and of a server with an AOF.

    A server that hides its settings is not judged.
    """
    yield from _check_cluster(settings, store)
    if not found.aof:
        return
    for name, weak, cost in WEAKER:
        if _setting(store, name) == weak:
            yield warn(
                "persistence",
                f"{name} is {weak}: {cost}.",
                f"Run `CONFIG SET {name} {STRONG[name]}`, and set it in the server's configuration file.",
            )


def _check_cluster(settings: Settings, store: SyncStore) -> Iterator[CheckResult]:
    """Warn if the loss of one master of a Redis Cluster would stop the shards on all others."""
    if settings.shards == 1 or target_of(settings).kind != "cluster":
        return
    if _setting(store, FULL_COVERAGE) == "yes":
        yield warn(
            "cluster",
            f"{FULL_COVERAGE} is yes: while any slot has no master, every master refuses, so all shards stop at once.",
            f"Run `CONFIG SET {FULL_COVERAGE} no` on every node, and set it in their configuration files.",
        )


def _setting(store: SyncStore, name: str) -> str | None:
    try:
        reply = store.command("CONFIG", "GET", name, retry=True)
    except RelierError:  # an ACL or a managed service hides it
        return None
    return reply[1].decode() if isinstance(reply, list) and len(reply) == 2 else None
