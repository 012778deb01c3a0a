"""Every interleaving of small cases: two tasks, two workers, any number of sweepers, one fault.

A state consists of the ledger and of what each worker knows. From each state the search takes every possible step.
States that differ only in the values of fences, times and versions are visited once. The checker judges every step.

    worker    register (one of them twice: it starts again after `gone`), claim, re-send an unanswered claim, beat,
              commit, hand back a task (once in all: A by retry, B by release), and, as a zombie, commit what it handed
              back or held when it was told gone
    sweeper   revive one task a call: any number of sweepers at any moment, and a sweep cut short anywhere
    time      the lease of any worker id runs out at any point (a worker that continues afterwards was frozen)
    fault     one of: a reply is lost (the call ran); the store returns to any earlier point of the path

A crash needs no step of its own: a crashed worker takes no more steps. In addition, each state of the ledger is tried
with both workers stopped forever. From there, a sweep and a new worker must end both tasks.

In some instances only one of the tasks may run at a time. In others, both are members of a batch with a callback for
each of its possible ends.

Not covered: the ledger clock's arithmetic (a lease here runs out by decree), delays, keys, rates, operators, brakes,
larger workflows, a batch and a rollback, more than one fault on one path, a rollback together with a lost reply. The
simulator covers those by chance.
"""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from proof.checker.events import forget_events
from proof.checker.ghost import Violation
from proof.checker.outcomes import forget_outcomes
from proof.exhaustive_timetables import TABLE_INSTANCES, explore_tables
from proof.model.model import Model
from proof.simulator.world import BASE_US, ModelBackend, World
from relier.ledger.batches.membership import BatchHeader
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.records import Lease, Submission
from relier.store.call import Call
from relier.workflows.plan import BatchNode, compile_workflow

LEASE_MS = 2000
TASKS = ("s", "t")
CALLBACKS = {"then": "u", "on_failure": "v"}
LONG_AGO = -(10**15)
SWAP = str.maketrans("AB", "BA")


class Facts(NamedTuple):
    """What a step can see of the ledger: everything except fences, as text; worker ids separately; the fence of each
    running task."""

    tasks: str
    boots: dict[str, str]
    fences: dict[str, int]

    def text(self, first: str) -> str:
        return f"{self.tasks}{self.boots.get(first)}{self.boots.get(first.translate(SWAP))}"


NOTHING = Facts("", {}, {})


class Worker(NamedTuple):
    """What a worker knows: its worker id, its leases, those it lost, and whether a claim is unanswered."""

    name: str
    boots: int = 0
    joined: bool = False
    seq: int = 0
    waiting: bool = False
    held: tuple[tuple[str, int], ...] = ()
    late: tuple[tuple[str, int], ...] = ()
    gave_back: bool = False

    @property
    def boot(self) -> str:
        return f"{self.name}{self.boots}"

    def gone(self) -> Worker:
        """Handle `gone`: the worker may still try to finish its tasks, as a zombie."""
        return self._replace(joined=False, waiting=False, held=(), late=self.held or self.late)


@dataclass(frozen=True, slots=True)
class Case:
    """`store` and `saved` hold pickled (model, checker's memory). `saved` is the point to which a rollback returns."""

    store: bytes
    workers: tuple[Worker, Worker]
    faults: int
    saved: bytes | None = None
    saved_facts: Facts | None = None


