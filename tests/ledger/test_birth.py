"""The birth mark of a namespace: created once, kept with the data, and different in a store that was emptied."""

from __future__ import annotations

import pytest

from relier.errors import LayoutError, StoreEmptiedError, TaskNotFoundError
from relier.ledger import keys
from tests.support.ledger_world import World


def meta(world: World) -> dict[bytes, bytes]:
    flat = world.command("HGETALL", keys.spell(world.ledger.prefix, "meta"))
    return dict(zip(flat[::2], flat[1::2], strict=True))


@pytest.fixture
def clocked(clocked: World) -> World:
    """A namespace that nobody has opened yet, as after a FLUSHALL."""
    clocked.command("DEL", keys.spell(clocked.ledger.prefix, "meta"))
    return clocked


def test_opening_an_empty_namespace_sets_its_birth_mark(clocked: World) -> None:
    first, second = clocked.ledger.open(), clocked.ledger.open()
    assert first.args != second.args, "each brings a fresh one"
    mark = clocked.store.run(first)
    assert mark
    assert clocked.store.run(second) == clocked.store.run(first) == mark
    assert b"emptied" not in meta(clocked)


def test_a_namespace_of_an_earlier_release_gets_a_birth_mark_and_that_is_no_change(clocked: World) -> None:
    clocked.command("HSET", keys.spell(clocked.ledger.prefix, "meta"), "layout", keys.LAYOUT)
    task = clocked.push()
    mark = clocked.store.run(clocked.ledger.open())
    assert mark == clocked.store.run(clocked.ledger.open(mark))
    assert b"emptied" not in meta(clocked)
    assert clocked.get(task).record.id == task


def test_a_namespace_with_another_layout_gets_no_birth_mark(clocked: World) -> None:
    clocked.command("HSET", keys.spell(clocked.ledger.prefix, "meta"), "layout", "0")
    with pytest.raises(LayoutError):
        clocked.store.run(clocked.ledger.open("remembered"))
    assert meta(clocked) == {b"layout": b"0"}


def test_the_first_caller_with_another_birth_mark_records_the_change(clocked: World) -> None:
    now = clocked.store.run(clocked.ledger.open())
    for remembered in ("before", "long-before", now, ""):
        assert clocked.store.run(clocked.ledger.open(remembered)) == now
    assert meta(clocked)[b"emptied"].split() == [str(clocked.now).encode(), b"before"]
    assert clocked.counts()["emptied"] == 1


@pytest.mark.parametrize("many", [1, 3])
def test_a_submit_returns_the_birth_mark(clocked: World, many: int) -> None:
    assert {answer.born for answer in clocked.submit(*[clocked.new() for _ in range(many)])} == {""}
    mark = clocked.store.run(clocked.ledger.open())
    tasks = [clocked.new() for _ in range(many)]
    for _ in range(2):
        assert {answer.born for answer in clocked.submit(*tasks)} == {mark}


def test_a_missing_task_counts_as_lost_if_the_birth_mark_changed(clocked: World) -> None:
    mark = clocked.store.run(clocked.ledger.open())
    with pytest.raises(TaskNotFoundError, match="it never existed, or its record has expired"):
        clocked.store.run(clocked.ledger.get("gone", mark))
    with pytest.raises(StoreEmptiedError, match=f"the birth mark was before, now it is {mark}"):
        clocked.store.run(clocked.ledger.get("gone", "before"))
    clocked.command("DEL", keys.spell(clocked.ledger.prefix, "meta"))
    with pytest.raises(StoreEmptiedError, match=f"the birth mark was {mark}, now it is none"):
        clocked.store.run(clocked.ledger.get("gone", mark))
    task = clocked.push()
    assert clocked.store.run(clocked.ledger.get(task, mark)).record.id == task, "what is there was not lost"
