"""Check that the first job works with the wheel installed in an empty environment, away from the sources."""

from __future__ import annotations

import tempfile

import relier
from relier.ledger import Ledger, Submission, load_scripts, new_task_id, new_worker_id
from relier.settings import Settings
from relier.store import SyncStore


def main() -> None:
    if "site-packages" not in relier.__file__:
        raise SystemExit(f"this is not the wheel: {relier.__file__}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        settings = Settings(redis_url=f"embedded://{folder}")
        ledger, boot, task_id = Ledger(settings), new_worker_id(), new_task_id()
        with SyncStore(settings, load_scripts()) as store:
            store.run(ledger.open())
            store.run(ledger.submit([Submission(id=task_id, name="smoke", payload=b"1")]))
            store.run(ledger.register(boot, 5000))
            (task,) = store.run(ledger.claim(boot, 1, ["default"], 1)).tasks
            (settled,) = store.run(ledger.commit([(task.lease, b"2", ())]))
            found = store.run(ledger.get(task_id))
    if not settled.ok or found.result != b"2":
        raise SystemExit(f"the smoke test failed: {settled} {found}")
    print("the wheel works: 1 passed, 0 failed")


if __name__ == "__main__":
    main()
