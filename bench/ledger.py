"""The cost of each move for the store: script time, commands, round trips and bytes, next to their targets.

Script time is Redis' own measure (commandstats of EVALSHA), the minimum of several rounds: the machine may be shared,
and the minimum is the cost of the code itself. The yardstick lines show how fast this machine runs scripts at all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from relier.ledger.ledger import Ledger, load_scripts
from relier.ledger.records import Claimed, Lease, Submission, new_task_id, new_worker_id
from relier.settings import Settings
from relier.store import SyncStore
from relier.store.call import Call

NAME = "shop.tasks.billing.charge_customer"
PAYLOAD = b"x" * 100
ROUNDS = 15
TASKS = 500
LEASE_MS = 3_600_000


class Bench:
    """One server, one worker id, and counters around the measured work."""

    def __init__(self, store: SyncStore, settings: Settings) -> None:
        self.store = store
        self.ledger = Ledger(settings)
        self.boot = new_worker_id()
        self.seq = 0
        self.costs: dict[str, list[float]] = {}
        self.commands: dict[str, float] = {}
        store.run(self.ledger.open())
        store.run(self.ledger.register(self.boot, LEASE_MS))

    def info(self, section: str) -> dict[str, str]:
        raw = self.store.command("INFO", section).decode()
        return dict(line.split(":", 1) for line in raw.splitlines() if ":" in line)

    def script_us(self) -> tuple[int, int, int]:
        """Return the time spent in scripts so far (µs), the scripts run, and the commands run inside them."""
        stats = self.info("commandstats")
        parsed = {name: dict(pair.split("=") for pair in line.split(",")) for name, line in stats.items()}
        scripts = parsed.get("cmdstat_evalsha", {"usec": "0", "calls": "0"})
        inner = sum(
            int(line["calls"]) for name, line in parsed.items() if name not in {"cmdstat_evalsha", "cmdstat_info"}
        )
        return int(scripts["usec"]), int(scripts["calls"]), inner

    def measure(self, what: str, tasks: int, work: Callable[[], Any]) -> Any:
        """Run the work, and note its script time per task."""
        before = self.script_us()
        answer = work()
        after = self.script_us()
        self.costs.setdefault(what, []).append((after[0] - before[0]) / tasks)
        self.commands[what] = (after[2] - before[2]) / tasks
        return answer

    def all_of(self, calls: Iterable[Call[Any]]) -> list[Any]:
        """Run the calls in pipelines of a hundred, so that caches are warm, as under load."""
        pending = list(calls)
        answers: list[Any] = []
        for i in range(0, len(pending), 100):
            answers += self.store.run_many(pending[i : i + 100])
        return answers

    def submissions(self, n: int) -> list[Submission]:
        return [Submission(id=new_task_id(), name=NAME, payload=PAYLOAD) for _ in range(n)]

    def claims(self, calls: int, want: int) -> list[Call[Any]]:
        self.seq += calls
        first = self.seq - calls + 1
        return [self.ledger.claim(self.boot, first + i, ["default"], want, rung=False) for i in range(calls)]

    def life(self, batch: int) -> None:
        """Run submit, claim and commit of TASKS tasks, `batch` per script."""
        ledger, groups = self.ledger, TASKS // batch
        tasks = self.submissions(TASKS)
        chunks = [tasks[i : i + batch] for i in range(0, TASKS, batch)]
        self.measure(f"submit {batch}", TASKS, lambda: self.all_of(ledger.submit(chunk) for chunk in chunks))
        claims = self.measure(f"claim {batch}", TASKS, lambda: self.all_of(self.claims(groups, batch)))
        claimed: list[Claimed] = [task for claim in claims for task in claim.tasks]
        if len(claimed) != TASKS:
            raise SystemExit(f"claimed {len(claimed)} of {TASKS}")
        commits = [claimed[i : i + batch] for i in range(0, TASKS, batch)]
        calls = [ledger.commit([(task.lease, None, ()) for task in commit]) for commit in commits]
        self.measure(f"commit {batch}", TASKS, lambda: self.all_of(calls))

    def others(self) -> None:
        """Run the less common moves, one task per script."""
        ledger, n = self.ledger, 100
        self.measure("beat", n, lambda: self.all_of(ledger.beat(self.boot, LEASE_MS) for _ in range(n)))
        for move in ("retry", "release", "bury", "checkpoint", "step"):
            self.all_of(ledger.submit([task]) for task in self.submissions(n))
            claimed = [task for claim in self.all_of(self.claims(n, 1)) for task in claim.tasks]
            calls = [self.settle(move, task) for task in claimed]
            self.measure(move, n, lambda calls=calls: self.all_of(calls))
            if move in {"checkpoint", "step"}:
                self.all_of(ledger.commit([(task.lease, b"ok", ())]) for task in claimed)
            elif move in {"retry", "release"}:
                rest = [task for claim in self.all_of(self.claims(n, 1)) for task in claim.tasks]
                self.all_of(ledger.commit([(task.lease, b"ok", ())]) for task in rest)
        self.measure("revive, nothing to do", n, lambda: self.all_of(ledger.revive() for _ in range(n)))

    def locks(self) -> None:
        """Run the life of a lock of user code, outside tasks and inside, and the answers to other callers."""
        ledger, n = self.ledger, 100
        lease = Lease(new_task_id(), "1800000000000000", self.boot)
        for where, holder in (("outside a task", "web.1"), ("inside a task", lease)):
            names = [(f"lock:{new_task_id()}", new_task_id()) for _ in range(n)]
            for move, calls in {
                "lock": [ledger.lock(*name, 120_000, holder) for name in names],
                "lock, in flight": [ledger.lock(key, "other", 120_000, holder) for key, _ in names],
                "renew": [ledger.renew(*name, 120_000) for name in names],
                "conclude": [ledger.conclude(*name, 3_600_000, PAYLOAD) for name in names],
                "lock, completed": [ledger.lock(key, "other", 120_000, holder) for key, _ in names],
            }.items():
                self.measure(f"{move} {where}", n, lambda calls=calls: self.all_of(calls))
        self.all_of(ledger.lock(key, token, 120_000, "web.1") for token, key in names)
        self.measure("unlock", n, lambda: self.all_of(ledger.unlock(key, token) for token, key in names))

    def settle(self, move: str, task: Claimed) -> Call[Any]:
        ledger = self.ledger
        calls: dict[str, Callable[[], Call[Any]]] = {
            "retry": lambda: ledger.retry(task.lease, 0, "{}"),
            "release": lambda: ledger.release([task.lease]),
            "bury": lambda: ledger.bury(task.lease, "ValueError", "{}"),
            "checkpoint": lambda: ledger.checkpoint(task.lease, 1, PAYLOAD),
            "step": lambda: ledger.step(task.lease, "charge", PAYLOAD),
        }
        return calls[move]()

    def least(self, *moves: str) -> float:
        return sum(min(self.costs[move]) for move in moves)

    def run_tasks(self, n: int) -> None:
        for chunk in Ledger.chunks(self.submissions(n)):
            self.store.run(self.ledger.submit(chunk))
        while self.store.run(self.claims(1, 100)[0]).tasks:
            pass


def yardstick(store: SyncStore) -> tuple[float, float]:
    """Measure an empty script, and one call inside a script (µs)."""

    def least(text: str) -> float:
        sha = store.command("SCRIPT", "LOAD", text)
        found = []
        for _ in range(ROUNDS):
            store.command("CONFIG", "RESETSTAT")
            for _ in range(100):
                store.command("EVALSHA", sha, 1, "{yardstick}")
            stats = store.command("INFO", "commandstats").decode()
            line = next(line for line in stats.splitlines() if line.startswith("cmdstat_evalsha"))
            found.append(float(line.split("usec_per_call=")[1].split(",")[0]))
        return min(found)

    empty = least("return 1")
    return empty, (least("for i = 1, 20 do redis.call('GET', 'none') end return 1") - empty) / 20


def open_bench(folder: str) -> tuple[SyncStore, Bench]:
    settings = Settings(redis_url=f"embedded://{folder}", namespace="bench")
    store = SyncStore(settings, load_scripts())
    return store, Bench(store, settings)


def bytes_per_running_task(n: int = 20_000) -> float:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        store, bench = open_bench(folder)
        with store:
            bench.run_tasks(1000)  # by now buffers and tables have reached their size
            before = int(bench.info("memory")["used_memory"])
            bench.run_tasks(n)
            return (int(bench.info("memory")["used_memory"]) - before) / n


def revival(n: int = 10_000) -> tuple[float, float, int]:
    """Return the script time to revive n orphans (s), the longest single call (ms), and the most tasks in a call."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        store, bench = open_bench(folder)
        with store:
            bench.run_tasks(n)
            total, longest, most = 0, 0, 0
            call = bench.ledger.revive(worker_id=bench.boot, deepest=10 * n)
            revived = 0
            while revived < n:
                before = bench.script_us()[0]
                swept = store.run(call)
                took = bench.script_us()[0] - before
                total, longest = total + took, max(longest, took)
                revived, most = revived + len(swept.outcomes), max(most, len(swept.outcomes))
            return total / 1e6, longest / 1e3, most


