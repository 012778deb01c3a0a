"""Service level objectives: the targets, how well they were met, and how fast the error budget is used up.

    history = await read_history(client.arun, client.ledger)
    for each in judge_all(objectives_of(client.settings), history):
        print(each.objective.label, each.state, each.windows["1h"].burn_rate)

The ledger counts outcomes in the script that ends a task (lua/lib/outcomes.lua). This package reads the counts in two
round trips (history.py). Everything else is pure functions: percentiles from buckets (buckets.py), objectives
(objectives.py), burn rates and alerts (burn.py), and numbers per task (task_report.py).
"""

from relier.slo.burn import ALERT_RULES, WINDOWS, AlertRule, ObjectiveStatus, WindowStatus, judge, judge_all
from relier.slo.history import OutcomeHistory, read_history, read_history_sync
from relier.slo.objectives import Objective, objectives_of, parse_objectives
from relier.slo.task_report import TaskNumbers, report_tasks

__all__ = [
    "ALERT_RULES",
    "WINDOWS",
    "AlertRule",
    "Objective",
    "ObjectiveStatus",
    "OutcomeHistory",
    "TaskNumbers",
    "WindowStatus",
    "judge",
    "judge_all",
    "objectives_of",
    "parse_objectives",
    "read_history",
    "read_history_sync",
    "report_tasks",
]
