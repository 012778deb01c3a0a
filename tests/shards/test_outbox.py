"""Outbox rows go to the shards of their ids, and those of an unreachable shard wait without holding up the others."""

from __future__ import annotations

from relier.outbox.publish.sharded_target import ShardedLedgerTarget
from relier.outbox.publish.target import Deferred, Outage, Sent
from relier.outbox.row import Row
from relier.settings import Settings
from relier.settings.shards import shard_of
from relier.submit.client import Client, use_client
from relier.task.pushable import row_of
from tests.support.jobs import sharded as jobs
from tests.support.servers import Boot


def rows_of(n: int, **options: str) -> list[Row]:
    pushed = [row_of(jobs.add, jobs.add.with_options(**options)._push, (number,), {}) for number in range(n)]
    return [
        Row(number, each.task_id, each.kind, each.name, each.queue, each.body, 0, 1, 0, order_key=each.order_key)
        for number, each in enumerate(pushed)
    ]


def test_rows_reach_the_shards_of_their_ids(client: Client) -> None:
    rows = rows_of(40)
    target = ShardedLedgerTarget(client)
    assert [type(each) for each in target.publish(rows)] == [Sent] * 40
    assert [type(each) for each in target.publish(rows)] == [Sent] * 40
    for row in rows:
        home = client.shards[shard_of(row.task_id, 4)]
        assert home.run(home.ledger.get(row.task_id)).record.state == "queued"


def test_rows_with_one_order_key_lie_in_one_shard(client: Client) -> None:
    assert {shard_of(row.task_id, 4) for row in rows_of(12, order_key="customer-7")} == {shard_of("customer-7", 4)}


def test_rows_of_an_unreachable_shard_wait(boot: Boot, namespace: str) -> None:
    here, gone = boot(), boot()
    settings = Settings(
        redis_url=f"{here.url} {gone.url}",
        namespace=namespace,
        shards=2,
        redis_deadline=0.5,
        redis_connect_timeout=0.2,
        redis_breaker_cooldown=0.01,
    )
    client = Client(settings)
    use_client(client)
    try:
        for shard in client.shards:
            shard.open()
        rows = rows_of(20)
        lonely = [row for row in rows if shard_of(row.task_id, 2) == 1]
        gone.kill()
        target = ShardedLedgerTarget(client)
        outcomes = dict(zip((row.task_id for row in rows), target.publish(rows), strict=True))
        expected = {row.task_id: Deferred if row in lonely else Sent for row in rows}
        assert {task_id: type(outcome) for task_id, outcome in outcomes.items()} == expected
        assert {type(each) for each in target.publish(lonely)} == {Deferred}  # another shard answers
        here.kill()
        assert {type(each) for each in target.publish(rows)} == {Outage}
        for server in (here, gone):
            server.start()
        assert {type(each) for each in target.publish(rows)} == {Sent}
    finally:
        use_client(None)
        client.close()
