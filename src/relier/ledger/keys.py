"""All keys that Relier writes. No other module spells them.

All keys of a namespace begin with one prefix that holds its hash tag, `rl:{<namespace>}:`, so a namespace lives in one
slot of a cluster. Scripts get that prefix as KEYS[1] and refer to keys by a word in capitals (`TASK .. id`), which is
replaced by the spelling below when they are loaded.

Correctness never depends on an expiry. Records are removed by the reaper, through the index `ended`, and every mark
with a time limit stores that limit in its value. Keys get an expiry only where it can do no harm (ended records,
marks), in case a namespace is no longer swept.

The keys `boots` and `worker` are per node id, `owned` and `asked` per worker id. Stored names keep the older words
"boot" and "worker".
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
        "layout version; `born`: the birth mark, with the shard and their number if there are several; "
        "`emptied`: `<when (ms)> <earlier mark>`; `touched`, to confirm; "
        "`fired`: the latest intended time (ms) fired by a schedule that was removed since; `repair`: where the "
        "repair of damaged keys continues, and the time of its last turn (ms)",
        "namespace",
        "never",
    ),
    Key("clock", "clock", None, "string", "the ledger clock: now, last TIME, clamp, grace (ms)", "namespace", "never"),
    Key(
        "helper_clock",
        "hclock",
        None,
        "string",
        "the same for the leases of helpers: nodes of any role but worker",
        "namespace",
        "with the last helper",
    ),
    Key("counts", "counts", None, "hash", "cumulative counters, one field per kind of event", "namespace", "never"),
    Key("queues", "queues", None, "set", "queues that hold a task, or did recently", "namespace", "when empty"),
    Key("idle", "idle", None, "zset", "empty queues, by when they became empty (TIME, ms)", "namespace", "when empty"),
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
    # where a task is: a live one in exactly one of due, ready, lane, owned; an ended one in ended
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
    # limits at run time; see lua/lib/lanes.lua
    Key(
        "lanes",
        "lanes",
        None,
        "hash",
        "lane (`<keys> <queue>`) with waiting tasks -> `+<id>`: its head, or `-<key>`: it sleeps on that limit",
        "namespace",
        "when empty",
    ),
    Key("lane", "ln:", "lane", "zset", "ids that wait in a lane, by order, without its head", "task", "when empty"),
    Key("waiting", "waiting", None, "hash", "queue -> tasks that wait in its lanes", "namespace", "when empty"),
    Key(
        "sleepers",
        "sp:",
        "limit key and queue",
        "zset",
        "lanes that sleep on a limit, by the order of their first task",
        "namespace",
        "when empty",
    ),
    Key("sleeping", "sq:", "limit key", "set", "queues with lanes that sleep on a limit", "namespace", "when empty"),
    Key(
        "pacers",
        "pacers",
        None,
        "hash",
        "`<limit key> <queue>` -> id of the head that waits in `due` for that rate",
        "namespace",
        "when empty",
    ),
    Key("slots", "sl:", "limit key", "zset", "running ids that a limit counts, by fence", "task", "leaves its owner"),
    Key("pace", "pc:", "limit key", "string", "GCRA of starts: theoretical arrival time (µs)", "namespace", "expiry"),
    Key("limited", "limited", None, "hash", "limit key -> live tasks that it limits", "namespace", "when empty"),
    Key(
        "limits",
        "limits",
        None,
        "hash",
        "limit name or key -> `<concurrency> <interval> <tolerance> <version>`, as an operator set it",
        "namespace",
        "cleared by an operator",
    ),
    # nodes: workers, and helpers of any other role
    Key(
        "boots",
        "boots",
        None,
        "zset",
        "node id -> end of its lease (ledger clock, ms); 0 = declared lost; for helpers only a record, see `helpers`",
        "namespace",
        "when empty",
    ),
    Key("leases", "leases", None, "zset", "worker id -> length of its lease (ms)", "namespace", "when empty"),
    Key(
        "helpers",
        "helpers",
        None,
        "zset",
        "id of a helper -> end of its lease (helpers' clock, ms)",
        "namespace",
        "when empty",
    ),
    Key(
        "helper_leases",
        "hleases",
        None,
        "zset",
        "id of a helper -> length of its lease (ms)",
        "namespace",
        "when empty",
    ),
    Key(
        "worker",
        "w:",
        "node id",
        "hash",
        "its role, what it reported about itself, its orders (order.lua); its last claims by lane",
        "node",
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
    # schedules
    Key(
        "schedules",
        "sch:",
        "group",
        "zset",
        "schedule -> its next intended time (TIME, ms), +inf unless it is active; per who fires: `native`, `celery`",
        "namespace",
        "when empty",
    ),
    Key(
        "schedule",
        "sd:",
        "schedule",
        "hash",
        "version, state, group, origin, definition (JSON), `last`: id of its latest run, `fired`: latest time fired",
        "schedule",
        "unschedule",
    ),
    Key(
        "fires",
        "sf:",
        "schedule",
        "list",
        "its last firings, newest first, a JSON array each",
        "schedule",
        "unschedule",
    ),
    # workflows
    Key(
        "batches",
        "batches",
        None,
        "zset",
        "batches by when a sweep must act (TIME, ms): the lease of an open one, the end of life of an ended one",
        "namespace",
        "when empty",
    ),
    Key("batch", "g:", "batch id", "hash", "state, counts and options; see lua/lib/batch.lua", "batch", "reap"),
    Key("members", "gm:", "batch id", "zset", "member ids by stage and place; see lua/lib/batch.lua", "batch", "reap"),
    Key("plans", "gp:", "batch id", "hash", "name -> packed tasks to submit later: links, callbacks", "batch", "reap"),
    Key("results", "gr:", "batch id", "hash", "place -> result of a member; `><plan>` -> its input", "batch", "reap"),
    # events; see lua/lib/tell.lua
    Key("events", "ev:", "topic", "stream", "what changed, one entry per script call", "namespace", "trimmed"),
    Key("event_numbers", "evn:", "topic", "string", "number of the last change on the stream", "namespace", "never"),
    Key("watched", "evw", None, "string", "a mark: somebody reads events", "namespace", "expiry"),
    Key(
        "actions",
        "actions",
        None,
        "stream",
        "what operators did in the dashboard: who, what, and the outcome",
        "namespace",
        "trimmed",
    ),
    # statistics; see lua/lib/outcomes.lua
    Key(
        "outcomes",
        "n:",
        "`m<minute>` or `h<hour>`",
        "hash",
        "`<what> <bucket>`, queue and name -> how many tasks ended or were claimed",
        "namespace",
        "expiry",
    ),
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


_EXACT = {key.spelled.encode(): key.name for key in SCHEMA if key.per is None}
_BEGINS = {key.spelled.encode(): key.name for key in SCHEMA if key.per is not None}


def kind_of(namespace_prefix: bytes, key: bytes) -> tuple[str, bytes]:
    """Return the kind of a key and what it is per. The kind is empty if the key is not in the schema."""
    rest = key.removeprefix(namespace_prefix)
    if rest in _EXACT:
        return _EXACT[rest], b""
    begin, colon, of = rest.partition(b":")
    return _BEGINS.get(begin + colon, ""), of


def prefix(namespace: str, key_prefix: str = "rl:") -> str:
    """Return the prefix of a namespace: KEYS[1] of every script."""
    return f"{key_prefix}{{{namespace}}}:"


def matching(beginning: bytes) -> bytes:
    """Return the pattern of SCAN that matches everything with this beginning."""
    return b"".join(b"\\" + bytes([c]) if c in b"*?[]\\^" else bytes([c]) for c in beginning) + b"*"


def spell(namespace_prefix: str, name: str, of: str = "") -> str:
    """Return a full key, for tests, tools and the doorbell."""
    return f"{namespace_prefix}{BY_NAME[name].spelled}{of}"


SPELLED = {key.name.upper(): f"P .. '{key.spelled}'" for key in SCHEMA}
