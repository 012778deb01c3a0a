"""Log lines of the first push: where the tasks go, and that workers cannot import a task."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from relier import Client, RlTask, Settings, rl_task, use_client
from relier.store import SyncStore
from relier.submit import client as client_module
from relier.submit.client import place_of
from tests.support.crew import environment

UNKNOWN = "workers cannot import"


@rl_task(name="tests.submit.first")
async def first(number: int) -> None: ...


def make_task(queue: str) -> RlTask[[], None]:
    @rl_task(queue=queue)
    def made() -> None: ...

    return made


made_at_import = make_task("big")


@pytest.fixture
def client(settings: Settings, caplog: pytest.LogCaptureFixture) -> Iterator[Client]:
    client = Client(settings)
    use_client(client)
    caplog.set_level(logging.INFO, "relier.submit")
    yield client
    use_client(None)
    client.close()


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "relier.submit" and each.levelno == level]


@pytest.mark.parametrize(
    "push", [lambda: first.push(1), lambda: first.push_many([(n,) for n in range(700)])], ids=["push", "push_many"]
)
def test_the_first_push_logs_its_store(
    client: Client, caplog: pytest.LogCaptureFixture, push: Callable[[], Any]
) -> None:
    push()
    push()
    assert said(caplog, logging.INFO) == [f"first push of this process: its tasks go to {place_of(client.settings)}"]


@pytest.mark.anyio
async def test_the_first_awaited_push_logs_its_store(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    await first.apush(1)
    first.push(1)
    assert len(said(caplog, logging.INFO)) == 1
    await client.aclose()


def test_a_task_inside_a_function_warns_once(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    @rl_task
    def inner(number: int) -> None: ...

    inner.push(1)
    inner.push_many([(2,), (3,)])
    (told,) = said(caplog, logging.WARNING)
    assert told == (
        f"task {inner.name} is defined in the function test_a_task_inside_a_function_warns_once, which workers cannot "
        f"import: pushed tasks wait, and become dead letters if no worker knows them; move the function to the top "
        f"level of a module, and start a worker with that module"
    )


def test_a_task_that_its_module_makes_or_that_has_a_name_does_not_warn(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    @rl_task(name="tests.submit.elsewhere")
    def stub() -> None: ...

    made_at_import.push()
    stub.push()
    assert said(caplog, logging.WARNING) == []


INTERACTIVE = """
from relier import rl_task

@rl_task
def cell(number: int) -> None: ...

@rl_task(name="shop.charge")
def stub() -> None: ...

cell.push(1), cell.push(2), stub.push()
"""


def test_a_task_of_an_interactive_session_warns_once(settings: Settings) -> None:
    done = subprocess.run(
        [sys.executable, "-"], input=INTERACTIVE, env=environment(settings), capture_output=True, text=True, check=True
    )
    assert "task __main__.cell is defined in a notebook or an interactive session, which workers" in done.stderr
    assert done.stderr.count(UNKNOWN) == 1


def test_threads_that_push_first_at_the_same_time_share_one_store(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_make_one = threading.Barrier(2)

    def make(*args: Any) -> SyncStore:
        both_make_one.wait(10)
        return SyncStore(*args)

    monkeypatch.setattr(client_module, "SyncStore", make)
    client = Client(settings)
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(lambda _: client.sync_store, range(2))
    assert one is other
    client.close()
