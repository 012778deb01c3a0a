"""The metrics of objectives: burn rates, error budgets and alerts, as `rl slo` shows them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from relier.cli.session import Session
from relier.monitoring import series
from relier.monitoring.meter import Labels
from relier.monitoring.series import MetricSeries
from relier.slo import ObjectiveStatus, judge_all, objectives_of, read_history_sync

FRESH_S = 10.0  # three days of counts are a long read, and change by the minute


class ObjectiveMetrics:
    """Judges the objectives of a namespace, at most every 10 seconds."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._objectives = objectives_of(session.settings)
        self._judged_at = -math.inf
        self._found: Sequence[ObjectiveStatus] = ()

    def rows(self) -> dict[MetricSeries, Mapping[Labels, float]]:
        if time.monotonic() - self._judged_at > FRESH_S:
            history = read_history_sync(self._session.run, self._session.ledger)
            self._found, self._judged_at = judge_all(self._objectives, history), time.monotonic()
        targets, budgets = dict[Labels, float](), dict[Labels, float]()
        rates, alerts = dict[Labels, float](), dict[Labels, float]()
        for each in self._found:
            label = each.objective.label
            targets[label,] = each.objective.target
            if each.budget_left is not None:
                budgets[label,] = each.budget_left
            for name, window in each.windows.items():
                if window.burn_rate is not None:
                    rates[label, name] = window.burn_rate
            for severity in ("page", "ticket"):
                alerts[label, severity] = float(any(rule.severity == severity for rule in each.firing))
        return {
            series.SLO_TARGET: targets,
            series.SLO_BURN: rates,
            series.SLO_BUDGET: budgets,
            series.SLO_ALERT: alerts,
        }
