"""The Compose files: valid, consistent, and their command lines do what they say outside containers too."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.command_lines import check_command_line
from tests.deploy.conftest import DEPLOY, compose
from tests.support import PYTHONPATH, ROOT
from tests.support.fleet import Member
from tests.support.servers import Boot, Server, binary_of, free_port, wait_until

FILES = ("docker-compose.yml", "docker-compose.prod.yml")
SERVICE_KEYS = {
    "build",
    "image",
    "init",
    "restart",
    "stop_grace_period",
    "read_only",
    "tmpfs",
    "cap_drop",
    "security_opt",
    "networks",
    "environment",
    "depends_on",
    "healthcheck",
    "entrypoint",
    "command",
    "volumes",
    "ports",
    "deploy",
    "profiles",
}
OURS = "relier"  # the image of services that run `rl`
WRITTEN_BY_OPERATORS = {"./users.acl"}


def services(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose(name)["services"]
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_consistent(name: str) -> None:
    document = compose(name)
    assert {key for key in document if not key.startswith("x-")} <= {"name", "services", "networks", "volumes"}
    for service, about in document["services"].items():
        assert about.keys() <= SERVICE_KEYS, service
        assert ":" in about["image"] or about["image"] == OURS, f"{service} has no fixed version"
        assert set(about.get("depends_on", ())) <= document["services"].keys(), service
        assert set(about.get("networks", ())) <= document.get("networks", {}).keys(), service
        for volume in about.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert source in WRITTEN_BY_OPERATORS | {"./prometheus", "./grafana"} or (DEPLOY / source).exists()
            else:
                assert source in document["volumes"], f"{service}: {source} is not declared"
        for port in about.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{service}: {port} is open to the world"


def test_production_has_every_part() -> None:
    assert set(services("docker-compose.prod.yml")) == {
        "relier-redis-master",
        "relier-redis-replica-1",
        "relier-redis-replica-2",
        "relier-sentinel-1",
        "relier-sentinel-2",
        "relier-sentinel-3",
        "worker",
        "scheduler",
        "resurrector",
        "outbox-relay",
        "dashboard",
        "exporter",
        "prometheus",
        "grafana",
        "backup",
    }


def our_services() -> list[tuple[str, str]]:
    return [(name, service) for name in FILES for service, about in services(name).items() if about["image"] == OURS]


@pytest.mark.parametrize(("name", "service"), our_services())
def test_a_command_line_starts_and_stops(name: str, service: str, server: Server, tmp_path: Path) -> None:
    """Each container's command, with the same environment except for the address of the store."""
    about = services(name)[service]
    command = about["command"]
    if command[0] in {"dashboard", "exporter"}:  # they listen on fixed ports, and have tests of their own
        check_command_line(command)
        return
    if command[0] == "backup":
        command = [*command, "--to", str(tmp_path / "backups")]
    environment = {"RELIER_REDIS_URL": server.tcp_url, "RELIER_NAMESPACE": "kit", "PYTHONPATH": PYTHONPATH}
    asked = {key: str(value) for key, value in about["environment"].items()} | environment
    asked["RELIER_METRICS_PORT"] = "0"  # tests run side by side
    if command[0] == "outbox":
        asked["RELIER_OUTBOX_DATABASE_URL"] = f"sqlite:///{tmp_path}/shop.db"
        make_outbox(asked["RELIER_OUTBOX_DATABASE_URL"])
    log = tmp_path / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "relier.cli", *command],
            cwd=DEPLOY / "example",
            env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)} | asked,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    member = Member(process, log)
    try:
        wait_until(lambda: is_running(member) or process.poll() is not None, 30, "the start")
        assert process.poll() is None, member.said()
        process.send_signal(signal.SIGTERM)
        assert process.wait(45) == 0, member.said()
    finally:
        member.kill_all()


def is_running(member: Member) -> bool:
    """Return whether the process has started, and handles signals: a relay sets its handlers after its first line."""
    caught = int(Path(f"/proc/{member.pid}/status").read_text().partition("SigCgt:")[2].split()[0], 16)
    return " started" in member.said() and bool(caught & 1 << (signal.SIGTERM - 1))


def make_outbox(url: str) -> None:
    from sqlalchemy import MetaData, create_engine

    from relier.outbox import Outbox
    from relier.outbox.push import forget_outbox

    metadata = MetaData()
    outbox = Outbox(metadata)
    metadata.create_all(create_engine(url))
    forget_outbox(outbox)


def test_prometheus_asks_services_that_exist() -> None:
    config = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())
    found = services("docker-compose.prod.yml")
    for job in config["scrape_configs"]:
        for asked in job["dns_sd_configs"]:
            assert set(asked["names"]) <= found.keys()
            for name in asked["names"]:
                assert found[name]["environment"]["RELIER_METRICS_PORT"] == str(asked["port"])


def test_grafana_finds_its_data_and_its_dashboards() -> None:
    folder = DEPLOY / "compose" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "relier.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((folder / "dashboards" / "relier.yml").read_text())["providers"]
    mounted = [volume.split(":")[1] for volume in services("docker-compose.prod.yml")["grafana"]["volumes"]]
    assert provider["options"]["path"] in mounted


def test_workers_have_time_to_stop() -> None:
    """RELIER_GRACEFUL_SHUTDOWN_TIMEOUT, ten seconds to hand back tasks, and some room."""
    for name, service in our_services():
        assert services(name)[service]["stop_grace_period"] == "45s"


