"""The actors that fire users' schedules, and those that change them. Both run the real code of relier.schedules.

Their own clocks do not matter: they compute with the times that the store returned, however old these are by then.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any

from proof.checker.ghost import Violation
from proof.model.state import ITEM
from proof.simulator.world import LOST, MS, SECOND, Node, Steps, World, ask, built
from relier.codec.keyring import NO_KEYS
from relier.envelope import seal
from relier.errors import RedisConnectionError, RelierError
from relier.ledger.records import Promoted
from relier.ledger.schedule_records import ScheduleState
from relier.schedules.changes import ScheduleChanges
from relier.schedules.definition import Definition, read_definition, sealed_as
from relier.schedules.firing import FireContext
from relier.store.call import Call, Durability

NAMES = ("p", "q")
DECLARED = "d"
PERIODS = (1000, 1500, 2500)
MOST_LATE_MS = 4000


class Timekeepers:
    """The actors: schedulers that sweep for due schedules, and planners who create, edit, pause and remove them."""

    def __init__(self, world: World, queues: tuple[str, ...]) -> None:
        self.world = world
        self.queues = queues
        self.context = FireContext(world.ledger, "proof", NO_KEYS)
        self.nodes: list[Node] = []
        self.n = 0

    def begin(self) -> None:
        world, rng = self.world, self.world.rng
        for _ in range(rng.randint(*world.profile.keepers)):
            self.hire()
        for i in range(rng.randint(1, 2)):
            steps = self.planner(Durability.MEMORY if rng.random() < 0.5 else rng.choice(list(Durability)))
            world.spawn(Node(f"planner{i}"), steps)

    def hire(self) -> None:
        self.nodes.append(Node("scheduler"))
        self.world.spawn(self.nodes[-1], self.scheduler())

    def harm_one(self) -> None:
        """Kill one timekeeper, freeze it, or cut it off from the store. Start another if it was killed."""
        world, rng = self.world, self.world.rng
        node, until = rng.choice(self.nodes), world.now + rng.randint(100, 6000) * MS
        kind = rng.choice(("KILL", "FREEZE", "CUT"))
        world.note(kind, node.name)
        if kind == "KILL":
            node.dead = True
            self.hire()
        elif kind == "FREEZE":
            node.frozen_until = until
        else:
            node.cut_until = until

    def heal(self) -> None:
        for node in self.nodes:
            node.cut_until, node.frozen_until = 0, min(node.frozen_until, self.world.now)
        self.world.pushing += 1
        self.world.spawn(Node("operator"), self.wind_up())

    # --- firing --------------------------------------------------------------------------------------------------

    def scheduler(self) -> Steps:
        world, rng = self.world, self.world.rng
        while True:
            yield rng.randint(100, 700) * MS
            found = yield built(world.ledger.promote, rng.choice((1, 200)))
            if not isinstance(found, Promoted):
                continue
            for due in found.schedules:
                if rng.random() < 0.2 and not world.healed:
                    # other schedulers may be faster, or somebody may change the schedule
                    yield int(rng.expovariate(1 / (800 * MS))) + 1
                call = self.offer(self.context.call(due, found.now_ms))
                yield from ask(call, rng.choice((1, 3)))

    def offer(self, call: Call[Any]) -> Call[Any]:
        """Tell the checker which tasks a firing submits."""
        if call.script == "fire":
            name, version, args = str(call.args[0]), str(call.args[1]), call.args
            table = self.world.backend.model.timetables.get(name)
            ids = [str(args[8 + (ITEM + 1) * i]) for i in range(int(args[6]))]
            if table is not None and str(table.version) == version:
                definition = read_definition(name, table.definition)
                times = tuple(int(args[7 + (ITEM + 1) * i]) for i in range(len(ids)))
                for _, sub in definition.runs(name, "proof", version, times, NO_KEYS):
                    self.world.subs.setdefault(sub.id, sub)
        return call

    # --- changing ------------------------------------------------------------------------------------------------

    def definition(self, name: str) -> Definition:
        rng = self.world.rng
        now = self.world.backend.model.now
        timing: dict[str, Any] = {"kind": "every", "period_ms": rng.choice(PERIODS), "start_ms": rng.choice((0, now))}
        if rng.random() < 0.15:
            timing = {"kind": "at", "at_ms": now + rng.randint(1, 3000)}
        self.n += 1
        payload = seal(b"[[%d],{}]" % self.n, schema_version=1, pushed_ms=0, task_id=sealed_as(name), name="work")
        keyed = rng.random() < 0.2
        return Definition(
            timing,
            "work",
            payload.decode(),
            catch_up=rng.choice(("skip", "latest", "all")),
            catch_up_limit=rng.choice((1, 3, 100)),
            grace_ms=rng.choice((None, None, 1000, 4000)),
            overlap=rng.choice(("allow", "skip")),
            queue=rng.choice(self.queues),
            key="kt" if keyed else "",
            key_ttl_ms=1500 if keyed else 0,
            on_conflict=rng.choice(("return", "replace")) if keyed else "return",
            durability=rng.choice(list(Durability)),
        )

    def planner(self, level: Durability) -> Coroutine[Any, Any, None]:
        return self._plan(ScheduleChanges(self.context, self._run, level))

    @types.coroutine
    def _run(self, call: Call[Any]) -> Generator[Any, Any, Any]:
        answer = yield from ask(self.offer(call), self.world.rng.randint(1, 4))
        if answer is LOST:
            raise RedisConnectionError("no answer")
        if isinstance(answer, RelierError):
            raise answer
        return answer

    @types.coroutine
    def _wait(self, us: int) -> Generator[Any, Any, None]:
        yield us

    async def _plan(self, changes: ScheduleChanges) -> None:
        world, rng = self.world, self.world.rng
        while not world.healed:
            try:
                await self._change(changes)
            except RelierError as error:
                world.note("DENIED", repr(error)[:60])
            await self._wait(int(rng.expovariate(1 / (900 * MS))) + 1)

    async def _change(self, changes: ScheduleChanges) -> None:
        world, rng = self.world, self.world.rng
        name, roll = rng.choice(NAMES), rng.random()
        definition = self.definition(DECLARED if roll < 0.15 else name)
        raw, timing = definition.encoded(), definition.when()
        known = world.backend.model.timetables
        if roll < 0.15:
            if DECLARED in known and rng.random() < 0.5:  # the same declaration again, as by a worker that starts
                raw = known[DECLARED].definition
                timing = read_definition(DECLARED, raw).when()
            known_as = DECLARED if rng.random() < 0.8 else name
            await changes.declare(known_as, raw, timing, rng.choice(("app", "app", "other")), world.backend.model.now)
        elif roll < 0.25:
            await changes.switch(rng.choice((DECLARED, name)), ScheduleState.DISABLED)
        elif name not in known or roll < 0.5:
            await changes.put(name, raw, timing)
        elif roll < 0.65:
            await changes.pause(rng.choice((DECLARED, name)))
        elif roll < 0.85:
            await changes.resume(name)
        else:
            await changes.remove(name)

    # --- the end -------------------------------------------------------------------------------------------------

    def wind_up(self) -> Steps:
        """Check that, without faults, everything that is due fires soon. Then remove all schedules, including those
        that a late message creates again."""
        world = self.world
        yield MOST_LATE_MS * MS
        now = world.backend.model.now
        for name, table in world.backend.model.timetables.items():
            if table.next is not None and table.next < now - MOST_LATE_MS:
                raise Violation("due-schedules-fire", f"{name} is due since {now - table.next} ms")
        for _ in range(5):
            for name, table in list(world.backend.model.timetables.items()):
                yield from ask(world.ledger.unschedule(name, str(table.version)), 5)
            yield SECOND
        world.pushing -= 1
