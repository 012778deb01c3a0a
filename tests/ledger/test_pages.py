"""Data that does not fit into one answer is read in pages, and all of it arrives."""

from __future__ import annotations

import pytest

from relier.engines.claims import with_all_steps
from relier.ledger.ledger import OWNED_PAGE, Ledger, load_scripts
from relier.ledger.records import Lease, Submission
from relier.settings import Settings
from relier.store import AsyncStore
from tests.support.ledger_world import World
from tests.support.servers import free_port

PARTS = 5000
FILL = """
local steps, rest = KEYS[1] .. 's:' .. ARGV[1], string.rep('x', tonumber(ARGV[3]))
for i = 1, tonumber(ARGV[2]) do redis.call('HSET', steps, 'part' .. i, i .. rest) end
local line = string.gsub(redis.call('GETRANGE', KEYS[1] .. 't:' .. ARGV[1], 0, 95), ' %- 0 +$', ' s 0')
redis.call('SETRANGE', KEYS[1] .. 't:' .. ARGV[1], 0, string.format('%-96s', line))
"""


def fill(world: World, task: str, parts: int = PARTS, size: int = 1) -> None:
    world.command("EVAL", FILL, 1, world.prefix, task, parts, size)


def rest_of(world: World, task: str, steps: dict[str, bytes], left: str) -> tuple[dict[str, bytes], int]:
    """Return all steps, and how many further calls that took."""
    calls = 0
    while left:
        more, left = world.run(world.ledger.steps(task, left))
        steps, calls = steps | more, calls + 1
    return steps, calls


@pytest.mark.parametrize("size", [1, 5000], ids=["many", "large"])
def test_all_steps_of_a_claimed_task_are_delivered(clocked: World, size: int) -> None:
    parts = PARTS if size == 1 else 600
    task = clocked.push()
    fill(clocked, task, parts, size)
    (claimed,) = clocked.claim()
    assert claimed.steps_left
    assert sum(map(len, claimed.steps.values())) < 2 * 1024 * 1024
    steps, calls = rest_of(clocked, task, dict(claimed.steps), claimed.steps_left)
    assert steps == {f"part{i}": b"%d%s" % (i, b"x" * size) for i in range(1, parts + 1)}
    assert calls >= 2
    found = clocked.get(task)
    assert rest_of(clocked, task, dict(found.steps), found.steps_left)[0] == steps


def test_few_steps_are_returned_with_the_claim(clocked: World) -> None:
    lease = clocked.start()
    clocked.run(clocked.ledger.step(lease, "pay", b"x" * 10_000))
    clocked.release(lease)
    (claimed,) = clocked.claim()
    assert (claimed.steps, claimed.steps_left) == ({"pay": b"x" * 10_000}, "")
    assert clocked.get(lease.task_id).steps_left == ""


def test_steps_of_several_tasks_share_the_room_of_a_claim(clocked: World) -> None:
    tasks = [clocked.push() for _ in range(3)]
    for task in tasks:
        fill(clocked, task, 800)
    claimed = clocked.claim()
    assert [bool(one.steps_left) for one in claimed] == [False, True, True]
    for one in claimed:
        assert len(rest_of(clocked, one.record.id, dict(one.steps), one.steps_left)[0]) == 800


@pytest.mark.anyio
async def test_a_worker_starts_a_task_with_all_its_steps(store: AsyncStore, ledger: Ledger) -> None:
    await store.run(ledger.register("boot", 5000))
    tasks = [Submission(id=f"t{n}", name="app.work", payload=b"") for n in range(2)]
    await store.run(ledger.submit(tasks))
    await store.command("EVAL", FILL, 1, ledger.prefix, "t0", PARTS, 1)
    claim = await store.run(ledger.claim("boot", 1, ["default"], 10))
    released: list[Lease] = []
    started = [claimed async for claimed in with_all_steps(claim.tasks, store, ledger, released.extend)]
    assert [(one.record.id, len(one.steps), one.steps_left) for one in started] == [("t1", 0, ""), ("t0", PARTS, "")]
    assert released == []


@pytest.mark.anyio
async def test_a_task_whose_steps_cannot_be_read_is_handed_back(
    store: AsyncStore, ledger: Ledger, settings: Settings
) -> None:
    await store.run(ledger.register("boot", 5000))
    await store.run(ledger.submit([Submission(id="t", name="app.work", payload=b"")]))
    await store.command("EVAL", FILL, 1, ledger.prefix, "t", PARTS, 1)
    claim = await store.run(ledger.claim("boot", 1, ["default"], 10))
    released: list[Lease] = []
    away = settings.replace(redis_url=f"redis://127.0.0.1:{free_port()}", redis_deadline=0.2)
    async with AsyncStore(away, load_scripts()) as nowhere:
        assert [claimed async for claimed in with_all_steps(claim.tasks, nowhere, ledger, released.extend)] == []
    assert released == [claim.tasks[0].lease]


def test_all_tasks_of_a_worker_are_read_in_pages(clocked: World) -> None:
    ids = [f"t{n:04}" for n in range(OWNED_PAGE + 5)]
    for chunk in Ledger.chunks(clocked.new(id=i) for i in ids):
        clocked.store.run(clocked.ledger.submit(chunk))
    for seq in (1, 2):
        clocked.store.run(clocked.ledger.claim("boot", seq, ["default"], 1000))
    pages = [clocked.store.run(clocked.ledger.owned("boot", first)) for first in (0, OWNED_PAGE, 2 * OWNED_PAGE)]
    assert list(map(len, pages)) == [OWNED_PAGE, 5, 0]
    assert sorted(pages[0] | pages[1]) == ids


def test_a_page_begins_where_a_removed_entry_was(clocked: World) -> None:
    """This does not depend on how many entries share its score."""
    ids = sorted(f"t{n:03}" for n in range(300))
    for chunk in Ledger.chunks(clocked.new(id=i, eta_ms=clocked.now + 9000) for i in ids):
        clocked.submit(*chunk)
    for after in ("t", "t000", "t0005", "t149", "t298x", "t299", "z"):
        page = clocked.run(clocked.ledger.list("due", cursor=f"{clocked.now + 9000} {after}", most=2))
        assert [record.id for record in page.records] == [i for i in ids if i > after][:2], after
