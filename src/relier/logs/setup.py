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
    root.addHandler(handler)
    root.setLevel(level.upper() if isinstance(level, str) else level)
