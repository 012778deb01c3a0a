"""Put the fields of the running task on every LogRecord that is created while the task runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

TASK_FIELDS = ("task_id", "task_name", "attempt", "queue", "worker_id")


class RecordDict(dict[str, Any]):
    """The attributes of a LogRecord with task fields, which `extra={"queue": …}` of the caller may replace.

    `Logger.makeRecord` raises KeyError if a name in `extra` is already `in` the record's dict. A task that logs such a
    name works outside a worker and must work inside one.
    """

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return name not in TASK_FIELDS and super().__contains__(name)


class RecordFactory:
    """Create LogRecords with the factory that was in use before, and add the fields of the running task, if any."""

    def __init__(
        self, create: Callable[..., logging.LogRecord], fields: Callable[[], Mapping[str, Any] | None]
    ) -> None:
        self._create = create
        self._fields = fields

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._create(*args, **kwargs)
        fields = self._fields()
        if fields is not None:
            record.__dict__ = RecordDict({**fields, **record.__dict__})
        return record


def install_record_factory(fields: Callable[[], Mapping[str, Any] | None]) -> None:
    """Wrap the factory that is in use, once. `fields` returns those of the task that runs where it is called."""
    present = logging.getLogRecordFactory()
    if not isinstance(present, RecordFactory):
        logging.setLogRecordFactory(RecordFactory(present, fields))
