"""`rl` in a namespace with shards: ids find their shards, lists show all of them, and the number can be changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from relier.cli.main import rl
from relier.ledger.records import Submission
from relier.schedules.api import Schedules
from relier.settings import Settings
from relier.settings.shards import shard_of
from relier.submit.client import Client, use_client
from tests.support.cli_desk import body
from tests.support.jobs import sharded as jobs
from tests.support.servers import Boot, Server, wait_until

Run = Callable[..., Result]


def run_with(settings: Settings, *args: str) -> Result:
    options = ["--url", settings.redis_url, "--namespace", settings.namespace]
    return CliRunner(env={"RELIER_SHARDS": str(settings.shards)}).invoke(rl, [*options, *args])


@pytest.fixture
def run(sharded: Settings) -> Run:
    return lambda *args: run_with(sharded, *args)


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_a_command_finds_the_shard_of_an_id(client: Client, run: Run) -> None:
    ids = [jobs.add.push(n).id for n in range(6)]
    for each in ids:
        assert document(run("tasks", "inspect", each, "--json"))["id"] == each
    for each in (ids[0], ids[-1]):
        beginning = next(each[:n] for n in range(12, 33) if sum(other.startswith(each[:n]) for other in ids) == 1)
        assert document(run("tasks", "inspect", beginning, "--json"))["id"] == each
        assert "It waits: " in run("why", beginning).output
    missing = run("why", "0" * 32)
    assert missing.exit_code == 1
    cancelled = run("tasks", "cancel", *ids)
    assert cancelled.exit_code == 0
    assert cancelled.output.count("cancelled.") == 6


def test_lists_show_every_shard(client: Client, run: Run) -> None:
    jobs.add.push_many([(n,) for n in range(80)])
    shown = document(run("queues", "--json"))["shards"]
    assert [each["shard"] for each in shown] == [0, 1, 2, 3]
    assert sum(queue["ready"] for each in shown for queue in each["queues"]) == 80
    listed = run("queues")
    assert listed.output.count("Shard ") == 4
    pages = run("tasks", "--limit", "2").output
    assert pages.count("repeat the command with --shard 2 before its name, and --cursor ") == 1
    cursor = pages.rpartition("--shard 3 before its name, and --cursor ")[2].split()[0]
    assert run("--shard", "3", "tasks", "--limit", "2", "--cursor", cursor).exit_code == 0
    assert "--cursor is for one shard" in run("tasks", "--cursor", cursor).output
    one = document(run("--shard", "2", "queues", "--json"))
    assert one["queues"] == shown[2]["queues"]
    wrong = run("--shard", "4", "queues")
    assert (wrong.exit_code, "there is no such shard, because RELIER_SHARDS is 4" in wrong.output) == (2, True)


def test_orders_go_to_every_shard(client: Client, run: Run) -> None:
    jobs.per_tenant.push(1)
    assert run("queues", "pause", "default").exit_code == 0
    paused = document(run("queues", "--json"))["shards"]
    assert all(queue["paused"] for each in paused for queue in each["queues"])
    unknown = run("limits", "set", "tenant:9", "--concurrency", "5")
    assert unknown.exit_code == 1
    assert run("limits", "set", "tenant:1", "--concurrency", "5").output.count("now allows 5 tasks at once") == 4
    home = client.of("tenant:1")
    assert home.sync_store.command("HGET", f"{home.ledger.prefix}limits", "tenant:1").startswith(b"5 ")


def test_schedules_are_found_by_their_names(client: Client, run: Run) -> None:
    for n in range(4):
        Schedules().create(f"every-{n}", jobs.add, every=60, args=(1,))
    assert run("schedules", "pause", "every-2").exit_code == 0
    assert Schedules().get("every-2").state == "paused"
    assert run("schedules").output.count("every-") == 4


def test_events_of_all_shards_are_shown_by_their_time(server: Server, namespace: str) -> None:
    settings = Settings(redis_url=server.url, namespace=namespace, shards=4, events="always")
    client = Client(settings)
    use_client(client)
    try:
        ids = [jobs.add.push(n).id for n in range(12)]
        last = document(run_with(settings, "events", "--json", "--limit", "5"))["events"]
        assert [event["id"] for event in last] == ids[-5:]
        jobs.add.with_options(task_id="order-1").push(1)
        after = document(run_with(settings, "events", "--json", "--since", last[2]["cursor"]))["events"]
        assert [event["id"] for event in after] == [*ids[-2:], "order-1"]
    finally:
        use_client(None)
        client.close()


def test_shards_are_listed_and_checked(client: Client, run: Run, sharded: Settings) -> None:
    jobs.add.push_many([(n,) for n in range(20)])
    found = document(run("shards", "--json"))["shards"]
    assert [each["answers"] for each in found] == [True] * 4
    assert sum(each["queued"] for each in found) == 20
    assert run("shards").output.splitlines()[0].split()[:3] == ["SHARD", "ANSWERS", "WORKERS"]
    assert run("shards", "check").output == "Everything lies in its shard: 4 shards checked.\n"
    wrong = next(f"id-{n}" for n in range(99) if shard_of(f"id-{n}", 4) == 1)
    home = client.shards[2]
    home.run(home.ledger.submit([Submission(id=wrong, name="shop.charge", payload=body())]))
    checked = run("shards", "check")
    assert checked.exit_code == 1
    assert f"task {wrong} lies in shard 2, but belongs to shard 1" in checked.output
    assert "was created under RELIER_SHARDS=4" in run_with(sharded.replace(shards=2), "shards", "check").output


def test_the_number_of_shards_changes_once_the_namespace_is_drained(
    client: Client, run: Run, sharded: Settings
) -> None:
    receipts = jobs.add.push_many([(n,) for n in range(20)])
    Schedules().create("often", jobs.add, every=60, args=(1,))
    refused = run("shards", "change", "2")
    assert refused.exit_code == 1
    assert "the number of shards is still 4" in refused.output
    assert "tasks that have not ended" in refused.output
    assert f"shard {shard_of('often', 4)}: 1 schedule" in refused.output
    for receipt in receipts:
        receipt.cancel()
    Schedules().remove("often")
    assert "would not be found by id" in run("shards", "change", "2").output
    assert "would have 2 shards" in run("shards", "change", "2", "--forget", "--dry-run").output
    assert "now has 2 shards" in run("shards", "change", "2", "--forget").output
    assert run("queues").exit_code == 2  # still with four
    two = sharded.replace(shards=2)
    assert run_with(two, "queues").exit_code == 0
    changed = Client(two)
    for shard in changed.shards:
        shard.open()
    changed.close()
    assert "now has 1 shard." in run_with(two, "shards", "change", "1", "--forget").output
    assert run_with(sharded.replace(shards=1), "queues").exit_code == 0


def test_an_unreachable_shard_is_reported_and_the_others_are_shown(boot: Boot, namespace: str) -> None:
    here, gone = boot(), boot()
    settings = Settings(redis_url=f"{here.url} {gone.url}", namespace=namespace, shards=2)
    client = Client(settings)
    for shard in client.shards:
        shard.open()
    client.close()
    gone.kill()
    found = run_with(settings, "shards", "--json")
    assert found.exit_code == 3
    assert [each["answers"] for each in json.loads(found.stdout)["shards"]] == [True, False]
    listed = run_with(settings, "workers", "--json")
    assert listed.exit_code == 3
    first, second = json.loads(listed.stdout)["shards"]
    assert "workers" in first
    assert "error" in second


def test_the_doctor_warns_if_one_lost_master_would_stop_all_shards(boot: Boot, namespace: str) -> None:
    node = boot(config={"cluster-enabled": "yes"})
    node.command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    wait_until(lambda: b"cluster_state:ok" in node.command("CLUSTER", "INFO"), 30)
    settings = Settings(redis_url=f"redis+cluster://127.0.0.1:{node.port}", namespace=namespace, shards=2)
    places = [each["place"] for each in document(run_with(settings, "shards", "--json"))["shards"]]
    assert places == [f"127.0.0.1:{node.port}"] * 2
    assert run_with(settings, "doctor").output.count("cluster-require-full-coverage is yes") == 2
    node.command("CONFIG", "SET", "cluster-require-full-coverage", "no")
    assert "cluster-require-full-coverage" not in run_with(settings, "doctor").output


def test_what_does_not_support_shards_says_so(run: Run, sharded: Settings) -> None:
    dashboard = run("dashboard", "--port", "0")
    assert (dashboard.exit_code, "rl --shard 0 dashboard" in dashboard.output) == (2, True)
    for arguments in (("scheduler",), ("worker", "tests.support.jobs.sharded")):
        answer = run("--shard", "1", *arguments)
        assert (answer.exit_code, "leave --shard out" in answer.output) == (2, True)
    assert run("config").exit_code == 0
    assert run("events").exit_code == 0
    assert run("doctor").exit_code in {0, 1}
