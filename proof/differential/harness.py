"""The same calls on the model and on the real scripts: equal replies, call by call, and an equal keyspace at the end.

The scripts run on a real server with one file swapped, lib/time.lua, so that both sides share a virtual clock. The
calls come from the simulator and from a fuzzer that mixes valid and invalid calls.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from proof.differential.fuzz import calls
from proof.differential.fuzz_batches import BatchFuzzer
from proof.model.events import EVENTS_KEPT, shown
from proof.model.model import Model
from proof.model.outcomes import OUTCOME_FIELDS
from proof.simulator.damage import Damage, left_over
from proof.simulator.simulate import run_world
from proof.simulator.world import World
from relier.errors import StoreFullError
from relier.ledger import keys
from relier.ledger.events.records import EventEntry
from relier.ledger.events.replies import entry
from relier.ledger.events.writing import EventWriting
from relier.ledger.ledger import load_scripts
from relier.ledger.outcomes.writing import OutcomeCounting
from relier.settings import Settings
from relier.store import Scripts, SyncStore
from relier.store.call import Call, Durability
from relier.testing.virtual.store_clock import CLOCK_KEY, TIME_LIBRARY


class DifferenceError(AssertionError):
    """Model and scripts disagree."""


class RealStore:
    """The scripts on a real server, on a virtual clock: a backend like the model."""

    def __init__(self, store: SyncStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._time_us = 0
        self._full = False

    def set_time(self, time_us: int) -> None:
        if time_us != self._time_us:
            self._limit_memory(False)
            self._store.command("SET", self._prefix + CLOCK_KEY, time_us)
            self._limit_memory(self._full)
            self._time_us = time_us

    def set_full(self, full: bool) -> None:
        self._limit_memory(full)
        self._full = full

    def _limit_memory(self, full: bool) -> None:
        if self._full or full:
            self._store.command("CONFIG", "SET", "maxmemory", 1 if full else 0)

    def run(self, call: Call[Any]) -> Any:
        return self._store.run(replace(call, parse=lambda raw: raw, durability=Durability.MEMORY))

    def keyspace(self) -> dict[str, Any]:
        """Return every key of the namespace: its value, and whether it has an expiry."""
        found = {}
        for raw in sorted(self._store.command("KEYS", f"{self._prefix.replace('[', '?')}*")):
            key = raw.decode()[len(self._prefix) :]
            kind = self._store.command("TYPE", raw)
            found[key] = (self._value(kind.decode(), raw), self._store.command("PTTL", raw) > 0)
        return found

    def _value(self, kind: str, key: bytes) -> Any:
        if kind == "string":
            return self._store.command("GET", key)
        if kind == "hash":
            return _pairs(self._store.command("HGETALL", key))
        if kind == "zset":
            rows = _pairs(self._store.command("ZRANGE", key, 0, -1, "WITHSCORES"))
            return {name: float(score) for name, score in rows.items()}
        if kind == "stream":
            return [(entry_id, *fields) for entry_id, fields in self._store.command("XRANGE", key, "-", "+")]
        if kind == "set":
            return {member.decode() for member in self._store.command("SMEMBERS", key)}
        return self._store.command("LRANGE", key, 0, -1)

    def command(self, commands: Iterable[Sequence[str | int]]) -> None:
        """Run raw commands. The second word of each is a key, without the namespace."""
        for name, key, *words in commands:
            self._store.command(name, f"{self._prefix}{key}", *words)

    def remove(self, task_id: str) -> None:
        self._store.command("DEL", *(f"{self._prefix}{kind}:{task_id}" for kind in "tmhcs"))

    def snapshot(self) -> list[tuple[bytes, int, bytes]]:
        found = []
        for key in self._store.command("KEYS", f"{self._prefix}*"):
            ttl = max(0, self._store.command("PTTL", key))
            found.append((key, ttl, self._store.command("DUMP", key)))
        return found

    def restore(self, snapshot: list[tuple[bytes, int, bytes]]) -> None:
        self.clear()
        self._limit_memory(False)
        for key, ttl, dump in snapshot:
            self._store.command("RESTORE", key, ttl, dump)
        self._limit_memory(self._full)

    def clear(self) -> None:
        present = self._store.command("KEYS", f"{self._prefix}*")
        if present:
            self._store.command("DEL", *present)
        self._time_us = 0


@dataclass(slots=True)
class Twin:
    """A backend that runs every call on the model and on the real scripts, and raises at the first difference."""

    model: Model
    real: RealStore

    @property
    def time_us(self) -> int:
        return self.model.time_us

    @time_us.setter
    def time_us(self, value: int) -> None:
        self.model.time_us = value

    @property
    def full(self) -> bool:
        return self.model.full

    @full.setter
    def full(self, value: bool) -> None:
        self.model.full = value
        self.real.set_full(value)

    def run(self, call: Call[Any]) -> Any:
        self.real.set_time(self.model.time_us)
        expected = _outcome(self.model, call)
        got = _outcome(self.real, call)
        if normal(call.script, expected) != normal(call.script, got):
            raise DifferenceError(f"{call.script}{call.args}\n  model  {expected!r}\n  script {got!r}")
        if isinstance(expected, Exception):
            raise expected
        return expected

    def snapshot(self) -> Any:
        return self.model.copy(), self.real.snapshot()

    def restore(self, snapshot: Any) -> None:
        model, real = snapshot
        time_us, full = self.model.time_us, self.model.full
        self.model = model.copy()
        self.model.time_us, self.model.full = time_us, full
        self.real.restore(real)

    def wreck(self, task_id: str) -> None:
        """Remove a record by hand. Its index entry stays."""
        self.model.tasks.pop(task_id, None)
        self.real.remove(task_id)

    def wipe(self) -> None:
        """Empty the store."""
        self.model = self.model.empty()
        self.real.clear()

    def damage(self, damage: Damage) -> None:
        """Change keys by hand, as the damage says."""
        damage.wound(self.model)
        self.real.command(damage.commands)

    def compare_keyspaces(self) -> None:
        expected, got = expected_keyspace(self.model), tidy_keyspace(self.real.keyspace())
        for key in sorted(expected.keys() | got.keys()):
            if expected.get(key) != got.get(key):
                raise DifferenceError(f"key {key}\n  model  {expected.get(key)!r}\n  script {got.get(key)!r}")


def _outcome(backend: Model | RealStore, call: Call[Any]) -> Any:
    try:
        return backend.run(call)
    except StoreFullError as error:
        return error


def normal(script: str, raw: Any) -> Any:
    """Return a reply without irrelevant differences: text or bytes, number or digits, the order of sets and hashes."""
    if isinstance(raw, Exception):
        return type(raw).__name__
    if script == "beat" and len(raw) > 1:
        return [_plain(raw[0]), _plain(raw[1]), sorted(_plain(raw[2])), _plain(raw[3:])]
    if script == "get" and raw[0] != b"corrupt":
        history = [json.loads(line) for line in raw[4]]
        return [raw[0], _pairs(raw[1]), raw[2], _pairs(raw[3]), history, raw[5:]]
    if script == "limits":
        return [_plain(raw[:2]), sorted(_plain(raw[2])), _pairs(raw[3]), _plain(raw[4])]
    if script == "lanes":
        return [_plain(raw[0]), *sorted(_plain(raw[1:]))]
    if script == "batch":
        return _pairs(raw)
    if script == "events":
        return [*_plain(raw[:3]), *(_changes(row) for row in raw[3:])]
    if script in {"steps", "results"}:
        return [_pairs(raw[0]), raw[1]]
    if script == "schedules":
        return [_plain(raw[:2]), sorted(_plain(raw[2:]))]
    return _counts(raw) if script == "outcomes" else _plain(raw)


def _counts(raw: Any) -> Any:
    return [*_plain(raw[:2]), *((int(period), _pairs(flat)) for period, flat in raw[2:])]


def _changes(row: Iterable[bytes]) -> EventEntry:
    """Return an entry independent of how its changes are packed."""
    entry_id, field, text = row
    return entry("cluster" if text[:1] == b"[" else "tasks", entry_id, field, text)


def _plain(raw: Any) -> Any:
    if isinstance(raw, list):
        return [_plain(item) for item in raw]
    return raw.decode("latin-1") if isinstance(raw, bytes) else None if raw is None else str(raw)


def _pairs(flat: list[bytes]) -> dict[str, bytes]:
    return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}


WORKER_FIELDS = ("lane:", "ran", "cause", "role", "report", "order")


def tidy_keyspace(found: dict[str, Any]) -> dict[str, Any]:
    """Return the real keyspace in the form of the model's, without data that the model does not keep."""
    tidy = {}
    for key, (value, expires) in found.items():
        kind = key[:2]
        if key == CLOCK_KEY:
            continue
        if key == "meta":
            value = {name: word for name, word in value.items() if name in {"layout", "born", "emptied", "fired"}}
            if not value:
                continue
        if kind == "w:":
            value = {name: word for name, word in value.items() if name.startswith(WORKER_FIELDS)}
        elif kind == "h:" or key.startswith("sf:"):
            value = [json.loads(line) for line in value]
        elif key.startswith("ev:"):
            value = [_changes(row) for row in value]
        elif key == "counts":
            value = {name: word for name, word in value.items() if word != b"0"}
        tidy[key] = (value, expires)
    return tidy


