"""Simulated runs of batches: members that end in rare ways, callbacks, replays, producers that die."""

from __future__ import annotations

from proof.checker.batches import LEASE_MS
from proof.directed.stage import Stage
from relier.ledger.batches.membership import BatchHeader, Member
from relier.ledger.defaults import DEAD_TTL_MS, RESULT_TTL_MS
from relier.ledger.records import Lease
from relier.workflows.plan import BatchNode, ChainNode, Node, compile_member, compile_workflow, empty_batch

CALLBACKS = ("then", "on_failure", "on_complete")


def _batch(stage: Stage, batch_id: str, *members: Node, callbacks: bool = True, collects: bool = True) -> BatchNode:
    after = tuple((name, _task(stage, f"{batch_id}-{name}")) for name in CALLBACKS) if callbacks else ()
    return BatchNode(members, BatchHeader(id=batch_id, collects=collects, lease_ms=LEASE_MS), after)


def _task(stage: Stage, task_id: str, **more: object) -> Node:
    return stage.world.flows.task(stage.submission(task_id, **more))


def _push(stage: Stage, root: BatchNode | ChainNode) -> None:
    stage.world.flows.register(root)
    stage.run(stage.ledger.submit(compile_workflow(root, LEASE_MS).units[0].submissions()))


def _open(stage: Stage, root: BatchNode) -> None:
    stage.world.flows.register(root)
    stage.world.flows.batches[root.header.id].opens = True
    header = empty_batch(root)
    stage.run(
        stage.ledger.open_batch(
            BatchHeader(
                **{name: getattr(header, name) for name in header.__struct_fields__ if name != "open"}, open=True
            )
        )
    )


def _add(stage: Stage, batch_id: str, place: int, task_id: str, adder: Lease | None = None) -> object:
    node = _task(stage, task_id)
    stage.world.flows.strand(batch_id, str(place), node)
    lease = None if adder is None else (adder.task_id, adder.fence, adder.worker_id)
    member = Member(batch=batch_id, place=place, adder=lease)
    call = stage.ledger.submit(compile_member(node, member, LEASE_MS).units[0].submissions())
    return call.parse(stage.world.apply(call))[0].status


def _end(stage: Stage, boot: str, seq: int, *, bury: bool = False) -> str:
    """End the next waiting task."""
    (lease,) = stage.claim(boot, seq)
    stage.run(stage.ledger.bury(lease, "gave_up") if bury else stage.ledger.commit([(lease, b"r", ())]))
    return lease.task_id


def expired_member(stage: Stage) -> None:
    """Members that nobody claims in time are ended by a claim, or by a promote, and their batch ends with them."""
    stage.run(stage.ledger.register("A", 2000))
    _push(stage, _batch(stage, "B", _task(stage, "t", expires_in_ms=100), _task(stage, "u")))
    stage.wait(1)
    _end(stage, "A", 1)
    _push(stage, _batch(stage, "C", _task(stage, "v", expires_in_ms=100, queue="q")))
    stage.wait(1)
    stage.run(stage.ledger.promote())


def failed_twice(stage: Stage) -> None:
    """Two members fail: on_failure is submitted with the first, and not again."""
    stage.run(stage.ledger.register("A", 2000))
    _push(stage, _batch(stage, "B", *(_task(stage, f"t{n}") for n in range(3))))
    for seq, bury in enumerate((True, True, False), 1):
        _end(stage, "A", seq, bury=bury)


def cancelled_batch(stage: Stage) -> None:
    """A batch is cancelled as a whole while one member runs: no further links, no `then` and no `on_failure` are
    submitted, only `on_complete`.
    """
    ledger, flows = stage.ledger, stage.world.flows
    stage.run(ledger.register("A", 2000))
    chain = flows.chain("C", [_task(stage, "a"), _task(stage, "b")])
    inner = _batch(stage, "I", _task(stage, "i", queue="q"), callbacks=False)
    _push(stage, _batch(stage, "B", chain, inner, _task(stage, "t"), _task(stage, "u", delay_ms=9000)))
    (lease,) = stage.claim("A", 1)
    first = stage.run(ledger.cancel_batch("B", "", 2))
    stage.run(ledger.cancel_batch("B", first.cursor), ledger.cancel_batch("I"), ledger.cancel_batch("B"))
    stage.run(ledger.commit([(lease, b"r", ())]), ledger.cancel_batch("B"))


