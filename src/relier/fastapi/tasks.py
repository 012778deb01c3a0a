"""Answer the requests of web clients about a task, whichever framework serves them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from typing import Any

import pydantic_core

from relier import codec, registry
from relier.errors import StoreUnavailableError, TaskNotFoundError
from relier.ledger.records import Task
from relier.redact import shown
from relier.states import ENDED, State
from relier.submit.client import Client
from relier.submit.progress import read_progress
from relier.submit.receipt import TaskReceipt, TaskState

POLL_S, SLOWEST_POLL_S = 0.2, 2.0  # how often events are looked for; slower while nothing changes
KEEP_ALIVE_S = 15.0  # proxies close connections that are silent for longer


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold an HTTP status, a body of plain data, and headers."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> bytes:
        return pydantic_core.to_json(self.body, fallback=_plain)


NOT_FOUND = Answer(404, {"detail": "There is no such task."})
EXPIRED = Answer(410, {"detail": "The task ended, and its record is no longer kept.", "state": "expired"})


async def status(client: Client, task_id: str) -> Answer:
    """Answer 202 while the task has not ended, 200 once it has, 404 if it is unknown, 410 if it is no longer kept."""
    found = await _find(client, task_id)
    if isinstance(found, Answer):
        return found
    ended = found.record.state in ENDED
    return Answer(200 if ended else 202, described(client, found), {} if ended else {"Retry-After": "1"})


async def result(client: Client, task_id: str) -> Answer:
    """Answer 200 with the result, 202 while there is none yet, 410 if there never will be one."""
    found = await _find(client, task_id)
    if isinstance(found, Answer):
        return found
    body = described(client, found)
    if found.record.state is State.DONE:
        return Answer(200, body | {"result": _result_of(client, found)})
    if found.record.state in ENDED:
        return Answer(410, body | {"detail": f"There is no result: the task is {found.record.state}."})
    return Answer(202, body, {"Retry-After": "1"})


async def cancel(client: Client, task_id: str) -> Answer:
    """Answer 202 if the task will be cancelled, 200 if it is, 409 if it ended in another way before."""
    found = await _find(client, task_id)
    if isinstance(found, Answer):
        return found
    cancelled = await TaskReceipt[Any](task_id, client=client).cancel()
    found = await _find(client, task_id)
    if isinstance(found, Answer):
        return found
    body = described(client, found)
    if not cancelled:
        return Answer(409, body | {"detail": f"The task is already {found.record.state}."})
    return Answer(200 if found.record.state is State.CANCELLED else 202, body)


async def events(client: Client, task_id: str) -> AsyncIterator[bytes]:
    """Yield server-sent events: `progress` whenever something changes, and `end` when the task has ended.

    Poll the store, less often while nothing changes. Outages of the store do not end the stream.
    """
    last, pause, silent = "", POLL_S, 0.0
    yield b"retry: 2000\n\n"
    while True:
        try:
            found = await _find(client, task_id)
        except StoreUnavailableError:
            found = None
        if isinstance(found, Answer):
            yield _event("end", found.body)
            return
        if found is not None:
            body = described(client, found)
            if str(body) != last:
                last, pause, silent = str(body), POLL_S, 0.0
                ended = found.record.state in ENDED
                yield _event("end" if ended else "progress", body)
                if ended:
                    return
        await asyncio.sleep(pause)
        silent += pause
        pause = min(SLOWEST_POLL_S, pause * 1.2)
        if silent >= KEEP_ALIVE_S:
            silent = 0.0
            yield b": still here\n\n"


def described(client: Client, task: Task) -> dict[str, Any]:
    """Return the data about a task that a client may see."""
    record = task.record
    body: dict[str, Any] = {"id": record.id, "name": record.name, "state": str(record.state), "attempt": record.attempt}
    if record.progress:
        body["progress"] = progress_in(shown(client.settings, record.name, record.progress))
    if record.reason:
        body["reason"] = record.reason
    return body


def progress_in(text: str) -> dict[str, Any]:
    """Return the numbers and the note in the text that `ctx.progress` stored."""
    found = read_progress(text)
    return {"note": text} if found is None else asdict(found)  # None: redacted


async def _find(client: Client, task_id: str) -> Task | Answer:
    receipt = TaskReceipt[Any](task_id, client=client)
    try:
        return await receipt.info()
    except TaskNotFoundError:
        return EXPIRED if await receipt.state() is TaskState.EXPIRED else NOT_FOUND


def _result_of(client: Client, task: Task) -> Any:
    raw, known = task.result, registry.find(task.record.name)
    if raw is None:
        return None
    raw = client.keyring.unwrap(raw, task.record.id, "result")
    return codec.decode(raw, "the result") if known is None else known.arguments.decode_result(raw)


def _event(name: str, body: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: ".encode() + pydantic_core.to_json(body, fallback=_plain) + b"\n\n"


def _plain(value: Any) -> Any:
    return vars(value) if hasattr(value, "__dict__") else str(value)
