"""Checkpoints: where they are kept, who finds them, which writes are refused, and what is cleaned up."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from relier import (
    CheckpointStoreError,
    CheckpointTooLargeError,
    Client,
    ConfigurationError,
    LeaseLostError,
    PayloadEncodingError,
    Retries,
    Settings,
    TaskContext,
    rl_task,
    use_client,
)
from relier.engines.worker import Worker, WorkerOptions
from relier.ledger import keys
from relier.ledger.records import Lease, new_task_id
from relier.rescue.janitor import Janitor
from relier.run.checkpoint_files import Named, folder_for
from relier.run.checkpoints import file_in
from relier.run.execute import run_soft_hook
from relier.run.outcome import Done, Failed, HandBack
from relier.states import State
from tests.support.crew import QUICK, Crew, until
from tests.support.servers import Boot, Server
from tests.support.wire import Proxy

pytestmark = pytest.mark.anyio
LARGE = 300 * 1024
Do = Callable[[TaskContext], Any]

# The body of the tasks below: each test sets its own.
script: dict[str, Do] = {}


@rl_task(retries=Retries(attempts=2, backoff=0.0, jitter=0.0))
async def work(what: str, ctx: TaskContext) -> Any:
    return await script[what](ctx)


@rl_task(retries=Retries(attempts=2, backoff=0.0, jitter=0.0))
def work_sync(what: str, ctx: TaskContext) -> Any:
    return script[what](ctx)


def noise(size: int) -> str:
    """Return text that can hardly be compressed."""
    return random.Random(size).randbytes(size).hex()


@pytest.fixture
async def filed(settings: Settings, tmp_path: Path) -> AsyncIterator[Crew]:
    """A crew with a folder for large checkpoints."""
    one = Crew(settings.replace(**QUICK | {"checkpoint_dir": str(tmp_path / "kept")}))
    yield one
    await one.aclose()


def paths(crew: Crew) -> list[Path]:
    where = Path(crew.client.settings.checkpoint_dir)
    return sorted(path for path in where.rglob("*") if path.is_file()) if where.exists() else []


def files(crew: Crew) -> list[str]:
    return [path.name for path in paths(crew)]


async def run(crew: Crew, do: Do, task: Any = work, through: Client | None = None) -> Any:
    """Run `do` as a task, here and now. Return its outcome."""
    script["now"] = do
    task.push("now")
    return await crew.execute(crew.begin(through=through))


# --- where it is kept --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"row": 17}, b"j"),
        (None, b"j"),
        ("x" * 100_000, b"z"),
        ([{"row": n} for n in range(50_000)], b"z"),
        (noise(20_000), b"z"),
    ],
    ids=["small", "None", "compressed", "many", "noise"],
)
async def test_a_checkpoint_is_stored_compressed_beside_the_record(crew: Crew, value: Any, kind: bytes) -> None:
    async def keep(ctx: TaskContext) -> None:
        assert ctx.partial_result is None
        await ctx.set_partial(value)
        assert ctx.partial_result == value
        kept = crew.get(ctx.task_id).checkpoint
        assert kept is not None
        assert kept[:1] == kind
        assert len(kept) <= 256 * 1024

    assert isinstance(await run(crew, keep), Done)
    assert crew.command("KEYS", f"{crew.ledger.prefix}c:*") == [], "it goes with the end of the task"


async def test_values_come_back_as_they_were(crew: Crew) -> None:
    from datetime import UTC, datetime
    from decimal import Decimal

    value = {"at": datetime(2026, 1, 2, tzinfo=UTC), "sum": Decimal("1.50"), "seen": {1, 2}, "by": {3: "c"}}

    async def keep(ctx: TaskContext) -> None:
        await ctx.set_partial(value)
        assert ctx.partial_result == value
        assert type(ctx.partial_result["seen"]) is set

    assert isinstance(await run(crew, keep), Done)


async def test_a_checkpoint_that_cannot_be_encoded_is_refused_and_the_last_one_stays(crew: Crew) -> None:
    async def keep(ctx: TaskContext) -> None:
        await ctx.set_partial(1)
        with pytest.raises(PayloadEncodingError, match="the checkpoint"):
            await ctx.set_partial(object())
        assert ctx.partial_result == 1

    assert isinstance(await run(crew, keep), Done)


async def test_a_large_checkpoint_without_a_folder_is_refused(crew: Crew) -> None:
    async def keep(ctx: TaskContext) -> None:
        await ctx.set_partial("before")
        with pytest.raises(CheckpointTooLargeError, match=r"limit is 262,144 .*RELIER_CHECKPOINT_DIR") as caught:
            await ctx.set_partial(noise(LARGE))
        assert isinstance(caught.value, ValueError)
        assert ctx.partial_result == "before"

    assert isinstance(await run(crew, keep), Done)


async def test_large_checkpoints_are_files(filed: Crew) -> None:
    async def keep(ctx: TaskContext) -> int:
        for n in range(3):
            await ctx.set_partial([n, noise(LARGE)])
            assert files(filed) == [f"{ctx.task_id}-{ctx.fence}-{n + 1}.checkpoint"], "an older one is not needed"
        await ctx.set_partial("small again")
        assert files(filed) == []
        await ctx.set_partial([9, noise(LARGE)])
        return len(ctx.partial_result[1])

    assert await run(filed, keep) == Done(str(2 * LARGE).encode())


async def test_checkpoints_can_be_stored_with_fsspec(crew: Crew) -> None:
    crew.with_settings(checkpoint_dir="memory://kept/here")

    async def keep(ctx: TaskContext) -> Any:
        await ctx.set_partial(noise(LARGE))
        raise OSError("once more")

    async def resume(ctx: TaskContext) -> Any:
        return len(ctx.partial_result)

    assert isinstance(await run(crew, keep), Failed)
    script["now"] = resume
    assert await crew.execute(crew.begin()) == Done(str(2 * LARGE).encode())


async def test_a_file_url_is_a_folder(crew: Crew, tmp_path: Path) -> None:
    crew.with_settings(checkpoint_dir=f"file://{tmp_path}/kept/")

    async def keep(ctx: TaskContext) -> Any:
        await ctx.set_partial(noise(LARGE))
        return len(list((tmp_path / "kept").rglob("*.checkpoint")))

    assert await run(crew, keep) == Done(b"1")


async def test_an_impossible_url_is_reported_at_start(crew: Crew) -> None:
    crew.with_settings(checkpoint_dir="nosuch://user:secret@bucket/x")
    with pytest.raises(ConfigurationError, match="RELIER_CHECKPOINT_DIR is") as caught:
        await Worker(crew.client, WorkerOptions()).run()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("place", ["under a file", "/proc/1/nowhere"])
async def test_a_folder_that_cannot_be_written_is_reported(crew: Crew, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    crew.with_settings(checkpoint_dir=str(tmp_path / "file" / "kept") if place == "under a file" else place)

    async def keep(ctx: TaskContext) -> Any:
        await ctx.set_partial("before")
        with pytest.raises(CheckpointStoreError, match=r"cannot be written .*has room, and may be written"):
            await ctx.set_partial(noise(LARGE))
        assert ctx.partial_result == "before"
        return "fine"

    assert await run(crew, keep) == Done(b'"fine"')


def test_a_full_folder_is_reported(tmp_path: Path) -> None:
    """The test runs in its own process, whose files may not grow beyond a limit: a write fails halfway, as on a full
    disk."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "kept")], capture_output=True, text=True, timeout=60
    )
    assert "CheckpointStoreError: the checkpoint file t-1-1.checkpoint cannot be written" in done.stderr
    assert "has room" in done.stderr
    assert list((tmp_path / "kept").iterdir()) == [], "what was begun is gone"


