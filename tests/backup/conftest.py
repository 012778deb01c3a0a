"""`rl backup` and `rl restore` as commands, without the variables of the environment in which the tests run."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from relier.cli.main import rl

Rl = Callable[..., Result]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith(("RELIER_", "BACKUP_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def run() -> Rl:
    """Run a command: run("backup", "--to", folder) -> what `rl` printed, and its exit code."""

    def invoke(*args: object) -> Result:
        result = CliRunner().invoke(rl, [str(arg) for arg in args])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke
