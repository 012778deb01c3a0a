"""The file that a relay touches in every pass, so that a supervisor sees that the relay works."""

from __future__ import annotations

import logging
from pathlib import Path

log = logging.getLogger("relier.outbox")


class LivenessFile:
    """Touches a file, or does nothing if `path` is None. If the file cannot be touched, that is reported only once."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None
        self._failed = False

    def touch(self) -> None:
        if self._path is None:
            return
        try:
            self._path.touch()
        except (OSError, ValueError) as error:  # ValueError: a path that no file can have
            if not self._failed:
                log.warning(
                    "liveness file not touched: error=%s; a supervisor will think that this relay is dead; "
                    "the relay continues, and retries in every pass",
                    error,
                )
            self._failed = True
        else:
            if self._failed:
                log.info("liveness file touched again: path=%s", self._path)
            self._failed = False
