"""Tasks that use Django's database survive the loss of a connection, and leave none behind."""

from __future__ import annotations

import json
from typing import Any

import celery
import pytest
from sqlalchemy.engine import make_url

from relier import SyncTaskReceipt, rl_task, use_client
from relier.celery import install
from tests.support.conformance.engine import Native
from tests.support.conformance.stage import PATIENCE_S, Stage
from tests.support.database_fixtures import postgres, postgres_server
from tests.support.databases import Database

__all__ = ["postgres", "postgres_server"]  # fixtures

MODULE = "tests.support.conformance.django_tasks"
KEPT = {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}


def named(name: str) -> Any:
    """Return a task of the worker by its name. Its module cannot be imported here: it needs a different Django
    project."""

    def stand_in() -> int:
        raise AssertionError("a worker runs it")

    return rl_task(name=f"{MODULE}.{name}")(stand_in)


TASKS = [named(name) for name in ("in_thread", "on_loop", "alone")]


def start_worker(stage: Stage, database: Database, **options: Any) -> None:
    url = make_url(database.url)
    place = {"ENGINE": "django.db.backends.postgresql", "NAME": url.database, "USER": url.username, "HOST": url.host}
    stage.start_worker(MODULE, env={"CONFORMANCE_DATABASE": json.dumps(place | {"PORT": url.port} | options)})


@pytest.mark.core
@pytest.mark.parametrize("options", [{}, KEPT], ids=["closed", "kept"])
def test_the_task_after_a_lost_connection_succeeds(stage: Stage, postgres: Database, options: Any) -> None:
    start_worker(stage, postgres, **options)
    before = [task.push().result(PATIENCE_S) for task in TASKS]
    postgres.kill_connections()
    after = [task.push().result(PATIENCE_S) for task in TASKS]
    assert not set(before) & set(after)


@pytest.mark.core
@pytest.mark.parametrize("options", [{}, KEPT], ids=["closed", "kept"])
def test_the_adopted_task_after_a_lost_connection_succeeds(stage: Stage, postgres: Database, options: Any) -> None:
    if stage.engine.name == Native.name:
        pytest.skip("adopted tasks are Celery's")
    start_worker(stage, postgres, **options)
    with celery.Celery("producer", broker="memory://", set_as_current=False) as app:
        install(app, adopt=["conformance.*"], settings=stage.settings)
        use_client(stage.client)
        pids = []
        for _ in range(2):
            sent = app.send_task("conformance.adopted", queue="default")
            pids.append(SyncTaskReceipt[int](sent.id).result(PATIENCE_S))
            postgres.kill_connections()
    assert len(set(pids)) == 2


@pytest.mark.core
def test_connections_do_not_pile_up(stage: Stage, postgres: Database) -> None:
    """At no time during 1,000 tasks are there more connections than can be in use at once."""
    start_worker(stage, postgres, **KEPT)
    query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{postgres.name}'"
    counts = []
    for task in TASKS[:2] * 2:
        for receipt in task.push_many([()] * 250):
            receipt.result(PATIENCE_S)
        ((open_now,),) = postgres.server.execute(query)
        counts.append(open_now)
    assert max(counts) <= stage.engine.at_once + stage.engine.alone + 1, counts