def sweep_costs(running: int) -> tuple[Bench, Bench]:
    """Measure sweeps that find nothing, in a namespace without running tasks and in one with many healthy ones: on one
    server, and in turns, so that both see the same conditions. The first turn alternates. Otherwise Lua, which collects
    its garbage after a fixed number of scripts, would always do so in the turn of the same namespace.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        store, calm = open_bench(folder)
        with store:
            busy = Bench(store, Settings(redis_url=f"embedded://{folder}", namespace="busy"))
            busy.run_tasks(running)
            for number in range(8 * ROUNDS):
                for bench in (calm, busy)[:: 1 if number % 2 else -1]:
                    calls = [bench.ledger.revive() for _ in range(100)]
                    bench.measure("sweep", 100, lambda bench=bench, calls=calls: bench.all_of(calls))
            return calm, busy


def line(what: str, value: float, unit: str, target: float | None = None, digits: int = 1) -> None:
    verdict = "" if target is None else f"   target ≤ {target:g} {unit}   {'met' if value <= target else 'MISSED'}"
    print(f"  {what:<58}{value:>10.{digits}f} {unit}{verdict}")


def report_lives(bench: Bench) -> None:
    print("\nA whole life, script time per task (payload 100 bytes, no result)")
    for batch, target in ((1, 60), (100, 30)):
        moves = [f"{move} {batch}" for move in ("submit", "claim", "commit")]
        for move in moves:
            inner = bench.commands[move]
            line(f"{move.split()[0]}, {batch} to a script ({inner:.1f} commands inside)", bench.least(move), "µs")
        line(f"life, {batch} to a script", bench.least(*moves), "µs", target)
        print(f"  {'scripts sent per life':<58}{3 / batch:>10.2f}   round trips {3 / batch:.2f} at the most")


def report_others(bench: Bench, moves: Sequence[str]) -> None:
    print("\nOther moves, one task to a script")
    for move in moves:
        line(f"{move} ({bench.commands[move]:.1f} commands inside)", bench.least(move), "µs")


def report_sweeps(calm: Bench, busy: Bench) -> None:
    line("sweep beside no running task", calm.least("sweep"), "µs")
    line("sweep beside 100,000 healthy running tasks", busy.least("sweep"), "µs")
    line("commands inside, of the second to the first", busy.commands["sweep"] / calm.commands["sweep"], "×", 1, 2)
    line("time, of the second to the first", busy.least("sweep") / calm.least("sweep"), "×", 1.05, 2)


def main() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        store, bench = open_bench(folder)
        with store:
            empty, call = yardstick(store)
            print("Yardstick on this machine")
            line("an empty script", empty, "µs", digits=2)
            line("one GET inside a script", call, "µs", digits=2)
            for _ in range(ROUNDS):
                bench.life(1)
                bench.life(100)
                bench.others()
                bench.locks()
            report_lives(bench)
            report_others(bench, [move for move in bench.costs if move.split()[-1] not in {"1", "100"}])
    print("\nMemory and recovery")
    line("bytes of a running task, indexes included", bytes_per_running_task(), "B", 800, 0)
    total, longest, most = revival()
    line("revive of 10,000 orphans, script time", total, "s", 1, 3)
    line("longest single revive", longest, "ms", 20)
    line("most tasks in one revive", most, "", 200, 0)
    calm, busy = sweep_costs(100_000)
    report_sweeps(calm, busy)


if __name__ == "__main__":
    main()
