"""rl restore: what it refuses, and that nothing of the old data can undo it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import fsspec
import pytest

from relier.backup import data_folder as folders
from relier.backup.archive import backups_in, checksum_file
from tests.backup.conftest import Rl
from tests.support.embedded_processes import Client, is_free
from tests.support.servers import Boot, Server, wait_until


@pytest.fixture
def server(boot: Boot, flavour: str) -> Server:
    """A server with one key, `colour`."""
    server = boot(flavour)
    server.command("SET", "colour", "vermilion")
    return server


@pytest.fixture
def backup(server: Server, tmp_path: Path, run: Rl) -> Path:
    """A backup of the server, which has changed its data since then."""
    assert run("backup", "--url", server.url, "--to", tmp_path / "b").exit_code == 0
    server.command("SET", "colour", "green")
    return backups_in(tmp_path / "b")[0]


def refused(run: Rl, server: Server, backup: object, *more: object) -> str:
    before = {path: path.stat().st_mtime_ns for path in server.folder.rglob("*")}
    result = run("restore", backup, "--url", server.url, "--data-dir", server.folder, *more)
    assert result.exit_code == 1, result.output
    assert before == {path: path.stat().st_mtime_ns for path in server.folder.rglob("*")}, "nothing was touched"
    return " ".join(result.stderr.split())


def test_a_restore_replaces_the_data_and_survives_restarts(server: Server, backup: Path, run: Rl) -> None:
    """A server with an append-only file ignores dump.rdb, so the snapshot must be in the append-only file too."""
    server.stop()
    result = run("restore", backup, "--url", server.url, "--data-dir", server.folder, "--json")
    said = json.loads(result.stdout)
    assert said["checksum_file"]
    server.start()
    assert server.command("GET", "colour") == b"vermilion"
    server.command("SET", "shape", "round")
    server.command("WAITAOF", 1, 0, 1000)
    server.stop()
    server.start()
    assert (server.command("GET", "colour"), server.command("GET", "shape")) == (b"vermilion", b"round")
    assert any(Path(said["kept"]).iterdir()), "the data from before is kept"


def test_a_server_without_an_append_only_file_is_restored(boot: Boot, tmp_path: Path, run: Rl) -> None:
    server = boot(config={"appendonly": "no"})
    server.command("SET", "colour", "vermilion")
    run("backup", "--url", server.url, "--to", tmp_path / "b")
    server.kill()
    (server.folder / "dump.rdb").unlink()
    assert run("restore", tmp_path / "b", "--url", server.url, "--data-dir", server.folder).exit_code == 0
    assert server.start().command("GET", "colour") == b"vermilion"


def test_other_names_of_the_files_are_kept(boot: Boot, tmp_path: Path, run: Rl) -> None:
    server = boot(config={"appendfilename": "ledger.aof", "appenddirname": "journal", "dbfilename": "ledger.rdb"})
    server.command("SET", "colour", "vermilion")
    run("backup", "--url", server.url, "--to", tmp_path / "b")
    server.command("SET", "colour", "green")
    server.stop()
    arguments = ("--url", server.url, "--data-dir", server.folder, "--dbfilename", "ledger.rdb")
    assert run("restore", tmp_path / "b", *arguments).exit_code == 0
    assert server.start().command("GET", "colour") == b"vermilion"


def test_a_live_writer_is_named(server: Server, backup: Path, run: Rl) -> None:
    with server.connection() as command:
        command("SET", "colour", "blue")
        said = refused(run, server, backup)
    assert "runs and has 1 other clients (127.0.0.1:" in said
    assert "stop workers, relays, schedulers and producers, then Sentinels and replicas, then the primary" in said


def test_a_server_without_clients_must_be_stopped_too(server: Server, backup: Path, run: Rl) -> None:
    def said() -> str:
        return refused(run, server, backup)

    wait_until(lambda: "still runs, though no client is connected" in said(), what="the last client gone")
    assert "SHUTDOWN NOSAVE" in said()


def test_a_server_that_hides_its_clients_must_be_stopped_too(server: Server, backup: Path, run: Rl) -> None:
    server.command("ACL", "SETUSER", "plain", "on", ">pw", "~*", "+@all", "-client")
    url = f"redis://plain:pw@127.0.0.1:{server.port}"
    said = run("restore", backup, "--url", url, "--data-dir", server.folder).stderr
    assert " still runs; it would overwrite" in " ".join(said.split())


def test_a_server_at_another_address_is_found_by_its_process(server: Server, backup: Path, run: Rl) -> None:
    wrong = "redis://127.0.0.1:1"
    result = run("restore", backup, "--url", wrong, "--data-dir", server.folder)
    assert result.exit_code == 1
    assert f"process {server.pid} (" in result.stderr
    assert f"uses {server.folder}" in " ".join(result.stderr.split())


def test_a_system_without_proc_relies_on_the_url(
    server: Server, backup: Path, run: Rl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "PROCESSES", tmp_path / "none")
    server.stop()
    assert run("restore", backup, "--url", server.url, "--data-dir", server.folder).exit_code == 0


@pytest.fixture
def stopped(server: Server, backup: Path) -> Server:
    """The server, stopped after its backup was made."""
    assert backup.exists()
    server.stop()
    return server


def test_a_truncated_backup_is_refused(stopped: Server, backup: Path, run: Rl) -> None:
    backup.write_bytes(backup.read_bytes()[:-20])
    assert "is damaged: its SHA-256 is" in refused(run, stopped, backup)
    checksum_file(backup).unlink()
    assert "is damaged or truncated" in refused(run, stopped, backup)


def test_a_truncated_snapshot_is_refused(stopped: Server, backup: Path, run: Rl) -> None:
    plain = backup.with_name("dump.rdb")
    data = gzip.decompress(backup.read_bytes())
    plain.write_bytes(data[:-12])
    assert "is not a complete snapshot of Redis or Valkey" in refused(run, stopped, plain)
    plain.write_bytes(data.replace(b"vermilion", b"vermillon"))
    assert "its CRC-64 is wrong" in refused(run, stopped, plain)
    plain.write_bytes(data)
    assert run("restore", plain, "--url", stopped.url, "--data-dir", stopped.folder).exit_code == 0


def test_a_file_that_is_not_a_backup_is_refused(stopped: Server, backup: Path, run: Rl) -> None:
    other = backup.with_name("notes.txt")
    other.write_text("These are not the tasks that you are looking for.")
    assert "or restore another file named relier-redis-….rdb.gz" in refused(run, stopped, other)
    packed = backup.with_name("notes.gz")
    packed.write_bytes(gzip.compress(other.read_bytes()))
    assert "it begins with b'These are'" in refused(run, stopped, packed)
    assert "there is no backup" in refused(run, stopped, backup.with_name("none.rdb.gz"))
    assert "there are no backups in" in refused(run, stopped, stopped.folder)


def test_a_checksum_of_another_backup_is_refused(stopped: Server, backup: Path, run: Rl) -> None:
    checksum_file(backup).write_text(f"{'0' * 64}  {backup.name}\n")
    assert "copy the backup again, or take an older one" in refused(run, stopped, backup)
    checksum_file(backup).write_text("")
    assert "cannot be read" in refused(run, stopped, backup)


def test_a_disk_without_room_is_refused(
    stopped: Server, backup: Path, run: Rl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relier.backup.restore.shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    assert "has 0 MiB of free space" in refused(run, stopped, backup)


def test_the_data_folder_must_be_named(stopped: Server, backup: Path, run: Rl, tmp_path: Path) -> None:
    assert "name it with --data-dir" in run("restore", backup, "--url", stopped.url).stderr
    assert "there is no folder" in run("restore", backup, "--url", stopped.url, "--data-dir", tmp_path / "no").stderr


def test_a_dry_run_changes_nothing(stopped: Server, backup: Path, run: Rl) -> None:
    result = run("restore", backup, "--url", stopped.url, "--data-dir", stopped.folder, "--dry-run")
    assert result.stdout.startswith("Would restore ")
    assert stopped.start().command("GET", "colour") == b"green"


def test_a_backup_in_a_bucket_is_restored(stopped: Server, backup: Path, run: Rl) -> None:
    files = fsspec.filesystem("memory")
    for file in (backup, checksum_file(backup)):
        files.pipe_file(f"/shelf/{file.name}", file.read_bytes())
    arguments = ("--url", stopped.url, "--data-dir", stopped.folder)
    assert "cannot be read" in run("restore", "memory://shelf/none.rdb.gz", *arguments).stderr
    result = run("restore", f"memory://shelf/{backup.name}", *arguments)
    assert result.exit_code == 0, result.output
    assert stopped.start().command("GET", "colour") == b"vermilion"


def test_the_embedded_store_is_refused_while_a_process_uses_it(tmp_path: Path, run: Rl) -> None:
    store = tmp_path / "store"
    client = Client(store)
    assert client.ask("count n 1") == 1
    url = f"embedded://{store}"
    assert run("backup", "--url", url, "--to", tmp_path / "b").exit_code == 0
    assert client.ask("count n 2") == 2
    result = run("restore", tmp_path / "b", "--url", url)
    assert (result.exit_code, "uses" in result.stderr) == (1, True), result.output
    client.end()
    wait_until(lambda: is_free(store / "server.lock"), what="the end of the server")
    result = run("restore", tmp_path / "b", "--url", url)
    assert result.exit_code == 0, result.output
    assert "The next process that uses the store starts its server." in result.stdout
    again = Client(store)
    assert again.ask("count n 3") == 2
    again.end()


def test_an_embedded_store_without_proc_is_protected_by_its_locks(
    tmp_path: Path, run: Rl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "PROCESSES", tmp_path / "none")
    monkeypatch.setattr(folders, "PATIENCE", 0.1)
    client = Client(tmp_path / "store")
    assert client.ask("count n 1") == 1
    url = f"embedded://{tmp_path}/store"
    assert run("backup", "--url", url, "--to", tmp_path / "b").exit_code == 0
    assert "is in use; stop the workers" in " ".join(run("restore", tmp_path / "b", "--url", url).stderr.split())
    client.end()
