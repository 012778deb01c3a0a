"""rl nodes: processes of every role, and orders from an operator."""

from __future__ import annotations

from relier.ledger.nodes import Orders, Role
from relier.settings import Settings
from tests.support.cli_desk import LEASE_MS, Desk, Run, RunJson
from tests.support.terminals import ESCAPES, in_terminal


def join_as(desk: Desk, role: Role, node_id: str) -> str:
    about = f'{{"host": "web5", "pid": 7, "version": "1.0", "engine": "{role}"}}'
    desk.run(desk.ledger.register(node_id, LEASE_MS, about, role))
    desk.run(desk.ledger.beat(node_id, LEASE_MS, report='{"rss_mb": 41, "draining": false}'))
    return node_id


def orders_of(desk: Desk, node_id: str) -> Orders | None:
    orders: Orders | None = desk.run(desk.ledger.beat(node_id, LEASE_MS)).orders
    return orders


def test_nodes_of_every_role_are_listed(desk: Desk, run: Run, run_json: RunJson) -> None:
    relay = join_as(desk, Role.RELAY, "relay.7.abc")
    scheduler = join_as(desk, Role.SCHEDULER, "scheduler.8.abc")

    def found(*options: str) -> set[str]:
        return {node["boot"] for node in run_json("nodes", "list", *options)["nodes"]}

    assert found() == {desk.boot, relay, scheduler}
    assert found("--role", "relay") == {relay}
    assert found("--host", "web5") == {relay, scheduler}
    (row,) = run_json("nodes", "--role", "relay")["nodes"]
    assert (row["role"], row["health"], row["host"]) == ("relay", "alive", "web5")
    assert (row["rss_mb"], row["draining"]) == (41, False)
    assert run_json("nodes")["totals"] == run_json("workers")["totals"]
    assert {worker["boot"] for worker in run_json("workers")["workers"]} == {desk.boot}
    assert "relay.7.abc" in run("nodes").stdout
    assert run("nodes", "--host", "web9").stdout.startswith("No such nodes in ")


def test_nodes_fit_a_narrow_terminal(desk: Desk, settings: Settings) -> None:
    join_as(desk, Role.RESURRECTOR, "resurrector.123456.abcde")
    screen = ESCAPES.sub("", in_terminal(["nodes", "--url", settings.redis_url, "--namespace", settings.namespace]))
    assert max(map(len, screen.splitlines())) <= 80
    for word in ("resurrector.123456.", " resurrector ", "alive", "LAST BEAT"):
        assert word in screen


def test_drain_resume_and_log_level_change_the_orders_of_a_node(desk: Desk, run: Run, run_json: RunJson) -> None:
    relay = join_as(desk, Role.RELAY, "relay.7.abc")
    assert run("nodes", "drain", "relay", desk.boot).stdout == (
        f"{relay} was ordered to drain; it runs 0 tasks.\n{desk.boot} was ordered to drain; it runs 0 tasks.\n"
    )
    assert orders_of(desk, relay) == Orders(1, draining=True)
    assert [node["draining"] for node in run_json("nodes")["nodes"]] == [True, True]
    assert " drained " in run("nodes").stdout
    (row,) = run_json("nodes", "log-level", "debug", "relay")["nodes"]
    assert (row["draining"], row["log_level"], row["error"]) == (True, "DEBUG", None)
    run("nodes", "resume", "relay")
    assert orders_of(desk, relay) == Orders(3, log_level="DEBUG")
    run("nodes", "log-level", "reset", "relay")
    assert orders_of(desk, relay) == Orders(4)
    run("nodes", "log-level", "reset", "relay")
    assert orders_of(desk, relay) == Orders(4), "a repeat changes nothing"
    run("nodes", "stop", "relay")
    assert orders_of(desk, relay) == Orders(5, stopping=True)


def test_a_node_that_cannot_take_orders_is_refused(desk: Desk, run: Run) -> None:
    assert "no node id begins with 'xyz'; `rl nodes` lists the nodes" in run("nodes", "drain", "xyz").stderr
    desk.command("ZADD", desk.key("boots"), 0, desk.boot)
    result = run("nodes", "drain", desk.boot)
    assert result.exit_code == 1
    assert f"rl: {desk.boot} was not ordered to drain: it is lost" in result.stderr
    assert "Missing argument" in run("nodes", "drain").stderr


def test_a_relay_is_no_worker(desk: Desk, run: Run, run_json: RunJson) -> None:
    """Only a relay is alive, and a task waits: all commands say that no worker is alive."""
    join_as(desk, Role.RELAY, "relay.7.abc")
    desk.run(desk.ledger.retire(desk.boot))
    task_id = desk.push()
    assert "No worker is alive, and 1 task waits." in run("doctor").stdout
    assert "No worker is alive. Start one with `rl worker`." in run("why", task_id).stdout
    assert "No worker is alive: nobody runs tasks." in run("nodes").stdout
    assert run("workers").stdout.startswith("No workers in ")
    stats = desk.run(desk.ledger.stats())
    assert (stats.workers, stats.alive(5.0), stats.unattended("default", 5.0)) == ((), [], True)


def test_a_drained_worker_is_named_where_its_tasks_wait(desk: Desk, run: Run) -> None:
    task_id = desk.push()
    run("nodes", "drain", desk.boot)
    assert "all are drained or stopping. Resume one with `rl nodes resume`" in run("why", task_id).stdout
    assert "No other worker is alive" in run("doctor").stdout
