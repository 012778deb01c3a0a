"""scripts/redis: the values that the kit promises, each with its reason, and what the doctor says about weaker ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from relier.cli.doctor.config_checks import STRONG, WEAKER
from relier.cli.main import rl
from tests.support import ROOT
from tests.support.servers import Boot, Server

SCRIPTS = ROOT / "scripts" / "redis"
PROMISED = {
    "appendonly": "yes",
    "appendfilename": "appendonly.aof",
    "appendfsync": "everysec",
    "no-appendfsync-on-rewrite": "no",
    "auto-aof-rewrite-percentage": "100",
    "auto-aof-rewrite-min-size": str(64 * 1024 * 1024),
    "save": "900 1 300 10 60 10000",
    "aof-use-rdb-preamble": "yes",
    "maxmemory-policy": "noeviction",
}
WATCHED = {
    b"name": b"relier-master",
    b"quorum": b"2",
    b"down-after-milliseconds": b"5000",
    b"failover-timeout": b"15000",
    b"parallel-syncs": b"1",
}


def with_file(boot: Boot, tmp_path: Path, *extra: str) -> Server:
    """Start a server with redis.conf, except for its port and its folder."""
    server = boot(start=False)
    text = (SCRIPTS / "redis.conf").read_text().replace("dir /data", f"dir {server.folder}")
    file = tmp_path / "redis.conf"
    file.write_text(
        text + "".join(f"{line}\n" for line in (f"port {server.port}", f"unixsocket {server.path}", *extra))
    )
    server._command = lambda: [str(server._binary), str(file)]  # type: ignore[method-assign]
    return server.start()


def doctor(server: Server) -> str:
    return CliRunner().invoke(rl, ["--url", server.url, "doctor"]).stdout


def test_a_server_with_this_file_keeps_our_promises(boot: Boot, tmp_path: Path) -> None:
    server = with_file(boot, tmp_path)
    found = {name: server.command("CONFIG", "GET", name)[1].decode() for name in PROMISED}
    assert found == PROMISED
    said = doctor(server)
    assert [
        line for line in said.splitlines() if line.startswith(("!", "✗")) and " is " in line and "AOF" in line
    ] == []
    assert "The AOF is on (appendfsync everysec)" in said


@pytest.mark.parametrize(("name", "weak", "cost"), WEAKER)
def test_the_doctor_warns_of_a_weaker_server(boot: Boot, tmp_path: Path, name: str, weak: str, cost: str) -> None:
    server = with_file(boot, tmp_path, f"{name} {weak}")
    said = doctor(server)
    assert f"! {name} is {weak}: {cost}." in said
    assert f"CONFIG SET {name} {STRONG[name]}" in said


def test_the_doctor_recommends_the_values_of_the_file() -> None:
    lines = (SCRIPTS / "redis.conf").read_text().splitlines()
    assert [f"{name} {value}" for name, value in STRONG.items() if f"{name} {value}" not in lines] == []


def test_a_sentinel_starts_with_this_file(boot: Boot, tmp_path: Path) -> None:
    master = boot()
    sentinel = boot(start=False)
    text = (SCRIPTS / "sentinel.conf").read_text()
    file = tmp_path / "sentinel.conf"
    named = text.replace("relier-redis-master 6379", f"localhost {master.port}")
    file.write_text(named.replace("port 26379", f"port {sentinel.port}"))
    sentinel._command = lambda: [str(sentinel._binary), str(file), "--sentinel"]  # type: ignore[method-assign]
    sentinel.start()
    words = sentinel.command("SENTINEL", "MASTER", "relier-master")
    about = dict(zip(words[::2], words[1::2], strict=True))
    assert {name: about[name] for name in WATCHED} == WATCHED
    assert about[b"ip"] == b"localhost", "clients are told names"


@pytest.mark.parametrize("name", ["redis.conf", "sentinel.conf"])
def test_values_have_their_reasons(name: str) -> None:
    """Every group of settings has a comment before it: at most four lines without one."""
    bare = 0
    for line in (SCRIPTS / name).read_text().splitlines():
        bare = 0 if line.startswith("#") or not line else bare + 1
        assert bare <= 4, line
