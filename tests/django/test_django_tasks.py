"""Django's tasks on Relier: `django.tasks`, or django-tasks on Django 5.2, with a real worker."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import django
import pytest

from tests.support.django_project import DjangoProject

LIBRARY = "django.tasks" if django.VERSION >= (6,) else "django_tasks"
APPS = [] if django.VERSION >= (6,) else [LIBRARY]  # Django's own needs no app
pytestmark = pytest.mark.skipif(
    django.VERSION < (6,) and importlib.util.find_spec("django_tasks") is None,
    reason="needs Django 6, or django-tasks (pip install django-tasks)",
)

SETTINGS = f"""
SECRET_KEY = "tests"
INSTALLED_APPS = ["relier.django", "orders", "empty", *{APPS}]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}}}
USE_TZ = True
BACKEND = {{"BACKEND": "relier.django.tasks.RelierBackend", "QUEUES": ["default", "mail"]}}
TASKS = {{
    "default": BACKEND,
    "again": BACKEND | {{"OPTIONS": {{"retries": 1, "TRANSACTION": "outbox"}}}},
    "alone": BACKEND | {{"OPTIONS": {{"isolate": True}}}},
    "late": BACKEND | {{"OPTIONS": {{"TRANSACTION": "on_commit"}}}},
}}
LIBRARY = {LIBRARY!r}
"""
TASKS = f"""
import asyncio
from {LIBRARY} import task

@task
def add(a, b):
    return a + b

@task(queue_name="mail")
async def mail(to):
    await asyncio.sleep(0)
    return {{"to": to}}

@task(takes_context=True, priority=20)
def about(context, word):
    result = context.task_result
    return [result.id, context.attempt, word, result.status, result.task.priority]

@task
def fail():
    raise ValueError("no")

@task(backend="again", takes_context=True)
def fail_once(context, name):
    if context.attempt == 1:
        raise ValueError("once")
    return [name, len(set(context.task_result.worker_ids))]

@task(backend="alone", takes_context=True)
async def alone(context, a):
    return [context.attempt, a]

@task(backend="late")
def later(a):
    return a
"""
SCRIPT = """
import asyncio, datetime, json, sys, time, django
django.setup()
from django.db import transaction
from django.utils import timezone
from orders import tasks

def wait(result):
    until = time.monotonic() + 30
    while not result.is_finished and time.monotonic() < until:
        time.sleep(0.02)
        result.refresh()
    return result

def shown(result):
    return {
        "status": result.status, "args": result.args, "kwargs": result.kwargs, "attempts": result.attempts,
        "workers": len(result.worker_ids), "value": result._return_value, "queue": result.task.queue_name,
        "errors": [[one.exception_class.__name__, one.traceback.strip().splitlines()[-1]] for one in result.errors],
        "times": [at is not None for at in (result.enqueued_at, result.started_at, result.last_attempted_at)],
        "id": result.id,
    }

def say(**given):
    print(json.dumps(given))

"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[DjangoProject]:
    made = DjangoProject(tmp_path, {"shop/settings.py": SETTINGS, "orders/tasks.py": TASKS})
    yield made
    made.end()


def said_by(project: DjangoProject, code: str) -> dict[str, Any]:
    (project.site / "script.py").write_text(SCRIPT + code)
    (line,) = project.run("site/script.py").splitlines()
    said: dict[str, Any] = json.loads(line)
    return said


def test_a_task_is_enqueued_run_and_its_result_read(project: DjangoProject) -> None:
    project.start("relier_worker", "--queues", "default,mail")
    said = said_by(
        project,
        """
first = tasks.add.enqueue(1, b=2)
ready = first.status
result = wait(first)
async def go():
    sent = await tasks.mail.aenqueue("ann")
    return await tasks.mail.aget_result(wait(sent).id)
failed = wait(tasks.fail.enqueue())
try:
    failed.return_value
except ValueError as error:
    refused = str(error)
word = wait(tasks.about.using(priority=-50).enqueue("x"))
say(ready=ready, add=shown(tasks.add.get_result(result.id)), mail=shown(asyncio.run(go())), fail=shown(failed),
    refused=refused, about=shown(word))
""",
    )
    assert said["ready"] == "READY"
    kept = {name: said["add"][name] for name in ("status", "args", "kwargs", "attempts", "workers", "value", "times")}
    assert kept == {
        "status": "SUCCESSFUL",
        "args": [1],
        "kwargs": {"b": 2},
        "attempts": 1,
        "workers": 1,
        "value": 3,
        "times": [True, True, True],
    }
    assert (said["mail"]["value"], said["mail"]["queue"]) == ({"to": "ann"}, "mail")
    assert (said["fail"]["status"], said["fail"]["attempts"], said["refused"]) == ("FAILED", 1, "Task failed")
    assert said["fail"]["errors"] == [["ValueError", "ValueError: no"]]
    assert said["about"]["value"] == [said["about"]["id"], 1, "x", "RUNNING", -50]


