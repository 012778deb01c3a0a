"""Tasks that log, fail and die, with hooks that note each event in the folder EVENTS_FOLDER."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from pathlib import Path

from relier import Retries, TaskEvent, rl_task, use_hooks
from tests.support.conformance.signals import block_until_noted, note, until_noted

FOLDER = Path(os.environ.get("EVENTS_FOLDER", "."))
FIELDS = ("task_id", "task_name", "attempt", "queue", "worker_id")


class RecordNotes(logging.Handler):
    """Note the message and the task fields of each record, as any handler of an application would receive them."""

    def emit(self, record: logging.LogRecord) -> None:
        fields = {name: getattr(record, name, None) for name in FIELDS}
        note(FOLDER, "records", json.dumps({"message": record.getMessage(), **fields}))


log = logging.getLogger("conformance.events")
log.setLevel(logging.INFO)
log.addHandler(RecordNotes())


def note_event(name: str, event: TaskEvent) -> None:
    note(FOLDER, name, json.dumps(dataclasses.asdict(event)))


async def aware(event: TaskEvent) -> None:
    """A hook on the worker's loop."""
    note_event("own", event)


def blocking(event: TaskEvent) -> None:
    """A hook in a thread."""
    note_event("own", event)


def for_all(event: TaskEvent) -> None:
    note_event("all", event)


def broken(_: TaskEvent) -> None:
    raise ValueError("this hook is broken")


def leaving(_: TaskEvent) -> None:
    sys.exit(7)


if "EVENTS_FOLDER" in os.environ:  # not in the test's own process, whose workers share these hooks
    use_hooks(on_start=for_all, on_success=for_all, on_retry=for_all, on_dead=for_all, on_revived=for_all)


@rl_task(on_start=aware, on_success=aware)
async def log_async() -> None:
    log.info("from the body")


@rl_task(on_start=blocking, on_success=blocking)
def log_def() -> None:
    log.info("from the body")


@rl_task(isolate=True, on_start=aware, on_success=blocking)
def log_isolated() -> None:
    log.info("from the body", extra={"queue": "as the caller says"})


LOGS = {"async": log_async, "def": log_def, "isolated": log_isolated}


@rl_task(retries=Retries(attempts=1, backoff=0), on_retry=blocking, on_dead=aware)
async def fail() -> None:
    raise ValueError("50% broken")


@rl_task(on_start=broken, on_success=leaving)
async def ignore_hooks() -> str:
    return "done"


@rl_task
async def wait(folder: str) -> None:
    note(folder, "runs")
    await until_noted(folder, "go")


@rl_task(on_revived=blocking)
def wait_and_be_revived(folder: str) -> None:
    note(folder, "runs")
    block_until_noted(folder, "go")


@rl_task(on_lost="bury", on_dead=aware)
async def wait_and_be_buried(folder: str) -> None:
    note(folder, "runs")
    await until_noted(folder, "go")


@rl_task(isolate=True, max_resurrections=1, on_revived=aware, on_dead=aware)
def die_alone() -> None:
    os._exit(9)
