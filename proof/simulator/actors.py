"""The actors: producers, workers, sweepers, operators. Each is a generator on a node of the world (see world.py).

A worker has two threads: `beats`, which continues whatever the tasks do, and the loop that claims. Each claimed task
(or pair, committed in one call) runs as its own process. The rules: suspect is not lost; the attempts of a lost worker
id are dropped, and the worker registers under a new id; a re-sent claim keeps its seq; a task that the worker owns
according to the ledger, but does not run, is released by its fence after the worker has seen it twice with no claim in
flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proof.simulator.lock_users import under_lock
from proof.simulator.tasks import Tasks
from proof.simulator.workflow_users import add_members
from proof.simulator.world import LOST, MS, SECOND, Node, Steps, World, ask, built, is_open
from relier.errors import RelierError
from relier.ledger.limit_records import LimitNumbers
from relier.ledger.nodes import Orders
from relier.ledger.records import (
    Accepted,
    Admission,
    AdmissionLimit,
    Beat,
    Claim,
    Claimed,
    ClaimStatus,
    Lease,
)
from relier.store.call import Call


def producer(world: World, tasks: Tasks, n: int) -> Steps:
    """Push n tasks, some together, and push the same ids again if the answer was lost."""
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
        return Admission(
            (AdmissionLimit.per_window("l", 4, 2000), AdmissionLimit.per_window("m", 8, 1000, 2))[: rng.randint(1, 2)]
        )
    if kind == 1:
        return Admission(max_depth=rng.randint(1, 4))
    return Admission(
        (AdmissionLimit.per_window("l", 4, 2000),) if rng.random() < 0.3 else (), max_bytes=rng.randint(40, 400)
    )


class Worker:
    """One worker program on one node: it uses one worker id after another until it is killed or drained."""

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
        self.born = ""  # the birth mark that the worker remembers
        self.boots = 0
        self.gone = True
        self.draining = False
        self.claiming = False
        self.trusted_until = 0
        self.running: dict[str, Lease] = {}
        self.cancelled: set[Lease] = set()
        self.strangers: dict[str, str] = {}
        self.orders: Orders | None = None

    # --- the loop ------------------------------------------------------------------------------------------------

    def main(self) -> Steps:
        world, rng = self.world, self.world.rng
        while not self.draining:
            self.boots += 1
            self.boot = f"{self.name}.{self.boots}"
            self.running, self.strangers, self.cancelled = {}, {}, set()
            # other profiles must not draw, so that their seeds give the same histories as before
            if world.profile.wipe:
                opened = yield from ask(world.ledger.open(self.born, self.boot), 3)
                self.born = opened if isinstance(opened, str) else self.born
            joined: Any = LOST
            while joined is LOST or isinstance(joined, RelierError):
                sent = world.now
                joined = yield from ask(world.ledger.register(self.boot, self.lease, orders=self.orders), 3)
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
        """Handle `gone`: drop the running attempts, and let the loop begin under a new worker id."""
        self.gone = True
        self.running = {}

    def leave(self) -> Steps:
        """Drain: wait for no task, hand all of them back, and retire."""
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
        # the process ends, and its heartbeats stop; a sweep finds the tasks that it could not hand back
        self.gone = True

    # --- the beat ------------------------------------------------------------------------------------------------

    def beats(self, boot: str) -> Steps:
        world = self.world
        n = 0
        while self.boot == boot and not self.gone:
            sent = world.now
            answer = yield built(world.ledger.beat, boot, self.lease)
            if self.boot != boot or self.gone:
                return
            if isinstance(answer, Beat) and not answer.alive:
                self.lose()
                return
            if isinstance(answer, Beat):
                self.trusted_until = sent + (self.lease - 200) * MS
                self.cancelled |= {Lease(i, fence, boot) for i, fence in answer.asked}
                self.orders = answer.orders or self.orders
                n += 1
                if n % 3 == 0 or answer.owned > len(self.running):
                    yield from self.compare(boot)
                yield self.lease * MS // 4
            else:
                yield self.retry_pause

    @property
    def retry_pause(self) -> int:
        """Return the time between a failed heartbeat and the next (µs): short, as in store/connect/heartbeat.py."""
        return self.lease * MS // 16

    def compare(self, boot: str) -> Steps:
        """Compare the tasks that the ledger says this worker owns with those that it runs."""
        claiming = self.claiming
        held = yield built(self.world.ledger.owned, boot)
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
        """Run one attempt: some work, some checkpoints and steps, one outcome."""
        world, rng, lease = self.world, self.world.rng, claimed.lease
        poison = lease.task_id in self.tasks.poison
        for seq in range(1, rng.choice((2, 2, 3, 4))):
            yield int(rng.expovariate(1 / (500 * MS))) + 1
            if not self.mine(lease):
                # A thread that does not check ctx.lost keeps writing: the ledger must refuse it.
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
            if world.profile.flows[1] and rng.random() < 0.1:
                yield from add_members(world, world.faults.flows, lease)
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
        """Record an effect that has happened. Repeat the call until it is answered, through any outage
        (run/channel.py)."""
        checker = self.world.checker
        checker.effect(lease)
        while self.mine(lease):
            answer = yield call
            if not self.again(answer):
                return
            yield 100 * MS
        checker.excuse(lease)  # the task is lost or handed back: the next attempt finds no record and repeats the step

    def again(self, answer: Any) -> bool:
        return is_open(answer)

    def die(self, claimed: Claimed) -> Steps:
        """Let a poison task kill its process. A suspect kills only its isolated process; other tasks and hogs kill the
        whole worker.
        """
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
        """Commit tasks that end at the same time in one call."""
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
            # A thread that could not be stopped: it finishes a task that it no longer holds.
            yield self.world.rng.randint(1, 1500) * MS
            yield self.world.ledger.commit([(leases[0], b"late", self.tasks.following(leases[0].task_id))])


def sweeper(world: World) -> Steps:
    """Sweep forever. There is no leader: any worker may sweep."""
    rng = world.rng
    interval = rng.randint(*world.profile.sweep)
    braked = rng.random() < world.profile.brake
    while True:
        yield int(interval * MS * rng.uniform(0.6, 1.4))
        tight = braked and not world.healed
        most, deepest = (rng.randint(1, 3), rng.randint(1, 2)) if tight else (200, 1 if braked else 10_000)
        yield built(world.ledger.revive, most, deepest, interval_ms=interval)
        if rng.random() < 0.4:
            yield built(world.ledger.promote, rng.choice((1, 200)))
        if rng.random() < 0.12:
            yield built(world.ledger.reap, rng.choice((1, 200)), unused_ms=2000)


def operator(world: World, tasks: Tasks, name: str) -> Steps:
    """A person who reads, thinks, and acts on what they saw, sometimes late and sometimes twice."""
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
        if world.profile.held_back and rng.random() < 0.2:
            limit = rng.choice(("t", "t1", "r"))
            version = world.backend.model.limits.get(limit, (0, 0, 0, 0))[3]
            yield from ask(world.ledger.limit(limit, version, rng.choice((None, LimitNumbers(1), LimitNumbers(4)))), 2)
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
