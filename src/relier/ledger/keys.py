"""All keys that Relier writes. No other module spells them.

All keys of a namespace begin with one prefix that holds its hash tag, `rl:{<namespace>}:`, so a namespace lives in one
slot of a cluster. Scripts get that prefix as KEYS[1] and refer to keys by a word in capitals (`TASK .. id`), which is
replaced by the spelling below when they are loaded.

Correctness never depends on an expiry. Records are removed by the reaper, through the index `ended`, and every mark
with a time limit stores that limit in its value. Keys get an expiry only where it can do no harm (ended records,
marks), in case a namespace is no longer swept.

The keys `boots`, `owned`, `worker` and `asked` are per worker id. Stored names keep the older word "boot".
"""

from __future__ import annotations

from dataclasses import dataclass

LAYOUT = "1"


@dataclass(frozen=True, slots=True)
class Key:
    """One kind of key: its spelling, what it is `per` (an id, a queue, …), its Redis type, its owner and its end."""

    name: str
    spelled: str
    per: str | None
    type: str
    holds: str
    owner: str
    end: str


SCHEMA: tuple[Key, ...] = (
    # the namespace
    Key(
        "meta",
        "meta",
        None,
        "hash",
        "layout version; `born`: the birth mark; `emptied`: `<when (ms)> <earlier mark>`; `touched`, to confirm",
        "namespace",
        "never",
    ),
    Key("clock", "clock", None, "string", "the ledger clock: now, last TIME, clamp, grace (ms)", "namespace", "never"),
    Key("counts", "counts", None, "hash", "cumulative counters, one field per kind of event", "namespace", "never"),
    Key("queues", "queues", None, "set", "queues that hold a task, or did recently", "namespace", "when empty"),
    Key("idle", "idle", None, "zset", "empty queues, by since when (TIME, ms)", "namespace", "when empty"),
    Key("pauses", "pauses", None, "hash", "queue -> `<1|0> <version>`: paused or not", "namespace", "when empty"),
    # the task
    Key(
        "task",
        "t:",
        "id",
        "string",
        "the record with its payload, or its tombstone; see lua/lib/layout.lua",
        "task",
        "reap, discard",
    ),
    Key("more", "m:", "id", "hash", "optional fields of a record: key, reason, counts, …", "task", "reap, discard"),
    Key("history", "h:", "id", "list", "one JSON array per attempt that did not commit", "task", "reap, discard"),
    Key("checkpoint", "c:", "id", "string", "the last checkpoint", "task", "commit, cancel, reap, discard"),
    Key(
        "steps",
        "s:",
        "id",
        "hash",
        "step name -> recorded result; part -> value of a join",
        "task",
        "commit, cancel, reap, discard",
    ),
    # where a task is: a live one in exactly one of due, ready, owned; an ended one in ended
    Key("due", "due", None, "zset", "scheduled ids by the time they are due (TIME, ms)", "namespace", "never"),
    Key(
        "ready",
        "q:",
        "queue",
        "zset",
        "queued ids by order (order.lua); revived ones below zero",
        "queue",
        "when empty",
    ),
    Key(
        "expiring",
        "expiring",
        None,
        "zset",
        "ids not yet claimed, by `expires` (TIME, ms); in addition to their index",
        "namespace",
        "when empty",
    ),
    Key("owned", "o:", "worker id", "zset", "running ids by time of claim (TIME, ms)", "worker", "when empty"),
    Key("ended", "e:", "state", "zset", "ended ids by end of life (TIME, ms)", "namespace", "when empty"),
    # workers
    Key(
        "boots",
        "boots",
        None,
        "zset",
        "worker id -> end of its lease (ledger clock, ms); 0 = declared lost",
        "namespace",
        "when empty",
    ),
    Key("leases", "leases", None, "zset", "worker id -> length of its lease (ms)", "namespace", "when empty"),
    Key(
        "worker",
        "w:",
        "worker id",
        "hash",
        "what the worker reported about itself; its last claims by lane",
        "worker",
        "retire, revive",
    ),
    Key(
        "asked",
        "x:",
        "worker id",
        "set",
        "`<id> <fence>` of attempts to cancel",
        "worker",
        "their settling; retire, revive",
    ),
    Key("bell", "b:", "queue", "list", "empty or one element: there may be work", "queue", "taken by a worker; reap"),
    Key("outbox", "ob", None, "list", "empty or one element: an outbox may have rows", "namespace", "taken by a relay"),
    # guards
    Key(
        "idem",
        "i:",
        "key",
        "string",
        "`<id>` while the task lives, `<id> <until ms>` once done",
        "task",
        "its end; expiry",
    ),
    Key("rate", "a:", "limit", "string", "GCRA: theoretical arrival time (µs)", "namespace", "expiry"),
    Key(
        "lock",
        "l:",
        "key",
        "string",
        "a lock of user code: who holds it until when, or its result; see lua/lib/hold.lua",
        "namespace",
        "expiry; its own end of life",
    ),
)

BY_NAME = {key.name: key for key in SCHEMA}


def prefix(namespace: str, key_prefix: str = "rl:") -> str:
    """Return the prefix of a namespace: KEYS[1] of every script."""
    return f"{key_prefix}{{{namespace}}}:"


def spell(namespace_prefix: str, name: str, of: str = "") -> str:
    """Return a full key, for tests, tools and the doorbell."""
    return f"{namespace_prefix}{BY_NAME[name].spelled}{of}"


SPELLED = {key.name.upper(): f"P .. '{key.spelled}'" for key in SCHEMA}
