"""`make ha-demo`: the primary is killed, frozen and cut off under load, with a producer for every durability level.

Each loss has its own primary, two replicas and three Sentinels, with the configuration files of scripts/redis, and two
`rl worker` processes. The last one repeats the cut with min-replicas-to-write, which redis.conf has commented out. It
takes two to three minutes; `python -m ha_demo kill` does one of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from relier import Client, Settings, use_client

from .cluster import Cluster, ClusterError, wait_for
from .producers import Level, LevelProducer
from .verdict import Row, findings, judge, rows_of, unfinished

EXAMPLES = Path(__file__).parent.parent
LEVELS: tuple[Level, ...] = ("memory", "fsync", "replicated")
QUIET_S = 2.0  # of load before the loss, and after everything is back
WORKERS = 2
GUARDED = "cut, guarded"
LOSSES = {"kill": "killed", "freeze": "frozen", "cut": "cut off", "guarded": GUARDED}
console = Console()


def strike(loss: str, cluster: Cluster) -> Callable[[], object]:
    """Make the primary fail. Return a function that brings the old server back."""
    if loss == "killed":
        cluster.master.signal(signal.SIGKILL)
        return cluster.master.start
    if loss == "frozen":
        cluster.master.signal(signal.SIGSTOP)
        return lambda: cluster.master.signal(signal.SIGCONT)
    cluster.cable.cut()
    return cluster.cable.mend


def worker(url: str, log: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"RELIER_REDIS_URL": url, "PYTHONPATH": str(EXAMPLES)}
    with log.open("wb") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "relier.cli", "worker", "ha_demo.tasks"],
            cwd=EXAMPLES,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            process_group=0,
        )


def lose_primary(loss: str, folder: Path) -> tuple[list[Row], list[str]]:
    """Run the load, lose the primary, and wait until all is well again. Return the rows and the findings."""
    with ExitStack() as stack:
        cluster = Cluster(folder, guarded=loss == GUARDED)
        stack.callback(cluster.end)
        cluster.start()
        client = Client(Settings(redis_url=cluster.url, admission_limit=0))
        use_client(client)
        stack.callback(client.close)
        client.open()
        for n in range(WORKERS):
            started = worker(cluster.url, folder / f"worker-{n + 1}.log")
            stack.callback(started.wait)
            stack.callback(started.kill)
        producers = [LevelProducer(level, client) for level in LEVELS]
        for producer in producers:
            stack.callback(producer.stop)
            producer.start()
        wait_for("pushes at every level", lambda: all(len(one.acknowledged) > 50 for one in producers))
        time.sleep(QUIET_S)
        back = strike(loss, cluster)
        began = time.monotonic()
        console.print(f"  the primary is {loss.partition(',')[0]} while three producers push and {WORKERS} workers run")
        wait_for("a failover", lambda: cluster.promoted() is not None)
        console.print(f"  a replica was promoted after {time.monotonic() - began:.1f} s")
        back()
        wait_for("the old primary as a replica", cluster.rejoined)
        console.print(f"  the old primary is back, as a replica, after {time.monotonic() - began:.1f} s")
        before = {one.level: len(one.acknowledged) for one in producers}
        wait_for("pushes again", lambda: all(len(one.acknowledged) > before[one.level] + 50 for one in producers))
        time.sleep(QUIET_S)
        for producer in producers:
            producer.stop()
            if producer.error is not None:
                raise ClusterError(f"the producer of {producer.level} ended with {producer.error!r}")
        ids = [task_id for one in producers for task_id in one.acknowledged]
        wait_for("the end of every task", lambda: unfinished(client, ids) == 0)
        return rows_of(loss, client, producers), findings(client)


def main(losses: list[str]) -> int:
    rows: list[Row] = []
    problems: list[str] = []
    try:
        for loss in losses or list(LOSSES):
            console.print(f"[bold]{LOSSES[loss]}[/]")
            with tempfile.TemporaryDirectory(prefix="relier-ha-") as folder:
                found, wrong = lose_primary(LOSSES[loss], Path(folder))
            rows += found
            problems += wrong
    except ClusterError as error:
        console.print(f"the demo could not go on: {error}", style="bold red")
        return 1
    return judge(rows, problems, console)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
