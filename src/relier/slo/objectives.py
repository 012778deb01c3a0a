"""Objectives: which tasks count, what "doing well" means for them, and how many must do well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

import msgspec

from relier.errors import ConfigurationError
from relier.ledger.outcomes.records import Series
from relier.settings import Settings, name_of_setting
from relier.slo.buckets import EDGES_MS, edge_at_most

Kind = Literal["success", "start", "run"]
FAILED = frozenset({"dead", "expired"})


class Objective(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One objective: at least the share `target` of the tasks does well. Without `queue` and `task`, all tasks of the
    namespace.

    Without a time, a task does well if it ends as done; a dead or expired task does not, and a cancelled task does not
    count. `start_within` (s): a task does well if a worker claims it within that time after it was queued. An expired
    task does not do well. Each attempt counts. `run_within` (s): a done task does well if its last attempt took at most
    that time.
    """

    target: float
    name: str = ""
    queue: str = ""
    task: str = ""
    start_within: float | None = None
    run_within: float | None = None

    @property
    def kind(self) -> Kind:
        if self.start_within is not None:
            return "start"
        return "success" if self.run_within is None else "run"

    @property
    def within_ms(self) -> int:
        """The limit in force: the given one, rounded down to the edge of a bucket. 0 if there is none."""
        seconds = self.start_within if self.start_within is not None else self.run_within
        return 0 if seconds is None else edge_at_most(round(seconds * 1000))

    @property
    def label(self) -> str:
        """The name of the objective or, without one, a description."""
        if self.name:
            return self.name
        of = [word for word in (self.task, f"queue {self.queue}" if self.queue else "") if word]
        seconds = f"{self.within_ms / 1000:g} s"
        verb = {"success": "succeed", "start": f"start within {seconds}", "run": f"run within {seconds}"}[self.kind]
        return f"{', '.join(of) or 'all tasks'}: {verb}"

    def covers(self, series: Series) -> bool:
        return self.queue in ("", series.queue) and self.task in ("", series.name)

    def good_and_total(self, counts: Mapping[Series, int]) -> tuple[int, int]:
        """Return how many tasks did well, and how many counted."""
        tally: Counter[bool] = Counter()
        for series, n in counts.items():
            well = self._is_good(series) if self.covers(series) else None
            if well is not None:
                tally[well] += n
        return tally[True], tally.total()

    def _is_good(self, series: Series) -> bool | None:
        """Return whether the tasks of a series did well; None if they do not count."""
        if self.kind == "success":
            return True if series.what == "done" else False if series.what in FAILED else None
        if self.kind == "start" and series.what == "expired":
            return False
        if series.what != ("wait" if self.kind == "start" else "done") or series.bucket is None:
            return None
        return EDGES_MS[series.bucket] < self.within_ms


class _Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An objective as written in the settings."""

    target: float | None = None
    name: str = ""
    queue: str = ""
    task: str = ""
    start_within: float | None = None
    run_within: float | None = None


def objectives_of(settings: Settings) -> tuple[Objective, ...]:
    """Return the objectives of the settings. Raise ConfigurationError if they cannot be read."""
    return parse_objectives(settings.slo_objectives, settings.slo_target)


def parse_objectives(text: str, target: float) -> tuple[Objective, ...]:
    """Read a JSON list of objectives. `target` applies to objectives without their own. An empty text means one
    objective: success.
    """
    if not text.strip():
        return (Objective(target=target),)
    variable = name_of_setting("slo_objectives")
    try:
        given = msgspec.json.decode(text.encode(), type=list[_Given])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        example = '[{"queue": "mail", "start_within": 30, "target": 0.99}]'
        raise ConfigurationError(f"{variable} cannot be read: {error}; write a JSON list such as {example}") from None
    found = tuple(
        Objective(**{**msgspec.structs.asdict(one), "target": target if one.target is None else one.target})
        for one in given
    )
    for nth, one in enumerate(found, 1):
        if trouble := _trouble(one):
            raise ConfigurationError(f"{variable}: objective {nth} {trouble}")
    if twice := [label for label, n in Counter(one.label for one in found).items() if n > 1]:
        raise ConfigurationError(f"{variable} has the objective {twice[0]!r} twice; remove one or give them names")
    return found


def _trouble(one: Objective) -> str:
    """Return the error in an objective and its correction, or an empty text."""
    if not 0 < one.target < 1:
        return f"has the target {one.target:g}; write a number between 0 and 1, such as 0.999"
    if one.start_within is not None and one.run_within is not None:
        return "has both start_within and run_within; make two objectives of it"
    seconds = one.start_within if one.start_within is not None else one.run_within
    if seconds is not None and not 0.001 <= seconds <= EDGES_MS[-1] / 1000:
        return f"has the limit {seconds:g} s; write seconds from 0.001 to {EDGES_MS[-1] // 1000}"
    return ""
