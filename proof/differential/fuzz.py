"""Random calls: every move with arguments from a small pool, valid and invalid, current and outdated.

The calls follow no actor's logic, so they reach cases that well-behaved workers never do. `calls` looks at the model to
find ids, fences and versions that exist, and makes up others as often.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

from msgspec.structs import replace

from proof.differential.fuzz_events import EventFuzzer
from proof.differential.fuzz_members import MemberFuzzer
from proof.differential.fuzz_outcomes import OutcomeFuzzer
from proof.differential.fuzz_repair import RepairFuzzer
from proof.differential.fuzz_timetables import TimetableFuzzer
from proof.model.model import Model
from proof.simulator.damage import Damage
from relier.ledger.ledger import Ledger
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.records import Admission, AdmissionLimit, Join, Lease, Submission, short_key
from relier.settings import Settings
from relier.store.call import Call, Durability

IDS = [f"t{n}" for n in range(8)]
MEMBERS = [f"m{n}" for n in range(40)]
PLAIN = [f"p{n}" for n in range(6)]
LIMITED = [f"x{n}" for n in range(30)]
JOINS = ["t0", "j0", "j1", "j2", "j3"]
BOOTS = [f"b{n}" for n in range(4)]
QUEUES = ["alpha", "beta"]
KEYS = ["", "k1", "k2"]
LOCKS = ["k1", "a long key " * 10]
TOKENS = ["one", "two", "three"]
LEASE_MS = 5000


class Fuzzer:
    """Make random calls. Each method makes one."""

    def __init__(self, rng: random.Random, model: Model) -> None:
        self.rng = rng
        self.model = model
        self.ledger = Ledger(Settings(namespace="differential"))
        self.seqs = dict.fromkeys(BOOTS, 0)
        self.kept: list[Call[Any]] = []

    def submission(self, task_id: str = "") -> Submission:
        rng = self.rng
        if rng.random() < 0.4:  # a task without options: for this the scripts have shortcuts
            plain = rng.randbytes(rng.choice([0, 3, 2000]))
            return Submission(id=task_id or rng.choice(IDS), name="app.plain", payload=plain, queue=rng.choice(QUEUES))
        on_lost: Literal["retry", "bury", "hold"] = rng.choice(["retry", "retry", "retry", "bury", "hold"])
        return Submission(
            id=task_id or rng.choice(IDS),
            name=rng.choice(["app.one", "app.two"]),
            payload=rng.randbytes(rng.choice([0, 3, 100, 2000])),
            queue=rng.choice(QUEUES),
            priority=rng.choice([0, 0, 0, 5, -3]),
            delay_ms=rng.choice([0, 0, 0, 700, 20_000]),
            expires_in_ms=rng.choice([0, 0, 0, 3_000]),
            key=rng.choice(KEYS),
            key_ttl_ms=rng.choice([0, 2_000, 9_000_000]),
            on_conflict=rng.choice(["return", "return", "replace"]),
            nonce=rng.choice(["", "", "n1", "n2"]),
            max_resurrections=rng.choice([None, 0, 1]),
            on_lost=on_lost,
            result_ttl_ms=rng.choice([None, 0, 3_000]),
            dead_ttl_ms=rng.choice([None, 1_000]),
            tomb_ttl_ms=rng.choice([None, None, 5_000]),
            durability=rng.choice(list(Durability)),
            limits=self.some_limits() if rng.random() < 0.1 else (),
        )

    def some_limits(self) -> tuple[RunLimit, ...]:
        """Return one or two limits, on a few keys, with numbers that are often reached."""
        rng = self.rng
        numbers = [
            LimitNumbers(1),
            LimitNumbers(2),
            LimitNumbers(0, 700_000, 700_000),
            LimitNumbers(2, 400_000, 800_000),
        ]
        keys = rng.sample(["tenant:1", "tenant:2", "api"], rng.choice([1, 1, 2]))
        return tuple(RunLimit(key.partition(":")[0], key, rng.choice(numbers)) for key in keys)

    def lease(self) -> Lease:
        """Return a lease: mostly that of a running attempt, otherwise an old, a foreign or a made-up one."""
        rng = self.rng
        running = [(i, rec) for i, rec in self.model.tasks.items() if rec.state == "running"]
        pool = running if running and rng.random() < 0.8 else list(self.model.tasks.items())
        if not pool:
            return Lease(rng.choice(IDS), "1", rng.choice(BOOTS))
        task_id, rec = rng.choice(pool)
        fence = rec.fence + rng.choice([0, 0, 0, 0, 0, 0, 1, -1])
        owner = rec.owner if rec.owner != "-" and rng.random() < 0.9 else rng.choice(BOOTS)
        return Lease(task_id, str(max(fence, 0)), owner)

    def leases(self) -> list[Lease]:
        first = self.lease()
        return [first, *(lease for lease in (self.lease() for _ in range(3)) if lease.worker_id == first.worker_id)]

    def some_id(self, state: str = "") -> tuple[str, int]:
        """Return an id, mostly of a task in that state, and mostly its version."""
        ids = [i for i, rec in self.model.tasks.items() if rec.state == state]
        task_id = self.rng.choice(ids if ids and self.rng.random() < 0.7 else list(self.model.tasks) or IDS)
        rec = self.model.tasks.get(task_id)
        return task_id, (rec.version if rec else 1) + self.rng.choice([0, 0, 0, 0, 1, -1])

    def submit(self) -> Call[Any]:
        rng, limit = self.rng, AdmissionLimit.per_window("l", 4, 2_000)
        if rng.random() < 0.1:  # one plain task, for which the script has a shortcut
            plain = Submission(id=rng.choice(IDS), name="plain", payload=b"plain")
            return self.ledger.submit([plain], Admission((limit.weighing(2),), rng.choice([0, 0, 3])))
        limits = (limit,) if rng.random() < 0.2 else ()
        depth, most_bytes = rng.choice([0, 0, 0, 3]), rng.choice([0, 0, 0, 1_500])
        guard = Admission(limits, depth, most_bytes, rng.choice([0, 0, 1]))
        return self.ledger.submit([self.submission() for _ in range(rng.choice([1, 1, 3]))], guard)

    def register(self) -> Call[Any]:
        return self.ledger.register(self.rng.choice(BOOTS), self.rng.choice([LEASE_MS, 2_001]))

    def beat(self) -> Call[Any]:
        return self.ledger.beat(self.rng.choice(BOOTS), LEASE_MS)

    def retire(self) -> Call[Any]:
        return self.ledger.retire(self.rng.choice(BOOTS))

    def claim(self) -> Call[Any]:
        boot = self.rng.choice(BOOTS)
        self.seqs[boot] = max(1, self.seqs[boot] + self.rng.choice([1, 1, 1, 0, -1]))
        queues = self.rng.sample(QUEUES, self.rng.choice([1, 2]))
        room = self.rng.choice([4_000_000, 2_500])
        want, rung = self.rng.choice([1, 2, 5]), self.rng.random() < 0.5
        return self.ledger.claim(boot, self.seqs[boot], queues, want, max_bytes=room, rung=rung)

    def checkpoint(self) -> Call[Any]:
        return self.ledger.checkpoint(self.lease(), self.rng.choice([1, 2, 3]), self.rng.randbytes(5))

    def step(self) -> Call[Any]:
        return self.ledger.step(self.lease(), self.rng.choice(["a", "b"]), self.rng.randbytes(3))

    def progress(self) -> Call[Any]:
        return self.ledger.progress(self.lease(), self.rng.choice(["1 of 2", "half"]))

    def commit(self) -> Call[Any]:
        if self.rng.random() < 0.4:
            return self.ledger.commit([(self.lease(), self.rng.choice([None, b"result"]), ())])
        done = [(lease, self.rng.choice([None, b"", b"result"]), self.follow_ups()) for lease in self.leases()]
        return self.ledger.commit(done, self.rng.choice([Durability.MEMORY, Durability.MEMORY, Durability.FSYNC]))

    def follow_ups(self) -> list[Submission]:
        rng = self.rng
        return [self.join() if rng.random() < 0.5 else self.submission() for _ in range(rng.choice([0, 0, 2]))]

    def join(self) -> Submission:
        """Return a part for a task that waits for parts, or for one that never did. Its deadline may have passed."""
        rng = self.rng
        task_id = rng.choice(JOINS) if rng.random() < 0.9 else self.some_id("dead")[0]
        plain = replace(self.submission(task_id), key="", nonce="", queue=rng.choice([*QUEUES, "joins"]))
        when = {"delay_ms": 0, "eta_ms": 1} if rng.random() < 0.1 else {"delay_ms": rng.choice([700, 20_000])}
        return replace(plain, **when, join=Join(rng.choice([1, 2, 3]), rng.choice("012")))

    def retry(self) -> Call[Any]:
        delay, how = self.rng.choice([0, 900]), {self.rng.choice(["putback", "locked", "quiet", ""]): True}
        how.pop("", None)
        lease, other = self.lease(), None
        if self.rng.random() < 0.4:
            other = replace(self.submission(lease.task_id), key="", nonce="", delay_ms=0, expires_in_ms=0)
        return self.ledger.retry(lease, delay, 'it/failed "so"', replace=other, **how)

    def release(self) -> Call[Any]:
        return self.ledger.release(self.leases())

    def bury(self) -> Call[Any]:
        part = self.rng.choice([b"", b"part", self.rng.randbytes(3)])
        return self.ledger.bury(self.lease(), "ValueError", "{}", self.follow_ups(), part)

    def forfeit(self) -> Call[Any]:
        return self.ledger.forfeit(self.lease(), "signal 9")

    def revive(self) -> Call[Any]:
        boot = self.rng.choice(["", "", *BOOTS])
        most, deepest = self.rng.choice([1, 3, 200]), self.rng.choice([0, 2, 10_000])
        return self.ledger.revive(most, deepest, interval_ms=self.rng.choice([500, 4000]), worker_id=boot)

    def promote(self) -> Call[Any]:
        return self.ledger.promote(self.rng.choice([1, 200]))

    def reap(self) -> Call[Any]:
        return self.ledger.reap(self.rng.choice([1, 200]), unused_ms=self.rng.choice([2_000, 60_000]))

    def replay(self) -> Call[Any]:
        task_id, version = self.some_id("dead")
        payload = self.rng.choice([None, None, b"edited"])
        nonce = self.rng.choice(["o1", "o2", "o3"])
        return self.ledger.replay(task_id, version, nonce, payload, fresh=self.rng.random() < 0.5)

    def cancel(self) -> Call[Any]:
        return self.ledger.cancel(*self.some_id())

    def discard(self) -> Call[Any]:
        return self.ledger.discard(*self.some_id())

    def pause(self) -> Call[Any]:
        return self.ledger.pause(*self.some_pause())

    def resume(self) -> Call[Any]:
        return self.ledger.resume(*self.some_pause())

    def some_pause(self) -> tuple[str, int]:
        queue = self.rng.choice(QUEUES)
        return queue, self.model.pauses.get(queue, (False, 0))[1] + self.rng.choice([0, 0, 0, 1])

    def get(self) -> Call[Any]:
        return self.ledger.get(self.rng.choice(IDS))

    def steps(self) -> Call[Any]:
        return self.ledger.steps(self.some_id("running")[0])

    def owned(self) -> Call[Any]:
        return self.ledger.owned(self.rng.choice(BOOTS))

    def holder(self) -> Lease | str:
        """Return a holder: mostly an attempt, often another attempt of a task that holds a lock, otherwise a process
        outside tasks."""
        rng = self.rng
        held = [hold for hold in self.model.holds.values() if hold.task_id != "-"]
        if held and rng.random() < 0.4:
            hold = rng.choice(held)
            return Lease(
                hold.task_id, str(int(hold.fence) + rng.choice([-1, 0, 0, 1])), rng.choice([hold.owner, *BOOTS])
            )
        return self.lease() if rng.random() < 0.7 else "place.1"

    def lock(self) -> Call[Any]:
        rng = self.rng
        return self.ledger.lock(rng.choice(LOCKS), rng.choice(TOKENS), rng.choice([500, 20_000]), self.holder())

    def renew(self) -> Call[Any]:
        return self.ledger.renew(*self.some_hold(), self.rng.choice([500, 20_000]))

    def conclude(self) -> Call[Any]:
        result = self.rng.choice([b"", b"null", self.rng.randbytes(5), b"x" * 2000])
        return self.ledger.conclude(*self.some_hold(), self.rng.choice([1, 3_000, 9_000_000]), result)

    def unlock(self) -> Call[Any]:
        return self.ledger.unlock(*self.some_hold())

    def some_hold(self) -> tuple[str, str]:
        """Return a key, and mostly the token that holds it."""
        key = self.rng.choice(LOCKS)
        hold = self.model.holds.get(short_key(key))
        return key, hold.token if hold is not None and self.rng.random() < 0.6 else self.rng.choice(TOKENS)

    def members(self) -> Call[Any]:
        """Return plain tasks, mostly new ones, so that follow-ups have something to follow."""
        fresh = [task_id for task_id in MEMBERS if task_id not in self.model.tasks] or MEMBERS
        some = self.rng.sample(fresh, min(3, len(fresh)))
        return self.ledger.submit([Submission(id=i, name="app.part", payload=b"", queue=QUEUES[0]) for i in some])

    def take(self) -> Call[Any]:
        """Make a claim that mostly gets something."""
        return self.ledger.claim(*self.turn(), QUEUES, 3, rung=False)

    def turn(self) -> tuple[str, int]:
        """Return a live worker id, if there is one, and the number of its next claim."""
        boot = self.rng.choice([name for name, boot in self.model.boots.items() if boot.lease_end] or BOOTS)
        lanes = self.model.boots[boot].lanes.values() if boot in self.model.boots else ()
        return boot, 1 + max((seq for seq, _ in lanes), default=0)

    def offer(self) -> Call[Any]:
        """Submit one plain task under a limit that is often reached, or to a queue that is often full."""
        if self.rng.random() < 0.2:
            deep = Submission(id=self.rng.choice(PLAIN), name="plain", payload=b"plain", queue="limited")
            return self.ledger.submit([deep], Admission(max_depth=self.rng.choice([2, 5])))
        plain = Submission(id=self.rng.choice(PLAIN), name="plain", payload=b"plain", queue="plain")
        return self.ledger.submit([plain], Admission((AdmissionLimit.per_window("plain", 3, 2_000),)))

    def grab(self) -> Call[Any]:
        """Claim one task from one queue."""
        return self.ledger.claim(*self.turn(), ["plain"], 1, rung=False)

    def bring(self) -> Call[Any]:
        """End a running task, which delivers a part."""
        lease, joins = self.lease(), [self.join() for _ in range(self.rng.choice([1, 1, 2]))]
        if self.rng.random() < 0.4:
            return self.ledger.bury(lease, "ValueError", "{}", joins, self.rng.randbytes(2))
        return self.ledger.commit([(lease, self.rng.choice([None, self.rng.randbytes(2)]), joins)])

    def crowd(self) -> Call[Any]:
        """Submit limited tasks, mostly new ones."""
        rng = self.rng
        fresh = [task_id for task_id in LIMITED if task_id not in self.model.tasks] or LIMITED
        made = [self.submission(task_id) for task_id in rng.sample(fresh, min(4, len(fresh)))]
        queue = rng.choice(["limited", "limited", "other"])
        subs = [replace(sub, queue=queue, key="", limits=self.some_limits()) for sub in made]
        return self.ledger.submit(subs)

    def admit(self) -> Call[Any]:
        """Claim from the queues of limited tasks."""
        return self.ledger.claim(*self.turn(), ["limited", "other"], self.rng.choice([1, 3, 9]), rung=False)

    def limit(self) -> Call[Any]:
        name = self.rng.choice(["tenant", "tenant:1", "api"])
        version = self.model.limits.get(name, (0, 0, 0, 0))[3] + self.rng.choice([0, 0, 0, 1])
        return self.ledger.limit(name, version, self.rng.choice([None, LimitNumbers(1), LimitNumbers(5)]))

    def limits(self) -> Call[Any]:
        return self.ledger.limits()

    def lanes(self) -> Call[Any]:
        return self.ledger.lanes(self.rng.choice(["", "limited", "other"]))

    def drop(self) -> Call[Any]:
        """Cancel a task that waits behind a limit, as an operator."""
        waiting = [
            i for i, rec in self.model.tasks.items() if "l" in rec.flags and rec.state in {"queued", "scheduled"}
        ]
        task_id = self.rng.choice(waiting or list(self.model.tasks) or IDS)
        rec = self.model.tasks.get(task_id)
        return self.ledger.cancel(task_id, rec.version if rec else 1)

    def stop(self) -> Call[Any]:
        """Ask a running task to end, as an operator."""
        return self.ledger.cancel(*self.some_id("running"))

    def again(self) -> Call[Any]:
        """Send an earlier call again: its reply was lost, or the request arrives late."""
        return self.rng.choice(self.kept) if self.kept else self.get()

    def pick(self) -> Call[Any]:
        often: list[Callable[[], Call[Any]]] = [self.submit, self.claim, self.claim, self.commit, self.beat, self.again]
        seldom: list[Callable[[], Call[Any]]] = [
            *(
                self.register,
                self.retire,
                self.checkpoint,
                self.step,
                self.progress,
                self.retry,
                self.release,
                self.bury,
                self.forfeit,
            ),
            *(self.revive, self.revive, self.promote, self.reap, self.replay, self.replay, self.cancel, self.discard),
            *(self.pause, self.resume, self.get, self.steps, self.owned),
        ]
        return self.keep(self.rng.choice(often if self.rng.random() < 0.5 else seldom)())

    def pick_lock(self) -> Call[Any]:
        moves = (self.lock, self.lock, self.renew, self.conclude, self.unlock, self.again)
        return self.keep(self.rng.choice(moves)())

    def pick_part(self) -> Call[Any]:
        moves = [self.members, self.take, self.bring, self.bring, self.retry, self.bury, self.replay, self.again]
        return self.keep(self.rng.choice(moves if self.rng.random() < 0.8 else [self.stop, self.retry])())

    def pick_plain(self) -> Call[Any]:
        moves = (self.offer, self.offer, self.grab, self.commit, self.discard, self.again)
        return self.keep(self.rng.choice(moves)())

    def pick_limited(self) -> Call[Any]:
        often = (self.crowd, self.admit, self.admit, self.commit, self.commit, self.promote)
        reads = (self.limits, self.lanes)
        seldom = (self.limit, *reads, self.drop, self.release, self.retry, self.bury, self.reap, self.again)
        return self.keep(self.rng.choice(often if self.rng.random() < 0.7 else seldom)())

    def keep(self, call: Call[Any]) -> Call[Any]:
        self.kept = [*self.kept[-20:], call]
        return call


class PicksBatches(Protocol):
    """Return a stream of calls on batches. It is in fuzz_batches.py, which builds on this file."""

    rng: random.Random

    def __init__(self, rng: random.Random, model: Model) -> None: ...
    def pick_batch(self) -> Call[Any]: ...


def calls(
    rng: random.Random, model: Model, steps: int, of_batches: type[PicksBatches] | None = None
) -> Iterator[Call[Any] | Damage | None]:
    """Yield a stream of calls. The model's time advances between them. None means that the store becomes full, or has
    room again. A Damage changes keys by hand; the next call repairs them.

    Locks and tasks share only worker ids and leases, so locks are a second stream. The third stream makes enough tasks
    succeed for follow-ups, the fourth takes the scripts' shortcuts, the fifth fills the limits, the sixth is users'
    schedules, the seventh nodes of several roles, the eighth reads events, the ninth is workflows, and the tenth
    damages keys and repairs them.
    """
    fuzzer, locks = Fuzzer(rng, model), Fuzzer(random.Random(rng.random()), model)
    parts, plain = Fuzzer(random.Random(rng.random()), model), Fuzzer(random.Random(rng.random()), model)
    limited = Fuzzer(random.Random(rng.random()), model)
    tables = TimetableFuzzer(random.Random(rng.random()), model)
    nodes = MemberFuzzer(random.Random(rng.random()), model)
    streams: list[tuple[float, random.Random, Callable[[], Call[Any]]]] = [
        (0.25, locks.rng, locks.pick_lock),
        (0.4, parts.rng, parts.pick_part),
        (0.3, plain.rng, plain.pick_plain),
        (0.5, limited.rng, limited.pick_limited),
        (0.4, tables.rng, tables.pick),
        (0.4, nodes.rng, nodes.pick),
    ]
    word = rng.random()
    events = EventFuzzer(random.Random(f"events {word}"), model)
    streams.append((0.4, events.rng, events.pick))
    outcomes = OutcomeFuzzer(random.Random(f"outcomes {word}"), model)
    streams.append((0.1, outcomes.rng, outcomes.pick))
    if of_batches:
        batches = of_batches(random.Random(rng.random()), model)
        streams.append((0.6, batches.rng, batches.pick_batch))
    repairs = RepairFuzzer(random.Random(f"repairs {rng.random()}"), model)
    yield fuzzer.ledger.open(fresh="first")
    for boot in BOOTS[:2]:
        yield fuzzer.ledger.register(boot, LEASE_MS)
    for _ in range(steps):
        model.time_us += rng.choice([0, 1, 1_000, 50_000, 400_000, 1_300_000, 6_000_000, -2_000_000])
        if rng.random() < 0.02:
            yield None
        yield fuzzer.pick()
        for chance, rng_of, pick in streams:
            while rng_of.random() < chance:
                yield pick()
        if repairs.rng.random() < 0.2:
            yield from repairs.pick()
    for remembered in ("", model.born, "before", "long-before"):
        yield fuzzer.ledger.open(remembered, "later")
