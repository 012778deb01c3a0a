"""The faults of a schedule: what is killed, frozen, cut off, filled and rolled back, and when; then how everything is
repaired."""

from __future__ import annotations

from collections.abc import Callable

from proof.simulator.actors import Worker, operator, producer, sweeper
from proof.simulator.damage import damage_and_repair
from proof.simulator.event_readers import event_reader
from proof.simulator.helpers import Helper, commander
from proof.simulator.lock_users import locker
from proof.simulator.tasks import Tasks
from proof.simulator.timekeepers import Timekeepers
from proof.simulator.workflow_users import Workflows, canceller, workflow
from proof.simulator.world import MS, SECOND, Node, Steps, World, ask
from relier.store.call import Durability


class Faults:
    """Hold the actors of a schedule, and inject faults."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tasks = Tasks(world)
        self.flows = Workflows(world, self.tasks)
        self.workers: list[Worker] = []
        self.sweepers: list[Node] = []
        self.crews = 0
        self.closed = False
        self.flaps: int | None = None  # how often the store goes down and comes back from now on
        self.operators: list[Node] = []
        self.keepers: Timekeepers | None = None
        self.helpers: list[Helper] = []

    # --- the cast ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        world, rng, p = self.world, self.world.rng, self.world.profile
        for _ in range(rng.randint(*p.workers)):
            self.hire(rng.randint(0, 300) * MS)
        for _ in range(rng.randint(*p.sweepers)):
            self.sweep()
        n = rng.randint(*p.tasks)
        split = rng.randint(0, n)
        for share in (split, n - split):
            world.spawn(Node("producer"), producer(world, self.tasks, share))
        for i in range(rng.randint(*p.operators)):
            self.operators.append(Node(f"op{i}"))
            world.spawn(self.operators[-1], operator(world, self.tasks, f"op{i}"))
        self._begin_special()
        world.after(rng.randint(1, SECOND), self.tick)

    def _begin_special(self) -> None:
        """Start actors that only some profiles have. An unneeded random draw would change the histories of other
        profiles' seeds."""
        world, rng, p = self.world, self.world.rng, self.world.profile
        if p.flows[1]:
            self._begin_workflows()
        for i in range(rng.randint(*p.lockers) if p.lockers[1] else 0):
            world.spawn(Node(f"web{i}"), locker(world, f"web{i}"))
        for i in range(rng.randint(*p.readers) if p.readers[1] else 0):
            world.spawn(Node(f"reader{i}"), event_reader(world))
        if p.keepers[1]:
            self.keepers = Timekeepers(world, self.tasks.queues)
            self.keepers.begin()
        if p.helpers[1]:
            self._begin_helpers()

    def _begin_helpers(self) -> None:
        world, rng = self.world, self.world.rng
        for _ in range(rng.randint(*world.profile.helpers)):
            self.join_helper(rng.randint(0, 300) * MS)
        self.operators.append(Node("commander"))
        world.spawn(self.operators[-1], commander(world))

    def _begin_workflows(self) -> None:
        world, rng = self.world, self.world.rng
        for _ in range(rng.randint(*world.profile.flows)):
            world.spawn(Node("producer"), workflow(world, self.flows))
        self.operators.append(Node("canceller"))
        if rng.random() < 0.4:
            world.spawn(self.operators[-1], canceller(world))

    def hire(self, delay_us: int = 0) -> Worker:
        self.crews += 1
        worker = (self.world.hires or Worker)(self.world, self.tasks, f"w{self.crews}")
        worker.draining = self.closed
        self.workers.append(worker)
        self.world.spawn(worker.node, worker.main(), delay_us)
        return worker

    def join_helper(self, delay_us: int = 0) -> None:
        helper = Helper(self.world, f"h{len(self.helpers) + 1}")
        helper.leaving = self.closed
        self.helpers.append(helper)
        self.world.spawn(helper.node, helper.main(), delay_us)

    def sweep(self) -> None:
        node = Node("sweeper")
        self.sweepers.append(node)
        self.world.spawn(node, sweeper(self.world))

    # --- injecting faults -----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Perhaps inject a fault. Called about twice a second."""
        world, rng, p = self.world, self.world.rng, self.world.profile
        if world.healed:
            return
        happenings: tuple[tuple[float, Callable[[], None]], ...] = (
            (p.kill, self._kill_one),
            (p.freeze, self._freeze_one),
            (p.cut, self._cut_one),
            (p.outage, self._outage),
            (p.jump, self._jump),
            (p.stall, self._stall),
            (p.fill, self._fill),
            (p.wreck, self._wreck),
            (p.wipe, self._wipe),
            (p.crowd, self._crowd),
            (p.flap, self._flap),
            (p.harm, self._harm_keeper),
            (p.damage, self._damage),
        )
        for chance, happen in happenings:
            if chance and rng.random() < chance:
                happen()
        world.after(rng.randint(200, 800) * MS, self.tick)

    def _some_worker(self) -> Worker | None:
        alive = [worker for worker in self.workers if not worker.node.dead]
        return self.world.rng.choice(alive) if alive else None

    def _harm_helper(self) -> None:
        """Kill a helper, or let it retire, and start another; or freeze it for a while."""
        rng, alive = self.world.rng, [helper for helper in self.helpers if not helper.node.dead and not helper.leaving]
        if not alive:
            return
        helper, kind = rng.choice(alive), rng.random()
        if kind < 0.3:
            helper.node.frozen_until = self.world.now + rng.randint(100, 6000) * MS
            return
        helper.node.dead, helper.leaving = kind < 0.7, True
        self.join_helper(rng.randint(0, 2000) * MS)

    def _kill_one(self) -> None:
        rng = self.world.rng
        if self.helpers and rng.random() < 0.5:
            self._harm_helper()
            return
        if rng.random() < 0.15 and self.sweepers:
            rng.choice(self.sweepers).dead = True
            self.sweep()
        elif (worker := self._some_worker()) is not None:
            if rng.random() < 0.25:
                worker.draining = True
                self.hire(rng.randint(0, 2000) * MS)
            else:
                self.kill(worker)

    def kill(self, worker: Worker) -> None:
        """Kill a process, which forgets everything. Perhaps its supervisor notices. Start another process."""
        world, rng = self.world, self.world.rng
        if worker.node.dead:
            return
        worker.node.dead = True
        world.note("KILL", worker.boot)
        if worker.boot and rng.random() < world.profile.supervised:
            call = world.ledger.revive(worker_id=worker.boot, cause="exit 137")
            world.spawn(Node("supervisor"), ask(call, 4), rng.randint(1, 50) * MS)
        self.hire(rng.randint(50, 1000) * MS)

    def _freeze_one(self) -> None:
        worker = self._some_worker()
        if worker is not None:
            worker.node.frozen_until = self.world.now + self.world.rng.randint(100, 6000) * MS
            self.world.note("FREEZE", worker.boot, worker.node.frozen_until)

    def _cut_one(self) -> None:
        worker = self._some_worker()
        if worker is not None:
            worker.node.cut_until = self.world.now + self.world.rng.randint(100, 5000) * MS
            self.world.note("CUT", worker.boot, worker.node.cut_until)

    def _outage(self) -> None:
        self.world.outage_until = self.world.now + self.world.rng.choice((300, 1000, 3000, 6000)) * MS
        self.world.note("OUTAGE", self.world.outage_until)

    def _jump(self) -> None:
        rng = self.world.rng
        delta = rng.choice((1, -1)) * rng.choice(self.world.profile.leaps) * MS + rng.randint(-9, 9)
        self.world.skew += delta
        self.world.foremost = max(self.world.foremost, self.world.skew)
        self.world.checker.jumped(delta)
        self.world.note("JUMP", delta)

    def _stall(self) -> None:
        """Stop replication, or the disk, for a while. Later it catches up, or the store falls back to this point."""
        world, rng = self.world, self.world.rng
        if world.stalled is not None:
            return
        world.stalled = rng.choice((Durability.REPLICATED, Durability.FSYNC))
        world.note("STALL", world.stalled)
        delay_us, falls = rng.randint(10, 2500) * MS, rng.random() < 0.75
        images = (world.backend.snapshot(), world.checker.snapshot(), world.skew) if falls else None
        world.after(delay_us, self._fall_back, images)

    def _fall_back(self, images: tuple[object, bytes, int] | None) -> None:
        world, rng = self.world, self.world.rng
        level, world.stalled = world.stalled, None
        if images is None or world.healed or level is None:
            return
        world.note("ROLLBACK", level)
        full = world.backend.full
        world.backend.restore(images[0])
        world.backend.full = full
        world.checker.restore(images[1], level)
        world.checker.jumped(world.skew - images[2])
        if rng.random() < 0.5:
            self._jump()
        if rng.random() < 0.5:
            self._outage()

    def _fill(self) -> None:
        world = self.world
        world.backend.full = True
        world.note("FULL")
        world.after(world.rng.randint(100, 3000) * MS, self._free)

    def _free(self) -> None:
        self.world.backend.full = False
        self.world.note("ROOM")

    def _wreck(self) -> None:
        world = self.world
        if world.backend.model.tasks and world.stalled is None:
            task_id = world.rng.choice(list(world.backend.model.tasks))
            world.backend.wreck(task_id)
            world.checker.wrecked(task_id)
            world.note("WRECK", task_id)

    def _damage(self) -> None:
        """Damage something by hand, or nothing, and let a worker repair the namespace at once."""
        if not self.world.backend.full and self.world.stalled is None:
            damage_and_repair(self.world)

    def _wipe(self) -> None:
        """Empty the store while all actors use it. They continue with what they know."""
        self.world.backend.wipe()
        self.world.checker.wiped()
        self.world.note("WIPED")

    def _crowd(self) -> None:
        self.hire()

    def _flap(self) -> None:
        if self.flaps is None:
            self.flaps = self.world.rng.randint(3, 9)
            self._go_down()

    def _go_down(self) -> None:
        """Make the store unreachable, or let it refuse everything: for less than half the shortest lease, which the
        ledger's clock counts in full, or for longer than the leases of helpers, which their clock does not count.
        Afterwards keep it up for at least as long as a heartbeat that times out and the next one take."""
        world, rng = self.world, self.world.rng
        if world.healed or not self.flaps:
            self.flaps = None
            return
        self.flaps -= 1
        down = rng.randint(*world.profile.downs) * MS
        if rng.random() < 0.6:
            world.outage_until = world.now + down
        else:
            world.refuses_until = world.now + down
        world.note("FLAP", down)
        world.after(down + rng.randint(*world.profile.ups) * MS, self._go_down)

    def _harm_keeper(self) -> None:
        if self.keepers is not None:
            self.keepers.harm_one()

    def is_healthy(self, boot: str) -> bool:
        """Return whether a node runs under this id and has met no fault."""
        nodes: tuple[Worker | Helper, ...] = (*self.workers, *self.helpers)
        return any(node.boot == boot and not node.gone and not node.node.dead for node in nodes)

    # --- the end of the faults -----------------------------------------------------------------------------------

    def heal(self) -> None:
        """End the faults: from now on messages arrive, clocks run, and only poison kills processes."""
        world = self.world
        world.healed = True
        world.outage_until = world.refuses_until = 0
        world.stalled = None
        self._free()
        world.note("HEALED")
        for node in self.operators:
            node.dead = True
        for worker in self.workers:
            worker.node.cut_until = 0
            worker.node.frozen_until = min(worker.node.frozen_until, world.now)
        for helper in self.helpers:
            helper.node.frozen_until = min(helper.node.frozen_until, world.now)
        if all(worker.node.dead or worker.draining for worker in self.workers):
            self.hire()
        if all(node.dead for node in self.sweepers):
            self.sweep()
        world.spawn(Node("operator"), self._resume_all())
        if self.keepers is not None:
            self.keepers.heal()

    def _resume_all(self) -> Steps:
        """Resume all paused queues, and repeat that while late messages may still pause one."""
        world = self.world
        for _ in range(5):
            for queue, (paused, version) in sorted(world.backend.model.pauses.items()):
                if paused:
                    yield from ask(world.ledger.resume(queue, version), 5)
            yield SECOND

    def close(self) -> None:
        """Let workers drain, including those started from now on, because nothing is left to do."""
        self.closed = True
        for worker in self.workers:
            worker.draining = True
        for helper in self.helpers:
            helper.leaving = True