def test_priority_and_run_after_decide_what_runs_when(project: DjangoProject) -> None:
    said = said_by(
        project,
        """
from relier.submit.client import default_client
low, high = tasks.add.using(priority=-1).enqueue(1, 2), tasks.add.using(priority=100).enqueue(3, 4)
after = timezone.now() + datetime.timedelta(hours=1)
due = tasks.add.using(run_after=after).enqueue(5, 6)
client = default_client()
waiting = client.run(client.ledger.list("ready", "default")).records
record = client.run(client.ledger.get(due.id)).record
say(order=[one.id for one in waiting] == [high.id, low.id], levels=[one.spec.priority for one in waiting],
    state=record.state, same=tasks.add.get_result(due.id) == due, ready=due.status)
""",
    )
    assert said == {"order": True, "levels": [9, -1], "state": "scheduled", "same": True, "ready": "READY"}


def test_retries_of_the_backend_count_as_attempts(project: DjangoProject) -> None:
    project.run("site/manage.py", "migrate", "-v", "0")
    project.start("relier_worker")
    said = said_by(project, "say(**shown(wait(tasks.fail_once.enqueue('ann'))))")
    assert (said["status"], said["attempts"], said["value"]) == ("SUCCESSFUL", 2, ["ann", 1])
    assert said["errors"] == [["ValueError", "ValueError: once"]]


def test_another_backend_pushes_but_the_declared_one_decides_how_a_task_runs(project: DjangoProject) -> None:
    project.start("relier_worker")
    said = said_by(
        project,
        """
moved = tasks.fail_once.using(backend="default").enqueue("bob")
again = tasks.fail.using(backend="late").enqueue()
say(moved=shown(wait(moved)), alone=shown(wait(tasks.alone.enqueue(7))), again=shown(wait(again)))
""",
    )
    assert (said["moved"]["status"], said["moved"]["attempts"]) == ("SUCCESSFUL", 2)
    assert said["alone"]["value"] == [1, 7]
    assert (said["again"]["status"], said["again"]["attempts"]) == ("FAILED", 1)


def test_a_task_in_a_transaction_waits_for_the_commit(project: DjangoProject) -> None:
    project.run("site/manage.py", "migrate", "-v", "0")
    said = said_by(
        project,
        """
from relier.django.models import OutboxRow
from relier.django.tasks.library import TaskResultDoesNotExist
def known(result):
    try:
        return result.task.get_backend().get_result(result.id).status
    except TaskResultDoesNotExist:
        return "unknown"
class Undo(Exception): pass
try:
    with transaction.atomic():
        gone = [tasks.fail_once.enqueue("ann"), tasks.later.enqueue(1)]
        raise Undo
except Undo:
    pass
with transaction.atomic():
    row, late, now = tasks.fail_once.enqueue("ann"), tasks.later.enqueue(1), tasks.add.enqueue(1, 2)
    inside = [known(row), known(late), known(now)]
same = tasks.fail_once.get_result(row.id) == row
say(gone=[known(one) for one in gone], inside=inside, after=[known(row), known(late), known(now)], same=same,
    rows=[one.name for one in OutboxRow.objects.all()])
""",
    )
    assert said == {
        "gone": ["unknown", "unknown"],
        "inside": ["READY", "unknown", "READY"],
        "after": ["READY", "READY", "READY"],
        "same": True,
        "rows": ["orders.tasks.fail_once"],
    }


