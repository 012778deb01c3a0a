"""Every metric: its name, kind, labels and meaning. docs/reference/metrics.md is generated from this table.

All names begin with `rl_`. Labels have few values: task, queue, outcome, reason, kind, role, never an id. In the text
of a page, the names of counters end with `_total`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Served = Literal["worker", "every node", "supervisor", "relay", "exporter"]


class MetricSeries(NamedTuple):
    """One metric. `served`: which processes serve it."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    text: str
    served: Served = "worker"


PER_TASK = ("task", "queue")

TASKS = MetricSeries("rl_tasks", "counter", (*PER_TASK, "outcome"), "Tasks that ended: succeeded, dead or cancelled.")
RUN_TIME = MetricSeries("rl_task_run_seconds", "histogram", PER_TASK, "How long attempts ran, whatever their outcome.")
QUEUE_TIME = MetricSeries(
    "rl_task_queue_seconds", "histogram", PER_TASK, "From push to start, for first attempts of tasks without a delay."
)
RETRIES = MetricSeries("rl_task_retries", "counter", (*PER_TASK, "reason"), "Failed attempts that are tried again.")
DEATHS = MetricSeries("rl_task_deaths", "counter", (*PER_TASK, "reason"), "Tasks that became dead letters.")
REVIVED = MetricSeries(
    "rl_task_resurrections", "counter", PER_TASK, "Tasks returned to their queue after a process died."
)
EXHAUSTED = MetricSeries(
    "rl_task_resurrections_exhausted",
    "counter",
    PER_TASK,
    "Tasks that are dead because the processes that ran them kept dying.",
)

RUNNING = MetricSeries("rl_worker_running", "gauge", (), "Tasks that run now.")
SLOTS = MetricSeries("rl_worker_slots", "gauge", (), "Tasks that may run at once.")
UNSETTLED = MetricSeries("rl_worker_unsettled", "gauge", (), "Outcomes that the store has not confirmed yet.")
CLAIMS = MetricSeries("rl_claims", "counter", ("outcome",), "Answers to claims: tasks, empty or gone.")
CLAIMED = MetricSeries("rl_claimed_tasks", "counter", (), "Tasks that were claimed.")
STALE = MetricSeries(
    "rl_stale_commits", "counter", (), "Outcomes that the ledger refused: another attempt had taken over."
)
ORPHANS = MetricSeries(
    "rl_orphans_repaired", "counter", ("kind",), "Tasks handed back: the answer to their claim was lost."
)
REFUSED = MetricSeries("rl_admission_refused", "counter", ("reason",), "Pushes of this process refused: rate or full.")
EVENT_LAG = MetricSeries(
    "rl_event_lag_seconds", "gauge", (), "How far the slowest reader of events in this process is behind."
)
EVENTS_MISSED = MetricSeries(
    "rl_events_missed", "counter", ("topic", "reason"), "Gaps that readers in this process were told of."
)

BEAT_AGE = MetricSeries(
    "rl_heartbeat_age_seconds", "gauge", (), "Time since the last heartbeat that the store answered."
)
LOOP_LAG = MetricSeries("rl_loop_lag_seconds", "gauge", (), "How late the event loop is now.", "every node")
STORE_TIME = MetricSeries(
    "rl_store_call_seconds", "histogram", (), "Calls to the store, per pipeline, with retries.", "every node"
)
STORE_ERRORS = MetricSeries("rl_store_errors", "counter", ("kind",), "Calls to the store that failed.", "every node")
BREAKER = MetricSeries("rl_store_breaker_open", "gauge", (), "1 while calls fail at once.", "every node")
READY = MetricSeries("rl_ready", "gauge", ("role",), "1 if /readyz succeeds.", "every node")
BUILD = MetricSeries("rl_build_info", "gauge", ("role", "version"), "Always 1.", "every node")
MEMORY = MetricSeries("rl_process_resident_bytes", "gauge", (), "Resident memory.", "every node")

SHUTDOWNS = MetricSeries(
    "rl_shutdowns", "counter", ("kind",), "Worker processes that ended: clean, forced, recycle or died.", "supervisor"
)
SHUTDOWN_TIME = MetricSeries(
    "rl_shutdown_seconds",
    "histogram",
    ("kind",),
    "How long processes took to shut down.",
    "supervisor",
)
PROCESSES = MetricSeries("rl_supervisor_processes", "gauge", (), "Worker processes that run.", "supervisor")

