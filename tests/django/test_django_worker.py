"""manage.py relier_worker and relier_dev: real projects, real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relier.django.management.click_command import own_import_paths
from tests.support.django_project import DjangoProject

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
PUSH = """
import sys, django
django.setup()
from orders import tasks
print(*getattr(tasks, sys.argv[1]).push(7).result(timeout=30))
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[DjangoProject]:
    files = {"shop/settings.py": SETTINGS, "orders/tasks.py": TASKS, "orders/models.py": MODELS, "push.py": PUSH}
    made = DjangoProject(tmp_path, files)
    yield made
    made.end()


def result_of(project: DjangoProject, task: str) -> list[str]:
    return project.run("site/push.py", task).split()


@pytest.mark.parametrize("options", [(), ("--processes", "1"), ("orders.tasks", "-q", "default", "-c", "3")])
def test_a_worker_runs_the_tasks_of_all_apps_here_and_in_isolated_processes(
    project: DjangoProject, options: tuple[str, ...]
) -> None:
    worker = project.start("relier_worker", *options)
    assert result_of(project, "here")[:2] == ["orders.Order", "7"]
    label, order, process, _ = result_of(project, "alone")
    assert (label, order) == ("orders.Order", "7")
    assert int(process) != worker.pid
    assert "namespace 'shop'" in project.log
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0


def test_a_worker_that_starts_again_is_still_in_its_project(project: DjangoProject) -> None:
    worker = project.start("relier_worker", "--max-tasks", "1")
    first = result_of(project, "here")[2]
    project.wait_for(" started: ", 2)
    assert result_of(project, "here")[:3] == ["orders.Order", "7", first]  # the same process, with new code in it
    project.wait_for(" started: ", 3)
    assert worker.poll() is None


def test_dev_restarts_when_a_file_changes(project: DjangoProject) -> None:
    project.start("relier_dev")
    assert "manage.py relier_dev: running" in project.log
    assert result_of(project, "here")[3] == "1"
    (project.site / "orders" / "tasks.py").write_text(TASKS.replace("VERSION = 1", "VERSION = 2"))
    project.wait_for(" started: ", 2)
    assert result_of(project, "here")[3] == "2"


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("--concurrency", "0"), "Invalid value for '--concurrency'", 2),
        (("--queues", ","), "a queue was given without a name", 2),
        (("orders.nothing",), "the module 'orders.nothing' cannot be imported", 1),
        (("--url", "ftp://x"), "--url", 2),
    ],
)
def test_a_mistake_is_one_line(project: DjangoProject, words: tuple[str, ...], said: str, code: int) -> None:
    command = [sys.executable, "site/manage.py", "relier_worker", *words]
    done = subprocess.run(command, cwd=project.folder, env=project.environment, capture_output=True, timeout=60)
    assert done.returncode == code
    assert said in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_without_a_tasks_module_the_command_says_what_is_missing(project: DjangoProject) -> None:
    (project.site / "orders" / "tasks.py").unlink()
    command = [sys.executable, "site/manage.py", "relier_worker"]
    done = subprocess.run(command, cwd=project.folder, env=project.environment, capture_output=True, timeout=60)
    assert (done.returncode, b"no app in INSTALLED_APPS has a module `tasks`" in done.stderr) == (2, True)


def test_help_lists_the_options_of_rl_worker(project: DjangoProject) -> None:
    command = [sys.executable, "site/manage.py", "relier_worker", "--help"]
    text = subprocess.check_output(command, cwd=project.folder, env=project.environment, text=True, timeout=60)
    assert all(word in text for word in ("--queues", "--concurrency", "--processes", "--isolated", "--lifespan"))


def test_child_processes_import_from_the_folders_before_the_standard_library() -> None:
    archive = f"/usr/lib/python{sys.version_info.major}{sys.version_info.minor}.zip"
    assert own_import_paths(["/app", "/more", "/app", archive, "/usr/lib/python3"]) == ["/app", "/more"]
