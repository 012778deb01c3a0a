"""Trace one task and list the files and functions that its way passes: `make walk`.

A way consists of stops: the moments when a request goes to the store, or when the task's own function is called. At
each stop the call stack is the path: every function on it calls the next one. The tool lists these functions, each
once, in order. Helpers that return before the stop (encoding a payload, say) are not on the path.

The store is one entry per way, because every move passes it in the same manner; the first way lists its own files.
ARCHITECTURE.md quotes the counts that this tool prints. The exit code is 1 if a way is longer than its target.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("RELIER_ADMISSION_LIMIT", "0")

from relier import Client, Settings, rl_task
from relier.engines.worker import Worker, WorkerOptions
from relier.rescue.phoenix import Phoenix
from relier.store import AsyncStore, SyncStore
from relier.store.sync_wire import SyncConnection
from relier.submit.client import use_client

ROOT = Path(sys.modules["relier"].__file__ or "").parent
SENDS = {method.__code__ for store in (SyncStore, AsyncStore) for method in (store.run, store.run_many)}
WIRE = SyncConnection._exchange.__code__

MOST_TO_STORE, MOST_TO_DONE = 6, 9  # the most files that a reader should have to open

Step = tuple[str, str]  # a file and a function


@rl_task
async def greet(name: str) -> str:
    return f"hello {name}"


@rl_task(retries=2)
async def stumble() -> None:
    raise ValueError("once")


class Tracer:
    """Record the stacks of stops. Only the first stack of each stop counts."""

    def __init__(self, bodies: list[Callable[..., Any]]) -> None:
        self._bodies = {body.__code__ for body in bodies}
        self.stops: dict[str, list[Step]] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code in SENDS:
            for script in _scripts(frame):
                self.stops.setdefault(script, _stack(frame))
        elif code is WIRE:
            self.stops.setdefault("wire", _stack(frame))
        elif code in self._bodies:
            self.stops.setdefault("body", _stack(frame))


def _scripts(frame: FrameType) -> Iterator[str]:
    call = frame.f_locals.get("call")
    if call is not None:
        yield call.script


def _stack(frame: FrameType | None) -> list[Step]:
    steps: list[Step] = []
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(ROOT) and file.name != "background.py":
            steps.append((str(file.relative_to(ROOT)), frame.f_code.co_qualname.replace("<locals>.", "")))
        frame = frame.f_back
    return steps[::-1]


@contextmanager
def traced(*bodies: Callable[..., Any]) -> Iterator[dict[str, list[Step]]]:
    tracer = Tracer(list(bodies))
    sys.setprofile(tracer)
    threading.setprofile(tracer)
    try:
        yield tracer.stops
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def show(
    title: str, stops: dict[str, list[Step]], wanted: list[str], most: int | None = None, *, whole_store: bool = False
) -> int:
    """Print a way and return how many files it has. The store's own files count as one, unless `whole_store`."""
    files: dict[str, list[str]] = {}
    for stop in wanted:
        for file, function in stops[stop]:
            place, name = (file, function) if whole_store or not file.startswith("store/") else ("store/", stop)
            files.setdefault(place, [])
            if name not in files[place]:
                files[place].append(name)
    print(f"\n{title}")
    for number, (place, names) in enumerate(files.items(), 1):
        print(f"  {number:2}  {place:34} {', '.join(names)}")
    verdict = "" if most is None else f", target {most}: {'met' if len(files) <= most else 'MISSED'}"
    print(f"  = {len(files)} files{verdict}")
    return len(files)


def walk_push(client: Client) -> dict[str, list[Step]]:
    client.run(client.ledger.stats())  # connect first: connecting is not part of a push
    with traced() as stops:
        greet.push("ann")
    return stops


async def walk_work(client: Client, task: Any, fn: Callable[..., Any], until: str) -> dict[str, list[Step]]:
    worker = Worker(client, WorkerOptions(sweep=False))
    with traced(fn) as stops:
        running = asyncio.ensure_future(worker.run())
        await task.apush(*(["bob"] if fn is greet.fn else []))
        while until not in stops:
            await asyncio.sleep(0.01)
        worker.leave_now()
        await running
    return stops


async def walk_sweep(client: Client) -> dict[str, list[Step]]:
    phoenix = Phoenix(client.settings, client.store, client.ledger)
    with traced() as stops:
        sweeping = asyncio.ensure_future(phoenix.run())
        while "revive" not in stops:
            await asyncio.sleep(0.01)
        phoenix.end()
        sweeping.cancel()
    return stops


def walk_celery(client: Client) -> dict[str, list[Step]]:
    from celery import Celery

    from relier.celery import install

    app = Celery("walk", broker="memory://", backend="cache+memory://")
    install(app, adopt=True, settings=client.settings)

    @app.task(name="walk.add")
    def add(a: int, b: int) -> int:
        return a + b

    with traced() as stops:
        add.delay(1, 2)
    return stops


def walk_row(client: Client, folder: str) -> dict[str, list[Step]]:
    from sqlalchemy import MetaData, create_engine
    from sqlalchemy.orm import Session

    from relier.outbox import Outbox
    from relier.outbox.relay.to_ledger import relay_to_ledger
    from relier.outbox.sqlalchemy.engines import EngineDatabase

    metadata = MetaData()
    outbox = Outbox(metadata)
    engine = create_engine(f"sqlite:///{folder}/walk.db")
    metadata.create_all(engine)
    with Session(engine) as session:
        greet.push_in(session, "eve")
        session.commit()
    relay = relay_to_ledger(EngineDatabase(engine), client)
    with traced() as stops:
        relay.drain()
    del outbox
    return stops


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(redis_url=f"embedded://{folder}/store", namespace="walk", heartbeat_ttl=2.0)
        client = Client(settings)
        use_client(client)
        client.open()
        push = walk_push(client)
        work = asyncio.run(walk_work(client, greet, greet.fn, "commit"))
        retried = asyncio.run(walk_work(client, stumble, stumble.fn, "retry"))
        swept = asyncio.run(walk_sweep(client))
        delayed = walk_celery(client)
        row = walk_row(client, folder)
        client.close()
    to_store = show("push → the store and back", push, ["wire"], MOST_TO_STORE, whole_store=True)
    done = show("push → done", {**work, "submit": push["submit"]}, ["submit", "claim", "body", "commit"], MOST_TO_DONE)
    show("retry (after the body raised)", retried, ["body", "retry"])
    show("revive (the sweep of every worker)", swept, ["revive"])
    show("Celery .delay()", delayed, ["submit"])
    show("outbox row → record (the relay)", row, ["submit"])
    return int(to_store > MOST_TO_STORE or done > MOST_TO_DONE)


if __name__ == "__main__":
    sys.exit(main())
