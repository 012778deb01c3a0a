"""A commit wakes a relay through the store, if there is one."""

from __future__ import annotations

from pathlib import Path

from relier import Client, Settings
from relier.outbox.wake.doorbell import Doorbell


def test_a_ring_starts_no_store_of_the_projects_own(tmp_path: Path) -> None:
    """An application that sends through a broker has no store, and a web process would start one in its folder."""
    folder = tmp_path / "store"
    client = Client(Settings(redis_url=f"embedded://{folder}"))
    Doorbell(lambda: client)._ring_now()
    assert not folder.exists()
    client.close()


def test_a_doorbell_ring_arrives_when_the_store_is_up(tmp_path: Path) -> None:
    client = Client(Settings(redis_url=f"embedded://{tmp_path / 'store'}"))
    client.open()
    Doorbell(lambda: client)._ring_now()
    assert client.sync_store.wait_for_bell([client.ledger.outbox_bell], 1.0) is not None
    client.close()