class Search:
    """Search breadth first over cases. `slots`: how many tasks each worker may hold."""

    def __init__(
        self,
        model: type[Model] = Model,
        *,
        slots: tuple[int, int] = (1, 1),
        fault: str = "",
        hand_back: bool = True,
        limited: bool = False,
        batched: bool = False,
    ) -> None:
        self.world = World(0, "calm", ModelBackend(model()))
        self.slots = slots
        self.fault = fault
        self.hand_back = hand_back
        self.limits = (RunLimit("k", "k", LimitNumbers(1)),) if limited else ()
        self.batched = batched
        self.states = 0
        self.transitions = 0
        self.settled = 0
        self._hopeful: set[Any] = set()

    # --- the store -----------------------------------------------------------------------------------------------

    def load(self, store: bytes) -> Model:
        model, memory = pickle.loads(store)  # noqa: S301 - our own
        for task_id, ghost in memory.ghosts.items():
            ghost.sub = self.world.subs[task_id]
        self.world.backend.model = model  # type: ignore[misc]
        self.world.checker.memory = memory
        self.world.checker.highest = {}
        return model  # type: ignore[no-any-return]

    def dump(self) -> bytes:
        """Return the state without parts that are the same in every case, or that nothing reads."""
        model, memory = self.world.backend.model, self.world.checker.memory
        forget_events(model, memory)
        forget_outcomes(model, memory)
        for rec in model.tasks.values():
            rec.history = []
        for ghost in memory.ghosts.values():
            ghost.sub = None  # type: ignore[assignment]
        store = pickle.dumps((model, memory), pickle.HIGHEST_PROTOCOL)
        for task_id, ghost in memory.ghosts.items():
            ghost.sub = self.world.subs[task_id]
        return store

    def run(self, call: Call[Any]) -> Any:
        """Run one call, a microsecond later than all calls before on any path. So fences differ, while the ledger clock
        stands still.
        """
        self.transitions += 1
        self.world.last_us += 1
        time_us = self.world.backend.time_us = self.world.last_us
        raw = self.world.backend.run(call)
        self.world.checker.applied(call, raw, time_us)
        return call.parse(raw)

    def begin(self) -> Case:
        self.world.last_us = BASE_US
        subs = [self._task(i) for i in TASKS]
        self.world.subs |= {sub.id: sub for sub in subs}
        self.run(self.world.ledger.submit(self._batch(subs) if self.batched else subs))
        return Case(self.dump(), (Worker("A"), Worker("B")), int(bool(self.fault)))

    def _task(self, task_id: str) -> Submission:
        return Submission(id=task_id, name="work", payload=b"p", max_resurrections=1, limits=self.limits)

    def _batch(self, subs: list[Submission]) -> list[Submission]:
        """Return the submissions of a batch of these tasks, and its callbacks."""
        flows = self.world.flows
        callbacks = tuple((name, flows.task(self._task(task_id))) for name, task_id in CALLBACKS.items())
        root = BatchNode(tuple(flows.task(sub) for sub in subs), BatchHeader(id="B", collects=True), callbacks)
        flows.register(root)
        return compile_workflow(root, LEASE_MS).units[0].submissions()

    # --- steps ---------------------------------------------------------------------------------------------------

    def steps(self, case: Case) -> Iterator[Case]:
        """Yield every case that is one step further. Its state is in the loaded store; its `store` still holds the
        state before.
        """
        yield from self._environment(case)
        for i, worker in enumerate(case.workers):
            for after, unanswered in self._acts(case, worker, self.slots[i]):
                workers = (after, case.workers[1]) if i == 0 else (case.workers[0], after)
                yield replace(case, workers=workers, faults=case.faults - unanswered)

    def _environment(self, case: Case) -> Iterator[Case]:
        model = self.load(case.store)
        for name in list(model.boots):
            if model.boots[name].lease_end > 1:
                self.load(case.store).boots[name].lease_end = 1
                self.world.checker.memory.boots[name].seen = LONG_AGO
                yield case
        self.load(case.store)
        self.run(self.world.ledger.revive(1))
        yield case
        if self.fault == "rollback" and case.faults and case.saved is None:
            yield replace(case, saved=case.store, saved_facts=facts(self.load(case.store)))
        if case.faults and case.saved is not None:
            self.load(case.saved)
            yield replace(case, saved=None, saved_facts=None, faults=0)

    def _acts(self, case: Case, worker: Worker, slots: int) -> Iterator[tuple[Worker, int]]:
        """Yield each action of a worker with its answer and, if a lost reply is still possible, also without the
        answer."""
        may_lose = case.faults and self.fault == "lost reply"
        ledger = self.world.ledger
        if not worker.joined:
            if worker.boots == 0 or sum(each.boots for each in case.workers) < 3:
                self.load(case.store)
                fresh = worker._replace(boots=worker.boots + 1, seq=0)
                joined = self.run(ledger.register(fresh.boot, LEASE_MS))
                yield fresh._replace(joined=joined), 0
        else:
            yield from self._work(case, worker, slots, may_lose)
        for lease in worker.late:
            self.load(case.store)
            self.run(ledger.commit([(self._lease(worker, lease, late=True), b"late", ())]))
            yield worker._replace(late=tuple(each for each in worker.late if each != lease)), 0

    def _work(self, case: Case, worker: Worker, slots: int, may_lose: bool | int) -> Iterator[tuple[Worker, int]]:
        ledger = self.world.ledger
        if len(worker.held) < slots:
            self.load(case.store)
            asked = worker if worker.waiting else worker._replace(seq=worker.seq + 1)
            answer = self.run(ledger.claim(asked.boot, asked.seq, ["default"], 1))
            yield self._claimed(asked, answer), 0
            if may_lose and not worker.waiting:
                yield asked._replace(waiting=True), 1
        self.load(case.store)
        alive = self.run(ledger.beat(worker.boot, LEASE_MS)).alive
        yield worker if alive else worker.gone(), 0
        for lease in worker.held:
            rest = worker._replace(held=tuple(each for each in worker.held if each != lease))
            self.load(case.store)
            self.run(ledger.commit([(self._lease(worker, lease), b"r", ())]))
            yield rest, 0
            if may_lose:
                yield worker, 1
            if self.hand_back and not any(each.gave_back for each in case.workers):
                self.load(case.store)
                back = self._lease(worker, lease)
                self.run(ledger.retry(back, 0) if worker.name == "A" else ledger.release([back]))
                yield rest._replace(gave_back=True, late=(lease,)), 0

    def _claimed(self, worker: Worker, answer: Any) -> Worker:
        if answer.status == "gone":
            return worker.gone()
        got = tuple((claimed.lease.task_id, int(claimed.lease.fence)) for claimed in answer.tasks)
        return worker._replace(waiting=False, held=worker.held + tuple(each for each in got if each not in worker.held))

    def _lease(self, worker: Worker, lease: tuple[str, int], *, late: bool = False) -> Lease:
        boots = worker.boots - (1 if late and not worker.gave_back and worker.joined else 0)
        return Lease(lease[0], str(lease[1]), f"{worker.name}{max(boots, 1)}")

    # --- when two cases are alike --------------------------------------------------------------------------------

    def alike(self, case: Case, model: Model) -> Any:
        """Return a case without parts that decide nothing: times, versions, history, and the values of fences. Fences
        are only compared with those that workers hold, and each new fence is above all of them. So only one thing about
        a lease matters: whether it is current, now and at the point to which a rollback returns. Any other lease can
        only be refused.
        """
        now, saved = facts(model), case.saved_facts or NOTHING
        workers = tuple(self._knows(worker, model, now, saved) for worker in case.workers)
        text = f"{now.text('A')}{workers}{case.faults}{saved.text('A')}"
        if self.hand_back or self.slots[0] != self.slots[1]:
            return text
        # A and B behave alike then: a case and its mirror image count as one.
        mirrored = f"{now.text('B')}{workers[::-1]}{case.faults}{saved.text('B')}"
        return min(text, mirrored.translate(SWAP))

    def _knows(self, worker: Worker, model: Model, now: Facts, saved: Facts) -> Any:
        held = [(i, now.fences.get(i) == fence, saved.fences.get(i) == fence) for i, fence in worker.held]
        late = [(i, now.fences.get(i) == fence, saved.fences.get(i) == fence) for i, fence in worker.late]
        unseen = None
        if worker.waiting and worker.boot in model.boots:
            seq, told = model.boots[worker.boot].lanes.get("0", (0, []))
            unseen = worker.seq > seq or [i for i, fence in told if now.fences.get(i) == fence]
        rest = (worker.boots, worker.joined, worker.waiting, unseen, worker.gave_back)
        return *rest, held, [lease for lease in late if lease[1] or lease[2]]

    # --- the end -------------------------------------------------------------------------------------------------

    def hope(self, case: Case) -> None:
        """Check that a sweep and a new worker can end both tasks from here, if all other workers stop forever."""
        ledger, model = self.world.ledger, self.load(case.store)
        shape = facts(model).text("A")
        if shape in self._hopeful:
            return
        self._hopeful.add(shape)
        for boot in model.boots.values():
            boot.lease_end = min(boot.lease_end, 1)
        for ghost in self.world.checker.memory.boots.values():
            ghost.seen = LONG_AGO
        self.run(ledger.revive())
        self.run(ledger.register("Z", LEASE_MS))
        rounds = len(TASKS) + len(CALLBACKS) if self.batched else len(TASKS)
        for seq in range(1, 1 + rounds):  # a limit may let only one of them run at a time
            for claimed in self.run(ledger.claim("Z", seq, ["default"], 9)).tasks:
                self.run(ledger.commit([(claimed.lease, None, ())]))
        self.run(ledger.retire("Z"))
        self.settled += 1
        left = (model.due, model.ready, model.owned, model.boots, model.lanes, model.lane_waits, model.slots)
        stuck = [batch for batch in model.batches.values() if batch.state != "ended"]
        if any(left) or stuck:
            raise Violation("everything-ends", f"{left} {stuck}")

    def explore(self, most: int = 10**9) -> Violation | None:
        """Visit every case. Return the first violation, or None."""
        first = self.begin()
        line = [first]
        seen = {self.alike(first, self.load(first.store))}
        try:
            while line and self.states < most:
                case = line.pop()
                self.states += 1
                self.hope(case)
                for after in self.steps(case):
                    key = self.alike(after, self.world.backend.model)
                    if key not in seen:
                        seen.add(key)
                        line.append(replace(after, store=self.dump()))
        except Violation as violation:
            return violation
        return None


