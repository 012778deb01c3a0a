"""Durability: requested by a task or a push, shown in the receipt, applied to the commit, and refused if it cannot be
kept."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from click.testing import CliRunner

from relier import ConfigurationError, Durability, PushIndeterminate, Settings, TaskContext, TaskState, rl_task
from relier.cli.main import rl
from relier.states import State
from tests.support.crew import QUICK, Crew, environment, until
from tests.support.servers import Boot, Server, wait_until

pytestmark = pytest.mark.anyio
MEMORY, FSYNC, REPLICATED = Durability.MEMORY, Durability.FSYNC, Durability.REPLICATED


@rl_task
async def plain() -> int:
    return 1


@rl_task(durability="fsync")
async def synced() -> int:
    return 2


@rl_task(durability="fsync")
async def keeps(ctx: TaskContext) -> int:
    await ctx.set_partial(1)
    await ctx.step("a", lambda: 1)
    return 3


# --- who says it -------------------------------------------------------------------------------------------------


async def test_the_push_then_the_task_then_the_setting_decides(crew: Crew) -> None:
    assert [plain.push().durability, synced.push().durability] == [MEMORY, FSYNC]
    assert (await plain.with_options(durability="fsync").apush()).durability is FSYNC
    assert synced.with_options(durability=MEMORY).push().durability is MEMORY
    assert [receipt.durability for receipt in synced.push_many([(), ()])] == [FSYNC, FSYNC]
    crew.with_settings(durability="fsync")
    receipts = [plain.push(), plain.with_options(durability="memory").push()]
    assert [receipt.durability for receipt in receipts] == [FSYNC, MEMORY]
    assert [crew.get(receipt.id).record.spec.durability for receipt in receipts] == [FSYNC, MEMORY]


@pytest.mark.parametrize("level", ["disk", "", 5, None.__class__])
async def test_an_unknown_durability_is_refused(level: Any) -> None:
    with pytest.raises(ConfigurationError, match="durability must be one of memory, fsync, replicated"):
        plain.with_options(durability=level)
    with pytest.raises(ConfigurationError, match="durability must be one of memory, fsync, replicated"):
        rl_task(durability=level)(lambda: None)


async def test_a_commit_is_at_the_level_of_the_push(crew: Crew, server: Server) -> None:
    async with crew.working():
        assert await (await plain.apush()).result(10) == 1  # the first call probes the store's capabilities
        before = server.calls_of("waitaof")
        assert await (await plain.apush()).result(10) == 1
        assert server.calls_of("waitaof") == before
        assert await (await synced.apush()).result(10) == 2
        await until(lambda: server.calls_of("waitaof") == before + 2, what="the push and the commit")
        assert await (await plain.with_options(durability="fsync").apush()).result(10) == 1
        await until(lambda: server.calls_of("waitaof") == before + 4, what="the other push and its commit")
    await synced.apush()
    assert server.calls_of("waitaof") == before + 5, "a push alone"


async def test_steps_and_checkpoints_are_at_the_level_of_the_push(crew: Crew, server: Server) -> None:
    async with crew.working():
        assert await (await keeps.apush()).result(10) == 3  # load the scripts into the server
        before = server.calls_of("waitaof")
        assert await (await keeps.apush()).result(10) == 3
        await until(lambda: server.calls_of("waitaof") == before + 4, what="push, checkpoint, step, commit")


# --- replicas ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def pair(boot: Boot, settings: Settings) -> AsyncIterator[tuple[Crew, Server, Server]]:
    """A master with one replica, and `replicated` as the default durability."""
    master = boot()
    replica = boot(config={"replicaof": f"127.0.0.1 {master.port}"})
    wait_until(lambda: replica.info("replication")["master_link_status"] == "up")
    wait_until(lambda: "state=online" in master.info("replication").get("slave0", ""))
    own = {"redis_url": master.url, "redis_replicas": 1, "durability": "replicated", "redis_durability_timeout": 1.0}
    crew = Crew(settings.replace(**QUICK | own))
    yield crew, master, replica
    await crew.aclose()


async def test_an_accepted_task_is_on_the_replica(pair: tuple[Crew, Server, Server]) -> None:
    crew, _, replica = pair
    receipt = await plain.apush()
    assert receipt.durability is REPLICATED
    assert replica.command("EXISTS", f"{crew.ledger.prefix}t:{receipt.id}") == 1


async def test_an_unconfirmed_push_is_reported_and_may_be_repeated(pair: tuple[Crew, Server, Server]) -> None:
    crew, _, replica = pair
    await plain.apush()
    replica.freeze()
    with pytest.raises(PushIndeterminate) as caught:
        await plain.apush()
    task_id = caught.value.task_id
    assert task_id in str(caught.value)
    with pytest.raises(PushIndeterminate):
        await plain.with_options(task_id=task_id).apush()
    replica.thaw()
    receipt = await plain.with_options(task_id=task_id).apush()
    assert receipt.id == task_id
    assert crew.count("submitted") == 2, "the same id never makes a second task"


async def test_a_commit_is_repeated_until_the_replica_has_it(pair: tuple[Crew, Server, Server]) -> None:
    crew, master, replica = pair
    receipt = await plain.apush()
    weak = await plain.with_options(durability="memory").apush()
    replica.freeze()
    async with crew.working() as worker:
        await until(lambda: crew.get(weak.id).record.state is State.DONE)
        await until(
            lambda: len(worker.settler.unsettled) == 1 and master.calls_of("wait") > 3, what="a commit told again"
        )
        assert [lease.task_id for lease in worker.settler.unsettled.values()] == [receipt.id]
        replica.thaw()
        await until(lambda: not worker.settler.unsettled, what="the confirmation")
    assert await receipt.state() is TaskState.DONE
    assert crew.count("done") == 2


# --- the doctor --------------------------------------------------------------------------------------------------


def doctor(settings: Settings, *modules: str, code: int, **env: str) -> list[dict[str, str]]:
    """Return what `rl doctor` says about durability."""
    asked = CliRunner(env=environment(settings) | env).invoke(rl, ["doctor", *modules, "--json"])
    assert asked.exit_code == code, asked.output
    return [check for check in json.loads(asked.stdout)["checks"] if check["check"] == "durability"]


async def test_the_doctor_refuses_replicated_if_it_cannot_be_confirmed(
    pair: tuple[Crew, Server, Server], boot: Boot
) -> None:
    crew, master, _ = pair
    own = crew.client.settings
    level = {"RELIER_DURABILITY": "replicated"}
    (fine,) = doctor(own, code=0, **level, RELIER_REDIS_REPLICAS="1")
    assert (fine["level"], fine["says"]) == ("ok", "Durability is replicated; 1 replica connected.")
    (unknown,) = doctor(own, code=1, **level)
    assert "the number of replicas that could be promoted is unknown: every push would be refused" in unknown["says"]
    (none,) = doctor(own, code=1, **level, RELIER_REDIS_REPLICAS="0")
    assert "the number of replicas is 0" in none["says"]
    (gone,) = doctor(own, code=1, **level, RELIER_REDIS_REPLICAS="2")
    assert "1 replica is connected, not 2" in gone["says"]
    boot(config={"replicaof": f"127.0.0.1 {master.port}"})
    wait_until(lambda: "state=online" in master.info("replication").get("slave1", ""))
    (uncounted,) = doctor(own, code=1, **level, RELIER_REDIS_REPLICAS="1")
    assert "2 replicas are connected and only 1 must confirm" in uncounted["says"]
    assert "RELIER_REDIS_REPLICAS to 2" in uncounted["advice"]


async def test_the_doctor_asks_sentinel_for_the_number_of_replicas(boot: Boot, settings: Settings) -> None:
    master = boot()
    boot(config={"replicaof": f"127.0.0.1 {master.port}"})
    wait_until(lambda: "state=online" in master.info("replication").get("slave0", ""))
    sentinel = boot(sentinel=f"sentinel monitor main 127.0.0.1 {master.port} 1\n")
    wait_until(lambda: b"num-slaves" in (words := sentinel.command("SENTINEL", "MASTER", "main"))
               and words[words.index(b"num-slaves") + 1] == b"1")  # fmt: skip
    own = settings.replace(redis_url=f"sentinel://127.0.0.1:{sentinel.port}/main")
    (fine,) = doctor(own, code=0, RELIER_DURABILITY="replicated")
    assert fine["level"] == "ok"


async def test_the_doctor_checks_the_durability_of_tasks(server: Server, settings: Settings) -> None:
    command = [sys.executable, "-m", "relier.cli", "doctor", "tests.support.jobs.durability_levels", "--json"]
    asked = await asyncio.to_thread(
        subprocess.run, command, env=environment(settings), capture_output=True, text=True, timeout=60
    )
    told = [check for check in json.loads(asked.stdout)["checks"] if check["check"] == "durability"]
    assert [check["level"] for check in told] == ["ok", "ok", "bad"]
    assert asked.returncode == 1
    assert told[2]["says"].startswith(
        "Task tests.support.jobs.durability_levels.everywhere asks for replicated, but the number of replicas"
    )
    wrong = CliRunner(env=environment(settings)).invoke(rl, ["doctor", "tests.support.jobs.nowhere"])
    assert wrong.exit_code == 1
    assert "cannot be imported" in wrong.output


async def test_the_doctor_refuses_fsync_without_an_aof(boot: Boot, settings: Settings) -> None:
    server = boot(config={"appendonly": "no"})
    own = settings.replace(redis_url=server.url)
    (told,) = doctor(own, code=1, RELIER_DURABILITY="fsync")
    assert "this server cannot confirm it: every push would fail" in told["says"]


@pytest.mark.parametrize(("place", "level"), [("{tmp}", "ok"), ("/proc/1/nowhere", "bad"), ("nosuch://x", "bad")])
async def test_the_doctor_tries_the_place_for_checkpoints(
    settings: Settings, tmp_path: Any, place: str, level: str
) -> None:
    env = environment(settings, RELIER_CHECKPOINT_DIR=place.format(tmp=tmp_path))
    told = json.loads(CliRunner(env=env).invoke(rl, ["doctor", "--json"]).stdout)
    (check,) = [check for check in told["checks"] if check["check"] == "checkpoints"]
    assert check["level"] == level
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "it leaves nothing behind"
