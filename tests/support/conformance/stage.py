"""One namespace with its client and its workers: what a test of a behaviour works with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from relier import Client, Settings, SyncTaskReceipt, TaskReceipt, TaskState
from relier.ledger import keys
from relier.ledger.pages import read_stats
from relier.ledger.records import Record, Task
from relier.ledger.stats import Stats
from relier.store.call import Call
from tests.support.conformance.engine import Engine, Worker, given_values
from tests.support.conformance.signals import note, notes
from tests.support.servers import wait_until

T = TypeVar("T")
Receipt = SyncTaskReceipt[Any] | TaskReceipt[Any]
PATIENCE_S = 30.0  # for what takes well under a second on an idle machine


class Stage:
    """`folder` is where tasks leave notes: pass `str(stage.folder)` to them."""

    def __init__(self, engine: Engine, settings: Settings, folder: Path, client: Client | None = None) -> None:
        self.engine = engine
        self.settings = settings
        self.folder = folder
        self.client = client or Client(settings)
        self.ledger = self.client.ledger
        self.workers: list[Worker] = []

    # --- workers -------------------------------------------------------------------------------------------------

    def start_worker(
        self,
        *modules: str,
        queues: tuple[str, ...] = ("default",),
        concurrency: int = 50,
        env: dict[str, str] | None = None,
        ready: bool = True,
        **settings: Any,
    ) -> Worker:
        """Start a worker on this namespace, and return when its worker id is registered. `settings`: those that differ
        from the stage's."""
        before = self.boots()
        chosen = Settings(**given_values(self.settings) | settings)
        modules = modules or ("tests.support.conformance.tasks",)
        command = self.engine.command(modules, queues, concurrency)
        log = self.folder / f"worker-{len(self.workers)}-{next(_numbers)}.log"
        worker = Worker(command, chosen, log, self.engine.environment(modules) | (env or {}))
        self.workers.append(worker)
        if ready:
            wait_until(lambda: not worker.running or self.boots() - before, PATIENCE_S, "the worker is ready")
            assert worker.running, f"the worker ended: {log.read_text()}"
        return worker

    def needs(self, at_once: int) -> None:
        """Skip the test if the engine runs fewer tasks at once."""
        if self.engine.at_once < at_once:
            pytest.skip(f"{self.engine.name} runs {self.engine.at_once} at once, this takes {at_once}")

    def boots(self) -> set[str]:
        return {worker.node_id for worker in self.stats().workers}

    def close(self) -> None:
        for worker in self.workers:
            worker.end()
        self.client.close()

    # --- notes ---------------------------------------------------------------------------------------------------

    @property
    def place(self) -> str:
        """Return the folder in the form that tasks take it."""
        return str(self.folder)

    def go(self, name: str = "go") -> None:
        """Let the tasks that wait for this continue."""
        note(self.folder, name)

    def notes(self, name: str) -> list[str]:
        return notes(self.folder, name)

    def wait_for_notes(self, name: str, count: int = 1) -> list[str]:
        wait_until(lambda: len(self.notes(name)) >= count, PATIENCE_S, f"{count} notes of {name}")
        return self.notes(name)

    # --- the ledger ----------------------------------------------------------------------------------------------

    def run(self, call: Call[T]) -> T:
        return self.client.run(call)

    def command(self, *args: Any) -> Any:
        return self.client.sync_store.command(*args)

    def key(self, name: str, of: str = "") -> str:
        return keys.spell(self.ledger.prefix, name, of)

    def stats(self) -> Stats:
        return read_stats(self.run, self.ledger)

    def count(self, name: str) -> int:
        return self.stats().counts.get(name, 0)

    def task(self, receipt: Receipt) -> Task:
        return self.run(self.ledger.get(receipt.id))

    def record(self, receipt: Receipt) -> Record:
        return self.task(receipt).record

    def wait_for_state(self, receipt: Receipt, *states: TaskState, seconds: float = PATIENCE_S) -> Task:
        """Return the task, once it is in one of these states."""
        wanted = {state.value for state in states}
        what = f"task {receipt.id} is {' or '.join(sorted(wanted))}"
        wait_until(lambda: self.record(receipt).state.value in wanted, seconds, what)
        return self.task(receipt)

    def wait_for_end(self, receipt: Receipt) -> Task:
        return self.wait_for_state(receipt, TaskState.DONE, TaskState.DEAD, TaskState.CANCELLED)

    def wait_for_death(self, receipt: Receipt) -> Task:
        task = self.wait_for_end(receipt)
        assert task.record.state.value == "dead", task
        return task

    def wait_for_beats(self, count: int) -> None:
        """Wait until every worker has sent that many more heartbeats. By then it has received all pending orders."""
        for _ in range(count):
            before = {worker.node_id: worker.beat_ms for worker in self.stats().workers}
            later = self._all_later(before)
            wait_until(later, PATIENCE_S, "the workers beat")

    def _all_later(self, before: dict[str, int]) -> Callable[[], bool]:
        return lambda: all(worker.beat_ms > before.get(worker.node_id, 0) for worker in self.stats().workers)

    def sweep_until(self, condition: Callable[[], Any], what: str) -> None:
        """Sweep, as any worker would, until the condition holds."""

        def swept() -> Any:
            self.run(self.ledger.revive(interval_ms=20))
            return condition()

        wait_until(swept, PATIENCE_S, what)

    # --- holding a queue -----------------------------------------------------------------------------------------

    def hold(self, queue: str) -> None:
        """Let no worker claim from the queue until `let_go`."""
        self.run(self.ledger.pause(queue, self._pause_version(queue)))

    def let_go(self, queue: str) -> None:
        self.run(self.ledger.resume(queue, self._pause_version(queue)))

    def _pause_version(self, queue: str) -> int:
        return next((each.pause_version for each in self.stats().queues if each.queue == queue), 0)


_numbers = itertools.count()
