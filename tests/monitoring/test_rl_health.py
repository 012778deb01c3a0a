"""rl health: asks the port of a process, or the registry, and imports no code of the application."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from contextlib import closing

import pytest
from click.testing import CliRunner

from relier.cli.main import rl
from relier.monitoring.health import Health
from relier.monitoring.monitor import MonitoringAddress, start_monitor
from tests.support.fleet import Fleet
from tests.support.servers import free_port


def test_each_probe_can_be_asked_through_a_port() -> None:
    now = [Health("worker", True)]
    port = free_port()
    with closing(start_monitor(MonitoringAddress(port=port), lambda: now[0])):
        told = CliRunner().invoke(rl, ["health", "--port", str(port)])
        assert (told.exit_code, told.output) == (0, "ready: worker\n")
        now[0] = Health("worker", True, (), ("draining", "the store does not answer"))
        told = CliRunner().invoke(rl, ["health", "--port", str(port)])
        assert (told.exit_code, told.output) == (1, "not ready: draining; the store does not answer\n")
        told = CliRunner().invoke(rl, ["health", "--port", str(port), "--probe", "live", "--json"])
        assert (told.exit_code, json.loads(told.output)) == (
            0,
            {"probe": "live", "ok": True, "role": "worker", "reasons": []},
        )
        told = CliRunner().invoke(rl, ["--json", "health", "--port", str(port), "--probe", "startup"])
        assert json.loads(told.output)["ok"] is True


@pytest.mark.parametrize("probe", ["live", "ready", "startup"])
def test_a_port_that_nobody_serves_fails(probe: str) -> None:
    port = free_port()
    told = CliRunner().invoke(rl, ["health", "--port", str(port), "--probe", probe])
    assert told.exit_code == 1
    assert told.output == f"not {probe}: no process answers at 127.0.0.1:{port}: Connection refused\n"


def test_without_a_port_the_registry_answers(fleet: Fleet) -> None:
    options = ["--url", fleet.settings.redis_url, "--namespace", fleet.settings.namespace]
    told = CliRunner().invoke(rl, [*options, "health"])
    assert told.exit_code == 1
    assert told.output.startswith("not ready: no process of this host is registered in namespace")
    member = fleet.worker()
    assert CliRunner().invoke(rl, [*options, "health"]).output == "ready: worker\n"
    (worker_id,) = member.boots()
    assert fleet.start("nodes", "drain", worker_id).wait() == 0
    told = CliRunner().invoke(rl, [*options, "health"])
    assert (told.exit_code, told.output) == (1, f"not ready: {worker_id} is draining\n")
    assert CliRunner().invoke(rl, [*options, "health", "--probe", "live"]).exit_code == 0


def cpu_seconds(*arguments: str) -> float:
    """Return the CPU time of `rl`. On a machine that does other work, the time by the clock says little."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = subprocess.run([sys.executable, "-m", "relier.cli", *arguments], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert told.returncode == 0, told.stdout + told.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_a_probe_takes_less_than_300_ms_both_ways(fleet: Fleet) -> None:
    options = ["--url", fleet.settings.redis_url, "--namespace", fleet.settings.namespace]
    port = free_port()
    fleet.worker("--metrics-port", str(port))
    assert min(cpu_seconds("health", "--port", str(port)) for _ in range(3)) < 0.3
    assert min(cpu_seconds(*options, "health") for _ in range(3)) < 0.3


def test_asking_a_port_imports_next_to_nothing() -> None:
    """What is not imported costs no time: a probe starts a process every few seconds."""
    script = (
        "import sys\nfrom click.testing import CliRunner\nfrom relier.cli.main import rl\n"
        "CliRunner().invoke(rl, ['health', '--port', '9'])\n"
        "print([name for name in ('asyncio', 'rich', 'hiredis', 'http', 'relier.ledger', 'relier.submit')"
        " if name in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ | {"NO_COLOR": "1"}
    )
    assert told.stdout.strip() == "[]"
