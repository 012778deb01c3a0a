"""The threads that publish: a thread that hangs is abandoned, and another takes its place."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence

import pytest

from relier import Client
from relier.outbox.publish.publisher_threads import PublisherThreads
from relier.outbox.publish.target import SENT, Outage, Outcome, SendFailed, Sent
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.to_ledger import relay_to_ledger
from relier.outbox.row import Row
from relier.outbox.sqlalchemy.engines import EngineDatabase
from relier.settings import Settings
from tests.support.databases import Database
from tests.support.outbox_shop import Shop
from tests.support.servers import Boot, wait_until
from tests.support.wire import Proxy

TIMEOUT_S = 2.0
ROW = Row(1, "id", "celery", "name", "queue", b"", 0, 1, 0)


def running() -> int:
    return sum(thread.name == "relier-publishes" for thread in threading.enumerate())


def test_a_publish_that_hangs_is_an_outage_and_another_thread_continues() -> None:
    before, released = running(), threading.Event()
    publishers = PublisherThreads(1)

    def hang(_: Sequence[Row]) -> list[Outcome]:
        released.wait(30)
        return [SENT]

    publishers.begin(hang, [ROW], 0.01)
    assert not publishers.has_room
    (late,) = publishers.wait(30)
    (outcome,) = late.outcomes
    assert isinstance(outcome, Outage)
    assert outcome.silent
    assert str(outcome.error) == "no answer within 0.01 s (--send-timeout)"

    publishers.begin(lambda rows: [SENT for _ in rows], [ROW], math.inf)
    (ended,) = publishers.wait(30)
    assert ended.outcomes == [SENT]
    released.set()
    publishers.close()
    wait_until(lambda: running() == before)
    assert isinstance(late.outcomes[0], Outage)  # its outcome is ignored


def test_an_error_of_a_target_is_raised_in_the_relays_thread() -> None:
    publishers = PublisherThreads(1)

    def fail(_: Sequence[Row]) -> list[Outcome]:
        raise LookupError("a bug")

    publishers.begin(fail, [ROW], math.inf)
    (ended,) = publishers.wait(30)
    assert isinstance(ended.error, LookupError)
    publishers.close()


def test_send_timeout_holds_for_the_ledger_too(sqlite: Database, boot: Boot, settings: Settings) -> None:
    """The timeout covers the call and the check whether the store answers at all."""
    server = boot()
    client = Client(settings.replace(redis_url=server.url))
    with Shop(sqlite.url, client) as shop:
        options = RelayOptions(send_timeout=TIMEOUT_S, idle_time=0.001, no_wake=True)
        relay = relay_to_ledger(EngineDatabase(shop.engine), client, options)
        shop.place(1)
        relay.drain()
        shop.place(2)
        server.freeze()
        try:
            began = time.monotonic()
            batch = relay.turn(ClaimedBatch(relay.relay_id))
            took = time.monotonic() - began
        finally:
            server.thaw()
        assert isinstance(batch.outcomes[batch.rows[0].id], Outage)
        assert took < 1.6 * TIMEOUT_S
        relay.close()
    client.close()


@pytest.mark.parametrize("stays_silent", [False, True])
def test_a_row_is_charged_only_if_the_store_answers_everything_but_that_row(
    sqlite: Database, boot: Boot, settings: Settings, stays_silent: bool
) -> None:
    """If the store comes back between a call without a reply and the PING that follows, the store was down.
    The row is not at fault, and a retry would delay it for minutes."""
    with Proxy(boot().port) as proxy:
        client = Client(settings.replace(redis_url=proxy.url))
        with Shop(sqlite.url, client) as shop:
            relay = relay_to_ledger(EngineDatabase(shop.engine), client, RelayOptions(send_timeout=0.6, no_wake=True))
            shop.place(1)
            relay.drain()
            shop.place(2)
            pings: list[bytes] = []

            def disturb(request: bytes) -> str | None:
                if b"PING" in request:
                    pings.append(request)
                is_silent = b"EVALSHA" in request and (stays_silent or not pings)
                return "silent" if is_silent else None

            proxy.disturb = disturb
            batch = relay.turn(ClaimedBatch(relay.relay_id))
            outcome = batch.outcomes[batch.rows[0].id]
            proxy.disturb = lambda _: None
            assert isinstance(outcome, SendFailed if stays_silent else Sent)
            assert pings
            relay.close()
        client.close()
