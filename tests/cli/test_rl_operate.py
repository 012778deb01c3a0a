"""rl workers, rl admission, rl config: the commands with which an operator inspects and changes things."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from relier.cli.main import rl
from relier.ledger.records import Admission, AdmissionLimit, Submission, new_task_id
from relier.settings import Settings
from tests.support.cli_desk import Desk, Run, RunJson
from tests.support.terminals import in_terminal

# --- rl workers --------------------------------------------------------------------------------------------------


def test_workers_are_selected_by_health_queue_and_host(desk: Desk, run: Run, run_json: RunJson) -> None:
    mail = desk.join(host="web2", pid=7, queues=["mail"])
    lost = desk.join(host="web3", queues=["mail"])
    desk.command("ZADD", desk.key("boots"), 0, lost)

    def found(*options: str) -> set[str]:
        return {worker["boot"] for worker in run_json("workers", "status", *options)["workers"]}

    assert found() == {desk.boot, mail, lost}
    assert found("--queue", "mail") == {mail, lost}
    assert found("--queue", "mail", "--health", "alive") == {mail}
    assert found("--host", "web1") == {desk.boot}
    assert run("workers", "--host", "web9").stdout.startswith("No such workers in ")


def test_a_worker_anywhere_is_told_to_stop(desk: Desk, run: Run, run_json: RunJson) -> None:
    worker = desk.join(host="elsewhere", pid=1, queues=["default"])
    assert run("workers", "drain", worker, "--dry-run").stdout == (
        f"{worker} would be told to stop; it runs 0 tasks.\n"
    )
    assert desk.run(desk.ledger.beat(worker, 600_000)).orders is None
    (row,) = run_json("workers", "drain", worker[:-2])["workers"]
    assert (row["worker"], row["outcome"], row["error"]) == (worker, "told to stop", None)
    assert desk.run(desk.ledger.beat(worker, 600_000)).orders.stopping


def test_a_lost_worker_is_not_told_to_stop(desk: Desk, run: Run) -> None:
    worker = desk.join(host="elsewhere", pid=1)
    desk.command("ZADD", desk.key("boots"), 0, worker)
    result = run("workers", "drain", worker)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"rl: {worker} was not drained: it is lost; a sweep returns its tasks")


def test_a_worker_of_a_release_without_orders_is_refused(desk: Desk, run: Run) -> None:
    desk.command("HDEL", desk.key("worker", desk.boot), "role")
    assert "it runs a release that takes no orders" in run("workers", "drain", desk.boot).stderr


def test_a_supervised_worker_is_left_alone(desk: Desk, run: Run) -> None:
    worker = desk.join(host="web7", pid=12, queues=["default"], supervisor=11)
    told = run("workers", "drain", worker).stderr
    assert "its supervisor, process 11, would start it again; drain it, or stop all" in told
    assert "`kill 11` on host web7" in told
    assert run("nodes", "drain", worker).exit_code == 0


def test_drain_needs_ids_or_one_filter(desk: Desk, run: Run) -> None:
    for n in range(2):
        desk.run(desk.ledger.register(f"web9.1.{n}", 600_000, "{}"))
    assert "no workers selected" in run("workers", "drain").stderr
    assert "cannot be combined" in run("workers", "drain", "web9", "--all").stderr
    assert "add --yes" in run("workers", "drain", "--all").stderr
    assert "no worker id begins with 'xyz'" in run("workers", "drain", "xyz").stderr
    assert run("workers", "drain", "web9").stderr.splitlines() == [
        "rl: 2 workers begin with 'web9'; give more characters of the id:",
        "  web9.1.0",
        "  web9.1.1",
    ]
    assert run("workers", "drain", "--queue", "none", "--yes").stdout.startswith("No such workers in ")


# --- rl admission ------------------------------------------------------------------------------------------------


def take(desk: Desk, name: str, *, tasks: int = 1) -> None:
    """Push tasks that count towards a limit of 10 a minute."""
    limit = Admission((AdmissionLimit.per_window(name, 10, 60_000),))
    pushed = [Submission(id=new_task_id(), name="shop.charge", payload=b"{}") for _ in range(tasks)]
    desk.run(desk.ledger.submit(pushed, limit))


def test_admission_status_shows_the_limits(desk: Desk, run: Run, run_json: RunJson) -> None:
    assert run("admission").stdout.startswith("No admission limit is in use in ")
    take(desk, "all", tasks=3)
    take(desk, "key:tenant:acme")
    env = {"RELIER_ADMISSION_LIMIT": "10", "RELIER_ADMISSION_WINDOW": "60", "RELIER_ADMISSION_MAX_DEPTH": "100"}
    limits = {limit["name"]: limit for limit in run_json("admission", env=env)["limits"]}
    assert (limits["all"]["used"], limits["all"]["limit"]) == (3, 10)
    assert 0 < limits["key:tenant:acme"]["empty_in_ms"] <= 6000
    assert (limits["depth:default"]["used"], limits["depth:default"]["limit"]) == (4, 100)
    assert [limit["name"] for limit in run_json("admission", "--name", "acme")["limits"]] == ["key:tenant:acme"]
    assert "key:tenant:acme" in run("admission").stdout


def test_admission_reset_empties_a_limit(desk: Desk, run: Run, run_json: RunJson) -> None:
    take(desk, "key:tenant:acme", tasks=10)
    take(desk, "key:other", tasks=10)
    tried = run("admission", "reset", "key:tenant:acme", "key:none", "--dry-run").stdout.splitlines()
    assert tried == [
        "Limit 'key:tenant:acme' would be reset.",
        "Limit 'key:none' is not in use: nothing to reset.",
    ]
    assert run("admission", "reset", "key:tenant:acme").stdout == "Limit 'key:tenant:acme' was reset.\n"
    take(desk, "key:tenant:acme", tasks=10)
    assert "add --yes" in run("admission", "reset", "--every").stderr
    answer = run_json("admission", "reset", "--every", "--yes")
    assert [limit["limit"] for limit in answer["limits"]] == ["key:other", "key:tenant:acme"]
    take(desk, "key:other", tasks=10)
    assert run("admission", "reset").exit_code == 2
    assert "cannot be reset" in run("admission", "reset", "depth:default").stderr
    assert desk.run(desk.ledger.stats()).counts["submitted"] == 40


def test_a_limit_that_another_program_wrote_to_is_reported(desk: Desk, run: Run) -> None:
    desk.command("SET", desk.key("rate", "key:odd"), "garbage")
    assert "another program wrote to it" in run("admission").stdout
    assert run("admission", "reset", "key:odd").exit_code == 0
    assert run("admission").stdout.startswith("No admission limit")


# --- rl config ---------------------------------------------------------------------------------------------------


def test_config_show_names_the_source_of_each_value(settings: Settings) -> None:
    env = {"RELIER_CONCURRENCY": "7", "RELIER_REDIS_URL": "redis://ann:secret@db:6379/1", "RELIER_SIGNING_KEYS": ""}
    told = CliRunner().invoke(rl, ["config", "show", "--namespace", "shop"], env=env)
    assert told.exit_code == 0, told.output
    rows = {line.split()[0]: line.split()[1:] for line in told.stdout.splitlines()}
    assert rows["concurrency"] == ["7", "RELIER_CONCURRENCY"]
    assert rows["namespace"] == ["shop", "--namespace"]
    assert rows["redis_url"] == ["redis://***@db:6379/1", "RELIER_REDIS_URL"]
    assert "secret" not in told.output
    every = CliRunner().invoke(rl, ["config", "show", "--all", "--name", "RELIER_HEARTBEAT"], env=env).stdout
    assert "heartbeat_ttl" in every
    assert "default" in every
    assert "All settings have their defaults" in CliRunner().invoke(rl, ["config"]).stdout


def test_keys_are_not_shown(settings: Settings) -> None:
    env = {"RELIER_SIGNING_KEYS": "k1:" + "ab" * 32}
    for more in ([], ["--json"]):
        told = CliRunner().invoke(rl, ["config", *more], env=env)
        assert "signing_keys" in told.stdout
        assert "abab" not in told.output


@pytest.mark.parametrize(
    ("env", "code", "says"),
    [
        ({}, 0, "No problems found."),
        ({"RELIER_CONCURENCY": "7"}, 1, "Did you mean RELIER_CONCURRENCY?"),
        ({"RELIER_CONCURRENCY": "many"}, 2, "RELIER_CONCURRENCY: "),
        ({"RELIER_REDIS_URL": "http://db"}, 2, "cannot be used"),
        ({"RELIER_REDACT": "no.such:hook"}, 1, "no.such"),
    ],
)
def test_config_validate_reports_mistakes(env: dict[str, str], code: int, says: str) -> None:
    told = CliRunner().invoke(rl, ["config", "validate"], env=env)
    assert told.exit_code == code, told.output
    assert says in told.output
    assert "Traceback" not in told.output


# --- progress ----------------------------------------------------------------------------------------------------


def test_long_work_shows_its_progress_in_a_terminal_only(desk: Desk, run: Run, settings: Settings) -> None:
    for _ in range(6):
        pushed = [Submission(id=new_task_id(), name="shop.charge", payload=b"{}") for _ in range(100)]
        desk.run(desk.ledger.submit(pushed))
    where = ["--url", settings.redis_url, "--namespace", settings.namespace]
    screen = in_terminal(["tasks", "cancel", "--all", "--yes", *where])
    assert "Cancelling" in screen
    assert "100%" in screen
    assert "600 tasks cancelled" in screen
    assert run("audit").stderr == ""