def replayed_member(stage: Stage) -> None:
    """A batch ended with a dead member, which is replayed and succeeds: `then` is submitted now, and no other callback
    again."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 9000))
    _push(stage, _batch(stage, "B", _task(stage, "t"), _task(stage, "u")))
    _end(stage, "A", 1, bury=True)
    _end(stage, "A", 2)
    version = stage.world.backend.model.tasks["t"].version
    again = ledger.replay("t", version, "n1")
    stage.run(again, again)
    for seq in range(3, 7):
        _end(stage, "A", seq)


def replayed_inner_member(stage: Stage) -> None:
    """A member of an inner batch is replayed: the outer batch waits again, and its chain continues."""
    ledger, flows = stage.ledger, stage.world.flows
    stage.run(ledger.register("A", 9000))
    inner = _batch(stage, "I", _task(stage, "t"), _task(stage, "u"), callbacks=False)
    _push(stage, _batch(stage, "B", flows.chain("C", [inner, _task(stage, "after")])))
    _end(stage, "A", 1, bury=True)
    _end(stage, "A", 2)
    stage.run(ledger.replay("t", stage.world.backend.model.tasks["t"].version, "n1"))
    for seq in range(3, 8):
        _end(stage, "A", seq)


def replayed_late(stage: Stage) -> None:
    """A batch with a dead member is kept as long as a dead letter."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 9000))
    _push(stage, _batch(stage, "B", _task(stage, "t"), callbacks=False))
    _end(stage, "A", 1, bury=True)
    stage.wait(2 * RESULT_TTL_MS / 1000)
    stage.run(ledger.reap(), ledger.replay("t", stage.world.backend.model.tasks["t"].version, "n1"))


def closed_batch(stage: Stage) -> None:
    """A sealed batch accepts tasks only from its own running members."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 2000))
    _open(stage, _batch(stage, "B"))
    _add(stage, "B", 0, "t")
    stage.run(ledger.seal_batch("B"), ledger.seal_batch("B"), ledger.seal_batch("B", abandoned=True))
    stage.push(stage.submission("other"))
    mine, other = stage.claim("A", 1, want=2)
    _add(stage, "B", 1, "from-outside")
    _add(stage, "B", 2, "from-another", other)
    _add(stage, "B", 3, "from-a-zombie", Lease("t", "1", "A"))
    _add(stage, "B", 4, "from-its-own", mine)
    stage.run(ledger.commit([(mine, b"r", ())]))
    _add(stage, "B", 5, "from-the-ended", mine)
    stage.run(ledger.commit([(other, b"r", ())]))
    _end(stage, "A", 2)
    _add(stage, "B", 6, "too-late")


def abandoned_batch(stage: Stage) -> None:
    """A producer dies: its members continue, `then` is never submitted, on_failure and on_complete are. The producer
    wakes up too late."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 60_000))
    _open(stage, _batch(stage, "B"))
    _add(stage, "B", 0, "t")
    stage.wait(LEASE_MS / 1000 + 1)
    stage.run(ledger.reap())
    _add(stage, "B", 1, "u")
    stage.world.apply(ledger.seal_batch("B"))
    _end(stage, "A", 1)
    _end(stage, "A", 2)


def slow_producer(stage: Stage) -> None:
    """A producer adds tasks slowly. Each call extends the lease."""
    _open(stage, _batch(stage, "B", callbacks=False))
    for place in range(3):
        stage.wait(LEASE_MS / 1000 * 0.7)
        _add(stage, "B", place, f"t{place}")
        stage.run(stage.ledger.reap())
    stage.wait(LEASE_MS / 1000 * 0.7)
    stage.run(stage.ledger.extend_batch("B"))
    stage.wait(LEASE_MS / 1000 * 0.7)
    stage.run(stage.ledger.reap(), stage.ledger.seal_batch("B"))


def waited_for(stage: Stage) -> None:
    """A batch is kept beyond its retention while its callback waits, or is dead and may be replayed."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 9000))
    _push(stage, _batch(stage, "B", _task(stage, "t")))
    _end(stage, "A", 1)
    stage.wait(RESULT_TTL_MS / 1000 + 1)
    stage.run(ledger.reap())
    for seq in (2, 3):
        _end(stage, "A", seq)
    stage.wait(DEAD_TTL_MS / 1000)
    stage.run(ledger.reap())
