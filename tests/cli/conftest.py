"""`rl` on a real server: a namespace with tasks in every state, and a fixture that runs commands on it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from relier.cli.main import rl
from relier.ledger.ledger import load_scripts
from relier.settings import Settings
from relier.store import Scripts, SyncStore
from tests.support.cli_desk import Desk, Run, RunJson


@pytest.fixture(scope="session")
def scripts() -> Scripts:
    return load_scripts()


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands read RELIER_*. Remove the variables of the environment in which the tests run."""
    for name in [name for name in os.environ if name.upper().startswith("RELIER_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def desk(settings: Settings, sync_store: SyncStore) -> Iterator[Desk]:
    """An empty namespace for one test, with short forms of the ledger's moves."""
    yield Desk(sync_store, settings)
    sync_store.command("EVAL", CLEAR, 1, Desk.prefix_of(settings))


@pytest.fixture
def run(settings: Settings) -> Run:
    """Run a command: run("tasks", "--state", "dead") -> what `rl` printed, and its exit code."""

    def invoke(*args: str, **how: Any) -> Result:
        options = ["--url", settings.redis_url, "--namespace", settings.namespace]
        result = CliRunner().invoke(rl, [*options, *args], **how)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def run_json(run: Run) -> RunJson:
    """Return the JSON document that a command printed. It must print nothing else, and exit with `code`."""

    def invoke(*args: str, code: int = 0, **how: Any) -> Any:
        result = run(*args, "--json", **how)
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    return invoke


CLEAR = """
local keys = redis.call('KEYS', KEYS[1] .. '*')
for i = 1, #keys do redis.call('UNLINK', keys[i]) end
"""
