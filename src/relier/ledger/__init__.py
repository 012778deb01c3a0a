"""The ledger: each task one record, each change of its state one atomic script.

    answer = await store.run(ledger.submit([Submission(id=…, name=…, payload=…)]))

`Ledger` makes calls, a store runs them. The laws that all scripts keep are listed in ARCHITECTURE.md; what a record
looks like is told at the top of lua/lib/layout.lua, which keys there are in keys.py.
"""

from relier.ledger.ledger import Ledger, load_scripts
from relier.ledger.records import (
    Admission,
    Claimed,
    Join,
    Lease,
    Limit,
    Record,
    Settled,
    Submission,
    Task,
    Verdict,
    new_task_id,
    new_worker_id,
)

__all__ = [
    "Admission",
    "Claimed",
    "Join",
    "Lease",
    "Ledger",
    "Limit",
    "Record",
    "Settled",
    "Submission",
    "Task",
    "Verdict",
    "load_scripts",
    "new_task_id",
    "new_worker_id",
]