FULL = """
import pathlib, resource, sys
from relier.run.checkpoint_files import LocalFolder
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
LocalFolder(pathlib.Path(sys.argv[1])).write("t-1-1.checkpoint", b"x" * 5000)
"""


async def test_a_task_id_is_not_used_as_a_path(filed: Crew, tmp_path: Path) -> None:
    async def keep(ctx: TaskContext) -> Any:
        await ctx.set_partial(noise(LARGE))
        return len(ctx.partial_result)

    script["now"] = keep
    for task_id in ("../../../escaped", "/etc/passwd", "a/b", "-1-2", "..", "%2F"):
        work.with_options(task_id=task_id).push("now")
        assert isinstance(await filed.execute(filed.begin()), Done)
        (name,) = [name for name in files(filed) if named_id(name) == task_id]
        assert "/" not in name
    assert [name for name in os.listdir(tmp_path) if name != "kept"] == []


def named_id(name: str) -> str:
    from relier.run.checkpoint_files import named

    found = named(name)
    assert found is not None
    return found.task_id


async def test_a_task_id_may_be_too_long_for_a_file(filed: Crew) -> None:
    async def keep(ctx: TaskContext) -> Any:
        await ctx.set_partial("small")
        with pytest.raises(CheckpointStoreError, match="too long for the name of a file"):
            await ctx.set_partial(noise(LARGE))

    script["now"] = keep
    work.with_options(task_id="x" * 500).push("now")
    assert isinstance(await filed.execute(filed.begin()), Done)


