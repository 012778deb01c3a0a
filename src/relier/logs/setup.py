"""Start logging to stderr in our own processes, unless the application does so itself."""

from __future__ import annotations

import logging
import sys

from relier.logs.formats import FORMATTERS


def start_logging(level: str | int, style: str = "console") -> None:
    """Log to stderr from this level on, as `console` or `json`.

    If the root logger has handlers, the application has configured logging, and nothing is changed. So call this after
    the application's modules are imported.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATTERS[style]())
    handler.addFilter(_is_not_shown_yet)
    root.addHandler(handler)
    root.setLevel(level.upper() if isinstance(level, str) else level)


def _is_not_shown_yet(record: logging.LogRecord) -> bool:
    """Return False if a logger below the root has written the record to stderr, as Django's does in debug mode."""
    logger = logging.getLogger(record.name)
    while logger.parent is not None:
        for handler in logger.handlers:
            shows = getattr(handler, "stream", None) is sys.stderr and record.levelno >= handler.level
            if shows and handler.filter(record):
                return False
        logger = logger.parent
    return True
