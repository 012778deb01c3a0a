"""Burn rates, and the alerts that several windows raise together.

A burn rate says how fast the error budget is used up: 1 uses up exactly what the target allows, 10 ten times as much.
An alert needs a long window, so that a short disturbance does not raise it, and a short window, so that it ends soon
after the trouble. The pairs and thresholds are those of Google's SRE Workbook, chapter 5, for a budget of 30 days.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from relier.slo.history import OutcomeHistory
from relier.slo.objectives import Objective

WINDOWS: Mapping[str, int] = {"5m": 5, "30m": 30, "1h": 60, "6h": 360, "3d": 4320}  # minutes
State = Literal["no data", "ok", "ticket", "page"]


@dataclass(frozen=True, slots=True)
class AlertRule:
    """Fires if the burn rate is above the threshold in both windows."""

    severity: Literal["page", "ticket"]
    long: str
    short: str
    threshold: float


ALERT_RULES = (
    AlertRule("page", "1h", "5m", 14.4),  # 2 % of the budget in an hour
    AlertRule("page", "6h", "30m", 6.0),  # 5 % in six hours
    AlertRule("ticket", "3d", "6h", 1.0),  # 10 % in three days
)


@dataclass(frozen=True, slots=True)
class WindowStatus:
    """How well an objective was met in one window. `burn_rate` is None if nothing was counted."""

    good: int
    total: int
    burn_rate: float | None


@dataclass(frozen=True, slots=True)
class ObjectiveStatus:
    """How well an objective is met now, per window, and which alerts fire."""

    objective: Objective
    windows: Mapping[str, WindowStatus]
    firing: tuple[AlertRule, ...]

    @property
    def state(self) -> State:
        if any(rule.severity == "page" for rule in self.firing):
            return "page"
        if self.firing:
            return "ticket"
        return "ok" if self.windows["3d"].total or self.windows["6h"].total else "no data"

    @property
    def budget_left(self) -> float | None:
        """The part of the error budget of the last three days that is left; negative if it is overspent."""
        burned = self.windows["3d"].burn_rate
        return None if burned is None else 1 - burned


def burn_rate(good: int, total: int, target: float) -> float | None:
    """Return the failed share, divided by the share that the target allows to fail."""
    return None if total == 0 else ((total - good) / total) / (1 - target)


def firing_rules(burn_rates: Mapping[str, float | None]) -> tuple[AlertRule, ...]:
    """Return the rules whose windows are both above their threshold."""

    def above(window: str, threshold: float) -> bool:
        rate = burn_rates.get(window)
        return rate is not None and rate > threshold

    return tuple(rule for rule in ALERT_RULES if above(rule.long, rule.threshold) and above(rule.short, rule.threshold))


def judge(objective: Objective, history: OutcomeHistory) -> ObjectiveStatus:
    """Return how well an objective is met."""
    windows = {}
    for name, minutes in WINDOWS.items():
        good, total = objective.good_and_total(history.last(minutes))
        windows[name] = WindowStatus(good, total, burn_rate(good, total, objective.target))
    rates = {name: window.burn_rate for name, window in windows.items()}
    return ObjectiveStatus(objective, windows, firing_rules(rates))


def judge_all(objectives: Iterable[Objective], history: OutcomeHistory) -> tuple[ObjectiveStatus, ...]:
    """Return how well each objective is met."""
    return tuple(judge(objective, history) for objective in objectives)