# --- who finds it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [work, work_sync], ids=["async def", "def"])
@pytest.mark.parametrize("size", [10, LARGE], ids=["inline", "file"])
@pytest.mark.parametrize("way", ["revive", "retry", "replay", "release"])
async def test_the_next_attempt_resumes_from_the_checkpoint(filed: Crew, way: str, size: int, task: Any) -> None:
    value = noise(size)
    seen: list[Any] = []

    async def keep(ctx: TaskContext) -> Any:
        seen.append(ctx.partial_result)
        if len(seen) == 1:
            await ctx.set_partial(value)
            raise OSError("the first attempt ends here")
        return "done"

    def keep_sync(ctx: TaskContext) -> Any:
        seen.append(ctx.partial_result)
        if len(seen) == 1:
            ctx.set_partial_sync(value)
            raise OSError("the first attempt ends here")
        return "done"

    script["now"] = keep if task is work else keep_sync
    receipt = task.push("now")
    boot = filed.join()
    attempt = filed.begin(boot)
    if way == "retry":
        await filed.execute(attempt)
    else:
        await filed.run_only(attempt)
        if way == "revive":
            filed.lose(boot)
        elif way == "release":
            filed.run(filed.ledger.release([attempt.lease]))
        else:
            filed.run(filed.ledger.bury(attempt.lease, "OSError", "{}"))
            receipt.replay()
    assert isinstance(await filed.execute(filed.begin()), Done)
    assert seen == [None, value]


async def test_a_fresh_replay_forgets_the_checkpoint(filed: Crew) -> None:
    async def keep(ctx: TaskContext) -> Any:
        assert ctx.partial_result is None
        await ctx.set_partial(noise(LARGE))
        return 1

    script["now"] = keep
    receipt = work.push("now")
    attempt = filed.begin()
    await filed.run_only(attempt)
    filed.run(filed.ledger.bury(attempt.lease, "OSError", "{}"))
    version = filed.get(receipt.id).record.version
    filed.run(filed.ledger.replay(receipt.id, version, new_task_id(), fresh=True))
    assert isinstance(await filed.execute(filed.begin()), Done)


async def test_checkpoints_work_in_an_isolated_process(crew: Crew, tmp_path: Path) -> None:
    from tests.support.jobs import isolated as apart

    crew.with_settings(checkpoint_dir=str(tmp_path))
    async with crew.working(modules=("tests.support.jobs.isolated",)):
        receipts = [await task.apush(LARGE) for task in (apart.resumes, apart.resumes_sync)]
        assert [await receipt.result(30) for receipt in receipts] == [2 * LARGE, 2 * LARGE]


@pytest.mark.parametrize("damage", ["changed", "gone", "no folder"])
async def test_a_changed_file_is_refused(filed: Crew, damage: str) -> None:
    async def keep(ctx: TaskContext) -> Any:
        await ctx.set_partial(noise(LARGE))
        raise OSError

    async def resume(ctx: TaskContext) -> Any:
        with pytest.raises(CheckpointStoreError) as caught:
            _ = ctx.partial_result
        return str(caught.value)

    assert isinstance(await run(filed, keep), Failed)
    (path,) = paths(filed)
    if damage == "changed":
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    elif damage == "gone":
        path.unlink()
    else:
        filed.with_settings(checkpoint_dir="")
    script["now"] = resume
    outcome = await filed.execute(filed.begin())
    assert isinstance(outcome, Done)
    told = {"changed": "its SHA-256 differs", "gone": "cannot be read", "no folder": "is not set on this worker"}
    assert told[damage] in str(outcome.result)


