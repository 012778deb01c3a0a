"""A call of a lock is sent again if its reply is lost, and the second run changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from relier import Client, idempotency_lock
from tests.support.locking import Enter, eventually, mark
from tests.support.servers import Server
from tests.support.wire import Proxy

pytestmark = pytest.mark.anyio
SCRIPTS = ["lock", "renew", "conclude", "unlock"]


class Losing:
    """Run each request of one script, and lose the first replies to it."""

    def __init__(self, sha: str, times: int) -> None:
        self._sha = sha.encode()
        self.left = times
        self.seen = 0

    def __call__(self, request: bytes) -> str | None:
        if self._sha not in request:
            return None
        self.seen += 1
        self.left -= 1
        return "lose" if self.left >= 0 else None


@pytest.fixture
def changed() -> dict[str, Any]:
    return {"idempotency_inflight_ttl": 0.6}


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as standing:
        yield standing


@pytest.fixture
async def lossy(client: Client, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    own = Client(client.settings.replace(redis_url=proxy.url))
    with idempotency_lock("warm"):  # every script is known to the server
        pass
    monkeypatch.setattr("relier.lock.blocks.default_client", lambda: own)
    yield own
    await own.aclose()


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("times", [1, 3])
async def test_a_lost_reply_changes_nothing(
    client: Client, lossy: Client, proxy: Proxy, enter: Enter, script: str, times: int
) -> None:
    losing = proxy.disturb = Losing(lossy.scripts[script].sha, times)

    async def block() -> None:
        async with enter() as lock:
            assert not lock.already_executed
            lock.set_result("done")
            if script == "renew":
                before = mark(client)
                await eventually(lambda: losing.left < 0 and mark(client) != before)
            if script == "unlock":
                raise ValueError("gives up")
            assert not lock.lost

    if script == "unlock":
        with pytest.raises(ValueError, match="gives up"):
            await block()
        assert mark(client) is None
    else:
        await block()
        async with enter() as lock:
            assert lock.cached_result == "done"
    assert losing.seen > times, "it was sent again"
