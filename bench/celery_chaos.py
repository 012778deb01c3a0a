"""Celery workers killed -9 at random, main processes and children, while plain tasks, callbacks, chains and chords run.

    python -m bench.celery_chaos [--quick] [--broker amqp://…]

No task may be lost, and none committed twice. Each callback, chain step and chord body must be exactly one task. Its
function may run more than once, because its process may die; then it runs again under the same id.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.fleets import Table, leave
from relier.settings import Settings
from relier.states import State
from tests.support import PYTHONPATH, ROOT
from tests.support.fleet import Fleet, Member
from tests.support.servers import Server

LEASE_S = 3.0
PLAIN, LINKED, CHAINS, STEPS, CHORDS, PARTS = 9_000, 2_500, 1_000, 3, 400, 8
WORKERS, KILLS = 3, 200


def sizes(share: float) -> dict[str, int]:
    whole = {"plain": PLAIN, "linked": LINKED, "chains": CHAINS, "chords": CHORDS}
    return {name: max(4, round(number * share)) for name, number in whole.items()}


class Chaos:
    """One run: what was sent, which workers run, and which were killed."""

    def __init__(self, fleet: Fleet, env: dict[str, str], many: dict[str, int]) -> None:
        self.fleet = fleet
        self.env = env
        self.many = many
        self.rng = random.Random(7)
        self.kills: dict[str, int] = defaultdict(int)
        self.workers: list[Member] = []

    def start_worker(self) -> None:
        name = f"w{len(self.fleet.members)}@chaos"
        command = ["-m", "celery", "-A", "bench.celery_chaos_app", "worker", "-c", "2", "-n", name]
        command += ["--without-mingle", "--without-gossip", "-l", "INFO"]
        self.workers.append(self.fleet.python(*command, cwd=ROOT, **self.env))

    def send(self) -> list[str]:
        """Send everything at once. Return the ids that must end as done."""
        from celery import chain, chord

        from bench import celery_chaos_app as app

        def chained(key: str) -> Any:
            return chain(*[app.step.si(key, number) for number in range(STEPS)])()

        def joined(key: str) -> Any:
            return chord([app.part.s(key, number) for number in range(PARTS)])(app.body.s(key))

        plain = [app.work.delay(f"p{i}", 0.001 if i % 4 else 0.02) for i in range(self.many["plain"])]
        linked = [
            app.work.apply_async((f"l{i}",), link=app.called_back.si(f"l{i}")) for i in range(self.many["linked"])
        ]
        chains = [chained(f"c{i}") for i in range(self.many["chains"])]
        chords = [joined(f"d{i}") for i in range(self.many["chords"])]
        return [result.id for result in (*plain, *linked, *chains, *chords)]

    @property
    def live(self) -> int:
        states = self.fleet.stats().by_state()
        return sum(states[state] for state in (State.SCHEDULED, State.QUEUED, State.RUNNING))

    @property
    def ended(self) -> int:
        return self.fleet.stats().counts.get("done", 0)

    def fill_up(self) -> None:
        self.workers = [worker for worker in self.workers if worker.process.poll() is None]
        while len(self.workers) < WORKERS:
            self.start_worker()

    def kill_one(self) -> None:
        """Kill a busy process: the main process, one child, or all of them."""
        worker = self.rng.choice([worker for worker in self.workers if " started: queues=" in worker.said()])
        children = worker.children()
        if children and self.rng.random() < 0.8:
            worker.signal(signal.SIGKILL, self.rng.choice(children))
            self.kills["child"] += 1
        elif self.rng.random() < 0.5:
            worker.signal(signal.SIGKILL)  # its children notice, and end
            self.kills["main"] += 1
        else:
            worker.kill_all()
            self.kills["all"] += 1

    def run(self, kills: int, tasks: int, seconds: float) -> float:
        """Kill a process whenever a certain share of the tasks has ended, so that the kills last as long as the
        tasks."""
        begun, killed = time.monotonic(), 0
        while self.live and time.monotonic() - begun < seconds:
            self.fill_up()
            if killed < kills and self.ended >= killed * tasks * 0.95 / kills and self.anybody_works:
                self.kill_one()
                killed += 1
            time.sleep(self.rng.uniform(0.01, 0.1))
        return time.monotonic() - begun

    @property
    def anybody_works(self) -> bool:
        return any(" started: queues=" in worker.said() for worker in self.workers)


def number_of(many: dict[str, int]) -> int:
    """Return the total number of tasks. A chord also has a body and a join, and a linked task has a callback."""
    return many["plain"] + 2 * many["linked"] + STEPS * many["chains"] + (PARTS + 2) * many["chords"]


def diary(path: Path) -> dict[str, dict[str, set[str]]]:
    """Return kind of task -> argument -> task ids."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for line in path.read_text().splitlines():
        what, key, task_id = line.split()
        found[what][key].add(task_id)
    return found


def judge(chaos: Chaos, ids: list[str], told: dict[str, dict[str, set[str]]], took: float) -> Table:
    fleet, many = chaos.fleet, chaos.many
    counts = fleet.stats().counts
    steps = [f"step{number}" for number in range(STEPS)]
    kinds = {"callback": many["linked"], "body": many["chords"], **dict.fromkeys(steps, many["chains"])}
    tasks = number_of(many)
    table = Table(f"{tasks:,} tasks, {sum(chaos.kills.values())} kills {dict(chaos.kills)}, {took:.0f} s")
    done = sum(fleet.get(task_id).record.state == "done" for task_id in ids)
    table.exactly("tasks, chain ends and chord bodies sent", len(ids), len(set(ids)))
    table.exactly("of them done", done, len(ids))
    table.exactly("tasks accepted in all", counts["submitted"], tasks)
    table.exactly("commits", counts["done"], tasks)
    table.exactly("dead letters", counts.get("dead", 0), 0)
    table.exactly("tasks left behind", chaos.live, 0)
    for what, number in kinds.items():
        doubled = sum(len(under) != 1 for under in told[what].values())
        table.exactly(f"{what}: for how many", len(told[what]), number)
        table.exactly(f"{what}: more than one task for the same", doubled, 0)
    table.line("late commits refused", counts.get("refused", 0))
    table.line("revived", counts.get("revived", 0))
    return table


def options() -> Any:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a tenth: does it run at all")
    parser.add_argument("--broker", default="", help="another broker than the ledger's own server")
    return parser.parse_args()


def main() -> None:
    given = options()
    share = 0.1 if given.quick else 1.0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder) / "server", "valkey-9.1")
        server.start()
        env = {
            "CHAOS_BROKER": given.broker or f"{server.tcp_url}/1",
            "CHAOS_BACKEND": f"{server.tcp_url}/2",
            "CHAOS_DIARY": f"{folder}/diary",
            "PYTHONPATH": PYTHONPATH,
        }
        settings = Settings(redis_url=server.url, namespace="chaos", heartbeat_ttl=LEASE_S, admission_limit=0)
        fleet = Fleet(settings, Path(folder) / "fleet")
        os.environ |= env | {"RELIER_REDIS_URL": server.url, "RELIER_NAMESPACE": "chaos"}
        try:
            chaos = Chaos(fleet, env, sizes(share))
            ids = chaos.send()
            took = chaos.run(round(KILLS * share), number_of(chaos.many), 1800)
            table = judge(chaos, ids, diary(Path(env["CHAOS_DIARY"])), took)
            fleet.check()
        finally:
            fleet.close()
            server.stop()
    leave(table)


if __name__ == "__main__":
    main()