@pytest.mark.parametrize("bytes_", [b"z!", b"f{}", b"f", b"j{", b"x"])
async def test_bytes_that_are_not_a_checkpoint_are_refused(crew: Crew, bytes_: bytes) -> None:
    async def resume(ctx: TaskContext) -> Any:
        with pytest.raises((CheckpointStoreError, PayloadEncodingError), match="checkpoint cannot be read"):
            _ = ctx.partial_result
        await ctx.set_partial(1)
        return ctx.partial_result

    script["now"] = resume
    work.push("now")
    boot = crew.join()
    lease = crew.start(boot)
    crew.run(crew.ledger.checkpoint(lease, 1, bytes_))
    crew.lose(boot)
    assert await crew.execute(crew.begin()) == Done(b"1")


# --- who may keep one --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [work, work_sync], ids=["async def", "def"])
async def test_a_zombie_is_refused(filed: Crew, task: Any) -> None:
    boot = filed.join()

    async def keep(ctx: TaskContext) -> Any:
        await ctx.set_partial("mine")
        filed.lose(boot)
        with pytest.raises(LeaseLostError, match=r"refused .* under another fence"):
            await ctx.set_partial(noise(LARGE))
        assert ctx.lost
        ctx.guard()

    def keep_sync(ctx: TaskContext) -> Any:
        ctx.set_partial_sync("mine")
        filed.lose(boot)
        with pytest.raises(LeaseLostError):
            ctx.set_partial_sync(noise(LARGE))
        ctx.guard()

    script["now"] = keep if task is work else keep_sync
    receipt = task.push("now")
    outcome = await filed.execute(filed.begin(boot))
    assert outcome == HandBack(), "it stopped because it is lost: that is no failure"
    assert filed.get(receipt.id).record.state is State.QUEUED, "the other attempt is not its business"
    assert await tidy(filed) == 1, "what nobody will ever name goes"
    assert files(filed) == []
    assert filed.begin().ctx.partial_result == "mine"


async def test_a_checkpoint_whose_answer_was_lost_keeps_its_file(filed: Crew, server: Server) -> None:
    """The checkpoint was applied, but the worker was declared lost before it could repeat the call. The repeat is
    refused, and the record keeps the checkpoint."""
    boot = filed.join()

    async def keep(ctx: TaskContext) -> Any:
        await ctx.set_partial([1, noise(LARGE)])

    def lose(request: bytes) -> str | None:
        """Lose the first answer to a checkpoint, so that the repeated call comes too late."""
        if told not in request:
            return None
        seen.append(1)
        if len(seen) == 2:
            filed.lose(boot)
        return "lose" if len(seen) == 1 else None

    seen: list[int] = []
    script["now"] = keep
    work.push("now")
    filed.run(filed.ledger.checkpoint(Lease("nobody", "1", "no-boot"), 1, b"j1"))  # the server knows the script
    with Proxy(server.port) as proxy:
        client = filed.with_settings(redis_url=proxy.url)
        told, proxy.disturb = client.scripts["checkpoint"].sha.encode(), lose
        attempt = filed.begin(boot)
        assert await filed.run_only(attempt) == HandBack()
    filed.with_settings()
    assert await tidy(filed) == 0
    assert filed.begin().ctx.partial_result[0] == 1


async def test_an_attempt_whose_lease_is_in_doubt_hands_its_task_back(crew: Crew) -> None:
    """An outage is not a failure: no attempt is used up, and the next attempt does the work."""

    async def careful(ctx: TaskContext) -> Any:
        ctx.guard()

    script["now"] = careful
    receipt = work.push("now")
    outcome = await crew.execute(crew.begin(trusted_until=lambda: 0.0))
    assert outcome == HandBack()
    record = crew.get(receipt.id).record
    assert (record.state, record.attempt) == (State.QUEUED, 0)