def local(words: list[str], folder: Path) -> list[str]:
    """Return a server's command line with the paths of a container replaced by those of this checkout."""
    conf = folder / "redis.conf"
    conf.write_text((ROOT / "scripts" / "redis" / "redis.conf").read_text().replace("dir /data", f"dir {folder}"))
    here = {
        "valkey-server": str(binary_of("valkey-9.1")),
        "/etc/redis/redis.conf": str(conf),
        "/etc/redis/users.acl": str(ROOT / "scripts" / "redis" / "users.acl"),
    }
    return [here.get(word, word) for word in words]


@pytest.mark.parametrize("service", [f"relier-redis-{one}" for one in ("master", "replica-1", "replica-2")])
def test_the_command_line_of_a_server_works(service: str, boot: Boot, tmp_path: Path) -> None:
    server = boot(start=False)
    words = local(services("docker-compose.prod.yml")[service]["command"], tmp_path)
    extra = ["--port", str(server.port), "--bind", "127.0.0.1"]
    server._command = lambda: [*words, *extra]  # type: ignore[method-assign]
    server.start()
    with server.connection() as run:
        assert "NOAUTH" in str(run("GET", "x")), "the ACL file is in force"
        assert run("AUTH", "relier-replica", "change-me-replica") == b"OK"
        assert run("AUTH", "relier-backup", "change-me-backup") == b"OK"
        assert run("CONFIG", "GET", "replica-announce-ip")[1].decode() == service
        assert run("CONFIG", "GET", "masteruser")[1] == b"relier-replica"


def test_the_entrypoint_of_a_sentinel_works(boot: Boot, tmp_path: Path) -> None:
    """It copies its configuration once, adds the credentials, and starts."""
    about = services("docker-compose.prod.yml")["relier-sentinel-1"]
    port = free_port()
    conf = tmp_path / "etc" / "sentinel.conf"
    conf.parent.mkdir()
    text = (ROOT / "scripts" / "redis" / "sentinel.conf").read_text()
    conf.write_text(re.sub(r"^port .*", f"port {port}", text, flags=re.M).replace("relier-redis-master", "localhost"))
    (tmp_path / "bin").mkdir()
    starter = tmp_path / "bin" / "valkey-sentinel"
    starter.write_text(f'#!/bin/sh\nexec {binary_of("valkey-9.1")} "$@" --sentinel\n')
    starter.chmod(0o755)
    data = tmp_path / "data"
    data.mkdir()
    script = about["entrypoint"][2].replace("/etc/redis/", f"{conf.parent}/").replace("/data/", f"{data}/")
    environment = {"PATH": f"{starter.parent}:{os.environ['PATH']}", **about["environment"], "ANNOUNCE": "localhost"}
    sentinel = boot(start=False)
    sentinel.port = port
    for _ in range(2):  # a container that starts again keeps what its Sentinel knows
        sentinel._command = lambda: ["env", *(f"{k}={v}" for k, v in environment.items()), "sh", "-c", script]  # type: ignore[method-assign]
        sentinel.start()
        assert sentinel.command("SENTINEL", "MASTER", "relier-master")[1] == b"relier-master"
        sentinel.stop()
    assert (data / "sentinel.conf").read_text().count("\nsentinel auth-pass relier-master") == 1


def test_the_image_is_small_and_unprivileged() -> None:
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    stages = [line for line in lines if line.startswith("FROM ")]
    assert len(stages) == 2
    assert all(re.fullmatch(r"FROM python:3\.\d+-slim( AS \w+)?", stage) for stage in stages)
    final = lines[lines.index(stages[1]) :]
    assert "USER relier" in final
    assert final.index("USER relier") < next(n for n, line in enumerate(final) if line.startswith("ENTRYPOINT"))
    assert any(line.startswith("HEALTHCHECK") for line in final)
    assert not [line for line in final if "pip install" in line], "nothing is built in the final stage"
    for line in final:
        if line.startswith(("CMD", "ENTRYPOINT")):
            assert line.split(" ", 1)[1].startswith("["), "a shell would receive the signals"
    sources = [
        word for line in lines if line.startswith("COPY") and "--from" not in line for word in line.split()[1:-1]
    ]
    assert all((ROOT / source).exists() for source in sources)
    allowed = (ROOT / ".dockerignore").read_text().split()
    assert {f"!{source.removeprefix('./').rstrip('/')}" for source in sources} <= set(allowed)


def test_the_image_has_extras_that_exist() -> None:
    asked = re.search(r"^ARG EXTRAS=(.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert asked
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(asked[1].split(",")) <= known.keys()


def test_the_healthcheck_finds_a_live_worker(server: Server, tmp_path: Path) -> None:
    command = re.search(r'CMD \["sh", "-c", "(.*)"\]', (DEPLOY / "Dockerfile").read_text())
    assert command
    check = command[1].replace('\\"', '"')
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": PYTHONPATH,
        "RELIER_REDIS_URL": server.tcp_url,
        "RELIER_NAMESPACE": "health",
    }

    def healthy() -> bool:
        return subprocess.run(["sh", "-c", check], env=environment, capture_output=True).returncode == 0

    assert not healthy()
    with (tmp_path / "log").open("wb") as log:
        words = [sys.executable, "-m", "relier.cli", "worker", "tasks"]
        worker = subprocess.Popen(words, cwd=DEPLOY / "example", env=environment, stdout=log, stderr=log)
    try:
        wait_until(healthy, 30, "a healthy worker")
    finally:
        worker.kill()
        worker.wait(10)
