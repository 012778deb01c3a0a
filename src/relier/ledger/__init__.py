"""The ledger: each task is one record, and each change of its state is one atomic script.

    answer = await store.run(ledger.submit([Submission(id=…, name=…, payload=…)]))

`Ledger` builds calls, and a store runs them. ARCHITECTURE.md lists the rules that all scripts follow. The layout of a
record is described at the top of lua/lib/layout.lua, the keys in keys.py.
"""

from relier.ledger.ledger import Ledger, load_scripts
from relier.ledger.records import (
    Admission,
    AdmissionLimit,
    Claimed,
    Join,
    Lease,
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
    "AdmissionLimit",
    "Claimed",
    "Join",
    "Lease",
    "Ledger",
    "Record",
    "Settled",
    "Submission",
    "Task",
    "Verdict",
    "load_scripts",
    "new_task_id",
    "new_worker_id",
]
