"""Format log lines: console for people, JSON for machines."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from relier.logs.record_fields import TASK_FIELDS

CONSOLE_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
EVENT_LOGGER = "relier.task"  # its messages already name the task
SHORT_ID = 12

# The attributes of every LogRecord. All others were passed with `extra`, or are task fields.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class ConsoleFormatter(logging.Formatter):
    """Write time, level, logger and message; then, on lines that a task logs, the task in short."""

    def __init__(self) -> None:
        super().__init__(CONSOLE_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in logging
        line = super().formatMessage(record)
        task_id = record.__dict__.get("task_id")
        if task_id is None or record.name == EVENT_LOGGER:
            return line
        name, attempt = record.__dict__.get("task_name", "?"), record.__dict__.get("attempt", "?")
        return f"{line} [task={name} id={str(task_id)[:SHORT_ID]} attempt={attempt}]"


class JsonFormatter(logging.Formatter):
    """Write one JSON object per line.

    The keys are `time` (UTC), `level`, `logger`, `message`; on lines about a task `task_id`, `task_name`, `attempt`,
    `queue` and `worker_id`; then whatever was passed with `extra`; and `exception` and `stack` if there are any.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        given = vars(record)
        line |= {name: given[name] for name in TASK_FIELDS if given.get(name) is not None}
        line |= {name: value for name, value in given.items() if name not in _STANDARD and name not in line}
        if record.exc_info or record.exc_text:
            line["exception"] = record.exc_text or self.formatException(record.exc_info)  # type: ignore[arg-type]
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return _as_json(line)


def _as_json(line: dict[str, Any]) -> str:
    try:
        return json.dumps(line, default=_as_text, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # a value with odd keys, one that contains itself, or a NaN
        plain = (str, int, type(None))
        return json.dumps(
            {name: value if isinstance(value, plain) else _as_text(value) for name, value in line.items()}
        )


def _as_text(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - user code: a value that cannot be shown must not cost the line
        return f"(its __str__ failed: {type(error).__name__})"


FORMATTERS: dict[str, type[logging.Formatter]] = {"console": ConsoleFormatter, "json": JsonFormatter}
