"""django-celery-beat's tables as the source of beat, on a store whose time the test sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relier.settings import Settings
from tests.support import PYTHONPATH
from tests.support.django_project import DjangoProject

pytest.importorskip("django_celery_beat")  # it needs a Django before 6
pytestmark = pytest.mark.slow

FILES = {
    "shop/__init__.py": "",
    "shop/settings.py": """
SECRET_KEY = "x"
INSTALLED_APPS = ["django_celery_beat"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
""",
    "script.py": """
import json, sys
from datetime import datetime, timedelta, timezone
import celery, django
django.setup()
from django.core.management import call_command
from relier.settings import Settings
from tests.support.crew import Crew

crew = Crew(Settings(), clocked=True)
app = celery.Celery("shop", broker="redis://127.0.0.1:1")
app.conf.result_expires = None
from relier.celery import install
install(app, adopt=True)
call_command("migrate", verbosity=0)
from django_celery_beat.models import *
from relier.django.beat import DjangoBeat

def at(seconds):
    return datetime.fromtimestamp(crew.clock.began_us / 1e6 + seconds, timezone.utc)

def state(name):
    found = crew.run(crew.ledger.schedules("shop:" + name)).schedules
    return found[0] if found else None

def fires(name):
    found = state(name)
    return [fire.outcome for fire in found.fires] if found else []

tens = IntervalSchedule.objects.create(every=10, period="seconds")

def row(name, **fields):
    return PeriodicTask.objects.create(name=name, task="shop.count", **fields)

def shown(**values):
    print(json.dumps(values))

exec(sys.stdin.read())
""",
}


@pytest.fixture
def run(tmp_path: Path, settings: Settings) -> Any:
    project = DjangoProject(tmp_path, FILES)
    project.environment |= {
        "PYTHONPATH": f"{project.site}:{PYTHONPATH}",
        "RELIER_REDIS_URL": settings.redis_url,
        "RELIER_NAMESPACE": settings.namespace,
    }
    return lambda code: json.loads(project.feed(code, "site/script.py").splitlines()[-1])


def test_rows_run_and_their_last_run_is_recorded(run: Any) -> None:
    said = run("""
row("tens", interval=tens, args="[1]", kwargs='{"n": 2}', queue="reports", expire_seconds=60, headers='{"tenant": "a"}')
cron = CrontabSchedule.objects.create(minute="0", hour="3", timezone="Europe/Paris")
row("nightly", crontab=cron)
row("off", interval=tens, enabled=False)
nodes = [DjangoBeat(app) for _ in range(3)]
for node in nodes: node.tick()
for _ in range(2):
    crew.advance(10)
    for node in nodes: node.tick()
from relier.celery.sending.control import message_in
task = crew.get(state("tens").last)
message = message_in(task, crew.client.keyring)
kept = PeriodicTask.objects.get(name="tens")
shown(fires=fires("tens"), queue=task.record.queue, headers=[message.headers["tenant"],
      message.headers["periodic_task_name"]], body=json.loads(message.body)[:2], runs=kept.total_run_count,
      last=kept.last_run_at is not None, off=state("off") is None, expires=bool(message.headers["expires"]),
      hour=datetime.fromtimestamp(state("nightly").next_ms / 1000, timezone.utc).hour)
""")
    assert said.pop("hour") in (1, 2)
    assert said == {
        "fires": ["fired", "fired"],
        "queue": "reports",
        "headers": ["a", "tens"],
        "body": [[1], {"n": 2}],
        "runs": 2,
        "last": True,
        "off": True,
        "expires": True,
    }


def test_changes_of_the_tables_are_followed(run: Any) -> None:
    said = run("""
node = DjangoBeat(app)
node.tick()
added = row("added", interval=tens)
node.tick()
states = [str(state("added").state)]
added.enabled = False
added.save()
node.tick()
states.append(str(state("added").state))
added.enabled, added.args = True, "[2]"
added.save()
node.tick()
states.append(str(state("added").state))
added.delete()
node.tick()
states.append(str(state("added").state))
shown(states=states)
""")
    assert said["states"] == ["active", "disabled", "active", "disabled"]


def test_one_off_rows_run_once_and_can_be_enabled_again(run: Any) -> None:
    said = run("""
soon = ClockedSchedule.objects.create(clocked_time=at(5))
past = ClockedSchedule.objects.create(clocked_time=at(-5))
row("soon", clocked=soon, one_off=True)
row("past", clocked=past, one_off=True)
again = row("again", interval=tens, one_off=True)
node = DjangoBeat(app)
node.tick()
for _ in range(4):
    crew.advance(10)
    node.tick()
first = crew.count("submitted")
enabled = PeriodicTask.objects.filter(enabled=True).count()
again.refresh_from_db()
again.enabled = True
again.save()
for _ in range(4):
    node.tick()
    crew.advance(10)
shown(first=first, enabled=enabled, then=crew.count("submitted"))
""")
    assert said == {"first": 3, "enabled": 0, "then": 4}


def test_rows_have_a_beginning_and_an_end(run: Any) -> None:
    said = run("""
row("bounded", interval=tens, start_time=at(30), expires=at(52))
node = DjangoBeat(app)
node.tick()
first = state("bounded").next_ms - crew.clock.began_us // 1000
for _ in range(9):
    crew.advance(10)
    node.tick()
shown(first=first, fires=fires("bounded"), state=str(state("bounded").state))
""")
    assert said == {"first": 30_000, "fires": ["fired"] * 3, "state": "ended"}
