"""Where a worker was started. A task's code may change the folder and the environment of its process; processes that
are started later (isolated ones, the worker itself when it starts over) begin where the worker did."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """A folder and an environment to start processes in. No folder: the current one could not be found out."""

    folder: str | None
    environment: Mapping[str, str]

    @classmethod
    def here(cls) -> Origin:
        try:
            folder = os.getcwd()
        except FileNotFoundError:  # it was removed
            folder = None
        return cls(folder, dict(os.environ))

    def without(self, variable: str) -> Origin:
        kept = {name: value for name, value in self.environment.items() if name != variable}
        return Origin(self.folder, kept)