def expected_keyspace(model: Model) -> dict[str, Any]:
    """Return the keys that the scripts should have written for the model's state."""
    found: dict[str, Any] = {}
    for task_id, rec in model.tasks.items():
        found[f"t:{task_id}"] = (rec.text(), rec.expiry)
        parts = {"m:": _encoded(rec.more), "h:": rec.history, "c:": rec.checkpoint, "s:": rec.steps}
        found |= {f"{kind}{task_id}": (part, rec.expiry) for kind, part in parts.items() if part}
    indexes: dict[str, dict[str, Any]] = {"q:": model.ready, "o:": model.owned, "e:": model.ended}
    for kind, index in indexes.items():
        found |= {f"{kind}{of}": ({i: float(n) for i, n in rows.items()}, False) for of, rows in index.items()}
    if model.due:
        found["due"] = ({i: float(n) for i, n in model.due.items()}, False)
    if model.expiring:
        found["expiring"] = ({i: float(n) for i, n in model.expiring.items()}, False)
    found |= _expected_members(model) | _expected_marks(model)
    found |= _expected_limits(model) | _expected_timetables(model) | _expected_batches(model) | _expected_events(model)
    return found


def _expected_timetables(model: Model) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, table in model.timetables.items():
        words = {"version": str(table.version), "state": table.state, "group": table.group, "origin": table.origin}
        if table.fired:
            words |= {"last": table.last, "fired": str(table.fired)}
        if table.fires:
            found[f"sf:{name}"] = (table.fires, False)
        found[f"sd:{name}"] = (_encoded(words) | {"definition": table.definition}, False)
        index, _ = found.setdefault(f"sch:{table.group}", ({}, False))
        index[name] = float("inf" if table.next is None else table.next)
    return found