async def test_a_lease_lost_error_of_another_attempt_is_a_failure(crew: Crew) -> None:
    async def fails(ctx: TaskContext) -> Any:
        raise LeaseLostError("of another lock of mine")

    assert isinstance(await run(crew, fails), Failed)


async def test_of_several_checkpoints_at_once_the_last_one_counts(filed: Crew) -> None:
    async def keep(ctx: TaskContext) -> Any:
        for _ in range(5):
            await asyncio.gather(*(ctx.set_partial([n, noise(LARGE)]) for n in range(4)))
            (only,) = files(filed)
            assert file_in(filed.get(ctx.task_id).checkpoint) == f"{filed.client.birth.mark}/{only}", "as in the ledger"
            seen.append(ctx.partial_result[0])

    seen: list[int] = []
    assert isinstance(await run(filed, keep), Done)
    assert len(seen) == 5


async def test_an_outage_is_waited_out(boot: Boot, settings: Settings) -> None:
    """The task neither fails nor loses its checkpoint because the store was unreachable."""
    server = boot()
    patience = {"redis_deadline": 0.3, "redis_read_timeout": 0.2, "redis_breaker_cooldown": 0.1}
    crew = Crew(settings.replace(**QUICK | {"redis_url": server.url}))
    hasty = crew.another(**patience)  # of the attempt alone: it is too short for calls that nothing repeats

    async def keep(ctx: TaskContext) -> Any:
        await ctx.set_partial(1)
        server.freeze()
        timer = threading.Timer(1.0, server.thaw)
        timer.start()
        await ctx.set_partial(2)
        timer.join()
        return ctx.partial_result

    try:
        assert await run(crew, keep, through=hasty) == Done(b"2")
    finally:
        await crew.aclose()


@contextlib.asynccontextmanager
async def no_thread_free() -> AsyncIterator[None]:
    """Keep all threads of asyncio.to_thread busy."""
    end, begun = threading.Event(), threading.Semaphore(0)

    def occupy() -> None:
        begun.release()
        end.wait(60)

    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(2)
    loop.set_default_executor(pool)
    for _ in range(3):
        loop.run_in_executor(None, occupy)
    assert all(begun.acquire(timeout=10) for _ in range(2))
    try:
        yield
    finally:
        end.set()
        pool.shutdown()
        loop.set_default_executor(ThreadPoolExecutor())


async def test_checkpoints_do_not_wait_for_the_users_threads(filed: Crew) -> None:
    async def keep(ctx: TaskContext) -> Any:
        if ctx.attempt == 1:
            await ctx.set_partial(noise(LARGE))
            raise OSError
        return len(ctx.partial_result)

    async with no_thread_free(), asyncio.timeout(20):
        assert isinstance(await run(filed, keep), Failed)
        assert await filed.execute(filed.begin()) == Done(b"%d" % (2 * LARGE))


warned = threading.Event()


@rl_task(on_soft_timeout=lambda ctx: ctx.task_id and warned.set())
async def is_warned() -> None: ...


async def test_hooks_need_no_free_thread(crew: Crew) -> None:
    is_warned.push()
    async with no_thread_free(), asyncio.timeout(20):
        await run_soft_hook(crew.begin(), crew.channel)
    assert warned.is_set()


# --- what is tidied up -------------------------------------------------------------------------------------------


async def tidy(crew: Crew, times: int = 1) -> int:
    janitor = Janitor(crew.client.settings, crew.client.store, crew.ledger, old=0.0)
    await asyncio.sleep(0)
    return sum([await janitor.tidy() for _ in range(times)])


async def kept_by(crew: Crew, end: str) -> tuple[str, Lease]:
    """Create a task with a large checkpoint, in that state. Return the name of its file."""

    async def keep(ctx: TaskContext) -> Any:
        await ctx.set_partial(noise(LARGE))
        return 1

    script["now"] = keep
    work.push("now")
    boot = crew.join()
    attempt = crew.begin(boot)
    await crew.run_only(attempt)
    name = Named(attempt.lease.task_id, attempt.lease.fence, 1).file
    assert name in files(crew)
    if end == "done":
        crew.commit(attempt.lease)
    elif end == "dead":
        crew.run(crew.ledger.bury(attempt.lease, "OSError"))
    elif end == "queued":
        crew.lose(boot)
    elif end in {"cancelled", "gone"}:
        crew.lose(boot)
        task_id = attempt.lease.task_id
        crew.run(crew.ledger.cancel(task_id, crew.get(task_id).record.version))
        if end == "gone":
            crew.run(crew.ledger.discard(task_id, crew.get(task_id).record.version))
    return name, attempt.lease


