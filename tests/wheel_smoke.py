"""Check that the first job works with the wheel installed in an empty environment, away from the sources.

Run it with that environment's interpreter. One task goes move by move, the other as for a new user: with `rl worker`.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import relier
from relier.ledger import Ledger, Submission, load_scripts, new_task_id, new_worker_id
from relier.settings import Settings
from relier.store import SyncStore

SHOP = """
from relier import rl_task


@rl_task(retries=3, hard_timeout=30)
async def charge(customer: str, cents: int) -> str:
    return f"{customer} paid {cents / 100:.2f}"


if __name__ == "__main__":
    print(charge.push("cus_1", 5000).result(timeout=30))
"""


def main() -> None:
    if "site-packages" not in relier.__file__:
        raise SystemExit(f"this is not the wheel: {relier.__file__}")
    for check in (move_by_move, with_a_worker):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            check(Path(folder))
    print(f"relier {relier.__version__} on Python {platform.python_version()}: the first job works")


def move_by_move(folder: Path) -> None:
    settings = Settings(redis_url=f"embedded://{folder}")
    ledger, worker_id, task_id = Ledger(settings), new_worker_id(), new_task_id()
    with SyncStore(settings, load_scripts()) as store:
        store.run(ledger.open())
        store.run(ledger.submit([Submission(id=task_id, name="smoke", payload=b"1")]))
        store.run(ledger.register(worker_id, 5000))
        (task,) = store.run(ledger.claim(worker_id, 1, ["default"], 1)).tasks
        (settled,) = store.run(ledger.commit([(task.lease, b"2", ())]))
        found = store.run(ledger.get(task_id))
    if not settled.ok or found.result != b"2":
        raise SystemExit(f"a task could not be done by hand: {settled} {found}")


def with_a_worker(folder: Path) -> None:
    (folder / "shop.py").write_text(SHOP)
    python = Path(sys.executable)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RELIER_", "PYTHON"))}
    log = folder / "worker.log"
    with log.open("wb") as output:
        worker = subprocess.Popen([python.parent / "rl", "worker", "shop.py"], cwd=folder, env=env, stderr=output)
    try:
        shop = subprocess.run([python, "shop.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    finally:
        worker.terminate()
        code = worker.wait(30)
    if shop.stdout != "cus_1 paid 50.00\n" or code:
        raise SystemExit(f"the first job failed:\n{shop.stdout}{shop.stderr}\nworker, exit {code}:\n{log.read_text()}")


if __name__ == "__main__":
    main()
