"""manage.py relier_worker and relier_dev: real projects, real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relier.django.management.click_command import own_import_paths

PATIENCE_S = 40.0

SETTINGS = """
SECRET_KEY = "tests"
INSTALLED_APPS = ["relier.django", "orders", "empty"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
RELIER = {"NAMESPACE": "shop"}
USE_TZ = True
"""
TASKS = """
import os
from orders.models import Order
from relier import rl_task

@rl_task
def here(order: int) -> list:
    return [Order._meta.label, order, os.getpid(), VERSION]

@rl_task(isolate=True)
def alone(order: int) -> list:
    return [Order._meta.label, order, os.getpid(), VERSION]

VERSION = 1
"""
MODELS = """
from django.db import models

class Order(models.Model):
    cents = models.IntegerField()
"""
MANAGE = """
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
PUSH = """
import sys, django
django.setup()
from orders import tasks
print(*getattr(tasks, sys.argv[1]).push(7).result(timeout=30))
"""


class Project:
    """A Django project in a folder of its own. Its manage.py is in `site/`, and commands run one folder above."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site = folder, folder / "site"
        files = {"manage.py": MANAGE, "shop/settings.py": SETTINGS, "orders/tasks.py": TASKS}
        files |= {"orders/models.py": MODELS, "empty/__init__.py": "", "push.py": PUSH}
        for name, text in files.items():
            (self.site / name).parent.mkdir(parents=True, exist_ok=True)
            (self.site / name).write_text(text)
        (folder / "pyproject.toml").touch()  # the embedded store lives with the project
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RELIER_", "DJANGO_"))}
        self.environment = kept | {"PYTHONUNBUFFERED": "1"}
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, "site/manage.py", *words]
            began = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
        self._running.append(began)
        self.wait_for(" started: ")
        return began

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def wait_for(self, said: str, count: int = 1) -> None:
        until = time.monotonic() + PATIENCE_S
        while self.log.count(said) < count:
            assert time.monotonic() < until, self.log
            time.sleep(0.05)

    def result_of(self, task: str) -> list[str]:
        environment = self.environment | {"DJANGO_SETTINGS_MODULE": "shop.settings"}
        command = [sys.executable, "site/push.py", task]
        return subprocess.check_output(command, cwd=self.folder, env=environment, text=True, timeout=60).split()

    def end(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
                process.wait()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("options", [(), ("--processes", "1"), ("orders.tasks", "-q", "default", "-c", "3")])
def test_a_worker_runs_the_tasks_of_all_apps_here_and_in_isolated_processes(
    project: Project, options: tuple[str, ...]
) -> None:
    worker = project.start("relier_worker", *options)
    assert project.result_of("here")[:2] == ["orders.Order", "7"]
    label, order, process, _ = project.result_of("alone")
    assert (label, order) == ("orders.Order", "7")
    assert int(process) != worker.pid
    assert "namespace 'shop'" in project.log
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0


def test_a_worker_that_starts_again_is_still_in_its_project(project: Project) -> None:
    worker = project.start("relier_worker", "--max-tasks", "1")
    first = project.result_of("here")[2]
    project.wait_for(" started: ", 2)
    assert project.result_of("here")[:3] == ["orders.Order", "7", first]  # the same process, with new code in it
    project.wait_for(" started: ", 3)
    assert worker.poll() is None


def test_dev_restarts_when_a_file_changes(project: Project) -> None:
    project.start("relier_dev")
    assert "manage.py relier_dev: running" in project.log
    assert project.result_of("here")[3] == "1"
    (project.site / "orders" / "tasks.py").write_text(TASKS.replace("VERSION = 1", "VERSION = 2"))
    project.wait_for(" started: ", 2)
    assert project.result_of("here")[3] == "2"


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("--concurrency", "0"), "Invalid value for '--concurrency'", 2),
        (("--queues", ","), "a queue was given without a name", 2),
        (("orders.nothing",), "the module 'orders.nothing' cannot be imported", 1),
        (("--url", "ftp://x"), "--url", 2),
    ],
)
def test_a_mistake_is_one_line(project: Project, words: tuple[str, ...], said: str, code: int) -> None:
    command = [sys.executable, "site/manage.py", "relier_worker", *words]
    done = subprocess.run(command, cwd=project.folder, env=project.environment, capture_output=True, timeout=60)
    assert done.returncode == code
    assert said in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_without_a_tasks_module_the_command_says_what_is_missing(project: Project) -> None:
    (project.site / "orders" / "tasks.py").unlink()
    command = [sys.executable, "site/manage.py", "relier_worker"]
    done = subprocess.run(command, cwd=project.folder, env=project.environment, capture_output=True, timeout=60)
    assert (done.returncode, b"no app in INSTALLED_APPS has a module `tasks`" in done.stderr) == (2, True)


def test_help_lists_the_options_of_rl_worker(project: Project) -> None:
    command = [sys.executable, "site/manage.py", "relier_worker", "--help"]
    text = subprocess.check_output(command, cwd=project.folder, env=project.environment, text=True, timeout=60)
    assert all(word in text for word in ("--queues", "--concurrency", "--processes", "--isolated", "--lifespan"))


def test_child_processes_import_from_the_folders_before_the_standard_library() -> None:
    archive = f"/usr/lib/python{sys.version_info.major}{sys.version_info.minor}.zip"
    assert own_import_paths(["/app", "/more", "/app", archive, "/usr/lib/python3"]) == ["/app", "/more"]
