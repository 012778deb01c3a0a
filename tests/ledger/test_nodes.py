"""Nodes: roles, the clocks of workers and helpers, and orders."""

from __future__ import annotations

import pytest

from relier.errors import IllegalMoveError, InvalidSubmissionError, VersionConflictError
from relier.ledger.nodes import NodeStats, Orders, Role, read_orders
from tests.support.ledger_world import World


@pytest.fixture(autouse=True)
def worker(clocked: World) -> str:
    return clocked.join(lease_ms=60_000)


def clamp_ms(world: World) -> int:
    return int(world.store.command("GET", world.key("clock")).split()[2])


def node(world: World, node_id: str) -> NodeStats | None:
    found: dict[str, NodeStats] = {each.node_id: each for each in world.run(world.ledger.stats()).nodes}
    return found.get(node_id)


def test_a_relay_does_not_shorten_the_clamp_of_workers(clocked: World) -> None:
    clocked.run(clocked.ledger.register("worker-1", 5000))
    before = clamp_ms(clocked)
    clocked.run(clocked.ledger.register("relay-1", 3000, "{}", Role.RELAY))
    clocked.run(clocked.ledger.beat("relay-1", 3000))
    assert clamp_ms(clocked) == before
    assert before <= 2500


def test_relays_survive_an_outage_that_workers_hardly_notice(clocked: World) -> None:
    """The outage lasts 20 s: a third of the workers' lease, and seven leases of the relays."""
    clocked.run(clocked.ledger.retire("boot"))
    clocked.run(clocked.ledger.register("worker-1", 60_000))
    relays = ["relay-1", "relay-2"]
    for relay in relays:
        clocked.run(clocked.ledger.register(relay, 3000, "{}", Role.RELAY))
    clocked.advance(20_000)
    clocked.run(clocked.ledger.beat("worker-1", 60_000))
    clocked.run(clocked.ledger.revive())
    clocked.advance(500)
    clocked.run(clocked.ledger.revive())
    assert all(clocked.run(clocked.ledger.beat(relay, 3000)).alive for relay in relays)
    assert clocked.run(clocked.ledger.beat("worker-1", 60_000)).alive


def test_a_dead_relay_leaves_no_trace(clocked: World) -> None:
    clocked.run(clocked.ledger.register("relay-1", 3000, "{}", Role.RELAY))
    seen = node(clocked, "relay-1")
    assert seen is not None
    assert (seen.role, seen.lease_left_ms) == ("relay", 3000)
    for _ in range(7):
        clocked.advance(500)
        clocked.run(clocked.ledger.beat("boot", 60_000))
        clocked.run(clocked.ledger.revive())
    assert node(clocked, "relay-1") is None
    assert not {key for key in clocked.dump() if key.startswith(("h", "w:relay"))}
    assert not clocked.run(clocked.ledger.beat("relay-1", 3000)).alive


def test_only_workers_claim(clocked: World) -> None:
    clocked.push()
    clocked.run(clocked.ledger.register("relay-1", 3000, "{}", Role.RELAY))
    for want in (1, 2):
        with pytest.raises(IllegalMoveError, match="it is registered as relay, and only workers own tasks"):
            clocked.run(clocked.ledger.claim("relay-1", 1, ["default"], want, rung=want > 1))


def test_orders_reach_a_node_with_its_heartbeat(clocked: World) -> None:
    beat = clocked.ledger.beat("boot", 60_000, report='{"running": 2}')
    assert clocked.run(beat).orders is None
    clocked.run(clocked.ledger.order("boot", Orders(draining=True)))
    assert clocked.run(beat).orders == Orders(1, draining=True)
    with pytest.raises(VersionConflictError, match="another operator changed them"):
        clocked.run(clocked.ledger.order("boot", Orders(stopping=True)))
    seen = node(clocked, "boot")
    assert seen is not None
    assert (seen.orders, seen.reported_now()) == (Orders(1, draining=True), {"running": 2})
    with pytest.raises(IllegalMoveError, match="it has stopped, or was declared lost"):
        clocked.run(clocked.ledger.order("nobody", Orders(draining=True)))
    with pytest.raises(InvalidSubmissionError, match="unknown log level"):
        clocked.ledger.order("boot", Orders(log_level="LOUD"))


def test_a_node_under_a_new_id_stays_drained_and_does_not_stop(clocked: World) -> None:
    """An order to stop is not carried over to the new id, because a node that was told to stop should not get the order
    again."""
    clocked.run(clocked.ledger.register("again", 60_000, orders=Orders(7, True, True, "DEBUG")))
    assert clocked.run(clocked.ledger.beat("again", 60_000)).orders == Orders(1, True, False, "DEBUG")
    clocked.run(clocked.ledger.register("fresh", 60_000, orders=Orders(7, stopping=True)))
    assert clocked.run(clocked.ledger.beat("fresh", 60_000)).orders is None


def test_nodes_of_a_release_without_roles_are_workers_or_relays(clocked: World) -> None:
    old = NodeStats("a", 1, 0, '{"engine": "relay"}', 0, "", 0)
    assert (old.role, NodeStats("b", 1, 0, "{}", 0, "", 0).role) == ("relay", "worker")
    clocked.store.command("HDEL", clocked.key("worker", "boot"), "role")
    clocked.push()
    assert len(clocked.run(clocked.ledger.claim("boot", 1, ["default"], 1)).tasks) == 1
    assert clocked.run(clocked.ledger.register("boot", 60_000))
    assert read_orders("") is None
