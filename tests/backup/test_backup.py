"""rl backup: complete files with checksums, from a server's disk or by replication, and what to do if it fails."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from relier.backup import snapshot
from relier.backup.archive import backups_in, checksum_file
from relier.backup.rdb import NotAnRdbError, RdbReader
from relier.backup.snapshot import save
from relier.errors import BackupError
from relier.settings import Settings, unknown_variables
from relier.store.connect.one_server import OneServer
from tests.backup.conftest import Rl
from tests.support.servers import Boot, Server, wait_until


def snapshot_in(backup: Path) -> bytes:
    data = gzip.decompress(backup.read_bytes())
    reader = RdbReader(checksum=True)
    reader.feed(data)
    reader.finish()
    return data


def limited(server: Server, rights: str) -> str:
    """Create a user with these rights, and return a URL for it."""
    assert server.command("ACL", "SETUSER", "keeper", "on", ">pw", "~*", *rights.split()) == b"OK"
    return f"redis://keeper:pw@127.0.0.1:{server.port}"


def test_a_backup_is_complete_and_has_a_checksum(boot: Boot, tmp_path: Path, run: Rl) -> None:
    server = boot()
    server.command("SET", "colour", "vermilion")
    result = run("backup", "--url", server.url, "--to", tmp_path / "b", "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    (made,) = backups_in(tmp_path / "b")
    assert (said["path"], said["fetched_by"], said["role"]) == (str(made), "file", "primary")
    assert b"vermilion" in snapshot_in(made)
    assert said["snapshot_bytes"] == len(snapshot_in(made))
    checked = subprocess.run(["sha256sum", "--check", checksum_file(made).name], cwd=made.parent, capture_output=True)
    assert checked.returncode == 0, checked.stderr
    assert made.stat().st_mode & 0o077 == 0, "others cannot read the payloads"
    assert {path.name for path in made.parent.iterdir()} == {made.name, checksum_file(made).name}


def test_the_embedded_store_is_backed_up(tmp_path: Path, run: Rl) -> None:
    result = run("backup", "--url", f"embedded://{tmp_path}/store", "--to", tmp_path / "b")
    assert result.exit_code == 0, result.output
    (made,) = backups_in(tmp_path / "b")
    assert snapshot_in(made)
    assert result.stdout.startswith(f"Wrote {made}: ")


def test_a_file_that_this_host_cannot_read_is_fetched_by_replication(boot: Boot, tmp_path: Path, run: Rl) -> None:
    server = boot()
    server.command("SET", "colour", "vermilion" * 100_000)
    url = limited(server, "+@all -config")
    result = run("backup", "--url", url, "--to", tmp_path)
    assert "so the snapshot was fetched by replication" in result.stdout, result.output
    (made,) = backups_in(tmp_path)
    assert b"vermilion" in snapshot_in(made)


def test_a_file_of_another_server_is_not_taken(
    boot: Boot, tmp_path: Path, run: Rl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's path exists on this host too, but leads to another file: a container has a /data of its own."""
    server = boot()
    server.command("SET", "colour", "vermilion")
    other = tmp_path / "dump.rdb"
    other.write_bytes(b"REDIS0009 of another server")
    monkeypatch.setattr(snapshot, "visible_file", lambda _: snapshot.SnapshotFile(other, snapshot.mark_of(other)))
    said = json.loads(run("backup", "--url", server.url, "--to", tmp_path / "b", "--json").stdout)
    assert said["fetched_by"] == "replication"
    assert b"vermilion" in snapshot_in(Path(said["path"]))


def test_a_server_that_gives_no_snapshot_is_reported(boot: Boot, tmp_path: Path, run: Rl) -> None:
    url = limited(boot(), "+@all -config -sync")
    result = run("backup", "--url", url, "--to", tmp_path)
    assert result.exit_code == 1
    assert "cannot be read from here" in result.stderr
    assert "ACL: +sync" in result.stderr
    assert list(tmp_path.glob("relier-redis-*")) == [], "nothing looks like a backup"


def test_a_snapshot_that_the_server_cannot_write_is_reported(boot: Boot, tmp_path: Path) -> None:
    server = boot(config={"dbfilename": "dump.rdb"})
    (server.folder / "dump.rdb").mkdir()  # the server cannot replace a folder by its file
    with (
        OneServer.master_of(Settings(redis_url=server.url)) as one,
        pytest.raises(BackupError, match=r"BGSAVE failed on .*; free disk space"),
    ):
        save(one)


def test_a_save_that_takes_too_long_is_reported(boot: Boot, tmp_path: Path) -> None:
    server = boot(config={"rdb-key-save-delay": "1000000", "rdbcompression": "no"})
    for n in range(50):
        server.command("SET", f"k{n}", "v")
    with (
        OneServer.master_of(Settings(redis_url=server.url)) as one,
        pytest.raises(BackupError, match="did not finish BGSAVE within 2 s"),
    ):
        save(one, seconds=2)


def test_a_save_that_was_already_running_is_not_taken_for_ours(boot: Boot) -> None:
    """The earlier save holds data from before the second request."""
    server = boot(config={"rdb-key-save-delay": "20000"})
    for n in range(50):
        server.command("SET", f"k{n}", "v")
    server.command("BGSAVE")
    server.command("SET", "late", "vermilion")
    with OneServer.master_of(Settings(redis_url=server.url)) as one:
        save(one)
    assert b"vermilion" in (server.folder / "dump.rdb").read_bytes()


