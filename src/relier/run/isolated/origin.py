"""Remember the folder, the environment and the command with which a worker was started.

A task's code may change the first two for its process. Processes that are started later (isolated processes, the worker
itself when it restarts) begin with the original folder and environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Origin:
    """Hold a folder and an environment to start processes in, and the worker's command.

    `folder` is None if it no longer existed.
    """

    folder: str | None
    environment: Mapping[str, str]
    command: Sequence[str] = ()

    @classmethod
    def here(cls, command: Sequence[str] = ()) -> Origin:
        try:
            folder = os.getcwd()
        except FileNotFoundError:  # it was removed
            folder = None
        return cls(folder, dict(os.environ), command or (sys.executable, "-m", "relier.cli", *sys.argv[1:]))

    def without(self, variable: str) -> Origin:
        kept = {name: value for name, value in self.environment.items() if name != variable}
        return replace(self, environment=kept)
