"""Remember the folder and environment in which a worker was started.

A task's code may change both for its process. Processes that are started later (isolated processes, the worker itself
when it restarts) begin with the original folder and environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Hold a folder and an environment to start processes in. `folder` is None if it no longer existed."""

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
