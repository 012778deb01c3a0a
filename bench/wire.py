"""Compare Relier's own way to the store with redis-py, valkey-py, coredis and valkey-glide, on Relier's own scripts.

    python -m bench.wire [--quick] [--uvloop]

Each client takes tasks through their life (submit, claim, commit: EVALSHA of the real scripts, payload 100 bytes), with
1, 10 or 100 calls to a pipeline, from a thread and on an event loop. "100 callers" is an event loop on which 100
coroutines make one call each at the same time; Relier's store gathers those in one pipeline by itself.

Client CPU is `time.process_time` of this process, including the client's threads. Server CPU is the server's own figure
(INFO cpu), including script time. The clients take turns within a round, in a different order each round. A ratio is
the peer's CPU per call divided by Relier's in the same round; the figure shown is the median of the rounds.

Two comparisons: whole clients beside `SyncStore` and `AsyncStore`, which also keep deadlines, retry, confirm durability
and have a circuit breaker; and the bare connection of redis-py, which could replace the connection below Relier's core,
beside ours. Our own code pays where a peer needs at least 10 % more CPU. docs/decisions/0004 lists the rows where it
does not, and the consequences.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import statistics
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.peers.server import serving, spent
from bench.wire_clients import AsyncSend, Clients, Send
from relier.ledger.ledger import Ledger, load_scripts
from relier.ledger.records import Submission, new_task_id, new_worker_id
from relier.settings import Settings
from relier.store import Call, SyncStore

NAME, PAYLOAD = "shop.tasks.billing.charge_customer", b"x" * 100
LEASE_MS = 3_600_000
PIPELINES = {1: 200, 10: 300, 100: 500}  # calls to a pipeline: tasks in a round
ROUNDS = 15
TARGET = 1.10
CALLERS = "100 callers"
Life = Generator[list[Call[Any]], list[Any], None]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call cost in one round: µs of client CPU, of server CPU, and of time."""

    client: float
    server: float
    wall: float


