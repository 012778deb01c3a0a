"""Keys from push to result, on a real server: forged tasks never run, and our values cannot be read in the store."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import random
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from relier.engines.worker import Worker, WorkerOptions
from relier.envelope import open_envelope, reseal, seal
from relier.errors import ConfigurationError, PayloadIntegrityError, PayloadTooLargeError
from relier.failure import read_failure
from relier.ledger import keys
from relier.ledger.records import Submission, Task, new_task_id
from relier.settings import Settings
from relier.states import State
from relier.submit.client import Client, use_client
from tests.support.jobs import keyring as jobs
from tests.support.keyrings import keys_setting
from tests.support.servers import Server

pytestmark = pytest.mark.anyio
CARD = "4111-1111-1111-1111"
Make = Callable[..., Client]


@pytest.fixture
async def make(settings: Settings) -> AsyncIterator[Make]:
    """Create clients of one namespace with different keys: make(signing="a,b", encryption="c"). The last one pushes."""
    made: list[Client] = []

    def one(signing: str = "", encryption: str = "", **other: Any) -> Client:
        update = {
            "signing_keys": keys_setting(*signing.split(",")) if signing else "",
            "encryption_keys": keys_setting(*encryption.split(",")) if encryption else "",
        }
        known = {"redis_url": settings.redis_url, "namespace": settings.namespace}
        made.append(Client(Settings(**known | update | other)))
        use_client(made[-1])
        return made[-1]

    yield one
    use_client(None)
    for client in made:
        await client.aclose()


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    jobs.ran.clear()
    jobs.warned = asyncio.Event()


@asynccontextmanager
async def working(client: Client) -> AsyncIterator[None]:
    worker = Worker(client, WorkerOptions(modules=(str(Path(jobs.__file__)),), isolated=1))
    running = asyncio.create_task(worker.run())
    yield
    worker.drain()
    await running


def stored(server: Server, client: Client) -> bytes:
    """Return every byte that the namespace holds, except for the indexes, which hold ids."""
    reads = {"string": ("GET",), "hash": ("HGETALL",), "list": ("LRANGE", 0, -1)}
    found = b""
    for name in server.command("KEYS", f"{client.ledger.prefix}*"):
        kind = server.command("TYPE", name)
        command, *rest = reads.get(kind.decode() if isinstance(kind, bytes) else kind, ("EXISTS",))
        answer = server.command(command, name, *rest)
        found += answer if isinstance(answer, bytes) else b" ".join(answer) if isinstance(answer, list) else b""
    return found


def rewrite(server: Server, client: Client, task_id: str, change: Callable[[bytes], bytes]) -> bytes:
    """Change a stored payload directly in the store. Return the new one."""
    key = keys.spell(client.ledger.prefix, "task", task_id)
    *lines, payload = server.command("GET", key).split(b"\n", 4)
    server.command("SET", key, b"\n".join([*lines, change(payload)]))
    return change(payload)


async def dead(client: Client, task_id: str) -> Task:
    """Return the dead letter, once there is one."""
    async with asyncio.timeout(20):
        while True:
            task = await client.arun(client.ledger.get(task_id))
            if task.record.state is State.DEAD:
                return task
            await asyncio.sleep(0.02)


async def submit(client: Client, payload: bytes, name: str = "tests.support.jobs.keyring.charge") -> str:
    """Submit a task, as anybody with the store's password can."""
    task_id = new_task_id()
    await client.arun(client.ledger.submit([Submission(id=task_id, name=name, payload=payload)]))
    return task_id


@pytest.mark.parametrize(("signing", "encryption"), [("s1", ""), ("", "e1"), ("s2,s1", "e2,e1")])
async def test_a_task_runs_as_without_keys(make: Make, signing: str, encryption: str) -> None:
    client = make(signing, encryption)
    receipts = [
        await jobs.charge.apush(CARD, 1),
        *await jobs.charge.apush_many([(CARD, 2), {"card": CARD, "cents": 3}]),
    ]
    nested = await jobs.parent.apush(CARD)
    async with working(client):
        results = [await receipt.result(20) for receipt in receipts]
        assert await jobs.charge.receipt(await nested.result(20)).result(20) == {"card": CARD, "cents": 1}
    assert results == [{"card": CARD, "cents": cents} for cents in (1, 2, 3)]


