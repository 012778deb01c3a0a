"""One table of states and moves, one file per move, one method per file; and only keys.py spells keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from relier.ledger import ledger as module
from relier.ledger.batches.membership import BatchHeader, Member, packed_plan
from relier.ledger.keys import SCHEMA, SPELLED
from relier.ledger.ledger import Ledger
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.moves.repair import Subject
from relier.ledger.nodes import Orders
from relier.ledger.records import Join, Lease
from relier.states import ENDED, LIVE, MARKS, MOVES, READS, State
from tests.support.ledger_world import HOUR, World

LUA = Path(module.__file__).parent / "lua"
FILES = sorted(LUA.glob("*.lua"))
LIBRARIES = sorted((LUA / "lib").glob("*.lua"))
HELPERS = {"bell", "chunks", "event_stream"}
RATED = (RunLimit("api", "api", LimitNumbers(0, 60_000_000, 60_000_000)),)


def code_of(path: Path) -> str:
    """Return a file without its comments."""
    return re.sub(r"--.*", "", path.read_text())


def test_one_file_one_move_one_method() -> None:
    files = {path.stem for path in FILES}
    methods = {name for name in dir(Ledger) if callable(getattr(Ledger, name))}
    methods = {name for name in methods if not name.startswith("_")} - HELPERS
    assert files == MOVES.keys() | MARKS | READS
    assert files == methods
    assert not MOVES.keys() & MARKS | MARKS & READS | MOVES.keys() & READS


def test_every_method_runs_the_script_of_its_name(clocked: World) -> None:
    lease = clocked.start()
    task = clocked.new()
    ledger = clocked.ledger
    arguments: dict[str, tuple[Any, ...]] = {
        "open": (),
        "submit": ([task],),
        "register": ("b", 1),
        "beat": ("b", 1),
        "retire": ("b",),
        "order": ("b", Orders(0, draining=True)),
        "claim": ("b", 1, ["q"], 1),
        "checkpoint": (lease, 1, b""),
        "step": (lease, "s", b""),
        "progress": (lease, "half"),
        "commit": ([(lease, None, ())],),
        "retry": (lease, 0),
        "release": ([lease],),
        "bury": (lease, "r"),
        "forfeit": (lease, "c"),
        "revive": (),
        "promote": (),
        "reap": (),
        "reconcile": (),
        "replay": ("t", 1, "n"),
        "cancel": ("t", 1),
        "discard": ("t", 1),
        "pause": ("q", 0),
        "resume": ("q", 0),
        "get": ("t",),
        "steps": ("t",),
        "list": ("due",),
        "owned": ("b",),
        "stats": (),
        "lock": ("k", "token", 1, lease),
        "renew": ("k", "token", 1),
        "conclude": ("k", "token", 1, b""),
        "unlock": ("k", "token"),
        "ring_outbox": (),
        "limit": ("tenant", 0, None),
        "limits": (),
        "schedule": ("s", "0", b"{}", 1),
        "fire": ("s", "1", 1, 2, [(1, task)]),
        "unschedule": ("s", "1"),
        "schedules": (),
        "open_batch": (BatchHeader(id="g"),),
        "extend_batch": ("g",),
        "seal_batch": ("g",),
        "cancel_batch": ("g",),
        "batch": ("g",),
        "batches": (),
        "members": ("g",),
        "results": ("g",),
        "lanes": (),
        "events": ("tasks", "now"),
        "watch": (),
        "outcomes": ("minute", 5),
    }
    assert arguments.keys() == {path.stem for path in FILES}
    for name, values in arguments.items():
        call = getattr(ledger, name)(*values)
        assert (call.script, call.key) == (name, clocked.prefix)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_header_of_a_script_lists_its_arguments_and_reply(path: Path) -> None:
    header = [line for line in path.read_text().splitlines() if line.startswith("-- ")]
    assert not re.match(r"-- (ARGV|returns|use):", header[0]), "it begins with what it does"
    assert any(line.startswith("-- returns:") for line in header)
    if "ARGV" in code_of(path) or re.search(r"^-- use:.*\bsettle\b", path.read_text(), re.MULTILINE):
        assert any(line.startswith("-- ARGV:") for line in header)


@pytest.mark.parametrize("path", FILES + LIBRARIES, ids=lambda path: path.stem)
def test_no_script_spells_a_key(path: Path) -> None:
    """The key of every command is a word of keys.SPELLED, or a variable or parameter that holds one."""
    code = code_of(path)
    assert "KEYS" not in code
    assert "rl:" not in code
    spellings = {key.spelled for key in SCHEMA if key.spelled.endswith(":")}
    literals = set(re.findall(r"'([^']*)'", code))
    assert not literals & spellings
    commands = re.findall(r"(?:redis\.p?call|ask|beside)\(\s*'(\w+)'\s*,\s*([^,)]+)", code)
    for command, key in commands:
        word = key.split("..")[0].strip()
        assert word in SPELLED or re.fullmatch(r"[a-z_]+", word), f"{command} {key}"


def test_the_names_of_keys_are_those_of_the_schema() -> None:
    assert SPELLED.keys() == {key.name.upper() for key in SCHEMA}
    assert len({key.spelled for key in SCHEMA}) == len(SCHEMA)
    assert all(key.holds and key.owner and key.end for key in SCHEMA)


def test_states_are_live_or_ended() -> None:
    assert set(State) == LIVE | ENDED
    assert not LIVE & ENDED


def test_done_and_cancelled_are_final_and_dead_tasks_leave_only_by_replay() -> None:
    for name, move in MOVES.items():
        for before, after in move.pairs:
            if before in {State.DONE, State.CANCELLED}:
                assert after is None, name
            if before is State.DEAD:
                assert after is None or name == "replay"


# --- every pair of the table is real: what makes it -------------------------------------------------------------------


def _asked(world: World) -> Any:
    lease = world.start()
    world.cancel(lease.task_id)
    return lease


def _broken(world: World, **fields: Any) -> str:
    task = world.push(**fields)
    world.command("SET", world.key("task", task), "broken")
    return task


def _replaces(world: World, **fields: Any) -> Any:
    world.push(key="k", **fields)
    return world.new(key="k", on_conflict="replace")


def _pair_in_one_call(world: World) -> list[Any]:
    return [world.new(key="k"), world.new(key="k", on_conflict="replace")]


def _last_part(world: World) -> list[Any]:
    world.commit(world.start(), None, [world.new(id="j", delay_ms=1, join=Join(2, "0"))])
    return [world.new(id="j", delay_ms=1, join=Join(2, "1"))]


def _fires(world: World, *tasks: Any) -> None:
    at = world.now + 1
    version = world.run(world.ledger.schedule("s", "0", b"{}", at)).version
    world.advance(10)
    runs = [(at + n, task) for n, task in enumerate(tasks)]
    assert world.run(world.ledger.fire("s", version, at, at + 100, runs)).verdict == "ok"


def _ended(world: World, end: State) -> str:
    if end is State.CANCELLED:
        task = world.push()
        world.cancel(task)
        return task
    lease = world.start()
    world.commit(lease) if end is State.DONE else world.bury(lease)
    return lease.task_id


def _after(world: World, ms: int, call: Any) -> None:
    world.advance(ms)
    world.run(call)


def _broken_running(world: World) -> Any:
    lease = world.start()
    world.command("SET", world.key("task", lease.task_id), "broken")
    return lease


def _discard(world: World, end: State) -> None:
    task = _ended(world, end)
    world.run(world.ledger.discard(task, world.version(task)))


def _reap(world: World, end: State) -> None:
    _ended(world, end)
    _after(world, 10_000 * HOUR, world.ledger.reap())


def _header(world: World, enters: State | None, **fields: Any) -> BatchHeader:
    """Return the header of a batch that submits a task when it ends."""
    after = world.new(delay_ms=1 if enters is State.SCHEDULED else 0, queue="after")
    return BatchHeader(id="g", plans=(("on_complete", packed_plan([], [after])),), **fields)


def _member(world: World, enters: State | None, **fields: Any) -> str:
    place = Member(batch="g", place=0, how="opens", opens=(_header(world, enters),))
    return world.push(member=place, **fields)


def _running(world: World, enters: State | None, *, asked: bool = False, **fields: Any) -> Lease:
    task = _member(world, enters, **fields)
    (claimed,) = world.claim()
    if asked:
        world.cancel(task)
    return claimed.lease


def _open_for_ever(world: World, enters: State | None) -> None:
    world.run(world.ledger.open_batch(_header(world, enters, open=True, lease_ms=1)))
    _after(world, 1, world.ledger.reap())


def _sealed(world: World, enters: State | None) -> None:
    world.run(world.ledger.open_batch(_header(world, enters, open=True, lease_ms=1)))
    world.run(world.ledger.seal_batch("g"))


def _lost_member(world: World, enters: State | None) -> None:
    task = _member(world, enters)
    world.delete(task)
    world.command("ZREM", world.key("ready", "default"), task)
    world.run(world.ledger.reconcile([Subject("members", b"g", task.encode())], "0", "0"))
    world.sound = False


ENTERING: dict[str, Callable[[World, State | None], Any]] = {
    "claim": lambda w, to: (_member(w, to, expires_in_ms=1), w.advance(1), w.claim()),
    "retry": lambda w, to: w.retry(_running(w, to, asked=True)),
    "release": lambda w, to: w.release(_running(w, to, asked=True)),
    "forfeit": lambda w, to: w.run(w.ledger.forfeit(_running(w, to, on_lost="bury"), "c")),
    "revive": lambda w, to: (_running(w, to, on_lost="bury"), w.lose()),
    "promote": lambda w, to: (_member(w, to, expires_in_ms=1), _after(w, 1, w.ledger.promote())),
    "reap": _open_for_ever,
    "reconcile": _lost_member,
    "cancel": lambda w, to: w.cancel(_member(w, to)),
    "open_batch": lambda w, to: w.run(w.ledger.open_batch(_header(w, to))),
    "seal_batch": _sealed,
    "cancel_batch": lambda w, to: (_member(w, to), w.run(w.ledger.cancel_batch("g"))),
}
S, Q, R = State.SCHEDULED, State.QUEUED, State.RUNNING
DONE, DEAD, CANCELLED = State.DONE, State.DEAD, State.CANCELLED
Do = Callable[[World], Any]
MAKES: dict[tuple[str, State | None, State | None], Do] = {
    ("submit", None, S): lambda w: w.push(delay_ms=1),
    ("submit", None, Q): lambda w: w.push(),
    ("submit", None, CANCELLED): lambda w: w.submit(*_pair_in_one_call(w)),
    ("submit", Q, CANCELLED): lambda w: w.submit(_replaces(w)),
    ("submit", S, CANCELLED): lambda w: w.submit(_replaces(w, delay_ms=1)),
    ("claim", Q, R): lambda w: w.start(),
    ("claim", Q, CANCELLED): lambda w: (w.push(expires_in_ms=1), w.advance(1), w.claim()),
    ("claim", Q, S): lambda w: (w.push(limits=RATED), w.push(limits=RATED), w.claim()),
    ("claim", Q, DEAD): lambda w: (_broken(w), w.claim()),
    ("commit", R, DONE): lambda w: w.commit(w.start()),
    ("commit", R, DEAD): lambda w: w.commit(_broken_running(w)),
    ("commit", None, S): lambda w: w.commit(w.start(), None, [w.new(delay_ms=1)]),
    ("commit", None, Q): lambda w: w.commit(w.start(), None, [w.new()]),
    ("commit", None, CANCELLED): lambda w: w.commit(w.start(), None, _pair_in_one_call(w)),
    ("commit", Q, CANCELLED): lambda w: w.commit(w.start(queue="x"), None, [_replaces(w)]),
    ("commit", S, CANCELLED): lambda w: w.commit(w.start(), None, [_replaces(w, delay_ms=1)]),
    ("commit", S, Q): lambda w: w.commit(w.start(), None, _last_part(w)),
    ("retry", R, S): lambda w: w.retry(w.start(), 1),
    ("retry", R, Q): lambda w: w.retry(w.start()),
    ("retry", R, CANCELLED): lambda w: w.retry(_asked(w)),
    ("retry", R, DEAD): lambda w: w.retry(_broken_running(w)),
    ("release", R, Q): lambda w: w.release(w.start()),
    ("release", R, CANCELLED): lambda w: w.release(_asked(w)),
    ("release", R, DEAD): lambda w: w.release(_broken_running(w)),
    ("bury", R, DEAD): lambda w: w.bury(w.start()),
    ("bury", None, S): lambda w: w.bury(w.start(), "r", [w.new(delay_ms=1)]),
    ("bury", None, Q): lambda w: w.bury(w.start(), "r", [w.new()]),
    ("bury", None, CANCELLED): lambda w: w.bury(w.start(), "r", _pair_in_one_call(w)),
    ("bury", Q, CANCELLED): lambda w: w.bury(w.start(queue="x"), "r", [_replaces(w)]),
    ("bury", S, CANCELLED): lambda w: w.bury(w.start(), "r", [_replaces(w, delay_ms=1)]),
    ("bury", S, Q): lambda w: w.bury(w.start(), "r", _last_part(w)),
    ("forfeit", R, Q): lambda w: w.run(w.ledger.forfeit(w.start(), "c")),
    ("forfeit", R, DEAD): lambda w: w.run(w.ledger.forfeit(w.start(on_lost="bury"), "c")),
    ("forfeit", R, CANCELLED): lambda w: w.run(w.ledger.forfeit(_asked(w), "c")),
    ("revive", R, Q): lambda w: (w.start(), w.lose()),
    ("revive", R, DEAD): lambda w: (_broken_running(w), w.lose()),
    ("revive", R, CANCELLED): lambda w: (_asked(w), w.lose()),
    ("promote", S, Q): lambda w: (w.push(delay_ms=1), _after(w, 1, w.ledger.promote())),
    ("promote", S, CANCELLED): lambda w: (w.push(delay_ms=1, expires_in_ms=1), _after(w, 1, w.ledger.promote())),
    ("promote", Q, CANCELLED): lambda w: (w.push(expires_in_ms=1), _after(w, 1, w.ledger.promote())),
    ("promote", S, DEAD): lambda w: (_broken(w, delay_ms=1), _after(w, 1, w.ledger.promote())),
    ("fire", None, S): lambda w: _fires(w, w.new(delay_ms=5)),
    ("fire", None, Q): lambda w: _fires(w, w.new()),
    ("fire", None, CANCELLED): lambda w: _fires(w, *_pair_in_one_call(w)),
    ("fire", Q, CANCELLED): lambda w: _fires(w, _replaces(w)),
    ("fire", S, CANCELLED): lambda w: _fires(w, _replaces(w, delay_ms=9000)),
    ("reap", DONE, None): lambda w: _reap(w, DONE),
    ("reap", DEAD, None): lambda w: _reap(w, DEAD),
    ("reap", CANCELLED, None): lambda w: _reap(w, CANCELLED),
    ("replay", DEAD, Q): lambda w: w.replay(_ended(w, DEAD)),
    ("cancel", S, CANCELLED): lambda w: w.cancel(w.push(delay_ms=1)),
    ("cancel", Q, CANCELLED): lambda w: w.cancel(w.push()),
    ("discard", DONE, None): lambda w: _discard(w, DONE),
    ("discard", DEAD, None): lambda w: _discard(w, DEAD),
    ("discard", CANCELLED, None): lambda w: _discard(w, CANCELLED),
    ("cancel_batch", S, CANCELLED): lambda w: (_member(w, Q, delay_ms=1), w.run(w.ledger.cancel_batch("g"))),
    ("cancel_batch", Q, CANCELLED): lambda w: (_member(w, Q), w.run(w.ledger.cancel_batch("g"))),
    **{
        (move, None, enters): partial(lambda w, act, enters: act(w, enters), act=act, enters=enters)
        for move, act in ENTERING.items()
        for enters in (S, Q)
    },
}


def test_the_table_in_this_test_equals_the_table_of_states() -> None:
    table = {(name, before, after) for name, move in MOVES.items() for before, after in move.pairs}
    assert MAKES.keys() == table


@pytest.mark.parametrize("pair", MAKES, ids=lambda pair: "-".join(str(word) for word in pair))
def test_every_move_in_the_table_can_happen(clocked: World, pair: tuple[str, State | None, State | None]) -> None:
    """World.run fails on any change that is not in the table. This test makes every change that is in it."""
    MAKES[pair](clocked)
    assert pair in clocked.seen
