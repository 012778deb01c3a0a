"""Nodes as real processes: a relay next to a worker, and orders from another process."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import MetaData, create_engine

from relier.cli.main import rl
from relier.engines.worker import EXIT_CLEAN
from relier.ledger.keys import spell
from relier.ledger.nodes import NodeStats, Role
from relier.outbox import outbox_table
from relier.states import State
from tests.engines.conftest import NewFleet
from tests.support.fleet import Fleet, Member, wait_until
from tests.support.jobs import common as jobs


def rl_says(fleet: Fleet, *args: str) -> str:
    """Return what an operator's command prints."""
    where = ("--url", fleet.settings.redis_url, "--namespace", fleet.settings.namespace)
    told = CliRunner().invoke(rl, [*args, *where])
    assert told.exit_code == 0, told.output
    return told.stdout


def only_node(fleet: Fleet, role: Role) -> NodeStats:
    (node,) = wait_until(lambda: [node for node in fleet.stats().nodes if node.role == role], what=f"a {role}")
    assert isinstance(node, NodeStats)
    return node


def is_drained(fleet: Fleet, role: Role) -> bool:
    return only_node(fleet, role).reported_now().get("draining") is True


@pytest.fixture
def relay_of(tmp_path: Path) -> object:
    """Start a relay in a fleet's namespace, on a table in SQLite."""

    def start(fleet: Fleet) -> Member:
        url = f"sqlite:///{tmp_path / 'outbox.db'}"
        metadata = MetaData()
        outbox_table(metadata)
        engine = create_engine(url)
        metadata.create_all(engine)
        engine.dispose()
        return fleet.start("outbox", "relay", "--database", url)

    return start


def test_a_relay_is_a_node_next_to_a_worker(fleets: NewFleet, relay_of: object) -> None:
    """The clamp of the workers' clock stays half a worker's lease, and both nodes are listed with their roles."""
    fleet = fleets(5)
    fleet.worker()
    relay = relay_of(fleet)  # type: ignore[operator]
    node = only_node(fleet, Role.RELAY)
    clock = fleet.store.command("GET", spell(fleet.ledger.prefix, "clock"))
    assert clock.split()[2] == b"2500"
    assert node.reported()["tables"] == ["relier_outbox"]
    shown = rl_says(fleet, "nodes")
    assert " relay " in shown
    assert " worker " in shown
    rl_says(fleet, "nodes", "stop", node.node_id)
    assert relay.wait(30) == 0
    assert [node.role for node in fleet.stats().nodes] == ["worker"]


def test_a_worker_is_drained_and_resumed_from_another_process(fleet: Fleet) -> None:
    member = fleet.worker()
    runs = jobs.hold.push("go")
    fleet.wait_diary("begin", 1)
    node = only_node(fleet, Role.WORKER)
    rl_says(fleet, "nodes", "drain", node.node_id[:-3])
    wait_until(lambda: is_drained(fleet, Role.WORKER), what="the worker drained")
    waits = jobs.quick.push()
    fleet.let_pass(2.5)
    assert waits.info().record.state is State.QUEUED, "no claim"
    assert "drained" in rl_says(fleet, "workers")
    fleet.open_gate("go")
    fleet.wait_done([runs.id])
    rl_says(fleet, "nodes", "resume", node.node_id)
    fleet.wait_done([waits.id])
    now = only_node(fleet, Role.WORKER).reported_now()
    wait_until(lambda: only_node(fleet, Role.WORKER).reported_now()["done"] == 2, what="both counted")
    assert now["rss_mb"] > 0
    rl_says(fleet, "workers", "drain", node.node_id)
    assert member.wait() == EXIT_CLEAN
    assert "is stopping: an operator ordered it" in member.said()


def test_a_drained_worker_stays_drained_under_a_new_id(fleet: Fleet) -> None:
    fleet.worker("--no-sweep")
    first = only_node(fleet, Role.WORKER)
    rl_says(fleet, "nodes", "drain", first.node_id)
    wait_until(lambda: is_drained(fleet, Role.WORKER), what="the worker drained")
    fleet.store.run(fleet.ledger.revive(worker_id=first.node_id, cause="a test"))
    wait_until(lambda: [node.node_id for node in fleet.stats().workers] not in ([], [first.node_id]), what="a new id")
    again = only_node(fleet, Role.WORKER)
    assert again.orders.draining
    waits = jobs.quick.push()
    fleet.let_pass(2)
    assert waits.info().record.state is State.QUEUED
    rl_says(fleet, "nodes", "resume", again.node_id)
    fleet.wait_done([waits.id])


def test_the_log_level_of_a_node_changes_and_is_restored(fleet: Fleet) -> None:
    member = fleet.worker()
    node = only_node(fleet, Role.WORKER)
    rl_says(fleet, "nodes", "log-level", "error", node.node_id)
    wait_until(lambda: only_node(fleet, Role.WORKER).orders.log_level == "ERROR", what="the order")
    fleet.let_pass(1.5)
    quiet = jobs.quick.push()
    fleet.wait_done([quiet.id])
    rl_says(fleet, "nodes", "log-level", "reset", node.node_id)
    member.wait_said("log level restored")
    loud = jobs.quick.push()
    member.wait_said(f"task succeeded: name=tests.support.jobs.common.quick id={loud.id}")
    assert quiet.id not in member.said()


@pytest.mark.parametrize("command", [Role.SCHEDULER, Role.RESURRECTOR])
def test_a_process_that_only_sweeps_is_a_node(fleet: Fleet, command: Role) -> None:
    member = fleet.start(command.value)
    node = only_node(fleet, command)
    assert fleet.stats().workers == ()
    rl_says(fleet, "nodes", "drain", node.node_id)
    member.wait_said(f"{command} was drained, takes nothing new")
    fleet.let_pass(1)
    late = jobs.quick.with_options(delay=0.2).push()
    fleet.let_pass(1.5)
    assert late.info().record.state is State.SCHEDULED, "no sweep"
    rl_says(fleet, "nodes", "resume", node.node_id)
    wait_until(lambda: late.info().record.state is State.QUEUED, what="a sweep")
    rl_says(fleet, "nodes", "stop", node.node_id)
    assert member.wait() == 0
    assert fleet.stats().nodes == ()
    late.cancel()
