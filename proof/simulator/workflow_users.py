"""The users of workflows: producers that push them as a whole or piece by piece, members that add to their own batch,
and people who cancel a whole batch."""

from __future__ import annotations

from typing import Any

from proof.checker.batches import LEASE_MS
from proof.simulator.flows import CALLBACKS
from proof.simulator.tasks import Tasks
from proof.simulator.world import LOST, MS, SECOND, Steps, World, ask
from relier.errors import RelierError
from relier.ledger.batches.membership import BatchHeader, Member
from relier.ledger.batches.records import BatchAnswer, BatchCancelled
from relier.ledger.records import Lease, Submission
from relier.workflows.plan import BatchNode, ChainNode, Node, TaskNode, compile_member, compile_workflow, empty_batch

MOST_ADDED = 5
NOT_FOR_MEMBERS = frozenset({"key", "key_ttl_ms", "on_conflict", "nonce"})


class Workflows:
    """Makes workflows of every shape."""

    def __init__(self, world: World, tasks: Tasks) -> None:
        self.world = world
        self.tasks = tasks
        self.n = 0
        self.added = 0

    def task(self) -> TaskNode:
        plain = self.tasks.make()
        fields = {name: getattr(plain, name) for name in plain.__struct_fields__ if name not in NOT_FOR_MEMBERS}
        return self.world.flows.task(Submission(**fields))

    def node(self, depth: int = 0) -> Node:
        roll = self.world.rng.random() + (0.3 if depth < 2 else -1)
        if roll < 0.75:
            return self.task()
        return self.chain(depth + 1) if roll < 1.05 else self.batch(depth + 1)

    def chain(self, depth: int = 0) -> ChainNode:
        return self.world.flows.chain(self._id(), [self.node(depth + 1) for _ in range(self.world.rng.randint(1, 3))])

    def batch(self, depth: int = 0, members: tuple[Node, ...] | None = None) -> BatchNode:
        rng = self.world.rng
        if members is None:
            members = tuple(self.node(depth + 1) for _ in range(rng.randint(1, 3)))
        wanted = [name for name in CALLBACKS if rng.random() < 0.6]
        callbacks = tuple((name, self.task() if rng.random() < 0.8 else self.chain(3)) for name in wanted)
        header = BatchHeader(id=self._id(), collects=rng.random() < 0.5, lease_ms=LEASE_MS)
        return BatchNode(members, header, callbacks)

    def _id(self) -> str:
        self.n += 1
        return f"B{self.n}"


def workflow(world: World, flows: Workflows) -> Steps:
    """Push one workflow: at once, or as an open batch, member by member."""
    rng = world.rng
    world.pushing += 1
    yield rng.randint(1, 2 * SECOND)
    if rng.random() < 0.4:
        yield from _piece_by_piece(world, flows)
    else:
        root = flows.chain() if rng.random() < 0.4 else flows.batch(0, () if rng.random() < 0.05 else None)
        world.flows.register(root)
        if isinstance(root, BatchNode) and not root.members:
            call: Any = world.ledger.open_batch(empty_batch(root))
        else:
            call = world.ledger.submit(compile_workflow(root, LEASE_MS).units[0].submissions())
        yield from ask(call, rng.randint(1, 8))
        if rng.random() < 0.2:
            yield rng.randint(1, 3 * SECOND)
            yield from ask(call, 2)
    world.pushing -= 1


def _piece_by_piece(world: World, flows: Workflows) -> Steps:
    rng, ledger = world.rng, world.ledger
    root = flows.batch(0, ())
    world.flows.register(root)
    world.flows.batches[root.header.id].opens = True
    header = empty_batch(root)
    opening = BatchHeader(
        **{name: getattr(header, name) for name in header.__struct_fields__ if name != "open"}, open=True
    )
    answer = yield from ask(ledger.open_batch(opening), rng.randint(1, 8))
    if not isinstance(answer, BatchAnswer):
        return
    for place in range(rng.randint(0, 4)):
        yield int(rng.expovariate(1 / (400 * MS))) + 1
        node = flows.node(1)
        world.flows.strand(header.id, str(place), node)
        adding = compile_member(node, Member(batch=header.id, place=place), LEASE_MS)
        call = ledger.submit(adding.units[0].submissions())
        yield from ask(call, rng.randint(1, 8))
        if rng.random() < 0.2:
            yield from ask(ledger.extend_batch(header.id), 2)
        if rng.random() < 0.1:
            yield rng.randint(1, 2 * SECOND)
            yield from ask(call, 1)
    if rng.random() < 0.85:
        yield from ask(ledger.seal_batch(header.id, abandoned=rng.random() < 0.15), rng.randint(1, 8))


def add_members(world: World, flows: Workflows, lease: Lease) -> Steps:
    """Let a running member add to its own batch; perhaps again when it no longer holds its task."""
    rng = world.rng
    place = world.flows.places.get(lease.task_id)
    if place is None or flows.added >= MOST_ADDED:
        return
    flows.added += 1
    node = flows.node(1)
    name = f"d{flows.added}"
    world.flows.strand(place[0], name, node)
    world.flows.batches[place[0]].added.add(name)
    adding = compile_member(node, Member(batch=place[0], adder=(lease.task_id, lease.fence, lease.worker_id)), LEASE_MS)
    call = world.ledger.submit(adding.units[0].submissions())
    yield from ask(call, rng.randint(1, 4))
    if rng.random() < 0.3:
        yield rng.randint(1, 2 * SECOND)
        yield from ask(call, 1)


def canceller(world: World) -> Steps:
    """Cancel a whole batch with everything in it, page by page, as a person."""
    rng = world.rng
    while not world.healed:
        yield rng.randint(500, 4000) * MS
        if not world.flows.batches:
            continue
        left = [rng.choice(list(world.flows.batches))]
        while left:
            batch_id, cursor = left.pop(), ""
            for _ in range(10):
                answer = yield from ask(world.ledger.cancel_batch(batch_id, cursor, rng.choice((1, 2, 100))), 3)
                if answer is LOST or isinstance(answer, RelierError) or not isinstance(answer, BatchCancelled):
                    break
                left += answer.inner
                cursor = answer.cursor
                if not cursor:
                    break
