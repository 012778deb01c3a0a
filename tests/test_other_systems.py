"""On Windows tasks are pushed, and workers say that they cannot run. On macOS everything runs. Both are imitated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.servers import Boot, Server, wait_until

SHOP = """
from relier import rl_task


@rl_task
def charge(customer: str, cents: int) -> str:
    return f"{customer} paid {cents / 100:.2f}"


@rl_task(isolate=True, hard_timeout=30)
def report(year: int) -> str:
    return f"report of {year}"
"""
EVERY_MODULE = """
import importlib, pkgutil, relier
import django
django.setup()
names = [one.name for one in pkgutil.walk_packages(relier.__path__, "relier.")]
names = [name for name in names if not name.endswith(("__main__", ".keeper"))]  # these are scripts
for name in names:
    importlib.import_module(name)
print(len(names))
"""
PUSHES = """
import asyncio
from shop import charge, report

async def main():
    receipt = await charge.apush("cus_1", 5000)
    return await receipt.result(timeout=30)

print(charge.push("cus_2", 700).result(timeout=30))
print(asyncio.run(main()))
print(len([each for each in charge.push_many([("cus_3", n) for n in range(3)])]))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


MACOS = str(ROOT / "tests" / "support" / "macos")


def environment(folder: Path, *before: str, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RELIER_")}
    path = [*before, str(folder), str(ROOT), str(ROOT / "src")]
    return kept | {"PYTHONPATH": os.pathsep.join(path)} | more


def command(system: str, *words: str) -> list[str]:
    """Return the command that runs a module, or code after `-c`."""
    if system:
        return [sys.executable, "-m", "tests.support.other_systems", system, *words]
    return [sys.executable, *(words if words[0] == "-c" else ("-m", *words))]


def run(folder: Path, system: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = environment(folder, **more)
    return subprocess.run(
        command(system, *words), cwd=folder, env=env, capture_output=True, text=True, timeout=110, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("system", ["windows", "macos"])
def test_every_module_can_be_imported(shop: Path, system: str) -> None:
    done = run(shop, system, "--all", "-c", EVERY_MODULE)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 350


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["worker", "shop.py"], "a worker"),
        (["worker", "shop.py", "--processes", "2"], "a worker"),
        (["dev", "shop.py"], "a worker"),
        (["resurrector"], "a resurrector"),
        (["scheduler"], "a scheduler"),
        (["outbox", "relay", "--database", "sqlite:///shop.db"], "an outbox relay"),
        (["restore", "backup.rdb.gz", "--data-dir", "."], "a restore"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_cannot_run_on_windows_says_where_it_can(shop: Path, words: list[str], what: str) -> None:
    done = run(shop, "windows", "relier.cli", *words, RELIER_REDIS_URL="redis://127.0.0.1:1/0")
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{what} cannot run on Windows" in done.stderr
    assert "in a container or in WSL 2" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_the_default_store_says_on_windows_what_to_set(shop: Path) -> None:
    done = run(shop, "windows", "-c", "from shop import charge; charge.push('a', 1)")
    assert "ConfigurationError: the embedded server, which is the default store, cannot run on Windows" in done.stderr
    assert "set RELIER_REDIS_URL" in done.stderr
    done = run(shop, "windows", "relier.cli", "tasks")
    assert done.returncode == 2
    assert "set RELIER_REDIS_URL" in done.stderr


@pytest.mark.slow
def test_a_producer_on_windows_pushes_and_gets_results(shop: Path, boot: Boot) -> None:
    """The worker is on another system, as it must be."""
    server: Server = boot()
    url = f"redis://127.0.0.1:{server.port}/0"
    with (shop / "worker.log").open("wb") as log:
        words = [sys.executable, "-m", "relier.cli", "worker", "shop.py"]
        worker = subprocess.Popen(words, cwd=shop, env=environment(shop, RELIER_REDIS_URL=url), stderr=log)
    try:
        done = run(shop, "windows", "-c", PUSHES, RELIER_REDIS_URL=url)
        assert done.stdout.split("\n")[:3] == ["cus_2 paid 7.00", "cus_1 paid 50.00", "3"], done.stderr
        for words in (["tasks"], ["doctor"], ["audit"], ["queues", "pause", "mail"], ["nodes"]):
            done = run(shop, "windows", "relier.cli", *words, RELIER_REDIS_URL=url)
            assert "Traceback" not in done.stderr, words
    finally:
        worker.terminate()
        assert worker.wait(30) == 0, (shop / "worker.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [[], ["--processes", "2"]], ids=["alone", "supervised"])
def test_a_worker_runs_without_what_only_linux_has(shop: Path, processes: list[str]) -> None:
    """The embedded server, an isolated task and, with a supervisor, a killed worker process."""
    env = environment(shop, MACOS)
    with (shop / "worker.log").open("wb") as log:
        words = command("", "relier.cli", "worker", "shop.py", *processes)
        worker = subprocess.Popen(words, cwd=shop, env=env, stderr=log)
    try:
        code = "from shop import charge, report; print(charge.push('a', 100).result(30), report.push(2026).result(30))"
        done = subprocess.run(command("", "-c", code), cwd=shop, env=env, capture_output=True, text=True, timeout=110)
        assert done.stdout == "a paid 1.00 report of 2026\n", done.stderr + (shop / "worker.log").read_text()
    finally:
        worker.terminate()
        ended = worker.wait(30)
    assert ended == 0, (shop / "worker.log").read_text()
    wait_until(lambda: not (shop / ".relier" / "valkey.pid").exists(), what="the end of the embedded server")
