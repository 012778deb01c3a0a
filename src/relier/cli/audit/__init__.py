"""The audit of a namespace: no task was lost, and no unused key was left behind in the store.

`auditor.py` reads the namespace. `rules.py`, `batch_rules.py`, `chord_rules.py`, `limit_rules.py` and
`schedule_rules.py` judge what it read, `limit_counts.py` checks the counts of waiting tasks, and `findings.py` holds
the values they return.
"""

from relier.cli.audit.auditor import PAUSE, audit
from relier.cli.audit.findings import AuditReport

__all__ = ["PAUSE", "AuditReport", "audit"]