def _encoded(words: dict[str, str]) -> dict[str, bytes]:
    return {name: word.encode() for name, word in words.items()}


def _expected_members(model: Model) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if model.boots:
        found["boots"] = ({name: float(boot.lease_end) for name, boot in model.boots.items()}, False)
    helpers = {name: boot for name, boot in model.boots.items() if boot.role != "worker"}
    workers = {name: boot for name, boot in model.boots.items() if boot.role == "worker" and not boot.bare}
    if workers:
        found["leases"] = ({name: float(boot.lease) for name, boot in workers.items()}, False)
    if helpers:
        found["hleases"] = ({name: float(boot.lease) for name, boot in helpers.items()}, False)
        found["helpers"] = ({name: float(boot.helper_end) for name, boot in helpers.items()}, False)
    for name, boot in model.boots.items():
        if boot.bare:
            continue
        words = {
            f"lane:{lane}": " ".join([str(seq), *(f"{i} {fence}" for i, fence in told)])
            for lane, (seq, told) in boot.lanes.items()
        }
        words |= {"role": boot.role}
        words |= {what: word for what, word in (("order", boot.order), ("report", boot.report)) if word}
        if boot.lease_end == 0:
            words |= {"ran": str(boot.ran), "cause": boot.cause}
        found[f"w:{name}"] = (_encoded(words), False)
        if boot.asked:
            found[f"x:{name}"] = ({f"{i} {fence}" for i, fence in boot.asked}, False)
    return found


