"""Schedules with killed and frozen schedulers, wrong clocks and a frozen store. The ledger shows the result.

    python -m bench.schedules [--quick]

five schedulers  real processes, whose clocks are 30 s slow to 30 s fast, on one schedule that fires every second. Two
                 are killed and one is frozen for a while. Every occurrence fires once.
a frozen store   SIGSTOP to the server for 60 s. Each schedule then catches up by its own rule, and nothing fires twice.
cost             store time of a firing, compared with a submit of the same task; store time of a sweep with 10,000
                 schedules that are not due, compared with none
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.fleets import Table, leave
from bench.ledger import Bench
from relier import Client, Schedules, Settings, rl_task, use_client
from relier.cli.audit import audit
from relier.ledger import keys
from relier.ledger.ledger import load_scripts
from relier.ledger.pages import read_stats
from relier.ledger.records import new_task_id
from relier.ledger.schedule_records import NATIVE, NEW
from relier.store import SyncStore

SHIFTS = (-30, -15, 0, 15, 30)
CALLS = 100
CHILD = """
import sys, time
shift = float(sys.argv.pop(1))
time_s, time_ns = time.time, time.time_ns
time.time = lambda: time_s() + shift
time.time_ns = lambda: time_ns() + int(shift * 1e9)
from relier.cli.main import main
main()
"""


@rl_task(name="bench.tick")
def tick() -> None: ...


class Schedulers:
    """`rl scheduler` processes with wrong clocks, and the client that reads the ledger."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        settings = Settings(redis_url=f"embedded://{folder}/store", namespace="bench", admission_limit=0)
        self.client = Client(settings)
        use_client(self.client)
        self.client.open()
        self.book = Schedules(self.client)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, shifts: Sequence[float]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RELIER_")}
        settings = self.client.settings
        env = kept | {"RELIER_REDIS_URL": settings.redis_url, "RELIER_NAMESPACE": settings.namespace}
        for shift in shifts:
            log = (self.folder / f"scheduler{len(self.processes)}.log").open("wb")
            command = [sys.executable, "-c", CHILD, str(shift), "scheduler"]
            self.processes.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        for number in range(len(self.processes) - len(shifts), len(self.processes)):
            log_file = self.folder / f"scheduler{number}.log"
            wait_until(lambda file=log_file: "scheduler started" in file.read_text(), "a scheduler starts")

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        use_client(None)
        self.client.close()

    # --- what the ledger says ------------------------------------------------------------------------------------

    def server_pid(self) -> int:
        told = self.client.sync_store.command("INFO", "server").decode()
        return int(told.partition("process_id:")[2].split()[0])

    def now_ms(self) -> int:
        return int(self.client.run(self.client.ledger.schedules("-")).now_ms)

    def next_ms(self, name: str) -> int:
        at = self.book.get(name).next
        return 0 if at is None else round(1000 * at.timestamp())

    def fired(self, queue: str) -> list[int]:
        """Return the intended times of all runs in a queue, in order."""
        found: list[int] = []
        cursor: str | None = None
        while True:
            page = self.client.run(self.client.ledger.list("ready", queue, cursor=cursor, most=1000))
            found += [int(record.id[:12], 16) for record in page.records]
            cursor = page.cursor
            if cursor is None:
                return sorted(found)

    def audited(self) -> bool:
        return audit(self.client.sync_store, self.client.ledger).ok

    def submitted(self) -> int:
        return int(read_stats(self.client.run, self.client.ledger).counts.get("submitted", 0))


def wait_until(holds: object, what: str, seconds: float = 90.0) -> None:
    until = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        if time.monotonic() > until:
            raise SystemExit(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)


@contextmanager
def schedulers() -> Iterator[Schedulers]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `timeout` also ends the started processes
        desk = Schedulers(folder)
        try:
            yield desk
        finally:
            desk.close()


def doubles(times: Sequence[int]) -> int:
    return len(times) - len(set(times))


def gaps(times: Sequence[int]) -> int:
    """Return how many whole seconds are missing between the first and the last."""
    return (times[-1] - times[0]) // 1000 + 1 - len(set(times)) if times else 0


def wrong_clocks(occurrences: int) -> Table:
    table = Table(f"five schedulers, clocks from -30 s to +30 s, two killed, one frozen: {occurrences} occurrences")
    with schedulers() as desk:
        desk.start(SHIFTS)
        desk.book.create("tick", tick, every=1, catch_up="all")
        first = desk.next_ms("tick")
        last = first + 1000 * (occurrences - 1)
        harms = (
            (0.2, lambda: desk.processes[0].kill()),
            (0.4, lambda: desk.processes[4].kill()),
            (0.5, lambda: desk.processes[1].send_signal(signal.SIGSTOP)),
            (0.8, lambda: desk.processes[1].send_signal(signal.SIGCONT)),
        )
        for share, harm in harms:
            at = first + share * 1000 * occurrences
            wait_until(lambda at=at: desk.now_ms() >= at, "time passes")
            harm()
        wait_until(lambda: desk.next_ms("tick") > last, "the last occurrence")
        desk.book.pause("tick")
        times = [at for at in desk.fired("default") if at <= last]
        table.exactly("fires", len(times), occurrences)
        table.exactly("doubles", doubles(times), 0)
        table.exactly("misses", occurrences - len(set(times)), 0)
        table.exactly("tasks that the counters know beyond the runs", desk.submitted() - len(desk.fired("default")), 0)
        table.line("schedulers still alive", sum(each.poll() is None for each in desk.processes))
        table.exactly("audit: findings", int(not desk.audited()), 0)
    return table


