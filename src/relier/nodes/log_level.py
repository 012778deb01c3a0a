"""The log level that an operator ordered for a node: that of the `relier` loggers in its process.

The level of the root logger, of other libraries and of handlers is left alone. Processes that the node starts for
isolated tasks or for Celery's pool keep their own level.
"""

from __future__ import annotations

import logging

LOGGER = "relier"

log = logging.getLogger("relier.nodes")


class OrderedLogLevel:
    """Sets the level of the `relier` loggers, and restores it."""

    def __init__(self) -> None:
        self._own: int | None = None  # the level to restore, while another one is set
        self._set = ""

    def set_to(self, level: str) -> None:
        """Set this level, or restore the original level if the text is empty. Repeating a call changes nothing."""
        if level == self._set:
            return
        logger = logging.getLogger(LOGGER)
        if self._own is None:
            self._own = logger.level
        self._set = level
        if level:
            log.warning("log level set to %s by an operator", level)  # before: the new level may hide the line
            logger.setLevel(level)
        else:
            logger.setLevel(self._own)
            self._own = None
            log.warning("log level restored")
