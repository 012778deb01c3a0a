"""Backup, loss of the data folder, restore: what was running ends, what was done stays done, fences grow."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from relier.backup.archive import backups_in
from relier.cli.audit import audit
from relier.errors import TaskNotFoundError
from relier.settings import Settings
from tests.backup.conftest import Rl
from tests.support.embedded_processes import is_free
from tests.support.fleet import Fleet
from tests.support.jobs import common
from tests.support.servers import Boot, Server, wait_until

RUNNING = 5
TOGETHER = str(RUNNING + 5)


class Store:
    """A store that can be lost: its URL, its data folder, and how it is stopped and started."""

    def __init__(self, folder: Path, server: Server | None) -> None:
        self.folder = folder
        self.server = server
        self.url = f"embedded://{folder}" if server is None else server.url

    def lose(self) -> None:
        """Stop the server, and delete everything it has stored."""
        if self.server is None:
            wait_until(lambda: is_free(self.folder / "server.lock"), what="the end of the embedded server")
            shutil.rmtree(self.folder)
            self.folder.mkdir()
            return
        self.server.kill()
        for path in self.folder.iterdir():
            if path.name not in {"log", "server.conf"}:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def start(self) -> None:
        if self.server is not None:
            self.server.start()


@pytest.fixture(params=["server", "embedded"])
def store(request: pytest.FixtureRequest, boot: Boot, flavour: str, tmp_path: Path) -> Store:
    if request.param == "embedded":
        return Store(tmp_path / "store", None)
    server = boot(flavour)
    return Store(server.folder, server)


@pytest.fixture
def fleets(store: Store, tmp_path: Path) -> Iterator[list[Fleet]]:
    made: list[Fleet] = []
    yield made
    for one in made:
        one.close()


def new_fleet(store: Store, made: list[Fleet], tmp_path: Path) -> Fleet:
    """Join the store with a new client, as a process that starts after the restore does."""
    made.append(Fleet(Settings(redis_url=store.url, namespace="trip", heartbeat_ttl=1.0), tmp_path / "fleet"))
    return made[-1]


def test_a_lost_store_is_restored(store: Store, fleets: list[Fleet], tmp_path: Path, run: Rl) -> None:
    before = new_fleet(store, fleets, tmp_path)
    worker = before.worker("--concurrency", TOGETHER)
    done = [common.quick.push().id for _ in range(3)]
    before.wait_done(done)
    running = [common.hold.push("later").id for _ in range(RUNNING)]
    before.wait_diary("begin", len(done) + RUNNING)
    waiting = common.quick.with_options(queue="other").push().id
    fences = {task: before.get(task).record.fence for task in running}
    assert run("backup", "--url", store.url, "--to", tmp_path / "b").exit_code == 0
    late = common.quick.push().id
    before.wait_done([late])
    worker.kill_all()
    fleets.pop().close()
    store.lose()
    result = run("restore", backups_in(tmp_path / "b")[0], "--url", store.url, "--data-dir", store.folder)
    assert result.exit_code == 0, result.output
    store.start()

    after = new_fleet(store, fleets, tmp_path)
    after.open_gate("later")
    after.worker("--queues", "default,other", "--concurrency", TOGETHER)
    tasks = after.wait_done([*running, waiting, *done])
    assert {task.record.id: int(task.record.fence) > int(fences[task.record.id]) for task in tasks[:RUNNING]} == (
        dict.fromkeys(running, True)
    )
    begins = [line.task_id for line in after.diary("begin")]
    assert {task: begins.count(task) for task in done} == dict.fromkeys(done, 1), "done tasks are not run again"
    assert {task: begins.count(task) for task in running} == dict.fromkeys(running, 2), "revived, once each"
    with pytest.raises(TaskNotFoundError):
        after.get(late)
    assert audit(after.store, after.ledger).ok
