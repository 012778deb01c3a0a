"""`relier.testing` needs no shards: it uses none, whatever the environment says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relier.settings import get_settings
from relier.testing import inline, recorded, run_pending, store
from tests.support.jobs import sharded as jobs


@pytest.fixture(autouse=True)
def _shards_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RELIER_SHARDS", "3")
    monkeypatch.setenv("RELIER_REDIS_URL", "redis://a.invalid redis://b.invalid redis://c.invalid")
    get_settings.cache_clear()
    yield
    monkeypatch.undo()
    get_settings.cache_clear()


def test_pushes_are_recorded() -> None:
    with recorded() as pushes:
        jobs.add.push(1)
        jobs.add.push_many([(n,) for n in range(5)])
    assert len(pushes) == 6


def test_tasks_run_inline() -> None:
    with inline():
        assert jobs.add.push(1, 2).result() == 3


def test_tasks_run_on_a_virtual_store() -> None:
    with store():
        receipts = [jobs.per_tenant.push(n) for n in range(3)]
        run_pending()
        assert [each.result() for each in receipts] == [0, 1, 2]