def _expected_limits(model: Model) -> dict[str, Any]:
    found: dict[str, Any] = {}
    zsets = {f"ln:{lane}": rows for lane, rows in model.lane_waits.items()}
    zsets |= {f"sp:{key} {queue}": rows for (key, queue), rows in model.sleepers.items()}
    zsets |= {f"sl:{key}": rows for key, rows in model.slots.items()}
    found |= {key: ({i: float(n) for i, n in rows.items()}, False) for key, rows in zsets.items()}
    for key, queue in model.sleepers:
        found.setdefault(f"sq:{key}", (set(), False))[0].add(queue)
    waiting: dict[str, int] = {}
    for lane, rows in model.lane_waits.items():
        queue = lane.partition(" ")[2]
        waiting[queue] = waiting.get(queue, 0) + len(rows)
    hashes: dict[str, Mapping[str, object]] = {
        "lanes": model.lanes,
        "waiting": waiting,
        "pacers": {f"{key} {queue}": i for (key, queue), i in model.pacers.items()},
        "limited": model.limited,
        "limits": {name: " ".join(map(str, n)) for name, n in model.limits.items()},
    }
    found |= {
        key: (_encoded({name: str(n) for name, n in rows.items()}), False) for key, rows in hashes.items() if rows
    }
    found |= {f"pc:{key}": (str(idle).encode(), True) for key, idle in model.paces.items()}
    return found


def _expected_batches(model: Model) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for batch_id, group in model.batches.items():
        hashed = {name.decode(): word for name, word in group.fields().items()}
        found[f"g:{batch_id}"] = (hashed, False)
        parts: dict[str, dict[str, Any]] = {"gp:": group.plans, "gr:": group.results}
        parts["gm:"] = {member: float(score) for member, score in group.members.items()}
        found |= {f"{kind}{batch_id}": (part, False) for kind, part in parts.items() if part}
    if model.batch_index:
        found["batches"] = (dict(model.batch_index), False)
    return found


def _expected_events(model: Model) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for topic, stream in model.streams.items():
        found[f"ev:{topic}"] = ([_changes(shown(each)) for each in stream], False)
        found[f"evn:{topic}"] = (str(model.event_numbers[topic]).encode(), False)
    if model.watched:
        found["evw"] = (b"1", True)
    for period, counts in model.outcomes.items():
        found[f"n:{period}"] = (_encoded({name: str(n) for name, n in counts.items()}), True)
    return found


