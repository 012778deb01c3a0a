"""Decide which processes count outcomes. As with events, the decision is part of the text of a process's scripts."""

from __future__ import annotations

from dataclasses import dataclass

from relier.ledger import defaults


@dataclass(frozen=True, slots=True)
class OutcomeCounting:
    """Whether the scripts of a process count outcomes, and how many fields one hash holds by queue and name."""

    on: bool = True
    fields: int = defaults.OUTCOME_FIELDS

    def spelled(self) -> dict[str, str]:
        """Return the values of the script words that express this decision."""
        return {"COUNTING": "true" if self.on else "false", "OUTCOME_FIELDS": str(self.fields)}
