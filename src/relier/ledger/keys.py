"""Every key Relier writes, and the only place that spells them.

All keys of a namespace begin with one prefix that holds its hash tag, `rl:{<namespace>}:`, so a namespace lives in one
slot of a cluster. Scripts get that prefix as KEYS[1] and name keys by a word in capitals (`TASK .. id`), for which
the spelling below is put in when they are loaded.

No key's life depends on its expiry: what ends a record is the index `ended` and the reaper, and every mark that stops
counting at some time carries that time in its value. An expiry is set only where it could not hurt (ended records,
marks) and only as a backstop for a namespace nobody sweeps any more.
"""

from __future__ import annotations

from dataclasses import dataclass

LAYOUT = "1"


@dataclass(frozen=True, slots=True)
class Key:
    """One kind of key: `spelled` + what it is `per` (an id, a queue, …), its Redis type, its owner and its end."""

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
    Key("counts", "counts", None, "hash", "cumulative counters, one field a kind of event", "namespace", "never"),
    Key("queues", "queues", None, "set", "queues that hold a task, or did lately", "namespace", "when empty"),
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
    Key("more", "m:", "id", "hash", "what few records need: key, reason, counts, …", "task", "reap, discard"),
    Key("history", "h:", "id", "list", "a JSON array per attempt that did not commit", "task", "reap, discard"),
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
        "ids that no worker had yet, by `expires` (TIME, ms); beside the index they are in",
        "namespace",
        "when empty",
    ),
    Key("owned", "o:", "boot", "zset", "running ids by time of claim (TIME, ms)", "boot", "when empty"),
    Key("ended", "e:", "state", "zset", "ended ids by end of life (TIME, ms)", "namespace", "when empty"),
    # who works
    Key(
        "boots",
        "boots",
        None,
        "zset",
        "boot -> end of its lease (ledger clock, ms); 0 = declared lost",
        "namespace",
        "when empty",
    ),
    Key("leases", "leases", None, "zset", "boot -> the length of its lease (ms)", "namespace", "when empty"),
    Key(
        "worker",
        "w:",
        "boot",
        "hash",
        "what the boot said of itself; its last claims by lane",
        "boot",
        "retire, revive",
    ),
    Key(
        "asked",
        "x:",
        "boot",
        "set",
        "`<id> <fence>` of attempts asked to cancel",
        "boot",
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
    """KEYS[1] of every script."""
    return f"{key_prefix}{{{namespace}}}:"


def spell(namespace_prefix: str, name: str, of: str = "") -> str:
    """The full key of one thing, for tests, tools and the doorbell."""
    return f"{namespace_prefix}{BY_NAME[name].spelled}{of}"


SPELLED = {key.name.upper(): f"P .. '{key.spelled}'" for key in SCHEMA}
