"""Define an action, its input and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from relier.dashboard.session import DashboardSession
from relier.errors import InvalidSubmissionError

LONGEST = 1024 * 1024


class ActionForm:
    """The fields of a request, which may have several values each."""

    def __init__(self, given: Mapping[str, Sequence[str]]) -> None:
        self._given = given

    def text(self, name: str) -> str:
        value = self._given.get(name, ("",))[-1]
        if len(value) > LONGEST:
            raise InvalidSubmissionError(f"the field {name!r} is too long; at most {LONGEST:,} characters")
        return value.strip()

    def needed(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise InvalidSubmissionError(f"the field {name!r} is missing")
        return value

    def all(self, name: str) -> list[str]:
        """Return the different values of a field."""
        return [value for value in dict.fromkeys(self._given.get(name, ())) if value]

    def shown(self, fields: Mapping[str, str]) -> dict[str, str]:
        """Return what the log of actions keeps of the known fields. Arguments of tasks may be private."""
        values = {name: ", ".join(self.all(name)) for name in fields if name != "arguments"}
        return {name: value for name, value in values.items() if value}


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """Report the result of an action, in a sentence.

    `ok` is False if a part of the action was refused. `back` is the page that shows the result.
    """

    says: str
    back: str
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Action:
    """One action. `fields`: name -> meaning."""

    name: str
    title: str
    fields: Mapping[str, str]
    run: Callable[[DashboardSession, ActionForm], ActionOutcome]

    @property
    def back(self) -> str:
        """The page that is shown if the action fails."""
        return f"/{self.name.partition('/')[0]}"