async def test_nothing_of_an_encrypted_task_is_in_the_store(make: Make, server: Server) -> None:
    client = make("s1", "e1")
    receipt = await jobs.charge.apush(CARD, 5000)
    assert CARD.encode() not in stored(server, client)
    async with working(client):
        assert (await receipt.result(20))["card"] == CARD
    assert CARD.encode() not in stored(server, client)
    assert b"tests.support.jobs.keyring.charge" in stored(server, client)  # what is not hidden


# --- what is not ours --------------------------------------------------------------------------------------------


async def forge_unsigned(client: Client, server: Server) -> tuple[str, bytes]:
    payload = seal(b'[["x",1],{}]', schema_version=1, pushed_ms=time.time_ns() // 10**6)
    return await submit(client, payload), payload


async def forge_with_own_key(client: Client, server: Server) -> tuple[str, bytes]:
    other = Client(Settings(signing_keys=keys_setting("stranger")))
    payload = seal(
        b'[["x",1],{}]',
        schema_version=1,
        pushed_ms=1,
        task_id="?",
        name="tests.support.jobs.keyring.charge",
        keyring=other.keyring,
    ).replace(b"hmac-sha256:stranger:", b"hmac-sha256:s1:")
    return await submit(client, payload), payload


async def forge_altered(client: Client, server: Server) -> tuple[str, bytes]:
    receipt = await jobs.charge.apush(CARD, 5000)
    signature = open_signature(client, receipt.id)
    payload = seal(b'[["x",1],{}]', schema_version=1, pushed_ms=1).replace(
        b'"body":', b'"sig":"%b","body":' % signature
    )
    return receipt.id, rewrite(server, client, receipt.id, lambda _: payload)


async def forge_other_id(client: Client, server: Server) -> tuple[str, bytes]:
    receipt = await jobs.refund.apush(CARD, 5000)
    payload = (await receipt.info()).payload
    assert payload is not None
    await receipt.cancel()
    return await submit(client, payload, "tests.support.jobs.keyring.refund"), payload


async def forge_other_name(client: Client, server: Server) -> tuple[str, bytes]:
    """Turn a charge into a refund: the task's name is in the record, outside the envelope."""
    receipt = await jobs.charge.apush(CARD, 5000)
    key = keys.spell(client.ledger.prefix, "task", receipt.id)
    record = server.command("GET", key)
    server.command(
        "SET", key, record.replace(b"tests.support.jobs.keyring.charge", b"tests.support.jobs.keyring.refund")
    )
    return receipt.id, record.split(b"\n", 4)[4]


def open_signature(client: Client, task_id: str) -> bytes:
    payload = client.run(client.ledger.get(task_id)).payload
    assert payload is not None
    return payload.partition(b'"sig":"')[2].partition(b'"')[0]


FORGERIES = [forge_unsigned, forge_with_own_key, forge_altered, forge_other_id, forge_other_name]


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
async def test_a_payload_with_a_wrong_signature_never_runs_and_its_bytes_are_kept(
    make: Make, server: Server, forge: Any
) -> None:
    client = make("s1")
    task_id, payload = await forge(client, server)
    async with working(client):
        task = await dead(client, task_id)
        with pytest.raises(PayloadIntegrityError):
            await jobs.charge.receipt(task_id).result(1)
    assert task.record.reason == "PayloadIntegrityError"
    assert task.payload == payload
    assert jobs.ran == []
    assert "signed" in task.history[-1].detail or "signature" in task.history[-1].detail


async def test_every_forged_record_of_many_is_found_and_the_others_run(make: Make, server: Server) -> None:
    client = make("s1", "e1")
    good = await jobs.charge.apush_many([("ours", n) for n in range(20)])
    forged = [(await forge_unsigned(client, server))[0] for _ in range(20)]
    async with working(client):
        assert [(await receipt.result(20))["cents"] for receipt in good] == list(range(20))
        assert {(await dead(client, task_id)).record.reason for task_id in forged} == {"PayloadIntegrityError"}
    assert {card for card, _ in jobs.ran} == {"ours"}


async def test_an_encrypted_body_swapped_between_tasks_dies(make: Make, server: Server) -> None:
    client = make("", "e1")
    one, other = await jobs.charge.apush("one", 1), await jobs.charge.apush("other", 2)
    taken = (await other.info()).payload
    assert taken is not None
    rewrite(server, client, one.id, lambda _: taken)
    async with working(client):
        assert (await dead(client, one.id)).record.reason == "PayloadIntegrityError"
        assert (await other.result(20))["cents"] == 2
    assert jobs.ran == [("other", 2)]


# --- keys that change --------------------------------------------------------------------------------------------


async def test_keys_are_introduced_and_changed_while_tasks_wait(make: Make) -> None:
    make()
    plain = await jobs.charge.apush("plain", 1)
    make("", "e1")
    first = await jobs.charge.apush("first", 2)
    rotated = make("", "e2,e1")
    second = await jobs.charge.apush("second", 3)
    async with working(rotated):
        for receipt, cents in ((plain, 1), (first, 2), (second, 3)):
            again = type(receipt)(receipt.id, client=rotated)
            assert (await again.result(20))["cents"] == cents


async def test_signed_tasks_run_where_there_are_no_keys_yet(make: Make) -> None:
    """The first step of introducing signatures: producers sign, and workers do not check yet."""
    make("s1")
    receipt = await jobs.charge.apush("signed", 1)
    async with working(make()):
        assert (await receipt.result(20))["cents"] == 1


async def test_a_worker_without_the_key_names_it_and_a_replay_with_it_runs(make: Make) -> None:
    make("s1", "e1")
    receipt = await jobs.charge.apush(CARD, 1)
    poor = make("s1")
    async with working(poor):
        task = await dead(poor, receipt.id)
    assert "is encrypted with key 'e1'" in read_failure(task.history[-1].detail).message
    rich = make("s1", "e1")
    await rich.arun(rich.ledger.replay(receipt.id, task.record.version, new_task_id()))
    async with working(rich):
        assert (await receipt.result(20))["cents"] == 1


async def test_a_result_under_an_unknown_key_names_it(make: Make) -> None:
    client = make("", "e1")
    receipt = await jobs.charge.apush(CARD, 1)
    async with working(client):
        await receipt.result(20)
    for reader in (make(), make("", "e2")):
        again = type(receipt)(receipt.id, client=reader)
        with pytest.raises(PayloadIntegrityError, match=r"the result of task .* is encrypted with key 'e1'"):
            await again.result(1)
        with pytest.raises(PayloadIntegrityError, match="key 'e1'"):
            await asyncio.to_thread(jobs.charge.sync_receipt(receipt.id).result, 1)


async def test_a_plain_result_is_read_when_keys_are_set(make: Make) -> None:
    client = make()
    receipt = await jobs.charge.apush(CARD, 1)
    async with working(client):
        await receipt.result(20)
    make("s1", "e1")
    assert (await jobs.charge.receipt(receipt.id).result(1))["cents"] == 1


async def test_a_dead_letter_is_edited_and_replayed(make: Make, server: Server) -> None:
    client = make("s1", "e1")
    receipt = await jobs.charge.apush(CARD, 1)
    rewrite(server, client, receipt.id, lambda raw: raw.replace(b'"schema":1', b'"schema":0'))
    async with working(client):
        task = await dead(client, receipt.id)
        name, body = task.record.name, b'[["edited",2],{}]'
        payload = reseal(task.payload or b"", body, receipt.id, name, client.keyring, schema_version=1)
        assert open_envelope(payload, task_id=receipt.id, name=name, keyring=client.keyring).body == body
        await client.arun(client.ledger.replay(receipt.id, task.record.version, new_task_id(), payload))
        assert await receipt.result(20) == {"card": "edited", "cents": 2}


async def test_encryption_counts_towards_the_limit_of_a_result(make: Make) -> None:
    client = make("", "e1", max_payload_bytes=1000)
    fits, grows = await jobs.large.apush(900), await jobs.large.apush(990)  # and its quotes; as plain text it would fit
    async with working(client):
        assert len(await fits.result(20)) == 900
        with pytest.raises(PayloadTooLargeError, match="the result is"):
            await grows.result(20)


# --- what an attempt keeps ---------------------------------------------------------------------------------------

NOISE = base64.b64encode(random.Random(1).randbytes(3000)).decode()  # does not compress below the limit


@pytest.mark.parametrize("task", [jobs.careful, jobs.careful_apart], ids=["here", "isolated"])
@pytest.mark.parametrize("rest", ["", "x" * 5000, NOISE], ids=["small", "compressed", "a file"])
async def test_checkpoints_and_steps_are_encrypted_and_found_again(
    make: Make, server: Server, tmp_path: Path, task: Any, rest: str
) -> None:
    kept = {"checkpoint_dir": str(tmp_path), "checkpoint_max_inline_bytes": 2000}
    client = make("s1", "e1", **kept)
    receipt = await task.apush(CARD, rest)
    async with working(client):
        letter = await dead(client, receipt.id)
    assert letter.record.reason == "RuntimeError"
    assert letter.checkpoint
    assert set(letter.steps) == {"pay"}
    files = files_in(tmp_path)
    assert len(files) == (rest == NOISE)
    secret = b"".join([stored(server, client), *files])
    assert CARD.encode() not in secret
    assert b"xxx" not in zlib_opened(secret)
    rotated = make("s2,s1", "e2,e1", **kept)
    await rotated.arun(rotated.ledger.replay(receipt.id, letter.record.version, new_task_id()))
    async with working(rotated):
        assert await task.receipt(receipt.id).result(60) == [{"paid with": CARD}, CARD, len(rest)]
    assert jobs.ran.count(("pay", CARD)) == (task is jobs.careful)  # once; the other ran elsewhere


def files_in(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.rglob("*.checkpoint")]


def zlib_opened(raw: bytes) -> bytes:
    """Return everything that can be decompressed, wherever it begins."""
    found = b""
    for at in range(len(raw)):
        if raw[at] == 0x78:
            with contextlib.suppress(zlib.error):
                found += zlib.decompressobj().decompress(raw[at:])
    return found


async def test_values_stored_before_there_were_keys_are_found(make: Make) -> None:
    client = make()
    receipt = await jobs.careful.apush(CARD, "")
    async with working(client):
        letter = await dead(client, receipt.id)
    keyed = make("", "e1")
    await keyed.arun(keyed.ledger.replay(receipt.id, letter.record.version, new_task_id()))
    async with working(keyed):
        assert await jobs.careful.receipt(receipt.id).result(20) == [{"paid with": CARD}, CARD, 0]


@pytest.mark.parametrize("kind", ["checkpoint", "steps"])
async def test_a_value_of_another_task_is_refused(make: Make, server: Server, kind: str) -> None:
    client = make("s1", "e1")
    one, other = await jobs.careful.apush("one", ""), await jobs.careful.apush("other", "")
    async with working(client):
        letter = await dead(client, one.id)
        await dead(client, other.id)
        source, target = (keys.spell(client.ledger.prefix, kind, task.id) for task in (other, one))
        server.command("COPY", source, target, "REPLACE")
        await client.arun(client.ledger.replay(one.id, letter.record.version, new_task_id()))
        with pytest.raises(PayloadIntegrityError, match=f"of task {one.id} cannot be decrypted with key 'e1'"):
            await one.result(20)


# --- isolated processes ------------------------------------------------------------------------------------------


async def test_an_isolated_process_gets_the_keys_of_its_worker(make: Make, server: Server) -> None:
    """The keys are in the settings of this client only, not in the environment."""
    client = make("s1", "e1")
    receipt, failing = await jobs.apart.apush(CARD), await jobs.apart_declined.apush("none")
    async with working(client):
        card, pid = await receipt.result(60)
        with pytest.raises(LookupError, match="none was declined"):
            await failing.result(60)
    assert card == CARD
    assert pid
    assert CARD.encode() not in stored(server, client)


# --- what people see ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [jobs.declined, jobs.apart_declined], ids=["here", "isolated"])
async def test_failures_and_logs_pass_the_hook(
    make: Make, server: Server, caplog: pytest.LogCaptureFixture, task: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    client = make("s1", "e1", redact="tests.support.jobs.keyring:mask")
    receipt = await task.apush(CARD)
    async with working(client):
        with pytest.raises(LookupError, match=r"\(card\) was declined"):
            await receipt.result(60)
    assert "reason=LookupError error='(card) was declined'" in caplog.text
    assert CARD not in caplog.text
    assert CARD.encode() not in stored(server, client)
    failure = read_failure((await receipt.info()).history[-1].detail)
    assert failure.name == "LookupError"
    assert "jobs/keyring.py" in failure.traceback


async def test_a_worker_does_not_start_with_an_invalid_hook(make: Make) -> None:
    client = make(redact="tests.support.jobs.keyring:no_such_hook")
    with pytest.raises(ConfigurationError, match=r"RELIER_REDACT=tests\.support\.jobs\.keyring:no_such_hook"):
        await Worker(client, WorkerOptions()).run()


async def test_a_failing_soft_timeout_hook_is_logged_through_the_hook(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    client = make(redact="tests.support.jobs.keyring:mask")
    receipt = await jobs.slow.apush(CARD)
    async with working(client):
        await receipt.result(20)
    assert "failed; the task continues: LookupError: no room for (card)" in caplog.text
    assert CARD not in caplog.text
