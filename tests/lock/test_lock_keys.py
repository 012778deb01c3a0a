"""The results of locks in a namespace with encryption keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from relier import Client, PayloadIntegrityError, PayloadTooLargeError, Settings, idempotency_lock, use_client
from tests.support.keyrings import everything_said, key, keys_setting, leaks
from tests.support.locking import mark, spelled

pytestmark = pytest.mark.anyio
CARD = "4111-1111-1111-1111"
Make = Callable[..., Client]


@pytest.fixture
async def make(settings: Settings) -> AsyncIterator[Make]:
    """Create clients of one namespace with these encryption keys, the first of which is in use. Locks use the last
    client."""
    made: list[Client] = []

    def one(*ids: str, **other: Any) -> Client:
        known = {"redis_url": settings.redis_url, "namespace": settings.namespace}
        made.append(Client(Settings(**known | {"encryption_keys": keys_setting(*ids) if ids else ""} | other)))
        use_client(made[-1])
        return made[-1]

    yield one
    use_client(None)
    for client in made:
        await client.aclose()


def run_once(result: Any = CARD, name: str = "k") -> tuple[bool, Any]:
    with idempotency_lock(name) as lock:
        if lock.already_executed:
            return True, lock.cached_result
        lock.set_result(result)
        return False, result


async def test_a_result_cannot_be_read_in_the_store(make: Make) -> None:
    client = make("e1")
    assert run_once() == (False, CARD)
    assert b"rl:aes:e1:" in (kept := mark(client) or b"")
    assert CARD.encode() not in kept
    assert run_once() == (True, CARD)
    async with idempotency_lock("k") as lock:
        assert lock.cached_result == CARD


async def test_a_missing_result_is_encrypted_as_well(make: Make) -> None:
    client = make("e1")
    async with idempotency_lock("k"):
        pass
    assert b"null" not in (mark(client) or b"")
    assert run_once() == (True, None)


async def test_results_under_older_keys_and_plain_results_are_read(make: Make) -> None:
    make()
    run_once("plain", "before")
    make("e1")
    run_once("first", "then")
    make("e2", "e1")
    assert run_once(name="before") == (True, "plain")
    assert run_once(name="then") == (True, "first")


@pytest.mark.parametrize("ids", [(), ("e2",)], ids=["no key", "another key"])
async def test_a_result_whose_key_is_missing_counts_as_done_and_is_unreadable(make: Make, ids: tuple[str, ...]) -> None:
    make("e1")
    run_once()
    make(*ids)
    with idempotency_lock("k") as lock:
        assert lock.already_executed
        with pytest.raises(PayloadIntegrityError, match="the result of lock 'k' is encrypted with key 'e1'") as caught:
            _ = lock.cached_result
    assert not leaks([*everything_said(caught.value)], key("e1"), key("e2"))


async def test_a_result_belongs_to_its_key(make: Make) -> None:
    client = make("e1")
    run_once("mine", "mine")
    run_once("yours", "yours")
    client.sync_store.command("COPY", spelled(client, "yours"), spelled(client, "mine"), "REPLACE")
    with pytest.raises(PayloadIntegrityError, match="the result of lock 'mine' cannot be decrypted with key 'e1'"):
        run_once(name="mine")


async def test_a_message_wrapped_by_a_newer_relier_is_reported_as_such(make: Make) -> None:
    client = make("e1")
    run_once()
    client.sync_store.command("SET", spelled(client), (mark(client) or b"").replace(b"rl:aes:", b"rl:xyz:"))
    with pytest.raises(PayloadIntegrityError, match="the result of lock 'k' is encrypted in an unknown way"):
        run_once()


async def test_encryption_counts_towards_the_limit(make: Make) -> None:
    make("e1", max_payload_bytes=1000)
    assert run_once("x" * 900)[0] is False
    with pytest.raises(PayloadTooLargeError, match="the result of lock 'large'"):
        run_once("x" * 990, "large")  # and its quotes; as plain text it would fit
