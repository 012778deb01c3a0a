"""Default values of the ledger, and how long it keeps records.

These numbers are defined only here. Scripts refer to them in capitals, like keys, and get the value when they are
loaded. The model in proof/ reads them from here as well.
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
FIRES_KEPT = 20  # firings kept per schedule
DUE_SCHEDULES = 10  # due schedules that one promote returns
LIST_PAGE = 250  # records that one read of an index returns at the most: 1 to 2 ms
HEAD_BYTES = 1400  # the lines of a record before its payload, and the first line of a lock, fit into these
MEMBER_SPAN = 2**40  # above every place in a batch; a member's score is its place plus a multiple of this for its stage
ADDED_PLACE = 2**30  # the first place that the store gives to a member without its own place
EVENTS_KEPT = 10_000  # changes kept per topic of events
OUTCOME_FIELDS = 500  # fields that one hash of outcomes counts by queue and name
MINUTES_KEPT_MS = 6 * HOUR_MS + 10 * MINUTE_MS  # how long outcomes are kept by the minute
HOURS_KEPT_MS = 3 * DAY_MS + 2 * HOUR_MS  # and by the hour
WATCH_MS = MINUTE_MS  # how long the mark of a reader of events counts
REPAIR_EVERY_MS = 125  # all workers of a namespace together look at one page of keys in this time
REPAIR_PAGES = 16  # pages that one worker may look at in one turn

SPELLED = {
    "RESULT_TTL": f"{RESULT_TTL_MS}",
    "DEAD_TTL": f"{DEAD_TTL_MS}",
    "MAX_RESURRECTIONS": f"{MAX_RESURRECTIONS}",
    "BACKSTOP": f"{BACKSTOP_MS}",
    "LINGER": f"{LINGER_MS}",
    "PRIORITY_STEP": f"{PRIORITY_STEP_US}",
    "REVIVED": f"{REVIVED_US}",
    "HISTORY_KEPT": f"{HISTORY_KEPT}",
    "FIRES_KEPT": f"{FIRES_KEPT}",
    "DUE_SCHEDULES": f"{DUE_SCHEDULES}",
    "LIST_PAGE": f"{LIST_PAGE}",
    "MINUTE": f"{MINUTE_MS}",
    "HOUR": f"{HOUR_MS}",
    "MINUTES_KEPT": f"{MINUTES_KEPT_MS}",
    "HOURS_KEPT": f"{HOURS_KEPT_MS}",
    "HEAD_BYTES": f"{HEAD_BYTES}",
    "MEMBER_SPAN": f"{MEMBER_SPAN}",
    "ADDED_PLACE": f"{ADDED_PLACE}",
    "REPAIR_EVERY": f"{REPAIR_EVERY_MS}",
    "REPAIR_PAGES": f"{REPAIR_PAGES}",
}