LEDGER_UP = MetricSeries("rl_ledger_up", "gauge", (), "1 if the store answered this scrape.", "exporter")
LEDGER_TASKS = MetricSeries(
    "rl_ledger_tasks", "gauge", ("state",), "Tasks in the ledger. Dead letters: dead.", "exporter"
)
LEDGER_MOVES = MetricSeries(
    "rl_ledger_moves",
    "counter",
    ("kind",),
    "What the ledger's scripts did: submitted, done, dead, revived, ….",
    "exporter",
)
LEDGER_BYTES = MetricSeries("rl_ledger_payload_bytes", "gauge", (), "Payload bytes charged to admission.", "exporter")
QUEUE_READY = MetricSeries("rl_queue_ready", "gauge", ("queue",), "Tasks that a worker may claim.", "exporter")
QUEUE_HELD = MetricSeries("rl_queue_held_back", "gauge", ("queue",), "Tasks that wait behind a limit.", "exporter")
QUEUE_AGE = MetricSeries(
    "rl_queue_oldest_age_seconds", "gauge", ("queue",), "Age of the oldest waiting task.", "exporter"
)
QUEUE_PAUSED = MetricSeries("rl_queue_paused", "gauge", ("queue",), "1 if an operator paused the queue.", "exporter")
QUEUE_UNSERVED = MetricSeries(
    "rl_queue_unserved", "gauge", ("queue",), "1 if no live worker serves the queue.", "exporter"
)
NODES = MetricSeries("rl_nodes", "gauge", ("role", "health"), "Nodes: alive, drained, silent or lost.", "exporter")
LOST_TASKS = MetricSeries(
    "rl_lost_tasks", "gauge", (), "Tasks of workers without heartbeats, not yet revived.", "exporter"
)
CLUSTER_SLOTS = MetricSeries("rl_cluster_slots", "gauge", (), "Tasks that live workers may run at once.", "exporter")
CLUSTER_RUNNING = MetricSeries("rl_cluster_running", "gauge", (), "Tasks that live workers own.", "exporter")
DUE_LATE = MetricSeries(
    "rl_due_late_seconds", "gauge", (), "How late the next delayed task is; 0 if none is late.", "exporter"
)
LIMIT_TASKS = MetricSeries("rl_limit_tasks", "gauge", ("limit",), "Live tasks that a limit counts.", "exporter")
LIMIT_RUNNING = MetricSeries("rl_limit_running", "gauge", ("limit",), "Running tasks that a limit counts.", "exporter")
BATCHES = MetricSeries(
    "rl_batches", "gauge", ("state",), "Workflows, counted up to 1,000, running ones first.", "exporter"
)
SCHEDULES = MetricSeries("rl_schedules", "gauge", ("state",), "Schedules.", "exporter")
SCHEDULE_LATE = MetricSeries(
    "rl_schedule_late_seconds", "gauge", (), "How late the most overdue schedule is.", "exporter"
)
EVENTS = MetricSeries("rl_events", "counter", ("topic",), "Changes that were written as events.", "exporter")
EVENT_HISTORY = MetricSeries(
    "rl_event_history_seconds",
    "gauge",
    ("topic",),
    "Age of the oldest event that is kept. A reader further behind misses some.",
    "exporter",
)
SLO_TARGET = MetricSeries("rl_slo_target", "gauge", ("objective",), "The part of tasks that must do well.", "exporter")
SLO_BURN = MetricSeries(
    "rl_slo_burn_rate",
    "gauge",
    ("objective", "window"),
    "How fast the error budget is used up: 1 uses up what the target allows. Windows without tasks are left out.",
    "exporter",
)
SLO_BUDGET = MetricSeries(
    "rl_slo_budget_left", "gauge", ("objective",), "Part of the error budget of 3 days that is left.", "exporter"
)
SLO_ALERT = MetricSeries(
    "rl_slo_alert", "gauge", ("objective", "severity"), "1 if `rl slo` says `page` or `ticket`.", "exporter"
)

NODE_SERIES = (LOOP_LAG, STORE_TIME, STORE_ERRORS, BREAKER, READY, BUILD, MEMORY)
TASK_SERIES = (TASKS, RUN_TIME, QUEUE_TIME, RETRIES, DEATHS, REVIVED, EXHAUSTED)
WORKER_SERIES = (
    RUNNING,
    SLOTS,
    UNSETTLED,
    CLAIMS,
    CLAIMED,
    STALE,
    ORPHANS,
    REFUSED,
    EVENT_LAG,
    EVENTS_MISSED,
    BEAT_AGE,
)
SUPERVISOR_SERIES = (SHUTDOWNS, SHUTDOWN_TIME, PROCESSES)
LEDGER_SERIES = tuple(
    one for one in vars().copy().values() if isinstance(one, MetricSeries) and one.served == "exporter"
)