async def test_only_files_that_no_task_needs_are_removed(filed: Crew) -> None:
    names = {end: (await kept_by(filed, end))[0] for end in ("gone", "cancelled", "done", "dead", "running")}
    needed = {names["dead"], names["running"], (await kept_by(filed, "queued"))[0]}
    folder = folder_for(filed.client.settings)
    assert folder is not None
    where = paths(filed)[0].parent
    foreign = {"notes.txt", "notes.checkpoint", "a-b.checkpoint"}
    for name in foreign:
        (where / name).write_text("somebody's")
    (where / ".unfinished-x1").write_text("of a killed process")
    assert await tidy(filed) == 4
    assert set(files(filed)) == needed | foreign
    assert await tidy(filed) == 0


async def test_the_file_of_a_dead_letter_is_removed_with_its_record(filed: Crew) -> None:
    name, lease = await kept_by(filed, "dead")
    assert await tidy(filed) == 0
    filed.run(filed.ledger.discard(lease.task_id, filed.get(lease.task_id).record.version))
    assert await tidy(filed) == 1
    assert files(filed) == []
    assert name


async def test_an_older_file_of_the_same_task_is_removed(filed: Crew) -> None:
    first, lease = await kept_by(filed, "queued")
    second = filed.begin()
    await filed.run_only(second)
    assert len(files(filed)) == 2
    assert await tidy(filed) == 1
    assert files(filed) == [Named(lease.task_id, second.lease.fence, 1).file]
    assert first not in files(filed)


async def test_a_file_of_the_running_attempt_is_kept(filed: Crew) -> None:
    _, lease = await kept_by(filed, "running")
    folder = folder_for(filed.client.settings)
    assert folder is not None
    untold = Named(lease.task_id, lease.fence, 2).file
    folder.write(untold, b"j1")
    assert await tidy(filed) == 0
    filed.lose(lease.worker_id)
    assert await tidy(filed) == 1
    assert untold not in files(filed)


async def test_young_files_are_kept(filed: Crew) -> None:
    await kept_by(filed, "gone")
    assert await Janitor(filed.client.settings, filed.client.store, filed.ledger).tidy() == 0
    (path,) = paths(filed)
    long_ago = time.time() - 601
    os.utime(path, (long_ago, long_ago))
    assert await Janitor(filed.client.settings, filed.client.store, filed.ledger).tidy() == 1


async def test_files_of_another_ledger_are_kept(filed: Crew) -> None:
    """Staging and production may share a bucket. The cleanup knows the tasks of one namespace only."""
    name, _ = await kept_by(filed, "dead")
    stranger = filed.client.settings.replace(namespace=f"{filed.client.settings.namespace}-b")
    other = Crew(stranger)
    await kept_by(other, "dead")
    for crew in (filed, other):
        assert await tidy(crew) == 0
    assert len(files(filed)) == 2
    assert name in files(filed)
    await other.aclose()


async def test_two_stores_that_share_a_bucket_and_a_namespace_keep_each_others_files(filed: Crew, boot: Boot) -> None:
    other = Crew(filed.client.settings.replace(redis_url=boot().url))
    for crew in (filed, other):
        use_client(crew.client)
        for end in ("dead", "gone"):
            await kept_by(crew, end)
    assert len(files(filed)) == 4
    for crew in (filed, other):
        assert await tidy(crew) == 1, "its own, of the record that is gone"
        assert await tidy(crew) == 0
    assert len(files(filed)) == 2
    use_client(filed.client)
    await other.aclose()