def frozen_store(seconds: float) -> Table:
    table = Table(f"the store frozen for {seconds:g} s, three schedulers, a schedule of every second for each rule")
    grace = 3
    with schedulers() as desk:
        desk.start(SHIFTS[1:4])
        for rule in ("skip", "latest", "all"):
            desk.book.create(rule, tick, every=1, catch_up=rule, queue=rule, grace=grace if rule == "skip" else None)
        begin = desk.now_ms()
        wait_until(lambda: desk.now_ms() > begin + 3000, "some occurrences")
        server = desk.server_pid()
        os.kill(server, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(server, signal.SIGCONT)
        thawed = desk.now_ms()
        for rule in ("skip", "latest", "all"):
            wait_until(lambda rule=rule: desk.next_ms(rule) > thawed + 3000, f"{rule} catches up")
            desk.book.pause(rule)
        missed = {rule: sum(each.skipped for each in desk.book.get(rule).history) for rule in ("skip", "latest", "all")}
        for rule in ("skip", "latest", "all"):
            times = desk.fired(rule)
            table.line(f"{rule}: fires", len(times))
            table.exactly(f"{rule}: doubles", doubles(times), 0)
            table.exactly(f"{rule}: neither run nor recorded as missed", gaps(times) - missed[rule], 0)
        table.exactly("all: occurrences that did not run", gaps(desk.fired("all")), 0)
        table.line("latest: occurrences that did not run", gaps(desk.fired("latest")))
        table.line(f"skip: occurrences later than {grace} s, which did not run", gaps(desk.fired("skip")))
        table.line("latest ran fewer than skip, and skip fewer than all", 1, "", "yes", _in_order(desk))
        runs = sum(len(desk.fired(rule)) for rule in ("skip", "latest", "all"))
        table.exactly("tasks that the counters know beyond the runs", desk.submitted() - runs, 0)
        table.exactly("audit: findings", int(not desk.audited()), 0)
    return table


def _in_order(desk: Schedulers) -> bool:
    latest, skip, every = (gaps(desk.fired(rule)) for rule in ("latest", "skip", "all"))
    return latest > skip > every


def cost(rounds: int, waiting: int = 10_000) -> Table:
    table = Table("store time per call: schedules, beside none (least of several rounds)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        url = f"embedded://{folder}"
        with SyncStore(Settings(redis_url=url, namespace="bench"), load_scripts()) as store:
            bare, used = (Bench(store, Settings(redis_url=url, namespace=name)) for name in ("bare", "used"))
            later = store.run(used.ledger.schedules("-")).now_ms + 3_600_000
            used.all_of(used.ledger.schedule(f"s{n}", NEW, b"{}", later) for n in range(waiting))
            for number in range(rounds):
                for bench in (bare, used)[:: 1 if number % 2 else -1]:
                    sweeps = [bench.ledger.promote() for _ in range(CALLS)]
                    bench.measure("sweep", CALLS, lambda bench=bench, sweeps=sweeps: bench.all_of(sweeps))
                submits = [bare.ledger.submit([task]) for task in bare.submissions(CALLS)]
                bare.measure("submit", CALLS, lambda submits=submits: bare.all_of(submits))
                measure_firings(used, later)
            table.line("sweep beside no schedule", round(bare.least("sweep"), 1), "µs")
            table.line(f"sweep beside {waiting:,} that are not due", round(used.least("sweep"), 1), "µs")
            more = used.commands["sweep"] - bare.commands["sweep"]
            table.most("commands that a sweep runs more because of them", round(more, 2), 0)
            table.line(f"submit ({bare.commands['submit']:.0f} commands)", round(bare.least("submit"), 1), "µs")
            table.line(f"fire ({used.commands['fire']:.0f} commands)", round(used.least("fire"), 1), "µs")
    return table


def measure_firings(bench: Bench, later: int) -> None:
    """Measure firings of a schedule that is due, each with one run."""
    name, begin = new_task_id(), later - 2 * 3_600_000
    version = bench.store.run(bench.ledger.schedule(name, NEW, b"{}", later)).version
    bench.store.command("ZADD", keys.spell(bench.ledger.prefix, "schedules", NATIVE), begin, name)
    tasks = enumerate(bench.submissions(CALLS), begin)
    fires = [bench.ledger.fire(name, version, at, at + 1, [(at, task)]) for at, task in tasks]
    answers = bench.measure("fire", CALLS, lambda: bench.all_of(fires))
    if any(answer.verdict != "ok" for answer in answers):
        raise SystemExit(f"a firing was refused: {answers[0]}")
    bench.store.run(bench.ledger.unschedule(name, answers[-1].version))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="12 occurrences, a store frozen for 6 s")
    given = parser.parse_args()
    costs = cost(5 if given.quick else 40)
    leave(costs, wrong_clocks(12 if given.quick else 60), frozen_store(6 if given.quick else 60))


if __name__ == "__main__":
    main()