def facts(model: Model) -> Facts:
    tasks = []
    for task_id, rec in sorted(model.tasks.items()):
        owner = rec.owner if rec.state == "running" else ""
        tasks.append((task_id, rec.state, owner, "a" in rec.flags, rec.more.get("deaths"), rec.more.get("scares")))
    boots: dict[str, list[Any]] = {"A": [], "B": []}
    for name, boot in sorted(model.boots.items()):
        boots[name[0]].append((name, min(boot.lease_end, 2), boot.lease_end == 0 and boot.ran))
    ready = model.ready.get("default", {})
    line = sorted(ready, key=lambda i: (ready[i], i))
    fences = {i: rec.fence for i, rec in model.tasks.items() if rec.state == "running"}
    held_back = sorted(model.lanes.items()), sorted((key, sorted(held)) for key, held in model.slots.items())
    batches = [(batch.state, sorted(batch.fired), sorted(batch.members.items())) for batch in model.batches.values()]
    return Facts(f"{tasks}{line}{held_back}{batches}", {name: str(of) for name, of in boots.items()}, fences)


INSTANCES: dict[str, dict[str, Any]] = {
    "one slot each, a rollback, nothing handed back": {"fault": "rollback", "hand_back": False},
    "one slot each, a lost reply": {"fault": "lost reply"},
    "two slots and one, nothing handed back": {"slots": (2, 1), "hand_back": False},
    "two slots and one, a limit of one": {"slots": (2, 1), "hand_back": False, "limited": True},
    "one slot each, a limit of one, a lost reply": {"fault": "lost reply", "limited": True},
    "one slot each, a limit of one, a rollback, nothing handed back": {
        "fault": "rollback",
        "hand_back": False,
        "limited": True,
    },
    "one slot each, a batch, a lost reply, nothing handed back": {
        "fault": "lost reply",
        "hand_back": False,
        "batched": True,
    },
    "two slots and one, a batch, nothing handed back": {"slots": (2, 1), "hand_back": False, "batched": True},
}


def explore(name: str) -> tuple[str, bool]:
    """Explore one instance. Return what was seen, and whether anything was violated."""
    if name in TABLE_INSTANCES:
        return explore_tables(name)
    began = time.perf_counter()
    search = Search(**INSTANCES[name])
    violation = search.explore()
    took = time.perf_counter() - began
    figures = f"{search.states:,} states, {search.transitions:,} calls, {search.settled:,} ends tried, {took:.1f} s"
    return f"exhaustive: {name}: {figures}: {violation or 'no violation'}", violation is not None


def main(jobs: int = 2) -> int:
    """Explore every instance, the longest first, and print what was seen. Return the number of violations."""
    bad = 0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for line, violated in pool.imap_unordered(explore, [*INSTANCES, *TABLE_INSTANCES], chunksize=1):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            bad += violated
    return bad