async def test_files_written_before_the_store_was_emptied_are_kept(filed: Crew) -> None:
    """If a backup is restored, their records come back, and so does the birth mark."""
    await kept_by(filed, "dead")
    filed.sound = False
    filed.command("EVAL", "for _, k in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do redis.call('DEL', k) end", 0,
                  filed.ledger.prefix)  # fmt: skip
    assert await tidy(filed) == 0
    assert len(files(filed)) == 1


async def old_file(crew: Crew, end: str) -> tuple[str, Lease]:
    """Create a task whose large checkpoint was written by the release before birth marks, in a file that names no
    store."""
    work.push("now")
    boot = crew.join()
    lease = crew.begin(boot).lease
    folder = folder_for(crew.client.settings)
    assert folder is not None
    value = b"j" + json.dumps("of the release before").encode()
    name = Named(lease.task_id, lease.fence, 1).file
    folder.write(name, value)
    reference = json.dumps({"name": name, "sha256": hashlib.sha256(value).hexdigest()}).encode()
    crew.run(crew.ledger.checkpoint(lease, 1, b"f" + reference))
    if end == "queued":
        crew.lose(boot)
    elif end == "done":
        crew.commit(lease)
    return name, lease


async def test_a_file_of_the_previous_release_is_read_and_then_removed(filed: Crew) -> None:
    name, _ = await old_file(filed, "queued")
    assert await tidy(filed) == 0, "it is needed"

    async def resume(ctx: TaskContext) -> Any:
        found = ctx.partial_result
        await ctx.set_partial(noise(LARGE))
        return found

    script["now"] = resume
    attempt = filed.begin()
    assert await filed.run_only(attempt) == Done(b'"of the release before"')
    assert len(files(filed)) == 2
    assert await tidy(filed) == 1
    assert name not in files(filed)


async def test_a_file_of_the_previous_release_is_removed_when_its_task_is_done(filed: Crew) -> None:
    name, _ = await old_file(filed, "done")
    assert name in files(filed)
    assert await tidy(filed) == 1
    assert files(filed) == []


async def test_a_file_of_the_previous_release_that_another_store_may_own_is_kept(filed: Crew) -> None:
    """The file names no store. So a missing record proves nothing, and neither does a task with the same id."""
    folder = folder_for(filed.client.settings)
    assert folder is not None
    _, lease = await kept_by(filed, "done")
    folder.write(Named("elsewhere", "1", 1).file, b"j1")
    folder.write(Named(lease.task_id, "17", 1).file, b"j1")
    assert await tidy(filed) == 1, "only the file of the task that is done"
    assert files(filed) == sorted([Named("elsewhere", "1", 1).file, Named(lease.task_id, "17", 1).file])


async def test_many_files_that_are_needed_do_not_hide_the_others(filed: Crew) -> None:
    """Each cleanup checks two hundred files, and continues where the last one stopped."""
    name, lease = await kept_by(filed, "running")
    folder = folder_for(filed.client.settings)
    assert folder is not None
    for seq in range(2, 460):
        folder.write(Named(lease.task_id, lease.fence, seq, filed.client.birth.mark).file, b"j1")
    for gone in ("0000", "zzzz"):
        folder.write(Named(gone, "1", 1, filed.client.birth.mark).file, b"j1")
    assert len(files(filed)) == 461
    assert await tidy(filed, 3) == 2
    assert name in files(filed)


async def test_a_record_that_cannot_be_read_keeps_its_files(filed: Crew) -> None:
    name, lease = await kept_by(filed, "dead")
    filed.sound = False
    filed.command("SET", keys.spell(filed.ledger.prefix, "checkpoint", lease.task_id), "fnonsense")
    assert await tidy(filed) == 0
    filed.command("SET", keys.spell(filed.ledger.prefix, "task", lease.task_id), "broken")
    assert await tidy(filed) == 0
    assert files(filed) == [name]


async def test_a_worker_removes_unneeded_files(filed: Crew, caplog: pytest.LogCaptureFixture) -> None:
    name, _ = await kept_by(filed, "done")
    (path,) = paths(filed)
    os.utime(path, (1, 1))
    with caplog.at_level("INFO", "relier.phoenix"):
        async with filed.working():
            await until(lambda: not files(filed))
    assert re.search(rf"checkpoint file removed.*{re.escape(name)}", caplog.text)
