"""Default values of the ledger, and how long it keeps records.

These numbers are defined only here. Scripts refer to them in capitals, like keys, and get the value when they are
loaded. The model in relier.proof reads them from here as well.
"""

from __future__ import annotations

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000

RESULT_TTL_MS = HOUR_MS  # how long done and cancelled tasks are kept
DEAD_TTL_MS = 30 * DAY_MS  # how long dead letters are kept
MAX_RESURRECTIONS = 5  # how often a task may kill its worker before it becomes a dead letter

BACKSTOP_MS = HOUR_MS  # the key of an ended record expires this long after its end of life
LINGER_MS = MINUTE_MS  # the same for keys without a sweep: a lock's result, a limit, a tombstone, a used key
PRIORITY_STEP_US = 60_000_000  # how much waiting time one step of priority is worth
REVIVED_US = 4_000_000_000_000_000  # how far ahead of all others in its queue a revived task is placed
HISTORY_KEPT = 50  # history entries kept per task
HEAD_BYTES = 1400  # the lines of a record before its payload, and the first line of a lock, fit into these

SPELLED = {
    "RESULT_TTL": f"{RESULT_TTL_MS}",
    "DEAD_TTL": f"{DEAD_TTL_MS}",
    "MAX_RESURRECTIONS": f"{MAX_RESURRECTIONS}",
    "BACKSTOP": f"{BACKSTOP_MS}",
    "LINGER": f"{LINGER_MS}",
    "PRIORITY_STEP": f"{PRIORITY_STEP_US}",
    "REVIVED": f"{REVIVED_US}",
    "HISTORY_KEPT": f"{HISTORY_KEPT}",
    "HEAD_BYTES": f"{HEAD_BYTES}",
}
