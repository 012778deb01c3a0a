"""rl doctor: what is fine, what needs attention, what is wrong, and what to do."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from relier.cli.doctor import ledger_checks, server_checks, settings_checks
from relier.cli.doctor.check_result import CheckResult, ok
from relier.cli.main import rl
from relier.cli.node_view import WorkerView
from relier.cli.session import Session
from relier.ledger.nodes import NodeStats
from relier.ledger.stats import QueueStats, Stats
from relier.settings import Settings
from relier.store.connect.probe import Capabilities
from tests.support.cli_desk import Desk, Run, RunJson
from tests.support.servers import Boot

SOUND = Capabilities(True, True, True, True, True, "master", True, "everysec", False, "noeviction")


def levels(answer: Mapping[str, list[dict[str, str]]]) -> dict[str, str]:
    """Return check -> its worst level."""
    order = ("ok", "warn", "bad")
    found: dict[str, str] = {}
    for check in answer["checks"]:
        found[check["check"]] = max(found.get(check["check"], "ok"), check["level"], key=order.index)
    return found


def only(verdicts: list[CheckResult], level: str) -> list[str]:
    return [verdict.says for verdict in verdicts if verdict.level == level]


# --- the whole ---------------------------------------------------------------------------------------------------


def test_all_is_well(desk: Desk, run: Run, run_json: RunJson) -> None:
    desk.start()
    answer = run_json("doctor")
    assert answer["ok"] is True
    assert levels(answer) == dict.fromkeys(
        ["settings", "store", "reach", "server", "persistence", "durability", "memory", "clock", "namespace", "workers",
         "queues", "schedule", "dead letters"], "ok",
    )  # fmt: skip
    assert all(check.keys() == {"check", "level", "says", "advice"} for check in answer["checks"])
    result = run("doctor")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[-1] == "No problems found."
    assert all(line.startswith("✓ ") for line in lines[:-1])
    assert "1 worker alive, running 1 task in 4 slots." in result.stdout
    assert f"✓ The store is namespace '{desk.settings.namespace}' at {desk.settings.redis_url}.\n" in result.stdout


def test_every_problem_comes_with_advice(desk: Desk, run: Run, run_json: RunJson) -> None:
    desk.dead()
    desk.push(queue="mail")
    desk.push(queue="slow")
    run("queues", "pause", "slow")
    desk.command("HINCRBY", desk.key("counts"), "strays", 1)
    answer = run_json("doctor", code=1)
    assert answer["ok"] is False
    found = levels(answer)
    assert (found["queues"], found["dead letters"], found["records"]) == ("bad", "warn", "warn")
    assert all(check["advice"] for check in answer["checks"] if check["level"] != "ok")
    result = run("doctor")
    assert result.exit_code == 1
    assert "✗ 1 task waits in queue 'mail', and no worker serves it." in result.stdout
    assert "    Start a worker for that queue." in result.stdout
    assert "! Queue 'slow' is paused; 1 task waits in it." in result.stdout
    assert "`rl celery drain` pause queues. To continue: `rl queues resume slow`." in result.stdout
    assert "! 1 dead letter.\n    List them with `rl dlq`" in result.stdout


def test_a_missing_worker_is_reported(desk: Desk, run_json: RunJson) -> None:
    desk.run(desk.ledger.retire(desk.boot))
    assert levels(run_json("doctor"))["workers"] == "warn"
    desk.push()
    assert levels(run_json("doctor", code=1))["workers"] == "bad"


def test_a_late_schedule_is_reported(desk: Desk, run_json: RunJson) -> None:
    task = desk.push(delay_ms=3_600_000)
    assert levels(run_json("doctor"))["schedule"] == "ok"
    desk.command("ZADD", desk.key("due"), 1, task)
    assert levels(run_json("doctor", code=1))["schedule"] == "bad"


def test_an_empty_namespace_is_reported_and_stays_empty(
    run_json: RunJson, settings: Settings, sync_store: object
) -> None:
    assert levels(run_json("doctor"))["namespace"] == "warn"
    assert sync_store.command("KEYS", f"*{{{settings.namespace}}}*") == []  # type: ignore[attr-defined]


def test_another_layout_is_reported(desk: Desk, run_json: RunJson) -> None:
    desk.command("HSET", desk.key("meta"), "layout", "99")
    found = levels(run_json("doctor", code=1))
    assert found["namespace"] == "bad"
    assert "workers" not in found


def test_an_unreachable_store_is_reported() -> None:
    env = {"RELIER_REDIS_DEADLINE": "0.2"}
    how = ["doctor", "--url", "redis://user:secret@127.0.0.1:1"]
    result = CliRunner().invoke(rl, how, env=env)
    assert result.exit_code == 3
    assert "✗ The store at redis://***@127.0.0.1:1 gave no answer" in result.stdout
    assert "    Check that it is running and that RELIER_REDIS_URL points to it" in result.stdout
    assert "secret" not in result.output
    answer = json.loads(CliRunner().invoke(rl, [*how, "--json"], env=env).stdout)
    assert (answer["ok"], answer["checks"][-1]["check"]) == (False, "reach")


def test_invalid_settings_are_reported() -> None:
    result = CliRunner().invoke(rl, ["doctor"], env={"RELIER_REDIS_POOL_SIZE": "none"})
    assert result.exit_code == 1
    assert result.stdout.startswith("✗ Invalid settings: RELIER_REDIS_POOL_SIZE: ")


@pytest.mark.parametrize(
    ("args", "env", "correct"),
    [
        (["--url", "http://foo"], {}, "--url"),
        ([], {"RELIER_REDIS_URL": "http://foo"}, "RELIER_REDIS_URL"),
    ],
)
def test_an_unusable_url_is_reported(args: list[str], env: dict[str, str], correct: str) -> None:
    result = CliRunner().invoke(rl, ["doctor", *args], env=env)
    assert result.exit_code == 1
    assert result.stdout.startswith("✗ The store URL 'http://foo' cannot be used: ")
    assert f"    Correct {correct}.\n" in result.stdout


def test_servers_that_lose_tasks_are_reported(boot: Boot) -> None:
    server = boot(config={"appendonly": "no", "maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"})
    result = CliRunner().invoke(rl, ["doctor", "--url", server.tcp_url])
    assert result.exit_code == 1
    assert "✗ The store does not persist to disk: a restart loses every task." in result.stdout
    assert "✗ maxmemory-policy is allkeys-lru: the store deletes tasks when memory runs out." in result.stdout
    assert "of 100.0 MiB" in result.stdout


def test_a_server_that_hides_its_settings_is_accepted(boot: Boot) -> None:
    server = boot()
    rules = ["on", ">pw", "~*", "&*", "+@all", "-info", "-config", "-role"]
    server.command("ACL", "SETUSER", "shy", *rules)
    url = server.tcp_url.replace("redis://", "redis://shy:pw@")
    result = CliRunner().invoke(rl, ["doctor", "--url", url])
    assert result.exit_code == 0, result.output
    assert "The server does not report whether it writes to disk." in result.stdout
    assert "pw@" not in result.stdout


# --- single checks -----------------------------------------------------------------------------------------------


def test_settings_are_shown_with_their_source() -> None:
    env = {"RELIER_REDIS_ULR": "x", "relier_concurrency": "5", "RELIER_XYZZY": "1", "PATH": "/"}
    env["RELIER_OUTBOX_DATABASE_URL"] = "sqlite:///shop.db"  # no setting, but an option of `rl outbox`
    session = Session("redis://user:secret@host/0", "shop")
    verdicts = list(settings_checks.check_settings(session, env))
    assert "redis_url = redis://***@host/0 (--url)" in verdicts[0].says
    assert "namespace = shop (--namespace)" in verdicts[0].says
    assert [(v.says.split()[0], v.advice) for v in verdicts[2:]] == [
        ("RELIER_REDIS_ULR", "Did you mean RELIER_REDIS_URL?"),
        ("RELIER_XYZZY", "Remove it, or correct its name."),
    ]


@pytest.mark.parametrize(
    ("durability", "replicas", "pinned", "changed", "level"),
    [
        ("memory", 0, None, {}, "ok"),
        ("fsync", 0, None, {}, "ok"),
        ("fsync", 0, None, {"waitaof": False}, "bad"),
        ("fsync", 0, None, {"waitaof": False, "appendfsync": "always"}, "ok"),
        ("replicated", 0, None, {}, "bad"),
        ("replicated", 1, 2, {}, "bad"),
        ("replicated", 2, 2, {}, "ok"),
    ],
)
def test_durability_is_compared_with_what_the_server_can_confirm(
    durability: str, replicas: int, pinned: int | None, changed: dict[str, object], level: str
) -> None:
    settings = Settings(durability=durability, redis_replicas=pinned)  # type: ignore[arg-type]
    found = dataclasses.replace(SOUND, **changed)  # type: ignore[arg-type]
    info = {"connected_slaves": str(replicas)}
    assert [v.level for v in server_checks.check_durability(settings, info, found)] == [level]


@pytest.mark.parametrize(
    ("used", "most", "level"), [(10, 0, "ok"), (10, 100, "ok"), (80, 100, "warn"), (95, 100, "bad"), (0, 0, "warn")]
)
def test_memory_use_is_judged(used: int, most: int, level: str) -> None:
    info = {"used_memory": str(used), "maxmemory": str(most)}
    assert [v.level for v in server_checks.check_memory(info, SOUND, Settings())] == [level]


def test_a_failing_disk_is_reported() -> None:
    info = {"aof_last_write_status": "err", "rdb_last_bgsave_status": "ok"}
    assert only(list(server_checks.check_persistence(info, SOUND)), "bad") == ["The last write of the AOF failed."]


def test_a_replica_is_reported() -> None:
    verdicts = list(server_checks.check_server({"redis_version": "7.2.4"}, dataclasses.replace(SOUND, role="slave")))
    assert only(verdicts, "bad") == ["Redis 7.2.4 is a replica."]


def stats_of(*workers: NodeStats, queues: tuple[QueueStats, ...] = ()) -> Stats:
    ended = {"done": 0, "dead": 0, "cancelled": 0}
    return Stats(now_ms=10_000_000, counts={}, queues=queues, scheduled=0, nodes=workers, ended=ended)


def test_lost_workers_are_reported() -> None:
    gone = NodeStats("gone", -5, 3, "{}", 9_000_000, "", 1)
    alive = NodeStats("alive", 4000, 0, "{}", 9_999_000, "", 1)
    for workers, level in (((gone,), "bad"), ((gone, alive), "warn")):
        stats = stats_of(*workers)
        verdicts = list(ledger_checks.check_workers(stats, WorkerView(stats, 5.0)))
        assert "1 worker stopped sending heartbeats, holding 3 tasks." in only(verdicts, level)


@pytest.mark.parametrize(("owned", "told"), [(0, 1), (2, 0)])
def test_a_worker_that_does_not_claim_is_reported(owned: int, told: int) -> None:
    boot = NodeStats("deaf", 4000, owned, '{"concurrency": 2}', 9_999_000, "9000000", 1)
    stats = stats_of(boot)
    says = only(list(ledger_checks.check_workers(stats, WorkerView(stats, 5.0))), "warn")
    assert len(says) == told
    if told:
        assert says[0].startswith(
            "Worker deaf sends heartbeats and has free slots, but has not asked for work for 16 min 40 s"
        )


def test_tasks_that_wait_for_long_are_reported() -> None:
    queue = QueueStats("default", 3, 0, 9_000_000, False, 0)
    stats = stats_of(NodeStats("b", 4000, 0, "{}", 9_999_000, "", 1), queues=(queue,))
    says = only(list(ledger_checks.check_queues(stats, WorkerView(stats, 5.0))), "warn")
    assert says == ["The oldest waiting task was queued 16 min ago (queue 'default')."]


# --- a store that was emptied ------------------------------------------------------------------------------------


def test_an_emptied_store_is_an_error_for_a_day_and_then_a_warning(desk: Desk, run_json: RunJson, run: Run) -> None:
    desk.start()
    desk.run(desk.ledger.open())
    assert "birth" not in levels(run_json("doctor"))
    desk.run(desk.ledger.open("5eed"))
    answer = run_json("doctor", code=1)
    (found,) = [check for check in answer["checks"] if check["check"] == "birth"]
    assert found["level"] == "bad"
    assert found["says"].startswith("The store was emptied or replaced")
    assert "5eed" in found["says"]
    missing = run("why", "no-such-task")
    assert "The store was emptied or replaced, see `rl doctor`" in missing.output
    seconds = int(desk.command("TIME")[0]) - 86_401
    desk.command("HSET", desk.key("meta"), "emptied", f"{seconds * 1000} 5eed")
    assert levels(run_json("doctor"))["birth"] == "warn"


@pytest.mark.parametrize(
    ("refuse", "says"),
    [
        (["CONFIG", "SET", "min-replicas-to-write", "1"], "NOREPLICAS"),
        (["CLIENT", "PAUSE", "60000", "WRITE"], "gave no answer"),
    ],
)
def test_a_store_that_answers_but_takes_no_writes(boot: Boot, refuse: list[str], says: str) -> None:
    """Workers and pushes wait. A doctor that only reads would find nothing wrong."""
    server = boot()
    server.command(*refuse)
    run = CliRunner(env={"RELIER_REDIS_DEADLINE": "0.5"})
    result = run.invoke(rl, ["doctor", "--json", "--url", server.url])
    assert result.exit_code != 0
    (wrong,) = [check for check in json.loads(result.stdout)["checks"] if check["level"] == "bad"]
    assert says in wrong["says"]
    assert wrong["advice"]


def test_a_user_who_may_write_only_in_scripts_is_fine(boot: Boot) -> None:
    server = boot()
    server.command("ACL", "SETUSER", "default", "-del")
    result = CliRunner().invoke(rl, ["doctor", "--url", server.url])
    assert "✗" not in result.stdout, result.stdout


def test_a_default_store_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the default, a producer and a worker in different folders use different stores."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    place = f"The store is namespace 'default' at embedded://{tmp_path}/.relier"
    told = list(settings_checks.check_settings(Session(), {}))[1]
    assert told == ok("store", f"{place}, the default because RELIER_REDIS_URL is not set.")
    told = list(settings_checks.check_settings(Session("embedded://"), {}))[1]
    assert told == ok("store", f"{place}.")


# --- what production should not have -------------------------------------------------------------------------------


def test_an_aof_that_is_never_synced_is_a_warning() -> None:
    never = dataclasses.replace(SOUND, appendfsync="no")
    (found,) = server_checks.check_persistence({}, never)
    assert (found.level, "up to half a minute of work" in found.says) == ("warn", True)
    assert "appendfsync everysec" in found.advice


@pytest.mark.parametrize(
    ("info", "says"),
    [
        ({"used_memory": "900", "total_system_memory": "1000"}, "without memory, the system kills the store"),
        ({"used_memory": "10", "maxmemory": "500"}, "the store is full before that limit refuses a push"),
    ],
)
def test_memory_limits_that_do_not_protect_are_reported(info: dict[str, str], says: str) -> None:
    found = list(server_checks.check_memory(info, SOUND, Settings(admission_max_bytes=1000)))
    assert [says in one.says for one in found if one.level == "warn"] == [True]


def test_an_unverified_certificate_is_reported() -> None:
    trusting = Settings(redis_url="rediss://host:6380/0?ssl_cert_reqs=none")
    (found,) = settings_checks.check_tls(trusting)
    assert "(ssl_cert_reqs=none)" in found.says
    assert not list(settings_checks.check_tls(Settings(redis_url="rediss://host:6380/0")))


def test_a_worker_whose_clock_is_ahead_is_reported() -> None:
    ahead = NodeStats("ahead", 4000, 0, '{"host": "a"}', 9_999_000, "10009000", 1)
    right = NodeStats("right", 4000, 0, '{"host": "b"}', 9_999_000, "9998000", 1)
    found = list(ledger_checks.check_worker_clocks(WorkerView(stats_of(ahead, right), 5)))
    assert [one.says for one in found] == [
        "The clock of worker ahead on a is at least 10 s ahead of the store's clock."
    ]


def test_an_embedded_store_that_has_served_for_a_day_is_reported() -> None:
    now = 200_000_000
    worker = NodeStats("w", 4000, 0, "{}", now, "", now - 100_000_000)
    stats = msgspec.structs.replace(stats_of(worker), now_ms=now)
    view = WorkerView(stats, 5)
    (found,) = ledger_checks.check_embedded(Settings(redis_url="embedded://"), stats, view)
    assert found.level == "warn"
    assert not list(ledger_checks.check_embedded(Settings(redis_url="redis://host"), stats, view))


def test_a_real_server_with_all_of_that(boot: Boot, settings: Settings) -> None:
    """What the checks above judge reaches the command."""
    server = boot(config={"appendfsync": "no", "maxmemory": "8mb"})
    told = CliRunner().invoke(
        rl,
        ["--url", server.tcp_url, "--namespace", settings.namespace, "--json", "doctor"],
        env={"RELIER_ADMISSION_MAX_BYTES": "16000000"},
    )
    says = {check["check"]: check["says"] for check in json.loads(told.output)["checks"] if check["level"] == "warn"}
    assert "up to half a minute of work" in says["persistence"]
    assert "the store is full before that limit refuses a push" in says["memory"]
