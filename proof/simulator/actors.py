"""Who acts: producers, workers, sweepers, operators. Each is a generator on a node of the world (see world.py).

A worker is two threads: `beats`, which goes on whatever the tasks do, and the loop that claims; each claimed task (or
pair, committed in one call) runs as its own process. The rules: suspect is not lost; a lost boot's attempts are dropped
and the worker registers under a new id; a re-sent claim keeps its seq; what the ledger says it owns and it does not run
is released by fence once it was seen twice with no claim under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proof.simulator.lock_users import under_lock
from proof.simulator.tasks import Tasks
from proof.simulator.world import LOST, MS, SECOND, Node, Steps, World, ask, is_open
from relier.errors import RelierError
from relier.ledger.records import Accepted, Admission, Beat, Claim, Claimed, ClaimStatus, Lease, Limit
from relier.store.call import Call


def producer(world: World, tasks: Tasks, n: int) -> Steps:
    """Pushes n tasks, some together, and pushes the same ids again where it does not know."""
    rng, p = world.rng, world.profile
    world.pushing += 1
    while n > 0:
        batch = [tasks.make() for _ in range(min(n, 1 if rng.random() < 0.7 else rng.randint(2, 4)))]
        n -= len(batch)
        admission = _admission(world) if rng.random() < p.limited else None
        call = world.ledger.submit(batch, admission, batch[0].durability)
        answer = yield from ask(call, rng.randint(1, 8))
        if rng.random() < 0.1 and isinstance(answer, list) and isinstance(answer[0], Accepted):
            yield rng.randint(1, SECOND)
            yield from ask(call, 2)
        yield int(rng.expovariate(1 / (400 * MS))) + 1
    world.pushing -= 1


def _admission(world: World) -> Admission:
    rng = world.rng
    kind = rng.randrange(3)
    if kind == 0:
        return Admission((Limit.per_window("l", 4, 2000), Limit.per_window("m", 8, 1000, 2))[: rng.randint(1, 2)])
    if kind == 1:
        return Admission(max_depth=rng.randint(1, 4))
    return Admission((Limit.per_window("l", 4, 2000),) if rng.random() < 0.3 else (), max_bytes=rng.randint(40, 400))


class Worker:
    """One worker program on one node: boots one after another until it is killed or drained."""

    def __init__(self, world: World, tasks: Tasks, name: str) -> None:
        self.world = world
        self.tasks = tasks
        self.name = name
        self.node = Node(name)
        self.lease = world.rng.choice(world.profile.leases)
        self.slots = world.rng.randint(*world.profile.slots)
        self.queues = (
            tasks.queues if world.rng.random() < 0.7 else tuple(world.rng.sample(tasks.queues, len(tasks.queues)))
        )
        self.boot = ""
        self.born = ""  # the birth mark it remembers
        self.boots = 0
        self.gone = True
        self.draining = False
        self.claiming = False
        self.trusted_until = 0
        self.running: dict[str, Lease] = {}
        self.cancelled: set[Lease] = set()
        self.strangers: dict[str, str] = {}

    # --- the loop ------------------------------------------------------------------------------------------------

    def main(self) -> Steps:
        world, rng = self.world, self.world.rng
        while not self.draining:
            self.boots += 1
            self.boot = f"{self.name}.{self.boots}"
            self.running, self.strangers, self.cancelled = {}, {}, set()
            if world.profile.wipe:  # the others' seeds need not draw for what never happens to them
                opened = yield from ask(world.ledger.open(self.born, self.boot), 3)
                self.born = opened if isinstance(opened, str) else self.born
            joined: Any = LOST
            while joined is LOST or isinstance(joined, RelierError):
                sent = world.now
                joined = yield from ask(world.ledger.register(self.boot, self.lease), 3)
            if not joined:
                continue
            self.gone, self.trusted_until = False, sent + (self.lease - 200) * MS
            world.spawn(self.node, self.beats(self.boot), self.lease * MS // 4)
            seq = 0
            while not self.gone and not self.draining:
                before = len(self.running)
                if before < self.slots and world.now < self.trusted_until:
                    seq += 1
                    yield from self.claim(seq)
                yield (rng.randint(20, 300) if len(self.running) > before else rng.randint(150, 900)) * MS
        yield from self.leave()

    def claim(self, seq: int) -> Steps:
        world, boot = self.world, self.boot
        free, rung = self.slots - len(self.running), world.rng.random() < 0.5
        call = world.ledger.claim(boot, seq, self.queues, free, rung=rung)
        self.claiming = True
        answer = yield from ask(call, world.rng.choice((1, 4, 20)), 50 * MS)
        self.claiming = False
        if not isinstance(answer, Claim) or self.boot != boot or self.gone:
            return
        if answer.status is ClaimStatus.GONE:
            self.lose()
            return
        fresh = [claimed for claimed in answer.tasks if claimed.lease.task_id not in self.running]
        self.running.update((claimed.lease.task_id, claimed.lease) for claimed in fresh)
        if len(fresh) > 1 and world.rng.random() < 0.4:
            world.spawn(self.node, self.together(fresh))
        else:
            for claimed in fresh:
                world.spawn(self.node, self.attempt(claimed))

    def lose(self) -> None:
        """The store said gone: what ran is dropped, and the loop begins a new boot."""
        self.gone = True
        self.running = {}

    def leave(self) -> Steps:
        """Drains: waits for none, hands everything back, retires."""
        world = self.world
        for _ in range(20):
            if world.rng.random() < 0.3:
                yield from ask(world.ledger.retire(self.boot), 1)
            if self.gone:
                return
            leases = list(self.running.values())
            if leases:
                yield from ask(world.ledger.release(leases), 5)
                self.running = {}
            held = yield from ask(world.ledger.owned(self.boot), 5)
            if isinstance(held, dict) and held:
                yield from ask(world.ledger.release([Lease(i, fence, self.boot) for i, fence in held.items()]), 5)
            left = yield from ask(world.ledger.retire(self.boot), 5)
            if left == 0 and left is not LOST:
                break
        self.gone = True  # the process ends, and its beats with it; what it could not hand back is swept

    # --- the beat ------------------------------------------------------------------------------------------------

    def beats(self, boot: str) -> Steps:
        world = self.world
        n = 0
        while self.boot == boot and not self.gone:
            sent = world.now
            answer = yield world.ledger.beat(boot, self.lease)
            if self.boot != boot or self.gone:
                return
            if isinstance(answer, Beat) and not answer.alive:
                self.lose()
                return
            if isinstance(answer, Beat):
                self.trusted_until = sent + (self.lease - 200) * MS
                self.cancelled |= {Lease(i, fence, boot) for i, fence in answer.asked}
                n += 1
                if n % 3 == 0 or answer.owned > len(self.running):
                    yield from self.compare(boot)
                yield self.lease * MS // 4
            else:
                yield self.retry_pause

    @property
    def retry_pause(self) -> int:
        """Between a heartbeat that failed and the next (µs): soon, as in store/heartbeat.py."""
        return self.lease * MS // 16

    def compare(self, boot: str) -> Steps:
        """What the ledger says we own, beside what we run."""
        claiming = self.claiming
        held = yield self.world.ledger.owned(boot)
        if not isinstance(held, dict) or self.boot != boot or claiming or self.claiming:
            return
        strangers = {i: fence for i, fence in held.items() if i not in self.running}
        again = [Lease(i, fence, boot) for i, fence in strangers.items() if self.strangers.get(i) == fence]
        self.strangers = strangers
        if again:
            yield self.world.ledger.release(again)

    # --- attempts ------------------------------------------------------------------------------------------------

    def mine(self, lease: Lease) -> bool:
        return self.boot == lease.worker_id and not self.gone and self.running.get(lease.task_id) == lease

    def attempt(self, claimed: Claimed) -> Steps:
        """One task: some work, some notes, one end."""
        world, rng, lease = self.world, self.world.rng, claimed.lease
        poison = lease.task_id in self.tasks.poison
        for seq in range(1, rng.choice((2, 2, 3, 4))):
            yield int(rng.expovariate(1 / (500 * MS))) + 1
            if not self.mine(lease):
                # A thread that does not look at ctx.lost writes on: the ledger must refuse it.
                if rng.random() < 0.5:
                    yield from ask(world.ledger.commit([(lease, b"late", self.tasks.following(lease.task_id))]), 1)
                return
            if poison:
                yield from self.die(claimed)
                return
            if lease in self.cancelled:
                yield from self.finish([lease], world.ledger.release([lease]))
                return
            if rng.random() < 0.3:
                yield from self.write(lease, seq)
            if world.profile.locked and rng.random() < world.profile.locked:
                yield from under_lock(world, lease)
        yield from self.finish([lease], self.end(lease))

    def write(self, lease: Lease, seq: int) -> Steps:
        world, rng = self.world, self.world.rng
        level = world.subs[lease.task_id].durability
        if rng.random() < 0.5:
            value = b"c%d" % rng.randrange(99)
            yield from ask(world.ledger.checkpoint(lease, rng.randint(1, seq + 1), value, level), 2)
            return
        call = world.ledger.step(lease, rng.choice("xy"), b"s%d" % rng.randrange(99), level)
        if world.profile.refused:
            yield from self.record(lease, call)
        else:
            yield from ask(call, 2)

    def record(self, lease: Lease, call: Call[Any]) -> Steps:
        """Its effect has happened: that is told until it is answered, through whatever outage (run/channel.py)."""
        checker = self.world.checker
        checker.effect(lease)
        while self.mine(lease):
            answer = yield call
            if not self.again(answer):
                return
            yield 100 * MS
        checker.excuse(lease)  # it is lost, or handed back: whoever runs it next finds no record, and does it again

    def again(self, answer: Any) -> bool:
        return is_open(answer)

    def die(self, claimed: Claimed) -> Steps:
        """A poison task takes its process with it: a suspect its own, others and hogs the whole worker."""
        if claimed.alone and claimed.lease.task_id not in self.tasks.hogs:
            yield from self.finish([claimed.lease], self.world.ledger.forfeit(claimed.lease, "exit 139"))
        else:
            self.world.faults.kill(self)
            yield 1

    def end(self, lease: Lease) -> Call[Any]:
        world, rng = self.world, self.world.rng
        roll = 0.0 if world.healed else rng.random()
        if roll < 0.7:
            result = b"r" if rng.random() < 0.5 else None
            done = [(lease, result, self.tasks.following(lease.task_id))]
            return world.ledger.commit(done, world.subs[lease.task_id].durability)
        delay = rng.choice((0, 300, 1500))
        if roll < 0.8:
            return world.ledger.retry(lease, delay, "it failed", replace=self.tasks.other(lease.task_id))
        if roll < 0.86:
            other = self.tasks.other(lease.task_id)
            how = {rng.choice(("putback", "locked", "quiet")): True}
            return world.ledger.retry(lease, delay, "not for me", replace=other, **how)
        if roll < 0.92:
            return world.ledger.release([lease])
        if roll < 0.97:
            after = self.tasks.following(lease.task_id)
            return world.ledger.bury(lease, "gave_up", "it will not work", after, b"b%d" % rng.randrange(9))
        return world.ledger.forfeit(lease, "killed")

    def together(self, batch: Sequence[Claimed]) -> Steps:
        """Tasks that end at the same time are committed in one call."""
        world = self.world
        yield int(world.rng.expovariate(1 / (500 * MS))) + 1
        leases = [claimed.lease for claimed in batch if self.mine(claimed.lease)]
        calm = [lease for lease in leases if lease.task_id not in self.tasks.poison]
        if len(calm) < len(leases):
            world.faults.kill(self)
            yield 1
        if calm:
            done = [(lease, b"r", self.tasks.following(lease.task_id)) for lease in calm]
            yield from self.finish(calm, world.ledger.commit(done))

    def finish(self, leases: Sequence[Lease], call: Call[Any]) -> Steps:
        yield from ask(call, self.world.rng.choice((1, 3, 10)))
        for lease in leases:
            if self.mine(lease):
                del self.running[lease.task_id]
        if call.script != "commit" and self.world.rng.random() < 0.15:
            # A thread that nobody could stop: it finishes what is not its own any more.
            yield self.world.rng.randint(1, 1500) * MS
            yield self.world.ledger.commit([(leases[0], b"late", self.tasks.following(leases[0].task_id))])


def sweeper(world: World) -> Steps:
    """Sweeps for ever: nobody leads, all may."""
    rng = world.rng
    interval = rng.randint(*world.profile.sweep)
    braked = rng.random() < world.profile.brake
    while True:
        yield int(interval * MS * rng.uniform(0.6, 1.4))
        tight = braked and not world.healed
        most, deepest = (rng.randint(1, 3), rng.randint(1, 2)) if tight else (200, 1 if braked else 10_000)
        yield world.ledger.revive(most, deepest, interval_ms=interval)
        if rng.random() < 0.4:
            yield world.ledger.promote(rng.choice((1, 200)))
        if rng.random() < 0.12:
            yield world.ledger.reap(rng.choice((1, 200)), unused_ms=2000)


def operator(world: World, tasks: Tasks, name: str) -> Steps:
    """A person: looks, thinks, acts on what they saw, sometimes late and sometimes twice."""
    rng = world.rng
    n = 0
    while not world.healed:
        n += 1
        yield rng.randint(200, 1500) * MS
        if rng.random() < 0.15:
            queue = rng.choice(tasks.queues)
            paused, version = world.backend.model.pauses.get(queue, (False, 0))
            move = world.ledger.resume if paused else world.ledger.pause
            yield from ask(move(queue, version), 2)
            continue
        if not world.subs:
            continue
        task_id = rng.choice(list(world.subs))
        seen = yield world.ledger.get(task_id)
        if seen is LOST or isinstance(seen, RelierError):
            continue
        if rng.random() < 0.4:
            yield rng.randint(1, 800) * MS
        yield from ask(_choice(world, seen.record, f"{name}.{n}"), 3)


def _choice(world: World, record: Any, nonce: str) -> Call[Any]:
    rng, version = world.rng, record.version
    roll = rng.random()
    if roll < 0.1:
        version -= 1
    dead = record.state == "dead"
    if dead and roll < 0.8:
        payload = b"e" + nonce.encode() if rng.random() < 0.3 else None
        return world.ledger.replay(record.id, version, nonce, payload, fresh=rng.random() < 0.3)
    if record.state in {"dead", "done", "cancelled"} or roll > 0.9:
        return world.ledger.discard(record.id, version)
    return world.ledger.cancel(record.id, version)
