"""The file that a relay touches in every pass, so that others see that it passes."""

from __future__ import annotations

import logging
from pathlib import Path

log = logging.getLogger("relier.outbox")


class LivenessFile:
    """`path`: None where nobody looks. A file that cannot be touched is reported once, not in every pass."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None
        self._failed = False

    def touch(self) -> None:
        if self._path is None:
            return
        try:
            self._path.touch()
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            if not self._failed:
                log.warning(
                    "the liveness file cannot be touched, so whoever looks at it will take this relay for dead; the "
                    "relay goes on, and tries again in every pass: %s",
                    error,
                )
            self._failed = True
        else:
            if self._failed:
                log.info("the liveness file %s is touched again", self._path)
            self._failed = False
