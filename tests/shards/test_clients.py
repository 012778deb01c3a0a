"""What a process does in a namespace with shards: pushes, receipts, workflows, schedules, locks and events."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice

import pytest

from relier import batch, chain, group
from relier.errors import (
    ConfigurationError,
    InvalidSubmissionError,
    PartialPushError,
    ShardsError,
    StoreError,
    TaskNotFoundError,
)
from relier.ledger.ledger import Ledger
from relier.ledger.pages import read_stats
from relier.lock import idempotency_lock
from relier.schedules.api import Schedules
from relier.schedules.declared import declare_all
from relier.schedules.spec import spec_of
from relier.settings import Settings
from relier.settings.shards import ROOT, shard_of, shards_in_mark
from relier.store import Durability
from relier.submit.client import Client, use_client
from relier.submit.receipt import SyncTaskReceipt
from tests.support.jobs import sharded as jobs
from tests.support.servers import Boot, Server

pytestmark = pytest.mark.anyio


def queued(client: Client) -> list[int]:
    """Return the number of queued tasks in each shard."""
    return [sum(queue.waiting for queue in read_stats(shard.run, shard.ledger).queues) for shard in client.shards]


# --- pushes ----------------------------------------------------------------------------------------------------------


def test_a_push_reaches_the_shard_of_its_id(client: Client) -> None:
    ids = [jobs.add.push(1, 2).id for _ in range(40)]
    assert queued(client) == [Counter(shard_of(each, 4) for each in ids)[shard] for shard in range(4)]
    chosen = jobs.add.with_options(task_id="order-2").push(1)
    assert client.shards[3].run(client.shards[3].ledger.get("order-2")).record.id == "order-2"
    assert chosen.state() == "queued"
    assert SyncTaskReceipt[int]("order-2").info().record.name == jobs.add.name
    assert jobs.add.sync_receipt("order-2").cancel()
    assert jobs.add.with_options(task_id="order-2").push(1).duplicate
    with pytest.raises(TaskNotFoundError):
        SyncTaskReceipt[int]("order-1").info()


async def test_pushes_on_an_event_loop_reach_their_shards(client: Client) -> None:
    receipts = await asyncio.gather(*(jobs.add.apush(n) for n in range(20)))
    assert [await each.state() for each in receipts] == ["queued"] * 20
    many = await jobs.add.apush_many([(n, 0) for n in range(300)])
    assert sum(queued(client)) == 320
    assert all(await asyncio.gather(*(each.cancel() for each in many[:5])))
    await client.aclose()


def test_a_bulk_is_one_bulk_per_shard(client: Client) -> None:
    receipts = jobs.add.push_many([(n, 0) for n in range(1000)])
    assert len({each.id for each in receipts}) == 1000
    assert sum(queued(client)) == 1000
    assert min(queued(client)) > 150
    assert [each.duplicate for each in jobs.add.push_many([(n, 0) for n in range(3)], task_ids=["a", "b", "c"])] == [
        False,
        False,
        False,
    ]
    again = jobs.add.push_many([(n, 0) for n in range(3)], task_ids=["a", "b", "c"])
    assert [(each.id, each.duplicate) for each in again] == [("a", True), ("b", True), ("c", True)]
    assert jobs.add.push_many([]) == []
    with pytest.raises(InvalidSubmissionError, match="task_ids has 3 ids, but there are fewer calls"):
        jobs.add.push_many([(1, 1)], task_ids=["x", "y", "z"])
    with pytest.raises(InvalidSubmissionError, match="task_ids has 1 ids, but there are more calls"):
        jobs.add.push_many([(1, 1), (2, 2)], task_ids=["x"])
    assert sum(queued(client)) == 1003


def test_keys_and_limits_decide_the_shard(client: Client) -> None:
    first = [jobs.charge.push(order) for order in range(12)]
    again = [jobs.charge.push(order) for order in range(12)]
    assert [each.id for each in again] == [each.id for each in first]
    assert all(each.duplicate for each in again)
    assert [each.id for each in jobs.charge.push_many([(order,) for order in range(12)])] == [e.id for e in first]
    for tenant in range(8):
        ids = [jobs.per_tenant.push(tenant).id for _ in range(4)]
        ids += [each.id for each in jobs.per_tenant.push_many([(tenant,)] * 4)]
        assert {shard_of(each, 4) for each in ids} == {shard_of(f"tenant:{tenant}", 4)}
    assert len({shard_of(jobs.two_at_once.push(n).id, 4) for n in range(12)}) == 1
    assert jobs.once_per_tenant.push(1).id == jobs.once_per_tenant.push(1).id


def test_a_chosen_id_in_another_shard_than_the_key_is_refused(client: Client) -> None:
    wrong, right = (
        next(f"id-{n}" for n in range(99) if (shard_of(f"id-{n}", 4) == shard_of("tenant:1", 4)) is fits)
        for fits in (False, True)
    )
    with pytest.raises(InvalidSubmissionError, match=r"belongs to shard .* leave task_id out"):
        jobs.per_tenant.with_options(task_id=wrong).push(1)
    with pytest.raises(InvalidSubmissionError, match="belongs to shard"):
        jobs.per_tenant.push_many([(1,)], task_ids=[wrong])
    assert queued(client) == [0, 0, 0, 0]
    assert jobs.per_tenant.with_options(task_id=right).push(1).id == right
    with pytest.raises(ShardsError, match="has a limit per key, and this push has an idempotency_key"):
        jobs.per_tenant.with_options(idempotency_key="k").push(1)
    with pytest.raises(ShardsError, match="an idempotency key, and this push has an order_key"):
        jobs.charge.with_options(order_key="k").push(1)


def test_an_unreachable_shard_fails_only_its_own_pushes(boot: Boot, namespace: str) -> None:
    here, away = boot(), boot()
    settings = Settings(
        redis_url=f"{here.url} {away.url}",
        namespace=namespace,
        shards=2,
        redis_deadline=0.5,
        redis_connect_timeout=0.2,
        redis_breaker_cooldown=0.01,
    )
    client = Client(settings)
    for shard in client.shards:
        shard.open()
    away.kill()
    ids = [f"id-{n}" for n in range(20)]
    use_client(client)
    try:
        with pytest.raises(PartialPushError) as failed:
            jobs.add.push_many([(n, 0) for n in range(20)], task_ids=ids)
        refused = {each for each, error in failed.value.outcomes.items() if error is not None}
        assert refused == {each for each in ids if shard_of(each, 2) == 1}
        assert list(failed.value.outcomes) == ids
        with pytest.raises(StoreError):
            jobs.add.with_options(task_id=sorted(refused)[0]).push(1)
        away.start()
        assert len(jobs.add.push_many([(n, 0) for n in range(20)], task_ids=failed.value.task_ids)) == 20
        assert sum(queued(client)) == 20
    finally:
        use_client(None)
        client.close()


# --- workflows, schedules, locks -------------------------------------------------------------------------------------


def test_a_workflow_lies_in_one_shard(client: Client) -> None:
    for given in (None, "order-1", "order-2"):
        receipt = chain(jobs.add.s(1), group(jobs.add.s(n) for n in range(3)), jobs.add.si(2)).push(id=given)
        home = shard_of(receipt.id, 4)
        assert receipt.progress().total >= 1
        assert all(shard_of(member.id, 4) == home for member in receipt.members())
        assert given in {None, receipt.id}
    large = batch(jobs.add.s(n) for n in range(250)).push(id="large")
    assert sum(shard_of(member.id, 4) == shard_of("large", 4) for member in large.members()) == 250
    with batch(name="open").open() as opened:
        opened.add(jobs.add.s(1), chain(jobs.add.s(1), jobs.add.s(2)))
    assert opened.sync_receipt.progress().total >= 2
    assert batch([]).push().progress().ended


def test_a_workflow_lies_in_the_shard_of_its_only_limit(client: Client) -> None:
    receipt = batch(jobs.per_tenant.s(7) for _ in range(3)).push()
    assert shard_of(receipt.id, 4) == shard_of("tenant:7", 4)
    with pytest.raises(ShardsError, match="their keys differ"):
        batch(jobs.per_tenant.s(n) for n in range(2)).push()
    with pytest.raises(ShardsError, match="its id decides the shard"):
        batch([jobs.per_tenant.s(7)]).push(id="mine")
    with batch().open() as opened, pytest.raises(ShardsError, match="its id decides the shard"):
        opened.add(jobs.per_tenant.s(7))


async def test_schedules_lie_in_the_shards_of_their_names(client: Client) -> None:
    schedules = Schedules()
    names = [f"every-{n}" for n in range(8)]
    for name in names:
        schedules.create(name, jobs.add, every=3600, args=(1,))
    assert [each.name for each in schedules.list()] == names
    assert schedules.pause("every-3").state == "paused"
    assert schedules.get("every-3").state == "paused"
    ran = schedules.run_now("every-3")
    assert shard_of(ran.id, 4) == shard_of("every-3", 4)
    assert ran.state() == "queued"
    schedules.remove("every-3")
    assert len(schedules.list()) == 7
    with pytest.raises(ShardsError, match="with RELIER_SHARDS its name decides the shard of its tasks"):
        schedules.create("limited", jobs.per_tenant, every=60, args=(1,))
    specs = [spec_of(f"declared-{n}", jobs.add, {"every": 60, "args": (1,)}) for n in range(8)]
    for shard in client.shards:
        await declare_all(shard, shard.arun, "app", specs)
    assert len(schedules.list()) == 15
    await client.aclose()


def test_a_lock_holds_in_all_processes(client: Client) -> None:
    with idempotency_lock("charge:1") as lock:
        lock.set_result("paid")
    with idempotency_lock("charge:1") as lock:
        assert lock.cached_result == "paid"


# --- events ----------------------------------------------------------------------------------------------------------


def test_events_of_all_shards_are_merged(server: Server, namespace: str) -> None:
    client = Client(Settings(redis_url=server.url, namespace=namespace, shards=4, events="always"))
    use_client(client)
    try:
        ids = {each.id for each in jobs.add.push_many([(n, 0) for n in range(60)])}
        seen = list(islice(client.events_sync("tasks", since="start"), 30))
        rest = list(islice(client.events_sync("tasks", since=seen[-1].cursor), 30))
        assert {event.id for event in [*seen, *rest]} == ids  # type: ignore[union-attr]
        with pytest.raises(InvalidSubmissionError, match="of another number of shards"):
            next(iter(client.events_sync("tasks", since="0:tasks=1-1")))
    finally:
        use_client(None)
        client.close()


async def test_events_of_all_shards_arrive_on_an_event_loop(server: Server, namespace: str) -> None:
    client = Client(Settings(redis_url=server.url, namespace=namespace, shards=3, events="always"))
    for shard in client.shards:
        await shard.aopen()
        await shard.arun(shard.ledger.pause(f"q{shard.settings.shard}", 0))
    found = set()
    async with asyncio.timeout(20):
        async for event in client.events("cluster", since="start"):
            found.add(event.id)  # type: ignore[union-attr]
            if len(found) == 3:
                break
    assert found == {"q0", "q1", "q2"}
    await client.aclose()


# --- the number of shards --------------------------------------------------------------------------------------------


def opened(settings: Settings) -> None:
    client = Client(settings)
    try:
        for shard in client.shards:
            shard.open()
    finally:
        client.close()


def test_another_number_of_shards_is_refused(sharded: Settings) -> None:
    opened(sharded)
    opened(sharded)
    with pytest.raises(ShardsError, match=r"was created under RELIER_SHARDS=4, but this process has RELIER_SHARDS=1"):
        opened(sharded.replace(shards=1))
    with pytest.raises(ShardsError, match=r"RELIER_SHARDS=4, but this process has RELIER_SHARDS=8.*rl shards change"):
        opened(sharded.replace(shards=8))


def test_a_namespace_used_without_shards_refuses_them(sharded: Settings) -> None:
    opened(sharded.replace(shards=1))
    with pytest.raises(ShardsError, match=r"was created under RELIER_SHARDS=1, but this process has RELIER_SHARDS=4"):
        opened(sharded)


def test_every_mark_has_the_number(sharded: Settings, server: Server) -> None:
    opened(sharded)
    for number in (ROOT, 0, 1, 2, 3):
        prefix = Ledger(sharded.of_shard(number)).prefix
        assert shards_in_mark(server.command("HGET", f"{prefix}meta", "born").decode()) == 4


def test_an_unreachable_root_does_not_stop_the_other_shards(boot: Boot, namespace: str) -> None:
    """The root is on the server of the first shard."""
    first, second = boot(), boot()
    urls, quick = f"{first.url} {second.url}", {"redis_connect_timeout": 0.2, "redis_breaker_cooldown": 0.01}
    settings = Settings(redis_url=urls, namespace=namespace, shards=2, redis_deadline=0.5, **quick)
    first.kill()
    client = Client(settings)
    try:
        client.shards[1].open()
        assert client.root is not None
        assert not client.root.done
        with pytest.raises(StoreError):
            client.shards[0].open()
        first.start()
        client.shards[0].open()
        assert client.root.done
    finally:
        client.close()


def test_an_emptied_server_gets_its_marks_again(boot: Boot, namespace: str) -> None:
    server = boot()
    settings = Settings(redis_url=server.url, namespace=namespace, shards=2)
    client = Client(settings)
    use_client(client)
    try:
        jobs.add.push_many([(n,) for n in range(20)])
        server.command("FLUSHALL")
        jobs.add.push_many([(n,) for n in range(20)])
        for number in (ROOT, 0, 1):
            mark = server.command("HGET", f"{Ledger(settings.of_shard(number)).prefix}meta", "born")
            assert shards_in_mark(mark.decode()) == 2
    finally:
        use_client(None)
        client.close()


def test_what_does_not_support_shards_says_so(sharded: Settings) -> None:
    with pytest.raises(ShardsError, match="does not support RELIER_SHARDS yet: it would use the namespace"):
        Ledger(sharded)
    with pytest.raises(ShardsError):
        Client(sharded).submit([], None, Durability.MEMORY)
    assert issubclass(ShardsError, ConfigurationError)


def test_celery_refuses_shards(sharded: Settings) -> None:
    celery = pytest.importorskip("celery")
    from relier.celery import install

    with pytest.raises(ShardsError, match="the Celery engine does not support RELIER_SHARDS yet, which is 4 here"):
        install(celery.Celery("shop"), settings=sharded)
