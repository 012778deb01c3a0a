"""scripts/redis/users.acl: exactly the commands that Relier uses, and everything works with them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from relier import Client, ScheduleNotFoundError, Schedules, batch, chain, idempotency_lock
from relier.cli.main import rl
from relier.settings import Settings
from relier.states import State
from tests.support import ROOT
from tests.support.fleet import Fleet
from tests.support.jobs import common
from tests.support.jobs import guarded as guarded_jobs
from tests.support.servers import Boot, Server, wait_until

MODULES = ("tests.support.jobs.common", "tests.support.jobs.guarded")
ACL = ROOT / "scripts" / "redis" / "users.acl"
SOURCE = ROOT / "src" / "relier"
# What Python sends, beside the scripts: src/relier/store and the reads of `rl`.
WIRE = {
    "auth",
    "blpop",
    "config",
    "dbsize",
    "del",
    "eval",
    "evalsha",
    "exists",
    "hget",
    "hgetall",
    "hexists",
    "hkeys",
    "hscan",
    "info",
    "mget",
    "ping",
    "role",
    "scan",
    "script",
    "select",
    "smembers",
    "time",
    "type",
    "wait",
    "waitaof",
    "xlen",
    "xread",
    "zrange",
    "zrank",
    "zscan",
    "zscore",
}


def users() -> dict[str, list[str]]:
    return {line.split()[1]: line.split()[2:] for line in ACL.read_text().splitlines()}


def allowed(user: str) -> set[str]:
    return {word[1:].partition("|")[0] for word in users()[user] if word.startswith("+")}


def test_the_user_relier_may_do_what_the_code_does_and_no_more(server: Server) -> None:
    known = {name.decode() for name in server.command("COMMAND", "LIST")}
    quoted = {word.lower() for path in SOURCE.rglob("*.lua") for word in re.findall(r"'([A-Z]+)'", path.read_text())}
    assert allowed("relier") == (quoted & known) | WIRE
    python = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    assert [name for name in WIRE if f'"{name.upper()}"' not in python] == []


def test_nobody_is_allowed_a_category_or_everything() -> None:
    for user, words in users().items():
        assert "-@all" in words, user
        assert not {word for word in words if word.startswith("+@") or word in {"allcommands", "allkeys", "nopass"}}
    assert users()["default"][0] == "off"


@pytest.fixture
def guarded(boot: Boot) -> Server:
    """A server with this ACL file."""
    server = boot(start=False)
    (server.folder / "users.acl").write_text(f"{ACL.read_text()}user watcher on >pw -@all +acl|log +auth\n")
    server._config["aclfile"] = str(server.folder / "users.acl")
    return server.start()


def url_of(server: Server, user: str) -> str:
    return f"redis://{user}:change-me-{user.removeprefix('relier-')}@127.0.0.1:{server.port}"


def denied(server: Server) -> list[str]:
    """Return what the server refused since it started: user, reason and command."""
    with server.connection() as run:
        assert run("AUTH", "watcher", "pw") == b"OK"
        rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in run("ACL", "LOG", 100)]
    return [f"{row[b'username'].decode()} {row[b'reason'].decode()} {row[b'object'].decode()}" for row in rows]


@pytest.fixture
def fleet(guarded: Server, tmp_path: Path) -> Iterator[Fleet]:
    settings = Settings(redis_url=url_of(guarded, "relier"), namespace="acl", heartbeat_ttl=1.0)
    made = Fleet(settings, tmp_path / "fleet")
    yield made
    made.close()


def test_everything_works_for_the_user_relier(guarded: Server, fleet: Fleet) -> None:
    """Pushes, claims, commits, retries, revivals, schedules, workflows, limits, locks, events, and the commands."""
    reader = fleet.start("events", "--follow", "--json")
    doomed = fleet.worker(modules=MODULES)
    held = common.hold.push("later").id
    fleet.wait_diary("begin", 1)
    doomed.kill_all()
    fleet.open_gate("later")
    fleet.worker("--processes", "2", modules=MODULES)
    fleet.start("scheduler")
    done = [receipt.id for receipt in guarded_jobs.limited.push_many([(n % 2,) for n in range(6)])]
    done += [
        guarded_jobs.everything.push(7).id,
        common.quick.with_options(delay=0.2, durability="fsync").push().id,
        held,
    ]
    flow = batch([common.quick.s(), chain(common.quick.s(), common.echo.si(3))], then=common.echo.si(4)).push()
    with idempotency_lock("once", ttl=60) as lock:
        lock.set_result(1)
    dead = guarded_jobs.fails.push().id
    assert fleet.wait_ended([dead])[0].record.state == State.DEAD
    run_now = wait_until(lambda: run_of_schedule(), what="the schedule")
    cancelled = common.quick.with_options(delay=3600).push()
    cancelled.cancel()
    fleet.wait_done([*done, run_now])
    flow.result(timeout=30)
    asked = [(command, fleet.start(*command)) for command in commands(dead)]
    for command, said in asked:
        assert said.wait() in {0, 1}, (command, said.said(), denied(guarded))
        assert "NOPERM" not in said.said(), said.said()
    assert "ValueError" in fleet.start("dlq", "show", dead).wait_said("ValueError")
    reader.wait_said("dead")
    refused = [line for line in denied(guarded) if not line.endswith(" httl")]
    assert refused == [], "a command of ours is missing in users.acl"


def run_of_schedule() -> str:
    try:
        return Schedules().run_now("tests.support.jobs.guarded.nightly").id
    except ScheduleNotFoundError:  # the worker has not declared it yet
        return ""


def commands(dead: str) -> list[list[str]]:
    lines = f"""
        doctor
        audit
        tasks
        tasks --state dead
        why {dead}
        nodes
        workers
        queues
        queues pause other
        queues resume other
        schedules
        batches
        limits
        limits set press --concurrency 2
        admission
        admission reset all
        schema check tests.support.jobs.guarded
        events
        dlq
        dlq replay {dead}
    """
    return [line.split() for line in lines.strip().splitlines()]


def test_the_other_users_can_do_their_part_and_nothing_else(guarded: Server, tmp_path: Path) -> None:
    backups = tmp_path / "b"
    made = CliRunner().invoke(rl, ["backup", "--url", url_of(guarded, "relier-backup"), "--to", str(backups)])
    assert made.exit_code == 0, made.output
    for user in ("relier-backup", "relier-replica", "relier-sentinel"):
        with guarded.connection() as run:
            assert run("AUTH", user, f"change-me-{user.removeprefix('relier-')}") == b"OK"
            assert "NOPERM" in str(run("GET", "rl:{x}:meta"))
            assert "NOPERM" in str(run("FLUSHALL"))
    with guarded.connection() as run:
        run("AUTH", "relier", "change-me-relier")
        for command in (
            ("FLUSHALL",),
            ("KEYS", "*"),
            ("CONFIG", "SET", "save", ""),
            ("GET", "celery"),
            ("ACL", "LIST"),
        ):
            assert "NOPERM" in str(run(*command)), command


def test_replication_backup_and_failover_work_under_the_acl(boot: Boot, guarded: Server, tmp_path: Path) -> None:
    """Replicas, Sentinels and backups have users of their own, which need no more than the file gives them."""
    auth = {"masteruser": "relier-replica", "masterauth": "change-me-replica"}
    replica = boot(
        config={"replicaof": f"127.0.0.1 {guarded.port}", "aclfile": str(guarded.folder / "users.acl")} | auth
    )
    sentinel = boot(
        sentinel=f"sentinel monitor main 127.0.0.1 {guarded.port} 1\nsentinel auth-user main relier-sentinel\n"
        "sentinel auth-pass main change-me-sentinel\nsentinel down-after-milliseconds main 500\n"
    )
    url = f"sentinel://relier:change-me-relier@127.0.0.1:{sentinel.port}/main"

    def known() -> dict[bytes, bytes]:
        words = sentinel.command("SENTINEL", "MASTER", "main")
        return dict(zip(words[::2], words[1::2], strict=True))

    wait_until(lambda: known()[b"num-slaves"] == b"1", what="the replica known to Sentinel")
    with guarded.connection() as run:
        run("AUTH", "relier-backup", "change-me-backup")
        wait_until(lambda: b"state=online" in run("INFO", "replication"), what="the replica in step with its master")
    from_replica = url.replace("relier:change-me-relier", "relier-backup:change-me-backup")
    made = CliRunner().invoke(rl, ["backup", "--url", from_replica, "--to", str(tmp_path / "b"), "--json"])
    assert json.loads(made.stdout)["server"] == f"127.0.0.1:{replica.port}", made.output
    guarded.kill()
    wait_until(lambda: known()[b"port"] == str(replica.port).encode(), 30, "the failover")
    client = Client(Settings(redis_url=url, redis_deadline=20))
    client.open()
    client.close()
