"""Reports about attempts: one that cannot be committed does not affect the others."""

from __future__ import annotations

import pytest

from relier.engines.settler import Settler
from relier.ledger.ledger import load_scripts
from relier.ledger.records import Submission, new_worker_id
from relier.run.outcome import Done
from relier.settings import Settings
from relier.states import State
from relier.store import AsyncStore
from relier.submit.client import Client

pytestmark = pytest.mark.anyio


async def test_a_result_that_cannot_be_stored_becomes_a_dead_letter_and_the_rest_of_the_batch_commits(
    settings: Settings,
) -> None:
    client = Client(settings.replace(max_payload_bytes=1000))
    ledger, boot = client.ledger, new_worker_id()
    async with AsyncStore(client.settings, load_scripts()) as store:
        await store.run(ledger.open())
        await store.run(ledger.register(boot, 60_000))
        await store.run(ledger.submit([Submission(id=name, name="work", payload=b"p") for name in ("a", "b", "c")]))
        claim = await store.run(ledger.claim(boot, 1, ["default"], 3))
        settler = Settler(store, ledger)
        for claimed in claim.tasks:
            settler.settle(claimed, Done(b"x" * 2000 if claimed.record.id == "b" else b"1"))
        assert await settler.finish(10)
        states = {name: (await store.run(ledger.get(name))).record for name in ("a", "b", "c")}
        assert [states[name].state for name in "abc"] == [State.DONE, State.DEAD, State.DONE]
        assert states["b"].reason == "PayloadTooLargeError"
        assert settler.unsettled == {}