def test_old_backups_are_removed(boot: Boot, tmp_path: Path, run: Rl) -> None:
    server = boot()
    folder = tmp_path / "b"
    folder.mkdir()
    for day in range(1, 6):
        old = folder / f"relier-redis-2026010{day}T000000Z.rdb.gz"
        old.write_bytes(b"old")
        checksum_file(old).write_text("x")
    (folder / "relier-redis-20260101T000000Z.rdb.gz.part").write_text("left by a killed backup")
    (folder / "mine.txt").write_text("not a backup")
    assert "Removed old backups: 4." in run("backup", "--url", server.url, "--to", folder, "--keep", 2).stdout
    kept = backups_in(folder)
    assert kept[0].name[13:21] == "20260105"
    assert {path.name for path in folder.iterdir()} == {
        "mine.txt",
        *(path.name for path in kept),
        *(checksum_file(path).name for path in kept),
    }


def test_a_backup_is_copied_to_a_bucket(boot: Boot, tmp_path: Path, run: Rl, monkeypatch: pytest.MonkeyPatch) -> None:
    server = boot()
    monkeypatch.setenv("BACKUP_S3_BUCKET", "memory://vault/relier")
    monkeypatch.setenv("BACKUP_DIR", str(tmp_path))
    result = run("backup", "--url", server.url)
    assert "Copied it to memory://vault/relier." in result.stdout, result.output
    (made,) = backups_in(tmp_path)
    assert fsspec.filesystem("memory").cat(f"/vault/relier/{made.name}") == made.read_bytes()
    monkeypatch.setenv("BACKUP_S3_BUCKET", "nonsense://vault")
    failed = run("backup", "--url", server.url)
    assert failed.exit_code == 1
    assert "nonsense://vault cannot be used" in failed.stderr


def test_a_folder_that_cannot_be_written_is_reported(boot: Boot, tmp_path: Path, run: Rl) -> None:
    (tmp_path / "file").write_text("")
    result = run("backup", "--url", boot().url, "--to", tmp_path / "file" / "below")
    assert result.exit_code == 1
    assert "name a writable folder with --to or RELIER_BACKUP_DIR" in result.stderr


def test_a_replica_writes_the_snapshot(boot: Boot, tmp_path: Path, run: Rl) -> None:
    master = boot()
    assert "no replica of" in run("backup", "--url", master.tcp_url, "--to", tmp_path, "--replica").stderr
    replica = boot(config={"replicaof": f"127.0.0.1 {master.port}"})
    wait_until(lambda: "state=online" in master.info("replication").get("slave0", ""))
    sentinel = boot(sentinel=f"sentinel monitor main 127.0.0.1 {master.port} 1\n")
    for url, extra in ((f"sentinel://127.0.0.1:{sentinel.port}/main", ()), (master.tcp_url, ("--replica",))):
        said = json.loads(run("backup", "--url", url, "--to", tmp_path, "--json", *extra).stdout)
        assert (said["role"], said["server"]) == ("replica", f"127.0.0.1:{replica.port}")
    assert master.calls_of("bgsave") == 0
    assert replica.calls_of("bgsave") >= 2


def test_backups_repeat_until_stopped_and_survive_an_outage(boot: Boot, tmp_path: Path) -> None:
    server = boot()
    command = [
        sys.executable,
        "-m",
        "relier.cli",
        "backup",
        "--url",
        server.url,
        "--to",
        str(tmp_path),
        "--every",
        "0.1",
    ]
    with (tmp_path / "log").open("w+") as log, subprocess.Popen(command, stderr=log) as process:
        said = lambda: (tmp_path / "log").read_text()  # noqa: E731 - shorter than a function
        wait_until(lambda: said().count("backup written") >= 2, 30, "two backups")
        server.kill()
        wait_until(lambda: "backup failed: " in said(), 30, "a failure in the log")
        server.start()
        before = said().count("backup written")
        wait_until(lambda: said().count("backup written") > before, 30, "a backup after the outage")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert said().rstrip().endswith("backups stopped")


def test_the_variables_of_backups_are_known() -> None:
    names = (
        "RELIER_BACKUP_DIR",
        "RELIER_BACKUP_INTERVAL_SECONDS",
        "RELIER_BACKUP_RETENTION",
        "RELIER_BACKUP_S3_BUCKET",
    )
    assert unknown_variables(dict.fromkeys(names, "1")) == {}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"REDIS00", "it is too short"),
        (b"PK\x03\x04 a zip file", "it begins with"),
        (b"REDIS0011 and then nothing more", "its end is missing"),
        (b"REDIS0011\xff12345678", "its CRC-64 is wrong"),
    ],
)
def test_bytes_that_are_not_a_snapshot_are_refused(data: bytes, why: str) -> None:
    reader = RdbReader(checksum=True)

    def read() -> None:
        for at in range(len(data)):
            reader.feed(data[at : at + 1])
        reader.finish()

    with pytest.raises(NotAnRdbError, match=why):
        read()
