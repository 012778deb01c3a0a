"""Ids and keys find their shards, and ids are drawn or derived until they belong to the right one."""

from __future__ import annotations

from collections import Counter
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relier import rl_task
from relier.errors import ConfigurationError, ShardsError
from relier.ledger.records import new_task_id
from relier.limits import Limit
from relier.schedules.definition import run_id
from relier.settings import Settings, environment
from relier.settings.shards import (
    MOST_SHARDS,
    ROOT,
    derived,
    drawn,
    mark_suffix,
    shard_of,
    shards_in_mark,
    split_urls,
)
from relier.submit.client import Client, place_of
from relier.submit.shards.routing import check_fits_shards

names = st.text(min_size=1, max_size=80)
counts = st.integers(1, MOST_SHARDS)


@given(names, counts)
def test_every_name_has_one_shard(name: str, shards: int) -> None:
    assert 0 <= shard_of(name, shards) < shards
    assert shard_of(name, shards) == shard_of(str(name), shards)


def test_the_hash_is_part_of_the_layout() -> None:
    """If this fails, tasks that are stored would lie where nobody looks."""
    known = {"": 0, "order-1": 1, "order-2": 3, "01a1f3f389dd7f348bedd2dd6510bab0": 0, "naïve": 0, "\udc80": 1}
    assert {name: shard_of(name, 4) for name in known} == known
    assert shard_of("order-1", 1) == 0


@pytest.mark.parametrize("shards", [2, 3, 4, 7, 16])
def test_ids_spread_evenly(shards: int) -> None:
    for made in (new_task_id, lambda: str(uuid4())):
        found = Counter(shard_of(made(), shards) for _ in range(400 * shards))
        assert len(found) == shards
        assert max(found.values()) < 600
    in_sequence = Counter(shard_of(f"order-{n}", shards) for n in range(400 * shards))
    assert max(in_sequence.values()) < 600


@given(names, st.integers(1, 64), st.data())
def test_derived_ids_belong_to_the_shard(first: str, shards: int, data: st.DataObject) -> None:
    shard = data.draw(st.integers(0, shards - 1))
    found = derived(first, shard, shards)
    assert shard_of(found, shards) == shard
    assert found == derived(first, shard, shards)
    assert found.startswith(first)
    assert shards > 1 or found == first


@given(st.integers(1, 64), st.data())
def test_drawn_ids_belong_to_the_shard(shards: int, data: st.DataObject) -> None:
    shard = data.draw(st.integers(0, shards - 1))
    assert shard_of(drawn(new_task_id, shard, shards), shards) == shard


@given(names, st.integers(0, 2**47), st.integers(1, 32), st.data())
def test_runs_of_a_schedule_lie_in_its_shard(name: str, at: int, shards: int, data: st.DataObject) -> None:
    shard = data.draw(st.integers(0, shards - 1))
    found = run_id("shop", name, "1", at, shard, shards)
    assert shard_of(found, shards) == shard
    assert found == run_id("shop", name, "1", at, shard, shards)
    assert run_id("shop", name, "1", at) == run_id("shop", name, "1", at, 0, 1)


# --- settings --------------------------------------------------------------------------------------------------------


def test_a_shard_is_a_namespace() -> None:
    settings = Settings(redis_url="redis://a redis://b", namespace="shop", shards=2, concurrency=7)
    second = settings.of_shard(1)
    assert (second.namespace, second.redis_url, second.shard, second.concurrency) == ("shop.1", "redis://b", 1, 7)
    assert second.whole is settings
    assert settings.is_sharded
    assert not second.is_sharded
    assert second.replace(redis_deadline=1).of_shard(0).namespace == "shop.0"
    assert settings.of_shard(ROOT).namespace == "shop"
    assert environment(second)["RELIER_NAMESPACE"] == "shop"
    assert environment(second)["RELIER_REDIS_URL"] == "redis://a redis://b"
    assert place_of(settings) == "namespace 'shop' in 2 shards at redis://a, redis://b"


def test_without_shards_nothing_changes() -> None:
    settings = Settings(redis_url="redis://a", namespace="shop")
    assert settings.of_shard(0) is settings
    client = Client(settings)
    assert client.of("any") is client
    assert client.shards == (client,)
    assert client.whole is client
    assert client.root is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shards": 3, "redis_url": "redis://a redis://b"}, "lists 2 URLs, but RELIER_SHARDS is 3"),
        ({"redis_url": "redis://a redis://b"}, "lists 2 URLs, but RELIER_SHARDS is 1"),
        ({"shards": 100, "namespace": "n" * 62}, "too long for 100 shards"),
        ({"shards": 0}, "shards: must be a whole number, at least 1"),
        ({"shards": 5000}, "at most 1,024"),
    ],
)
def test_wrong_settings_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Settings(**given)
    if "redis_url" not in given and given.get("shards", 2) == 100:
        Settings(shards=100, namespace="n" * 61)


def test_one_url_may_contain_spaces() -> None:
    assert split_urls("embedded:///my data") == ("embedded:///my data",)
    assert split_urls(" redis://a\n redis://b ") == ("redis://a", "redis://b")


@given(st.integers(0, 1023), st.integers(2, 1024))
def test_a_mark_records_the_number_of_shards(shard: int, shards: int) -> None:
    assert shards_in_mark(f"0123abcd{mark_suffix(shard, shards)}-1700000000000") == shards
    assert shards_in_mark(f"0123abcd{mark_suffix(ROOT, shards)}-1700000000000") == shards
    assert shards_in_mark(f"0123abcd{mark_suffix(None, 1)}-1700000000000") == 1
    assert shards_in_mark("") == 1


# --- which tasks fit -------------------------------------------------------------------------------------------------


def task_with(**options: object) -> object:
    async def job(tenant: int, order: int = 0) -> None: ...

    return rl_task(name=f"job-{uuid4()}", **options)(job)  # type: ignore[call-overload]


TENANT = Limit(concurrency=1, per="tenant:{tenant}")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"idempotent": True},
        {"idempotency_key": "o:{order}"},
        {"limits": [TENANT]},
        {"limits": [Limit(concurrency=2, rate="5/s", per="tenant:{tenant}")]},
        {"limits": [Limit(concurrency=3)], "idempotency_key": "o:{order}"},
        {"limits": [Limit(concurrency=3, per="namespace")], "idempotent": True},
        {"limits": [TENANT], "idempotent": True},
        {"limits": [Limit(concurrency=3, per="queue")]},
    ],
)
def test_tasks_with_one_deciding_key_fit(options: dict[str, object]) -> None:
    check_fits_shards(task_with(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"limits": [TENANT, Limit(concurrency=3)]},
        {"limits": [TENANT, Limit(concurrency=3, per="queue")]},
        {"limits": [TENANT], "idempotency_key": "o:{order}"},
        {"limits": [Limit(concurrency=3, per="queue")], "idempotent": True},
    ],
)
def test_tasks_with_two_keys_are_refused_by_their_definition(options: dict[str, object]) -> None:
    with pytest.raises(ShardsError, match=r"does not work with RELIER_SHARDS: it has .*; nothing was pushed; "):
        check_fits_shards(task_with(**options))  # type: ignore[arg-type]
