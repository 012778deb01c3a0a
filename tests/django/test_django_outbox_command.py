"""`manage.py relier_outbox`: stats, dead, replay, purge and forget, without SQLAlchemy."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections, transaction

from relier import Client
from relier.django.models import OutboxRow
from relier.outbox.publish.target import SendFailed
from tests.support.databases import Database
from tests.support.django_shop import DjangoShop
from tests.support.outbox_shop import Scripted, receipt


@pytest.fixture
def shop(database: Database, client: Client) -> Iterator[DjangoShop]:
    with DjangoShop(client, default=database.url) as made:
        yield made.make_tables()


def run(*args: str) -> str:
    said = io.StringIO()
    call_command("relier_outbox", *args, stdout=said, stderr=said)
    return said.getvalue()


def document(*args: str) -> Any:
    return json.loads(run(*args, "--json"))


def bury(shop: DjangoShop, *orders: int) -> list[str]:
    with transaction.atomic():
        ids = [receipt.push_in("default", order).id for order in orders]
    shop.relay(Scripted(SendFailed(ValueError("poison"), final=True))).drain()
    return ids


def test_stats_dead_replay_and_purge_work_on_an_alias(shop: DjangoShop) -> None:
    first, second, third = bury(shop, 1, 2, 3)
    assert "Waiting: 0.\nDead: 3.\nRelays: none; start one" in run("stats")
    assert document("stats")["dead"] == 3
    assert "ValueError: poison" in run("dead")
    assert document("dead", first)["rows"][0]["task_id"] == first
    with pytest.raises(CommandError, match="no rows selected; give IDs"):
        run("purge")
    assert "1 dead row would be replayed." in run("replay", first, "--dry-run")
    assert document("replay", first) == {"matched": 1, "done": 1}
    assert document("stats")["waiting"] == 1
    assert "1 dead row deleted." in run("purge", second, "--yes")
    assert "0 dead rows deleted." in run("purge", "--older-than", "7d", "--yes")
    assert "1 dead row deleted." in run("purge", "--name", "shop.receipt", "--yes")
    assert shop.ids() == [first]
    assert third


@pytest.mark.parametrize("given", [["", "other"], ["--queue", "default", "--name", ""]])
def test_an_empty_id_or_filter_selects_nothing(shop: DjangoShop, given: list[str]) -> None:
    ids = bury(shop, 1, 2)
    with pytest.raises(CommandError, match="it is empty"):
        run("purge", *given, "--yes")
    assert shop.ids() == ids


def test_rows_that_no_relay_takes_are_reported(shop: DjangoShop) -> None:
    shop.client.open()
    bury(shop, 1)
    OutboxRow.objects.update(dead=0, kind="celery", created_at=0)
    told = run("stats")
    assert "No relay for: 1 celery row, the oldest for" in told
    assert "start a relay with --celery-app." in told


def test_marks_are_forgotten(shop: DjangoShop) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("INSERT INTO relier_inbox (task_id, revision, created_at) VALUES ('a', 1, 0)")
    assert document("forget", "--older-than", "90d") == {"removed": 1}
    with pytest.raises(CommandError, match="an age must be a number and a unit"):
        run("forget", "--older-than", "week")


def test_a_refusal_of_the_database_is_reported(shop: DjangoShop) -> None:
    with pytest.raises(CommandError, match=r"returned an error: .*not_there.*manage.py migrate"):
        run("stats", "--table", "not_there")


WITHOUT = """
import sys
sys.modules["sqlalchemy"] = None
from django.conf import settings
settings.configure(INSTALLED_APPS=["relier.django"], USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}})
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
for action in (["stats"], ["dead"], ["replay", "--all", "--yes"], ["purge", "--all", "--yes"],
               ["forget", "--older-than", "90d", "--yes"]):
    call_command("relier_outbox", *action)
from relier.django.management.commands import relier_relay
"""


def test_no_sqlalchemy_is_needed(tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path / "db.sqlite")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Relays: unknown, because the store does not answer." in done.stdout
    assert "0 dead rows deleted." in done.stdout
