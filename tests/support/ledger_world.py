"""A namespace for one test: its clock, short forms of its moves, and a check of every change they make."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from relier.ledger import keys
from relier.ledger.ledger import Ledger
from relier.ledger.moves.worker import CLAIM_BYTES
from relier.ledger.records import Admission, Claim, Claimed, Lease, Settled, Submission, Task
from relier.settings import Settings
from relier.states import BY_WORD, ENDED, LIVE, MOVES, State
from relier.store import Call, Durability, SyncStore
from relier.testing.virtual.store_clock import CLOCK_KEY, StoreClock

HOUR = 3_600_000
DAY = 24 * HOUR

STATES = r"""
local record = '^(%l+) %d+ %d+ %S+ %d+ %S+ %d+ *()\n%d+' .. string.rep(' %S+', 10) .. '\n[^\n]+\n[^\n]+\n'
local found = {}
for _, key in ipairs(redis.call('KEYS', KEYS[1] .. 't:*')) do
  local text = redis.pcall('GETRANGE', key, 0, 1400)
  text = type(text) == 'string' and text or ''
  local word, width = string.match(text, record)
  found[#found + 1] = string.sub(key, #KEYS[1] + 3)
  found[#found + 1] = width == 97 and word or string.match(text, '^ended') or ''
end
return found
"""
DUMP = """
local rows = {}
local read = {
  string = function(key) return redis.call('GET', key) end,
  hash = function(key) return redis.call('HGETALL', key) end,
  list = function(key) return redis.call('LRANGE', key, 0, -1) end,
  set = function(key) return redis.call('SMEMBERS', key) end,
  zset = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
  stream = function(key) return redis.call('XRANGE', key, '-', '+') end,
}
for _, key in ipairs(redis.call('KEYS', KEYS[1] .. '*')) do
  local kind = redis.call('TYPE', key).ok
  rows[#rows + 1] = {key, kind, read[kind](key), redis.call('PTTL', key)}
end
return rows
"""
CLEAR = """
local keys = redis.call('KEYS', KEYS[1] .. '*')
for i = 1, #keys do redis.call('UNLINK', keys[i]) end
return #keys
"""


class World:
    """One namespace on a real server. `run` executes a call, and checks every change of state against the table of
    moves."""

    def __init__(self, store: SyncStore, settings: Settings, clocked: bool = True) -> None:
        self.store = store
        self.settings = settings
        self.ledger = Ledger(settings)
        self.prefix = self.ledger.prefix
        self.clocked = clocked
        self.sound = True  # False: the test damaged records on purpose, so the audit may fail
        self.seen: set[tuple[str, State | None, State | None]] = set()
        self._known: dict[str, State] = {}
        self._ids = itertools.count()
        self._lanes: dict[str, int] = {}
        if clocked:
            self.clock = StoreClock(self.command, self.prefix)
        self.run(self.ledger.open())

    # --- the clock -----------------------------------------------------------------------------------------------

    def set_time(self, us: int) -> None:
        self.clock.set(us)

    def advance(self, ms: float) -> None:
        """Move the store's TIME, forwards or backwards. The ledger clock follows by its own rules."""
        self.set_time(self.now_us + round(ms * 1000))

    @property
    def now_us(self) -> int:
        return self.clock.now_us

    @property
    def now(self) -> int:
        return self.now_us // 1000

    # --- the wire ------------------------------------------------------------------------------------------------

    def command(self, *args: Any) -> Any:
        return self.store.command(*args)

    def run(self, call: Call[Any]) -> Any:
        try:
            return self.store.run(call)
        finally:
            self._watch(call.script)

    def _watch(self, move: str) -> None:
        """Check that every change of state is one that states.MOVES allows for this move."""
        now = self.states()
        legal = MOVES[move].pairs if move in MOVES else frozenset()
        for task in now.keys() | self._known.keys():
            before, after = self._known.get(task), now.get(task)
            if before is not after:
                assert (before, after) in legal, f"{move} took {task} from {before} to {after}"
                self.seen.add((move, before, after))
        self._known = now

    def states(self) -> dict[str, State]:
        """Return id -> state of all records. A damaged record counts as what it was before, a tombstone as no
        record."""
        flat = self.command("EVAL", STATES, 1, self.prefix)
        words = {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}
        return {
            task: BY_WORD.get(word) or self._known[task]
            for task, word in words.items()
            if word != "ended" and (word in BY_WORD or task in self._known)
        }

    def dump(self) -> dict[str, tuple[str, Any, bool]]:
        """Return all keys of the namespace: type, content, whether it has an expiry. To check that nothing changed."""
        found: dict[str, tuple[str, Any, bool]] = {}
        for key, kind, value, ttl in self.command("EVAL", DUMP, 1, self.prefix):
            name = key.decode().removeprefix(self.prefix)
            if kind == b"hash":
                value = dict(zip(value[::2], value[1::2], strict=True))
            elif kind == b"set":
                value = set(value)
            if name != CLOCK_KEY:
                found[name] = (kind.decode(), value, ttl >= 0)
        return found

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Check that the block leaves every key of the namespace unchanged."""
        before = self.dump()
        yield
        assert self.dump() == before

    def key(self, name: str, of: str = "") -> str:
        return keys.spell(self.prefix, name, of)

    def pttl(self, name: str, of: str = "") -> int:
        """Return the time to live. -1: the key has no expiry; -2: there is no such key."""
        ttl: int = self.command("PTTL", self.key(name, of))
        return ttl

    def delete(self, task: str) -> None:
        """Delete the record directly, not by a move."""
        self.sound = False
        self.command("DEL", self.key("task", task))
        self._known.pop(task, None)

    def members(self, name: str, of: str = "") -> list[str]:
        return [member.decode() for member in self.command("ZRANGE", self.key(name, of), 0, -1)]

    def rank_of(self, task: str, name: str, of: str = "") -> int | None:
        rank: int | None = self.command("ZRANK", self.key(name, of), task)
        return rank

    def clear(self) -> None:
        self.command("EVAL", CLEAR, 1, self.prefix)

    # --- moves in short form -------------------------------------------------------------------------------------

    def new(self, **fields: Any) -> Submission:
        """Return a submission with a default name and payload."""
        plain: dict[str, Any] = {"id": f"task{next(self._ids):03}", "name": "app.work", "payload": b'{"n":1}'}
        return Submission(**plain | fields)

    def push(self, **fields: Any) -> str:
        task = self.new(**fields)
        (answer,) = self.run(self.ledger.submit([task]))
        assert answer.status == "new", answer
        return task.id

    def submit(self, *tasks: Submission, admission: Admission | None = None, durable: bool = False) -> Any:
        level = Durability.FSYNC if durable else Durability.MEMORY
        return self.run(self.ledger.submit(tasks, admission, level))

    def join(self, boot: str = "boot", lease_ms: int = 5000) -> str:
        assert self.run(self.ledger.register(boot, lease_ms)), boot
        return boot

    def beat(self, boot: str = "boot", lease_ms: int = 5000) -> Any:
        return self.run(self.ledger.beat(boot, lease_ms))

    def claim(
        self,
        boot: str = "boot",
        want: int = 100,
        queues: Sequence[str] = ("default",),
        max_bytes: int = CLAIM_BYTES,
        rung: bool = True,
    ) -> tuple[Claimed, ...]:
        """Make the lane's next claim. It must be answered."""
        seq = self._lanes[boot] = self._lanes.get(boot, 0) + 1
        claim: Claim = self.run(self.ledger.claim(boot, seq, queues, want, max_bytes=max_bytes, rung=rung))
        assert claim.status == "ok", claim
        return claim.tasks

    def start(self, boot: str = "boot", **fields: Any) -> Lease:
        """Push and claim one task, without a bell: the scripts' shortcut."""
        task = self.push(**fields)
        (claimed,) = self.claim(boot, 1, [fields.get("queue", "default")], rung=False)
        assert claimed.record.id == task
        return claimed.lease

    def commit(self, lease: Lease, result: bytes | None = b"1", follow_ups: Sequence[Submission] = ()) -> Settled:
        (answer,) = self.run(self.ledger.commit([(lease, result, follow_ups)]))
        return answer  # type: ignore[no-any-return]

    def release(self, lease: Lease) -> Settled:
        (answer,) = self.run(self.ledger.release([lease]))
        return answer  # type: ignore[no-any-return]

    def bury(
        self, lease: Lease, reason: str = "failed", follow_ups: Sequence[Submission] = (), part: bytes = b""
    ) -> Settled:
        return self.run(self.ledger.bury(lease, reason, "Traceback", follow_ups, part))  # type: ignore[no-any-return]

    def retry(self, lease: Lease, delay_ms: int = 0, **how: Any) -> Settled:
        return self.run(self.ledger.retry(lease, delay_ms, "why", **how))  # type: ignore[no-any-return]

    def get(self, task: str) -> Task:
        return self.run(self.ledger.get(task))  # type: ignore[no-any-return]

    def version(self, task: str) -> int:
        return self.get(task).record.version

    def state(self, task: str) -> State | None:
        return self.states().get(task)

    def cancel(self, task: str) -> Any:
        return self.run(self.ledger.cancel(task, self.version(task)))

    def replay(self, task: str, nonce: str = "n1", **how: Any) -> Any:
        return self.run(self.ledger.replay(task, self.version(task), nonce, **how))

    def revive(self, **how: Any) -> Any:
        return self.run(self.ledger.revive(**how))

    def lose(self, boot: str = "boot") -> Any:
        """Declare the worker's process dead."""
        return self.revive(worker_id=boot, cause="killed")

    def counts(self) -> dict[str, int]:
        return dict(self.run(self.ledger.stats()).counts)

    # --- the books -----------------------------------------------------------------------------------------------

    def audit(self) -> None:
        """Check that a live record is in exactly one index and has no expiry, that an ended one is in its own index,
        and that the counts add up."""
        books = self.dump()
        where: dict[str, list[str]] = {}
        for name, (_, value, _) in books.items():
            if name == "due" or name.startswith(("q:", "o:", "e:", "ln:")):
                for task in value[::2]:
                    where.setdefault(task.decode(), []).append(name)
        states = self.states()
        assert where.keys() == states.keys(), "every entry of an index has a record, every record an entry"
        for task, state in states.items():
            self._audit_task(task, state, where[task], books)
        counts = {name: int(n) for name, n in self.command_pairs("HGETALL", self.key("counts"))}
        ended = sum(counts.get(word, 0) for word in ("done", "dead", "cancelled"))
        live = sum(state in LIVE for state in states.values())
        assert counts.get("submitted", 0) + counts.get("replayed", 0) - ended == live, counts

    def _audit_task(self, task: str, state: State, where: list[str], books: dict[str, tuple[str, Any, bool]]) -> None:
        record = books[f"t:{task}"][1].split(b"\n", 4)
        owner, queue = record[0].split()[3].decode(), record[2].decode()
        home = {"scheduled": "due", "queued": f"q:{queue}", "running": f"o:{owner}"}.get(state, f"e:{state}")
        waits = state is State.QUEUED and where[0].startswith("ln:") and where[0].partition(" ")[2] == queue
        assert where == [home] or (waits and len(where) == 1), f"{task} is {state} and stands in {where}"
        sides = [side for side in ("t:", "m:", "h:", "c:", "s:") if side + task in books]
        if state in LIVE:
            assert not [side for side in sides if books[side + task][2]], f"{task} lives, so nothing of it may expire"
        elif self.command("ZSCORE", self.key("ended", state), task) != b"inf":
            assert all(books[side + task][2] for side in sides), f"{task} has ended, so all of it must expire"
        assert state in LIVE or state in ENDED

    def command_pairs(self, *args: Any) -> list[tuple[str, bytes]]:
        flat = self.command(*args)
        return [(flat[i].decode(), flat[i + 1]) for i in range(0, len(flat), 2)]
