"""scripts/redis/backup.sh: backups from a container without Python, which `rl restore` reads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relier.backup.archive import backups_in, checksum_file
from tests.backup.conftest import Rl
from tests.support import PYTHONPATH, ROOT
from tests.support.servers import Boot, Server, wait_until

SCRIPT = ROOT / "scripts" / "redis" / "backup.sh"


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """A command that does what redis-cli does for the script."""
    file = tmp_path / "redis-cli"
    file.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.support.redis_cli "$@"\n')
    file.chmod(0o755)
    return file


def environment(server: Server, client: Path, folder: Path, **extra: str) -> dict[str, str]:
    return {
        "PATH": f"{client.parent}:{os.environ['PATH']}",
        "PYTHONPATH": PYTHONPATH,
        "REDIS_HOST": "127.0.0.1",
        "REDIS_PORT": str(server.port),
        "BACKUP_DIR": str(folder),
        "BACKUP_INTERVAL_SECONDS": "0",
        **extra,
    }


def test_the_script_writes_what_restore_reads(boot: Boot, tmp_path: Path, client: Path, run: Rl) -> None:
    server = boot()
    server.command("SET", "colour", "vermilion")
    folder = tmp_path / "b"
    folder.mkdir()
    for day in range(1, 4):
        (folder / f"relier-redis-2026010{day}T000000Z.rdb.gz").write_bytes(b"old")
    asked = environment(server, client, folder, BACKUP_RETENTION="2")
    done = subprocess.run(["sh", str(SCRIPT)], env=asked, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    old, made = backups_in(folder)
    assert old.name == "relier-redis-20260103T000000Z.rdb.gz"
    assert {path.name for path in folder.iterdir()} == {old.name, made.name, checksum_file(made).name}
    server.command("SET", "colour", "green")
    server.stop()
    result = run("restore", folder, "--url", server.url, "--data-dir", server.folder)
    assert result.exit_code == 0, result.output
    assert server.start().command("GET", "colour") == b"vermilion"


def test_the_script_copies_to_a_bucket(boot: Boot, tmp_path: Path, client: Path) -> None:
    aws = client.with_name("aws")
    aws.write_text('#!/bin/sh\necho "$@" >>"$SENT"\n')
    aws.chmod(0o755)
    asked = environment(boot(), client, tmp_path / "b", BACKUP_S3_BUCKET="vault", SENT=str(tmp_path / "sent"))
    subprocess.run(["sh", str(SCRIPT)], env=asked, check=True, capture_output=True, timeout=60)
    (made,) = backups_in(tmp_path / "b")
    sent = (tmp_path / "sent").read_text().splitlines()
    assert [line.split()[-1] for line in sent] == [f"s3://vault/{made.name}.sha256", f"s3://vault/{made.name}"]


def test_the_script_says_why_it_failed(boot: Boot, tmp_path: Path, client: Path) -> None:
    server = boot(config={"requirepass": "pw"})
    for extra, why in (({}, "check the address, the user and the password"), ({"REDISCLI_AUTH": "pw"}, "")):
        asked = environment(server, client, tmp_path / "b", **extra)
        done = subprocess.run(["sh", str(SCRIPT)], env=asked, capture_output=True, text=True, timeout=60)
        assert (done.returncode == 0) == (not why), done.stderr
        assert why in done.stderr


def test_the_script_repeats_until_stopped(boot: Boot, tmp_path: Path, client: Path) -> None:
    asked = environment(boot(), client, tmp_path / "b") | {"BACKUP_INTERVAL_SECONDS": "1"}
    with subprocess.Popen(["sh", str(SCRIPT)], env=asked, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: (tmp_path / "b").is_dir() and len(backups_in(tmp_path / "b")) >= 2, 40, "two backups")
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.skipif(shutil.which("dash") is None, reason="no strict POSIX shell here")
def test_the_script_is_plain_posix_shell() -> None:
    subprocess.run(["dash", "-n", str(SCRIPT)], check=True)