class Meter:
    """Add up what the measured parts of a round cost."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin
        self.cpu = self.wall = 0.0
        self.calls = 0
        self._server = spent(admin).cpu_us

    @contextlib.contextmanager
    def running(self, calls: int) -> Generator[None, None, None]:
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu
        self.calls += calls

    def cost(self) -> Cost:
        server = (spent(self._admin).cpu_us - self._server) / self.calls
        return Cost(1e6 * self.cpu / self.calls, server, 1e6 * self.wall / self.calls)


class Bench:
    """Take tasks through their life in a namespace that is emptied after each round."""

    def __init__(self, url: str, admin: Any, rounds: int) -> None:
        self.rounds = rounds
        scripts = load_scripts()
        for name in ("submit", "claim", "commit"):  # Relier's store would load a missing script; its peers would not
            admin.script_load(scripts[name].text)
        self.clients = Clients(urlsplit(url).port or 0, scripts)
        self._admin = admin
        settings = Settings(redis_url=url, namespace="bench")
        self._ledger = Ledger(settings)
        self._store = SyncStore(settings, scripts)
        self.found: dict[tuple[str, str], dict[str, list[Cost]]] = {}

    def begin(self, tasks: int, workers: int = 1) -> tuple[Meter, Life]:
        """Start a round. The claims of one worker must arrive in order, so concurrent callers are workers each."""
        self._admin.flushall()
        worker_ids = [new_worker_id() for _ in range(workers)]
        self._store.run(self._ledger.open())
        self._store.run_many(self._ledger.register(worker_id, LEASE_MS) for worker_id in worker_ids)
        gc.collect()
        return Meter(self._admin), self._life(worker_ids, tasks)

    def _life(self, worker_ids: list[str], tasks: int) -> Life:
        ledger, workers = self._ledger, len(worker_ids)
        yield [ledger.submit([Submission(id=new_task_id(), name=NAME, payload=PAYLOAD)]) for _ in range(tasks)]
        claims = yield [
            ledger.claim(worker_ids[i % workers], 1 + i // workers, ["default"], 1, rung=False) for i in range(tasks)
        ]
        claimed = [task for claim in claims for task in claim.tasks]
        if len(claimed) != tasks:
            raise SystemExit(f"claimed {len(claimed)} of {tasks} tasks")
        yield [ledger.commit([(task.lease, None, ())]) for task in claimed]

    def run_life(self, send: Send, pipeline: int) -> Cost:
        meter, life = self.begin(PIPELINES[pipeline])
        calls, results = next(life), []
        with contextlib.suppress(StopIteration):
            while True:
                with meter.running(len(calls)):
                    results = [send(calls[i : i + pipeline]) for i in range(0, len(calls), pipeline)]
                calls = life.send([result for part in results for result in part])
        return meter.cost()

    async def run_life_async(self, send: AsyncSend, pipeline: int, *, callers: bool = False) -> Cost:
        meter, life = self.begin(PIPELINES[pipeline], pipeline if callers else 1)
        calls, results = next(life), []
        with contextlib.suppress(StopIteration):
            while True:
                with meter.running(len(calls)):
                    parts = [calls[i : i + pipeline] for i in range(0, len(calls), pipeline)]
                    if callers:
                        results = [
                            [one for single in await asyncio.gather(*(send([call]) for call in part)) for one in single]
                            for part in parts
                        ]
                    else:
                        results = [await send(part) for part in parts]
                calls = life.send([result for part in results for result in part])
        return meter.cost()

    def note(self, where: str, how: str, client: str, cost: Cost) -> None:
        self.found.setdefault((where, how), {}).setdefault(client, []).append(cost)

    def threads(self) -> None:
        with contextlib.ExitStack() as stack:
            sends = {name: stack.enter_context(opened()) for name, opened in self.clients.sync.items()}
            for turn in range(-1, self.rounds):  # the first round warms up
                for name, send in in_turn(sends, turn):
                    for pipeline in PIPELINES:
                        cost = self.run_life(send, pipeline)
                        if turn >= 0:
                            self.note("threads", per_pipeline(pipeline), name, cost)

    async def loops(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            sends = {}
            for name, opened in self.clients.asynchronous.items():
                sends[name] = await stack.enter_async_context(opened())
            for turn in range(-1, self.rounds):
                for name, send in in_turn(sends, turn):
                    await self._loop_round(name, send, keep=turn >= 0)

    async def _loop_round(self, name: str, send: AsyncSend, *, keep: bool) -> None:
        for pipeline in PIPELINES:
            cost = await self.run_life_async(send, pipeline)
            if keep:
                self.note("event loop", per_pipeline(pipeline), name, cost)
        if not name.endswith(" connection"):  # a connection does one exchange at a time
            cost = await self.run_life_async(send, 100, callers=True)
            if keep:
                self.note("event loop", CALLERS, name, cost)

    def report(self) -> int:
        """Print the figures, and return how many targets were missed."""
        missed = 0
        for (where, how), clients in self.found.items():
            print(f"\n{where}, {how}")
            print(f"  {'':<22}{'client µs':>10}{'server µs':>11}{'calls/s':>10}{'CPU ratio':>11}{'both':>8}   target")
            for name in self.clients.asynchronous:
                if name in clients:
                    missed += report_client(name, clients)
        return missed


def report_client(name: str, clients: dict[str, list[Cost]]) -> bool:
    costs = clients[name]
    ours = "relier connection" if name.endswith(" connection") else "relier store"
    client, server, wall = (
        statistics.median(values) for values in zip(*((c.client, c.server, c.wall) for c in costs), strict=True)
    )
    pairs = list(zip(costs, clients[ours], strict=True))
    ratio = statistics.median(peer.client / own.client for peer, own in pairs)
    both = statistics.median((peer.client + peer.server) / (own.client + own.server) for peer, own in pairs)
    met = ratio >= TARGET
    verdict = "" if name == ours else f"   ≥ {TARGET:.2f}  {'met' if met else 'MISSED'}"
    print(f"  {name:<22}{client:>10.1f}{server:>11.1f}{1e6 / wall:>10,.0f}{ratio:>10.2f}×{both:>7.2f}×{verdict}")
    return name != ours and not met


def per_pipeline(calls: int) -> str:
    return "one call at a time" if calls == 1 else f"pipelines of {calls}"


def in_turn(sends: dict[str, Any], turn: int) -> list[tuple[str, Any]]:
    """Return the clients in another order each round."""
    items = list(sends.items())
    first = turn % len(items)
    order = items[first:] + items[:first]
    return order if turn % 2 else order[::-1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds: does it run at all")
    parser.add_argument("--uvloop", action="store_true", help="use uvloop as the event loop")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as (url, admin):
        bench = Bench(url, admin, 2 if options.quick else ROUNDS)
        bench.threads()
        if options.uvloop:
            import uvloop

            uvloop.run(bench.loops())
        else:
            asyncio.run(bench.loops())
        missed = bench.report()
    print(f"\n{f'{missed} targets MISSED' if missed else 'every target met'}")
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