def test_mistakes_are_reported_where_they_are_made(project: DjangoProject) -> None:
    assert "no issues" in project.run("site/manage.py", "check")
    said = said_by(
        project,
        """
from django.core.checks import run_checks
from django.test.utils import override_settings
from django.conf import settings
from relier.django.models import OutboxRow
try:
    tasks.add.enqueue([OutboxRow()], 1)
except TypeError as error:
    model = str(error)
found = {}
for options in ({"retrys": 1}, {"TRANSACTION": "soon"}):
    with override_settings(TASKS={"default": settings.BACKEND | {"OPTIONS": options}}):
        found[next(iter(options))] = [one.msg for one in run_checks() if one.id == "relier.E005"]
say(model=model, found=found)
""",
    )
    assert "is a Django model, whose row may change before the task runs: pass value.pk" in said["model"]
    assert "did you mean" in said["found"]["retrys"][0]
    assert "is now, on_commit, outbox, not 'soon'" in said["found"]["TRANSACTION"][0]


def test_a_worker_warns_about_queues_of_tasks_that_nobody_serves(project: DjangoProject) -> None:
    project.start("relier_worker")
    project.wait_for("neither this worker nor any other live worker serves queue 'mail'")
    assert "start this worker with `--queues default,mail`" in project.log


def test_a_worker_that_is_stopped_leaves_no_task_unfinished(project: DjangoProject) -> None:
    worker = project.start("relier_worker")
    said_by(project, "say(**shown(wait(tasks.add.enqueue(1, 2))))")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    assert said_by(project, "say(**shown(tasks.add.enqueue(1, 2)))")["status"] == "READY"


def test_the_testing_kit_records_and_runs_tasks_without_a_store(project: DjangoProject) -> None:
    project.environment["RELIER_REDIS_URL"] = "redis://127.0.0.1:1"
    said = said_by(
        project,
        """
from relier.testing import inline, recorded
with recorded():
    ready = tasks.add.enqueue(1, 2).status
with inline():
    result = tasks.add.get_result(tasks.add.enqueue(1, b=2).id)
say(ready=ready, **shown(result))
""",
    )
    assert (said["ready"], said["status"], said["value"], said["args"]) == ("READY", "SUCCESSFUL", 3, [1])


KIT = """
from django.test import TestCase
from orders.tasks import about, add, fail_once, mail
from relier.testing import open_outbox, recorded, run_pending, store

class Kit(TestCase):
    def test_pushes_are_compared_with_the_arguments_of_the_function(self):
        with recorded() as pushed:
            add.enqueue(1, b=2)
            about.enqueue("word")
            mail.using(queue_name="mail").enqueue("ann")
        (call,) = pushed.assert_pushed(add, 1, 2)
        self.assertEqual((call.args, call.kwargs), ((1,), {"b": 2}))
        pushed.assert_pushed(about, word="word")
        pushed.assert_pushed(mail, "ann", queue="mail")
        pushed.assert_not_pushed(fail_once)
        with self.assertRaisesRegex(AssertionError, r"orders.tasks.add\\(1, b=2\\) to queue default"):
            pushed.assert_pushed(add, 1, 3)

    def test_rows_are_read_and_run_as_calls_of_the_function(self):
        with open_outbox() as rows:
            fail_once.enqueue("ann")  # its backend says TRANSACTION: outbox
            (call,) = rows.assert_sent(fail_once, "ann")
            self.assertEqual((call.args, call.kwargs), (("ann",), {}))
            (call,) = rows.drain()
            with self.assertRaisesRegex(ValueError, "once"):
                call.run()

    def test_attempts_show_the_call_and_the_value(self):
        with store():
            add.enqueue(1, b=2)
            mail.enqueue("bob")
            ran = run_pending()
        self.assertEqual([(one.args, one.kwargs, one.result) for one in ran],
                         [((1,), {"b": 2}, 3), (("bob",), {}, {"to": "bob"})])
"""


def test_the_testing_kit_shows_tasks_as_they_were_written(project: DjangoProject) -> None:
    (project.site / "orders" / "tests.py").write_text(KIT)
    (project.site / "orders" / "__init__.py").touch()
    command = [sys.executable, "-W", "error", "manage.py", "test", "orders"]
    run = partial(subprocess.run, capture_output=True, text=True, timeout=90)
    done = run(command, cwd=project.site, env=project.environment)
    assert "Ran 3 tests" in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
