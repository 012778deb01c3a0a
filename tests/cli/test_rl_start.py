"""How `rl` starts: quickly, and with one line and the right exit code if it cannot continue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import relier
from relier.cli.main import COMMANDS, EXIT_CODES, rl
from relier.cli.session import Exit
from relier.settings import Settings
from relier.store import SyncStore
from tests.support.cli_desk import Run

HEAVY = ("asyncio", "pydantic", "rich", "hiredis", "msgspec", "relier.settings", "relier.ledger")
LOADED = """
import sys
{before}
from relier.cli.main import main
sys.argv = ["rl", "--help"]
try:
    main()
finally:
    print(" ".join(name for name in {heavy!r} if name in sys.modules), file=sys.stderr)
"""
BARE = """
import types
package = types.ModuleType("relier")
package.__path__ = [{folder!r}]
sys.modules["relier"] = package
"""


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_a_worker_loads_no_pydantic_unless_a_task_needs_it() -> None:
    """It would cost every process 15 MB, and half as much time again to start."""
    code = "import sys, relier.engines.process; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_help_imports_nothing_heavy() -> None:
    """The package `relier` itself is replaced by an empty one, so that only imports of the command line count."""
    bare = BARE.format(folder=str(Path(relier.__file__).parent))
    done = run_python(LOADED.format(before=bare, heavy=HEAVY))
    assert done.returncode == 0, done.stderr
    assert "dead letters" in done.stdout
    assert done.stderr.split() == []


def test_the_help_of_the_installed_package_is_fast() -> None:
    done = run_python(LOADED.format(before="", heavy=HEAVY))
    assert done.stderr.split() == []


def test_python_m_runs_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relier.cli", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: rl ")


def test_every_listed_command_is_there_and_helps() -> None:
    for name in ("tasks", "why", "dlq", "queues", "workers", "audit", "doctor"):
        result = CliRunner().invoke(rl, [name, "--help"])
        assert result.exit_code == 0, result.output
        for option in ("--json", "--url", "--namespace"):
            assert option in result.output, name
    for name in ("tasks", "dlq", "queues"):  # there is no `list`
        assert "Without a command, lists " in CliRunner().invoke(rl, [name, "--help"]).output
    for name in ("dlq show", "dlq replay", "dlq discard", "tasks cancel", "queues pause", "queues resume"):
        assert "--json" in CliRunner().invoke(rl, [*name.split(), "--help"]).output, name


def test_an_alias_is_not_listed() -> None:
    listed = CliRunner().invoke(rl, ["--help"]).output
    assert all((f"\n  {name} " in listed) == bool(entry.help) for name, entry in COMMANDS.items())


def test_the_help_lists_the_exit_codes() -> None:
    told = [line.split()[0] for line in EXIT_CODES.splitlines()[2:]]
    assert told == [str(code.value) for code in Exit]
    assert EXIT_CODES.splitlines()[-1].strip() in CliRunner().invoke(rl, ["--help"]).output


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["taks"], 2, "did you mean `rl tasks`?"),
        (["xyzzy"], 2, "`rl --help` lists the commands"),
        (["tasks", "--state", "nowhere"], 2, "nowhere"),
        (["tasks", "--url", "foo"], 2, "the store URL 'foo' cannot be used"),
        (["tasks", "--url", ""], 2, "cannot be used"),
        (["tasks", "--namespace", "a b"], 2, "--namespace: "),
        (["tasks", "--url", "redis://user:secret@127.0.0.1:1"], 3, "gave no answer"),
        (["tasks", "cancel"], 2, "ID"),
        (["worker", "tests", "--url", ""], 2, "cannot be used"),
        (["--url", "", "worker", "tests", "--processes", "1"], 2, "cannot be used"),
        (["worker", "tests", "--namespace", ""], 2, "--namespace: "),
        (["worker", "tests", "-c", "100001"], 2, "is not in the range 1<=x<=100000"),
        (["worker", "tests", "-q", ""], 2, "a queue was given without a name"),
        (["dev", "tests", "-q", ","], 2, "a queue was given without a name"),
        (["dev", "tests", "--url", ""], 2, "cannot be used"),
        (["resurrector", "--url", ""], 2, "cannot be used"),
        (["outbox", "relay", "--database", "sqlite://", "--url", ""], 2, "cannot be used"),
    ],
)
def test_unusable_settings_are_reported_in_one_line(args: list[str], code: int, says: str) -> None:
    result = CliRunner().invoke(rl, args, env={"RELIER_REDIS_DEADLINE": "0.2"})
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code
    assert result.stdout == ""
    assert says in result.stderr
    assert "secret" not in result.stderr
    assert "Traceback" not in result.stderr
    if result.stderr.startswith("rl: "):
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["dlq", "show", "nothing"], 1, "there is no task nothing"),
        (["tasks", "--url", "redis://127.0.0.1:1"], 3, "gave no answer"),
        (["outbox", "stats", "--database", "sqlite://"], 3, "no such table"),
        (["tasks", "--limit", "0"], 2, "--limit"),
    ],
)
def test_json_output_is_one_document_also_on_failure(settings: Settings, args: list[str], code: int, says: str) -> None:
    env = {"RELIER_REDIS_DEADLINE": "0.2", "RELIER_REDIS_URL": settings.redis_url}
    result = CliRunner().invoke(rl, [*args, "--json"], env=env)
    assert result.exit_code == code
    assert says in json.loads(result.stdout)["error"]
    assert says in result.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_reported_in_one_line(settings: Settings, unbuffered: str) -> None:
    command = [sys.executable, "-m", "relier.cli", "tasks", "--url", settings.redis_url]
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=env, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("rl: output is incomplete: no space left on device; ")
    assert done.stderr.count("\n") == 1


def test_invalid_settings_in_the_environment_are_reported() -> None:
    result = CliRunner().invoke(rl, ["tasks"], env={"RELIER_REDIS_POOL_SIZE": "none"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("rl: invalid settings: RELIER_REDIS_POOL_SIZE: ")


def test_options_may_stand_before_or_after_the_command(settings: Settings) -> None:
    where = ["--url", settings.redis_url, "--namespace", settings.namespace]
    answers = [
        CliRunner().invoke(rl, [*where, "tasks", "--json"]),
        CliRunner().invoke(rl, ["tasks", *where, "--json"]),
        CliRunner().invoke(rl, ["--url", "redis://127.0.0.1:1", "tasks", *where, "--json"]),
        CliRunner().invoke(
            rl,
            ["tasks", "--json"],
            env={"RELIER_REDIS_URL": settings.redis_url, "RELIER_NAMESPACE": settings.namespace},
        ),
    ]
    assert {answer.exit_code for answer in answers} == {0}
    assert {json.loads(answer.stdout)["namespace"] for answer in answers} == {settings.namespace}


def test_a_typed_url_wins_over_sentinel_settings(settings: Settings) -> None:
    result = CliRunner().invoke(rl, ["tasks", "--url", settings.redis_url], env={"RELIER_REDIS_USE_SENTINEL": "true"})
    assert result.exit_code == 0, result.output


def test_an_empty_namespace_is_named_and_left_empty(run: Run, settings: Settings, sync_store: SyncStore) -> None:
    result = run("tasks")
    assert result.exit_code == 0
    assert f"No tasks in namespace '{settings.namespace}' at {settings.redis_url}." in result.stdout
    assert run("dlq").stdout.startswith("No dead letters in ")
    assert run("workers").stdout.startswith("No workers in ")
    assert run("queues").stdout.startswith("No queues in ")
    assert sync_store.command("KEYS", f"*{{{settings.namespace}}}*") == []


def test_a_namespace_with_another_layout_is_left_alone(run: Run, settings: Settings, sync_store: SyncStore) -> None:
    key = f"rl:{{{settings.namespace}}}:meta"
    sync_store.command("HSET", key, "layout", "99")
    result = run("tasks")
    assert result.exit_code == 1
    assert "has layout 99" in result.stderr


def test_the_map_has_only_commands() -> None:
    with click.Context(rl) as ctx:
        for name in ("tasks", "why", "dlq", "queues", "workers", "audit", "doctor"):
            assert isinstance(rl.get_command(ctx, name), click.Command)
        assert rl.get_command(ctx, "nothing") is None
