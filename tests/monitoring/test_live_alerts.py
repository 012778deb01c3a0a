"""Each alert fires in a real Prometheus that scrapes a real exporter, worker and relay, and every panel has data.

The rules are those of deploy/, with shorter waits. Each step provokes some alerts and waits for them.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from relier.cli.main import rl
from relier.ledger.records import Lease
from tests.engines.conftest import NewFleet
from tests.monitoring.test_deploy import RULES, alerts, expressions
from tests.monitoring.test_metrics import has
from tests.support.fleet import Fleet, Member, wait_until
from tests.support.jobs import common as jobs
from tests.support.jobs import counted, provoked
from tests.support.outbox_shop import Shop, row
from tests.support.probing import wait_for
from tests.support.prometheus import Prometheus, hurried, prometheus
from tests.support.servers import Boot, Server, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
MODULES = ("tests.support.jobs.common", "tests.support.jobs.counted", "tests.support.jobs.provoked")
PATIENCE_S = 60.0
SLOTS = 3


class Cluster:
    """An exporter, a worker with a supervisor and a relay, all scraped, on a store that can be frozen."""

    def __init__(self, fleet: Fleet, store: Server, folder: Path) -> None:
        self.fleet, self.store = fleet, store
        self.ports = {name: free_port() for name in ("exporter", "worker", "relay")}
        database = f"sqlite:///{folder}/shop.db"
        self.shop = Shop(database, fleet.client)
        quick = {"RELIER_REDIS_DEADLINE": "0.5", "RELIER_EVENTS": "always"}
        fleet.start("exporter", "--metrics-port", str(self.ports["exporter"]), **quick)
        self.relay = fleet.start(
            *("outbox", "relay", "--database", database, "--metrics-port", str(self.ports["relay"])),
            *("--max-retries", "0", "--send-timeout", "1", "--broker-outage-cooldown", "1", "--idle-time", "0.2"),
            *("--queue-snapshot-refresh-seconds", "0.5"),
            **quick,
        )
        port = str(self.ports["worker"])
        self.worker: Member = fleet.worker(
            *("--processes", "1", "--concurrency", str(SLOTS), "--metrics-port", port),
            modules=MODULES,
            RELIER_GRACEFUL_SHUTDOWN_TIMEOUT="0.5",
            **quick,
        )

    def rl(self, *arguments: str) -> None:
        settings = self.fleet.settings
        told = CliRunner().invoke(
            rl, ["--url", settings.redis_url, "--namespace", settings.namespace, *arguments], catch_exceptions=False
        )
        assert told.exit_code == 0, told.output

    def worker_id(self) -> str:
        """Return the id of the worker that is alive."""
        return wait_until(lambda: next((one.node_id for one in self.fleet.stats().alive(1.0)), ""), PATIENCE_S)

    def send(self, number: int) -> None:
        with self.shop.session() as session, session.begin():
            self.shop.outbox.add(session, jobs.echo, number)

    def has(self, process: str, series: str, at_least: float = 1, **labels: str) -> None:
        wait_until(has(self.ports[process], series, at_least, **labels), PATIENCE_S, f"{series} of the {process}")


@pytest.fixture
def cluster(boot: Boot, fleets: NewFleet, tmp_path: Path) -> Iterator[Cluster]:
    store = boot()
    made = Cluster(fleets(1, on=store), store, tmp_path)
    with made.shop:
        yield made


def wait_fired(server: Prometheus, *names: str) -> None:
    try:
        wait_until(lambda: server.fired() >= set(names), PATIENCE_S, "the alerts")
    except AssertionError:
        raise AssertionError(f"{set(names) - server.fired()} did not fire in {PATIENCE_S:.0f} s") from None


def wait_counted(server: Prometheus, counter: str) -> None:
    """Wait until a counter was scraped twice: a process that ends takes its counters with it."""
    wait_until(lambda: server.query(f"increase({counter}[1h])"), PATIENCE_S, f"two samples of {counter}")


def test_every_alert_fires_and_every_panel_has_data(cluster: Cluster, tmp_path: Path) -> None:
    for port in cluster.ports.values():
        wait_for(port, "/readyz", seconds=PATIENCE_S)
    with prometheus(tmp_path / "prometheus", cluster.ports, hurried(RULES.read_text())) as server:
        check_health(cluster, server)
        provoke_waits_and_failures(cluster, server)
        provoke_deaths(cluster, server)
        provoke_an_outage(cluster, server)
        check_panels(server)
        provoke_losses(cluster, server)
        provoke_the_end_of_all_workers(cluster, server)
        assert server.fired() == set(alerts())


def check_health(cluster: Cluster, server: Prometheus) -> None:
    """A cluster that works raises no alert."""
    wait_until(lambda: len(server.query("up == 1")) == len(cluster.ports), PATIENCE_S, "all are scraped")
    assert jobs.echo.push(1).result(PATIENCE_S) == 1
    cluster.send(2)
    cluster.has("worker", "rl_tasks_total", 2, task=jobs.echo.name)
    cluster.has("relay", "rl_outbox_published_total")
    wait_until(lambda: server.query("rl_tasks_total >= 2"), PATIENCE_S, "the second task is scraped")
    assert server.fired() == set()


def provoke_waits_and_failures(cluster: Cluster, server: Prometheus) -> None:
    fleet = cluster.fleet
    assert counted.second_time_lucky.push().result(PATIENCE_S) == 2
    failed = counted.fails.push()
    provoked.overdraws.push()
    cluster.rl("queues", "pause", "parked")
    provoked.limited.push()
    jobs.echo.with_options(queue="unserved").push(1)
    cluster.shop.write(row())
    fleet.wait_ended([failed.id], PATIENCE_S)
    late = Lease(failed.id, f"{1:016d}", "a-zombie")
    assert not fleet.store.run(fleet.ledger.commit([(late, b"1", ())]))[0].ok
    wait_fired(
        server,
        *("RelierQueueUnserved", "RelierQueueOld", "RelierQueuePaused", "RelierDeadLetters", "RelierStaleCommits"),
        *("RelierOutboxDeadRows", "RelierSloPage", "RelierSloTicket"),
    )
    provoked.falls_behind.push("read")
    jobs.hold.push("held")
    fleet.wait_diary("begin", 2, PATIENCE_S)
    jobs.block.push("blocked")
    jobs.echo.push(3)
    wait_fired(server, "RelierLoopBlocked", "RelierSlotsFull", "RelierEventsBehind")
    for gate in ("blocked", "read", "held"):
        fleet.open_gate(gate)
    cluster.has("worker", "rl_ready")


def provoke_deaths(cluster: Cluster, server: Prometheus) -> None:
    fleet, worker = cluster.fleet, cluster.worker
    revived = jobs.hold.push("revived")
    fleet.wait_diary("begin", 4, PATIENCE_S)
    worker.signal(signal.SIGKILL, worker.started()[-1])
    fleet.wait_diary("begin", 5, PATIENCE_S)
    wait_counted(server, "rl_task_resurrections_total")
    fleet.open_gate("revived")
    fleet.wait_done([revived.id], PATIENCE_S)
    wait_until(lambda: not sum(each.owned for each in fleet.stats().workers), PATIENCE_S, "an idle worker")
    doomed = jobs.suicide.push()
    fleet.wait_ended([doomed.id], PATIENCE_S)
    wait_fired(server, "RelierProcessesDie", "RelierResurrectionsExhausted")
    wait_counted(server, "rl_task_resurrections_exhausted_total")
    before = len(fleet.diary("begin"))
    held = jobs.hold_thread.push("thread")
    fleet.wait_diary("begin", before + 1, PATIENCE_S)
    worker.signal(signal.SIGTERM, worker.started()[-1])
    cluster.has("worker", "rl_shutdowns_total", kind="forced")
    fleet.open_gate("thread")
    fleet.wait_done([held.id], PATIENCE_S)
    wait_fired(server, "RelierForcedShutdowns")
    cluster.rl("nodes", "drain", cluster.worker_id())
    wait_fired(server, "RelierNotReady")
    cluster.rl("nodes", "resume", cluster.worker_id())
    cluster.has("worker", "rl_ready")


def provoke_an_outage(cluster: Cluster, server: Prometheus) -> None:
    cluster.store.freeze()
    cluster.send(4)
    try:
        wait_fired(
            server,
            *("RelierLedgerDown", "RelierHeartbeatsLate", "RelierStoreBreakerOpen", "RelierStoreSlow"),
            *("RelierOutboxOld", "RelierOutboxTargetDown"),
        )
    finally:
        cluster.store.thaw()
    cluster.has("worker", "rl_ready")
    cluster.has("exporter", "rl_ledger_up")


def check_panels(server: Prometheus) -> None:
    empty: list[str] = []

    def all_answer() -> bool:
        empty[:] = [f"{where}: {query}" for where, query in expressions() if not server.query(query)]
        return not empty

    try:
        wait_until(all_answer, PATIENCE_S)
    except AssertionError:
        raise AssertionError(f"without data: {empty}") from None


def provoke_losses(cluster: Cluster, server: Prometheus) -> None:
    """Drop the outbox's table, then empty the store."""
    cluster.shop.outbox.table.drop(cluster.shop.engine)
    wait_fired(server, "RelierOutboxDatabaseDown")
    before = cluster.worker_id()
    cluster.store.command("FLUSHALL")
    wait_fired(server, "RelierStoreEmptied")
    wait_until(lambda: cluster.worker_id() != before, PATIENCE_S, "the worker has registered again")


def provoke_the_end_of_all_workers(cluster: Cluster, server: Prometheus) -> None:
    fleet = cluster.fleet
    before = len(fleet.diary("begin"))
    jobs.hold.push("never")
    fleet.wait_diary("begin", before + 1, PATIENCE_S)
    cluster.worker.kill_all()
    jobs.echo.with_options(delay=0.1).push(5)
    cluster.rl("schedules", "add", "often", jobs.echo.name, "--every", "1", "--args", "[6]")
    wait_fired(
        server,
        *("RelierNoWorkers", "RelierTasksLost", "RelierProcessDown", "RelierDueTasksLate", "RelierScheduleLate"),
    )
