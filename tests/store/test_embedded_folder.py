"""The folder of an embedded server: found, copied, removed, or unusable."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from relier.errors import ConfigurationError
from relier.settings import Settings
from relier.store import Scripts, SyncStore
from relier.store.connect.embedded import EmbeddedServer, project_folder
from tests.support.either_store import OpenStore
from tests.support.embedded_processes import NewClient, alive, is_free, socket_of
from tests.support.servers import wait_until
from tests.support.toy_scripts import count, echo


def test_a_long_path_works(tmp_path: Path, scripts: Scripts) -> None:
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


def test_stale_files_do_not_prevent_a_start(folder: Path, new_client: NewClient) -> None:
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


def test_the_folder_is_private(folder: Path, scripts: Scripts) -> None:
    with SyncStore(Settings(redis_url=f"embedded://{folder}"), scripts) as store:
        store.run(count("k", "1"))
        found = store.probe()
        assert (found.aof, found.appendfsync, found.eviction_policy) == (True, "everysec", "noeviction")
        assert store.command("CONFIG", "GET", "port") == [b"port", b"0"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / ".gitignore").read_text() == "*\n"


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path, scripts: Scripts) -> None:
    (tmp_path / "file").write_text("")
    settings = Settings(redis_url=f"embedded://{tmp_path}/file/x")
    refused = pytest.raises(ConfigurationError, match=r"cannot use the folder .* name a writable folder")
    with SyncStore(settings, scripts) as store, refused:
        store.run(echo())


@pytest.mark.parametrize("name", ["clients.lock", "keeper.lock", "socket.new"])
@pytest.mark.anyio
async def test_an_unusable_folder_is_reported(folder: Path, open_store: OpenStore, name: str) -> None:
    """As with a folder of another user, or on a read-only disk."""
    (folder / name).mkdir(parents=True)
    store = open_store(f"embedded://{folder}")
    with pytest.raises(ConfigurationError, match=r"cannot use the folder .* name a writable folder"):
        await store.run(echo())
    await store.close()
    (folder / name).rmdir()


def test_the_store_is_in_the_project_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "app" / "deep" / "er"
    inside.mkdir(parents=True)
    assert project_folder(inside) == inside
    (tmp_path / "app" / "pyproject.toml").touch()
    assert project_folder(inside) == tmp_path / "app"
    monkeypatch.chdir(inside)
    assert EmbeddedServer("")._folder == tmp_path / "app" / ".relier"
    assert EmbeddedServer("data")._folder == inside / "data"


def test_removing_the_folder_stops_its_server(tmp_path: Path, scripts: Scripts) -> None:
    folder = tmp_path / "gone"
    with SyncStore(Settings(redis_url=f"embedded://{folder}"), scripts) as store:
        told = store.command("INFO", "server").decode()
        pid = next(int(line.split(":")[1]) for line in told.splitlines() if line.startswith("process_id:"))
        shutil.rmtree(folder)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the server ends, though its socket is gone")


def test_a_client_that_leaves_a_removed_folder_does_not_stop_the_new_server(
    folder: Path, new_client: NewClient
) -> None:
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


def test_clients_of_a_removed_folder_start_again_with_an_empty_one(folder: Path, new_client: NewClient) -> None:
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
