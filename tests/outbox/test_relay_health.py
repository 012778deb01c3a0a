"""The probes of a process with relays: its database is unreachable, an operator drains it, a relay is stuck."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relier.outbox.relay.database_health import DatabaseState
from relier.outbox.relay.fleet import Fleet, RelayTable
from relier.outbox.relay.monitoring import STUCK_S, RelayHealth
from relier.outbox.relay.options import RelayOptions
from relier.outbox.sqlalchemy.engines import EngineDatabase
from tests.support.outbox_shop import Shop


@pytest.fixture
def relays(shop: Shop) -> Iterator[Fleet]:
    tables = [RelayTable("shop", EngineDatabase(shop.engine), table) for table in ("relier_outbox", "other")]
    fleet = Fleet(tables, RelayOptions(no_wake=True), [], shop.client)
    fleet.started = True
    yield fleet
    fleet.close()


def test_relays_that_send_are_ready(relays: Fleet) -> None:
    health = RelayHealth(relays)()
    assert (health.role, health.started, health.stuck, health.unready) == ("relay", True, (), ())


def test_an_unreachable_database_is_not_a_reason_to_restart(relays: Fleet) -> None:
    first, second = relays.relays
    first.passed_at -= 2 * STUCK_S
    first.health.state = DatabaseState.AWAY
    assert RelayHealth(relays)().ready, "the other relay sends rows"
    second.health.state = DatabaseState.REFUSES
    health = RelayHealth(relays)()
    assert health.live
    assert health.unready == (
        "the relay of table relier_outbox sends nothing: its database is unreachable",
        "the relay of table other sends nothing: its database refuses it",
    )


def test_a_relay_that_does_not_run_is_stuck(relays: Fleet) -> None:
    first, _ = relays.relays
    first.passed_at -= 2 * STUCK_S
    assert RelayHealth(relays)().stuck == ("the relay of table relier_outbox has not run for 120 s",)
    first.stop()
    assert RelayHealth(relays)().live, "it was told to stop"


def test_stopped_relays_are_not_ready(relays: Fleet) -> None:
    relays.stop()
    assert RelayHealth(relays)().unready == ("stopping: it was told to stop",)
