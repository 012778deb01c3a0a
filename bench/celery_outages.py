"""How the Celery engine handles a dead child process, and a broker that loses its data, is down, or freezes.

python -m bench.celery_outages [--quick]

child       a pool process is killed -9: how soon its task runs again
wiped       FLUSHALL of the broker with thousands of tasks queued: all run
purged      the same by a queue purge on RabbitMQ, where it is installed
away        the broker is gone while a worker with a thousand tasks dies: each is revived once, none is buried
frozen      a Sentinel's master, broker and ledger in one, is stopped under load: workers go on by themselves
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import kombu

from bench.fleets import Table, leave, quick
from relier.settings import Settings
from tests.support import PYTHONPATH, ROOT
from tests.support.fleet import Fleet, Member, wait_until
from tests.support.rabbitmq import Rabbit, binary
from tests.support.servers import Server

LEASE_S = 3.0


class Line(NamedTuple):
    what: str
    key: str
    pid: int
    at: float


class Scene:
    """The servers, a fleet and its diary."""

    def __init__(self, folder: Path, ledger_url: str, broker_url: str, **env: str) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.env = {
            "OUTAGES_BROKER": broker_url,
            "OUTAGES_FOLDER": str(folder),
            "PYTHONPATH": PYTHONPATH,
            **env,
        }
        settings = Settings(redis_url=ledger_url, namespace="outages", heartbeat_ttl=LEASE_S, admission_limit=0)
        self.fleet = Fleet(settings, folder / "fleet")

    def worker(self, *options: str, up: bool = True) -> Member:
        name = f"w{len(self.fleet.members)}@outages"
        command = ["-m", "celery", "-A", "bench.celery_outages_app", "worker", "-n", name, "-l", "INFO", *options]
        member = self.fleet.python(*command, "--without-mingle", "--without-gossip", cwd=ROOT, **self.env)
        if up:
            member.wait_said(" ready.", 1, 60)
        return member

    def send(self, code: str) -> None:
        """Send from another process, because an app has only one broker."""
        where = {"RELIER_REDIS_URL": self.fleet.settings.redis_url, "RELIER_NAMESPACE": "outages"}
        program = f"from bench.celery_outages_app import hold, quick\n{code}"
        subprocess.run([sys.executable, "-c", program], env=os.environ | self.env | where, check=True, timeout=300)

    def diary(self, what: str) -> list[Line]:
        file = self.folder / "diary"
        lines = file.read_text().splitlines() if file.exists() else []
        told = [Line(w, k, int(p), float(t)) for w, k, p, t in map(str.split, lines)]
        return [line for line in told if line.what == what]

    def wait_for(self, what: str, number: int, seconds: float) -> None:
        wait_until(lambda: len({line.key for line in self.diary(what)}) >= number, seconds, f"{number} × {what}")

    def ended(self) -> int:
        return self.fleet.stats().counts.get("done", 0)


@contextlib.contextmanager
def servers(folder: Path, *names: str) -> Iterator[list[Server]]:
    running = [Server(folder / name, "valkey-9.1") for name in names]
    try:
        yield [server.start() for server in running]
    finally:
        for server in running:
            server.kill()


def child(folder: Path, rounds: int) -> Table:
    with servers(folder, "store") as (store,):
        scene = Scene(folder / "scene", store.url, f"{store.tcp_url}/1")
        scene.worker("-c", "2")
        times: list[float] = []
        for i in range(rounds):
            scene.send(f"hold.delay('k{i}', 'gate{i}')")
            scene.wait_for("hold", i + 1, 30)
            (line,) = [line for line in scene.diary("hold") if line.key == f"k{i}"]
            killed = time.monotonic()
            os.kill(line.pid, signal.SIGKILL)
            wait_until(lambda i=i: sum(x.key == f"k{i}" for x in scene.diary("hold")) >= 2, 30, "the second run")
            times.append([x for x in scene.diary("hold") if x.key == f"k{i}"][1].at - killed)
            (scene.folder / f"gate{i}").touch()
        wait_until(lambda: scene.ended() == rounds, 60, "the end")
        table = Table(f"{rounds} pool processes killed -9 under their task")
        table.times("until it runs again", times, 1.0)
        table.exactly("done", scene.ended(), rounds)
        scene.fleet.close()
    return table


def wiped(folder: Path, tasks: int) -> Table:
    with servers(folder, "broker") as (broker,):
        wipe, url = partial(broker.command, "FLUSHALL"), f"{broker.tcp_url}/0"
        return wiped_by(wipe, f"FLUSHALL of the broker with {tasks:,}", folder, url, tasks)


def purged(folder: Path, tasks: int) -> Table:
    rabbit = Rabbit().start()

    def purge() -> None:
        with kombu.Connection(rabbit.url) as connection:
            queue = kombu.Queue("celery", kombu.Exchange("celery"), "celery")(connection.default_channel)
            queue.declare()
            queue.purge()

    try:
        return wiped_by(purge, f"queue purge on RabbitMQ with {tasks:,}", folder, rabbit.url, tasks)
    finally:
        rabbit.end()


def wiped_by(wipe: Callable[[], object], how: str, folder: Path, broker: str, tasks: int) -> Table:
    with servers(folder, "store") as (store,):
        scene = Scene(folder / "scene", store.url, broker)
        scene.send(f"for i in range({tasks}): quick.delay(str(i))")
        wipe()
        begun = time.monotonic()
        scene.worker("-c", "2", up=False)
        wait_until(lambda: scene.ended() >= tasks / 2, 60, "half of them")
        wipe()
        wait_until(lambda: scene.ended() == tasks, 60, "all of them")
        table = Table(f"{how} tasks queued, and again with half of them")
        table.most("until all have run, the worker's start included", time.monotonic() - begun, 30, "s")
        table.exactly("run", len({line.key for line in scene.diary("quick")}), tasks)
        scene.fleet.close()
    return table


def away(folder: Path, tasks: int) -> Table:
    with servers(folder, "store", "broker") as (store, broker):
        scene = Scene(folder / "scene", store.url, f"{broker.tcp_url}/0")
        first = scene.worker("-P", "threads", "-c", str(tasks))
        scene.send(f"for i in range({tasks}): hold.delay(str(i), 'gate')")
        scene.wait_for("hold", tasks, 120)
        broker.kill()
        first.kill_all()
        scene.worker("-P", "threads", "-c", str(tasks), up=False)
        wait_until(lambda: scene.fleet.stats().counts.get("revived", 0) >= tasks, 60, "their revival")
        broker.start()
        (scene.folder / "gate").touch()
        wait_until(lambda: scene.ended() == tasks, 120, "all of them")
        counts = scene.fleet.stats().counts
        table = Table(f"the broker away while a worker with {tasks:,} tasks died")
        table.exactly("revivals", counts.get("revived", 0), tasks)
        table.exactly("dead letters", counts.get("dead", 0), 0)
        table.exactly("done", counts.get("done", 0), tasks)
        scene.fleet.close()
    return table


def frozen(folder: Path) -> Table:
    with servers(folder, "master") as (master,), contextlib.ExitStack() as ends:
        replica = Server(folder / "replica", "valkey-9.1", {"replicaof": f"127.0.0.1 {master.port}"}).start()
        ends.callback(replica.kill)
        wait_until(lambda: replica.info("replication")["master_link_status"] == "up")
        watch = (
            f"sentinel monitor main 127.0.0.1 {master.port} 1\nsentinel down-after-milliseconds main 5000\n"
            "sentinel failover-timeout main 5000\n"
        )
        sentinel = Server(folder / "sentinel", "valkey-9.1", sentinel=watch).start()
        ends.callback(sentinel.kill)
        known = f"sentinel://127.0.0.1:{sentinel.port}"
        scene = Scene(folder / "scene", f"{known}/main", f"{known}/1", OUTAGES_MASTER="main")
        ends.callback(scene.fleet.close)
        ends.callback(master.thaw)
        scene.worker("-c", "2")
        scene.fleet.python("-c", "import bench.celery_outages_app as app; app.push_for(60)", cwd=ROOT, **scene.env)
        wait_until(lambda: len(scene.diary("quick")) > 50, 60, "work")
        master.freeze()
        stopped = time.monotonic()
        wait_until(lambda: _works(scene, stopped + 1.0, replica), 60, "work after the failover")
        resumed = min(line.at for line in scene.diary("quick") if line.at > stopped + 1.0) - stopped
    table = Table("a Sentinel's master, broker and ledger in one, frozen under load (down-after 5 s)")
    table.most("until tasks run again", resumed, 30, "s")
    return table


def _works(scene: Scene, moment: float, replica: Server) -> bool:
    """Return whether a task began after that time, and not on the old master."""
    return replica.info("replication")["role"] == "master" and any(x.at > moment for x in scene.diary("quick"))


def main() -> None:
    short = quick()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        leave(
            child(folder / "child", 10 if short else 100),
            wiped(folder / "wiped", 500 if short else 5000),
            *([purged(folder / "purged", 500 if short else 5000)] if binary() else []),
            away(folder / "away", 100 if short else 1000),
            frozen(folder / "frozen"),
        )


if __name__ == "__main__":
    main()
