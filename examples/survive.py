"""A worker is killed in the middle of its work, and nothing is lost: the ledger by hand, on the embedded store.

Pushes tasks, lets real worker processes run them, kills one with SIGKILL, freezes another beyond its lease and wakes it
again as a zombie. Ends with what the ledger says, and exits non-zero unless every task is done exactly once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from relier.ledger import Ledger, Submission, load_scripts, new_boot, new_task_id
from relier.settings import Settings
from relier.store import SyncStore

TASKS = 400
LEASE_MS = 2000
WORK_S = 0.01


def open_ledger(folder: str) -> tuple[SyncStore, Ledger]:
    settings = Settings(redis_url=f"embedded://{folder}", namespace="demo", heartbeat_ttl=LEASE_MS / 1000)
    return SyncStore(settings, load_scripts()), Ledger(settings)


def work(folder: str) -> None:
    """One worker process: claims, works, commits, beats, sweeps, and says what each commit was told. Ends by a kill."""
    store, ledger = open_ledger(folder)
    boot, seq, next_beat = new_boot(), 0, 0.0
    with store:
        store.run(ledger.register(boot, LEASE_MS, json.dumps({"pid": os.getpid()})))
        while True:
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + LEASE_MS / 4000
                if not store.run(ledger.beat(boot, LEASE_MS)).alive:
                    boot, seq = new_boot(), 0
                    store.run(ledger.register(boot, LEASE_MS))
                store.run(ledger.revive())
            seq += 1
            for task in store.run(ledger.claim(boot, seq, ["default"], 5)).tasks:
                time.sleep(WORK_S)  # the work itself
                (settled,) = store.run(ledger.commit([(task.lease, b"done", ())]))
                print(settled.verdict, flush=True)


def start_worker(folder: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "worker", folder]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def say(text: str) -> None:
    print(text, flush=True)


def demo(folder: str) -> int:
    store, ledger = open_ledger(folder)
    with store:
        store.run(ledger.open())
        ids = [new_task_id() for _ in range(TASKS)]
        for chunk in Ledger.chunks(Submission(id=i, name="demo.work", payload=b"[]") for i in ids):
            store.run(ledger.submit(chunk))
        say(f"pushed {TASKS} tasks; three workers start")
        workers = [start_worker(folder) for _ in range(3)]
        try:
            strike(store, ledger, workers)
            wait_for_the_end(store, ledger)
        finally:
            for worker in workers:
                worker.kill()
        verdicts = Counter(line for worker in workers for line in worker.communicate()[0].split())
        return judge(store, ledger, ids, verdicts)


def strike(store: SyncStore, ledger: Ledger, workers: list[subprocess.Popen[str]]) -> None:
    """Kills one worker and freezes another, each while it holds tasks; the frozen one wakes after its lease."""
    first, second, _ = workers
    while store.run(ledger.stats()).counts.get("done", 0) < TASKS // 10:
        time.sleep(0.02)
    first.kill()
    say(f"worker {first.pid} killed with SIGKILL")
    os.kill(second.pid, signal.SIGSTOP)
    say(f"worker {second.pid} frozen with SIGSTOP")
    revived = 0
    while revived == 0:
        time.sleep(0.05)
        revived = store.run(ledger.stats()).counts.get("revived", 0)
    time.sleep(LEASE_MS / 1000)
    os.kill(second.pid, signal.SIGCONT)
    say(f"worker {second.pid} woken again: a zombie with old leases")


def wait_for_the_end(store: SyncStore, ledger: Ledger) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and store.run(ledger.stats()).counts.get("done", 0) < TASKS:
        time.sleep(0.05)
    time.sleep(LEASE_MS / 1000)  # the zombie's late commits arrive


def judge(store: SyncStore, ledger: Ledger, ids: list[str], verdicts: Counter[str]) -> int:
    states = Counter(store.run(ledger.get(task_id)).record.state.value for task_id in ids)
    counts = store.run(ledger.stats()).counts
    lost = TASKS - sum(states.values())
    say("")
    rows = (("pushed", TASKS), ("done", states["done"]), ("revived", counts.get("revived", 0)))
    rows += (("late commits refused", counts.get("refused", 0)), ("lost", lost))
    rows += (("committed twice", max(0, verdicts["ok"] - TASKS)),)
    for name, number in rows:
        say(f"  {name:<22}{number:>6}")
    good = states["done"] == TASKS and lost == 0 and counts["done"] == TASKS and verdicts["ok"] <= TASKS
    say("\nnothing was lost, nothing was committed twice" if good else "\nTHE PROMISE WAS BROKEN")
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(sys.argv[2])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        raise SystemExit(demo(str(Path(place))))
