"""The two formats of log lines, and the fields of the running task on a LogRecord."""

from __future__ import annotations

import copy
import json
import logging
import logging.handlers
import pickle
import queue
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from relier.logs.formats import ConsoleFormatter, JsonFormatter
from relier.logs.record_fields import RecordFactory, install_record_factory
from relier.logs.setup import start_logging

FIELDS = {"task_id": "0123456789abcdef", "task_name": "shop.send", "attempt": 2, "queue": "mail", "worker_id": "w1"}


@pytest.fixture
def fields() -> Iterator[dict[str, Any]]:
    """Install the record factory around the current one. Return the fields of the running task, which the test may
    set."""
    present, running = logging.getLogRecordFactory(), dict(FIELDS)
    logging.setLogRecordFactory(RecordFactory(logging.LogRecord, lambda: running or None))
    yield running
    logging.setLogRecordFactory(present)


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def logged(message: str, *args: Any, **more: Any) -> logging.LogRecord:
    """Return the record that a handler gets for one log call."""
    kept, log = Kept(), logging.Logger("shop.mail")
    log.addHandler(kept)
    log.warning(message, *args, **more)
    return kept.records[0]


def as_json(record: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter().format(record)
    assert "\n" not in line
    loaded: dict[str, Any] = json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    return loaded


def error_info() -> Any:
    try:
        int("x\ny")
    except ValueError:
        return sys.exc_info()


def test_a_line_of_json_has_the_task_the_extra_fields_and_the_exception(fields: dict[str, Any]) -> None:
    line = as_json(logged("to %s", "ann", extra={"cost": 1.5, "queue": "own"}, exc_info=error_info()))
    assert list(line)[:4] == ["time", "level", "logger", "message"]
    assert line["message"] == "to ann"
    assert line | FIELDS | {"queue": "own", "cost": 1.5} == line
    assert "ValueError: invalid literal" in line["exception"]
    fields.clear()
    assert set(as_json(logged("outside"))) == {"time", "level", "logger", "message"}


class Unshown:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_any_extra_value_is_one_line_of_json() -> None:
    loop: list[Any] = []
    loop.append(loop)
    odd = {"nan": float("nan"), "tuple keys": {(1, 2): 3}, "loop": loop, "object": Unshown(), "set": {1}}
    for name, value in odd.items():
        line = as_json(logged("hm", extra={name: value, "plain": 1, "text": "a\udc80\nb"}))
        assert isinstance(line[name], str)
        assert (line["message"], line["plain"]) == ("hm", 1)
    assert "its __str__ failed: RuntimeError" in as_json(logged("hm", extra={"object": Unshown()}))["object"]


def test_a_line_of_the_console_ends_with_the_task_before_the_traceback(fields: dict[str, Any]) -> None:
    first, second, *_ = ConsoleFormatter().format(logged("sent", exc_info=error_info())).splitlines()
    assert first.endswith(" WARNING shop.mail sent [task=shop.send id=0123456789ab attempt=2]")
    assert second == "Traceback (most recent call last):"
    fields.clear()
    assert ConsoleFormatter().format(logged("sent")).endswith(" WARNING shop.mail sent")


def test_a_record_with_fields_is_a_record_like_any_other(fields: dict[str, Any]) -> None:
    """Queues copy records, other processes receive pickled ones, and formatters read their dict."""
    assert fields
    record = logged("hm", extra={"attempt": "mine"})
    for each in (record, copy.copy(record), pickle.loads(pickle.dumps(record))):
        shown = logging.Formatter("%(task_id)s %(attempt)s %(queue)s").format(each)
        assert shown == "0123456789abcdef mine mail"
        assert each.getMessage() == "hm"
    waiting: queue.Queue[Any] = queue.Queue()
    log = logging.Logger("shop.mail")
    log.addHandler(logging.handlers.QueueHandler(waiting))
    log.warning("queued")
    assert waiting.get_nowait().task_id == "0123456789abcdef"
    with pytest.raises(KeyError, match="overwrite 'message'"):
        logged("hm", extra={"message": "as ever"})


def test_the_factory_of_the_application_still_creates_the_records() -> None:
    class OwnRecord(logging.LogRecord):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.task_id = "its own"

    present = logging.getLogRecordFactory()
    logging.setLogRecordFactory(OwnRecord)
    try:
        install_record_factory(lambda: FIELDS)
        ours = logging.getLogRecordFactory()
        install_record_factory(lambda: FIELDS)
        assert logging.getLogRecordFactory() is ours, "it is wrapped once"
        record = logged("hm")
        assert isinstance(record, OwnRecord)
        assert (vars(record)["task_id"], vars(record)["attempt"]) == ("its own", 2)
    finally:
        logging.setLogRecordFactory(present)


def test_logging_starts_only_where_nobody_has_configured_it() -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        root.handlers[:] = [own := logging.NullHandler()]
        start_logging("debug", "json")
        assert root.handlers == [own]
        assert root.level == level
        root.handlers[:] = []
        start_logging("debug", "json")
        (ours,) = root.handlers
        assert isinstance(ours.formatter, JsonFormatter)
        assert root.level == logging.DEBUG
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def test_a_line_that_a_logger_writes_to_stderr_itself_is_not_written_twice(capsys: pytest.CaptureFixture[str]) -> None:
    root, chatty = logging.getLogger(), logging.getLogger("tests.chatty")
    handlers, level = root.handlers[:], root.level
    chatty.addHandler(own := logging.StreamHandler(sys.stderr))
    own.setLevel("INFO")
    try:
        root.handlers[:] = []
        start_logging("debug")
        logging.getLogger("tests.chatty.child").info("once")
        logging.getLogger("tests.chatty.child").debug("below its level")
        logging.getLogger("tests.quiet").info("elsewhere")
    finally:
        chatty.handlers.remove(own)
        root.handlers[:] = handlers
        root.setLevel(level)
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == "once"
    assert second.endswith("tests.chatty.child below its level")
    assert third.endswith("tests.quiet elsewhere")