def _expected_marks(model: Model) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, (task_id, until) in model.idem.items():
        rec = model.tasks.get(task_id)
        ends = until is not None or (rec is not None and rec.state == "dead" and rec.expiry)
        found[f"i:{key}"] = (f"{task_id}{'' if until is None else f' {until}'}".encode(), ends)
    found |= {f"a:{name}": (str(tat).encode(), True) for name, tat in model.rates.items()}
    found |= {f"l:{key}": (hold.text(), True) for key, hold in model.holds.items()}
    found |= {f"t:{i}": (f"ended {until} {state}".encode(), True) for i, (until, state) in model.tombs.items()}
    found |= {f"b:{queue}": ([b"1"] * (1 + (queue in model.long_bells)), False) for queue in model.bells}
    found |= {
        keys.spell("", kind, of): (left_over(kind, value), False) for (kind, of), value in model.leftovers.items()
    }
    pauses = {queue: f"{int(paused)} {version}" for queue, (paused, version) in model.pauses.items()}
    if pauses:
        found["pauses"] = (_encoded(pauses), False)
    if model.idle:
        found["idle"] = ({queue: float(n) for queue, n in model.idle.items()}, False)
    if model.queues:
        found["queues"] = (set(model.queues), False)
    counts = {name: str(n) for name, n in model.counts.items() if n}
    if counts or model.counts:
        found["counts"] = (_encoded(counts), False)
    if model.layout or model.removed_fired:
        fired = str(model.removed_fired or "")
        meta = {"layout": model.layout, "born": model.born, "emptied": model.emptied, "fired": fired}
        found["meta"] = (_encoded({name: word for name, word in meta.items() if word}), False)
    if model.clock:
        found["clock"] = (" ".join(map(str, model.clock)).encode(), False)
    if model.helper_clock:
        found["hclock"] = (" ".join(map(str, model.helper_clock)).encode(), False)
    return found


def proof_scripts(**replaced: str) -> Scripts:
    """Load the scripts on a virtual clock, with events and outcomes as the model writes them."""
    counting = OutcomeCounting(fields=OUTCOME_FIELDS)
    return load_scripts(EventWriting("always", EVENTS_KEPT), counting, lib__time=TIME_LIBRARY, **replaced)


@contextmanager
def real_store(scripts: Scripts | None = None) -> Iterator[RealStore]:
    """Start a private embedded server with the scripts on a virtual clock."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        settings = Settings(redis_url=f"embedded://{folder}", namespace="differential", redis_allow_eviction=True)
        with SyncStore(settings, scripts or proof_scripts()) as store:
            yield RealStore(store, keys.prefix("differential"))


def fuzz(seed: int, real: RealStore, steps: int = 300) -> int:
    """Run one seed of the fuzzer. Return the number of calls compared."""
    rng = random.Random(seed)
    real.clear()
    twin, compared = Twin(Model(), real), 0
    try:
        for call in calls(rng, twin.model, steps, BatchFuzzer):
            if call is None:
                twin.full = not twin.full
                continue
            if isinstance(call, Damage):
                twin.damage(call)
                continue
            compared += 1
            try:
                twin.run(call)
            except StoreFullError:
                continue
        twin.full = False
        twin.compare_keyspaces()
    except DifferenceError as error:
        again = f"python -m proof differential --start {seed} --seeds 1"
        raise DifferenceError(f"seed {seed}: {error}\nreplay: {again}") from None
    finally:
        twin.full = False
    return compared


def schedule(seed: int, real: RealStore) -> int:
    """Run one seed of the simulator on both. Return the number of calls compared."""
    real.clear()
    twin = Twin(Model(), real)
    again = f"replay: python -m proof differential --start {seed} --seeds 1"
    try:
        outcome = run_world(World(seed, None, twin, namespace="differential"))
        twin.compare_keyspaces()
    except DifferenceError as error:
        raise DifferenceError(f"seed {seed}: {error}\n{again}") from None
    finally:
        twin.full = False
    if outcome.violation:
        raise DifferenceError(f"seed {seed}: {outcome.report}\n{again}")
    return outcome.steps


def main(seeds: int = 200, start: int = 0) -> int:
    """Run that many seeds of the simulator and of the fuzzer on model and scripts. Return the number of calls
    compared."""
    with real_store() as real:
        return sum(schedule(seed, real) + fuzz(seed, real) for seed in range(start, start + seeds))
