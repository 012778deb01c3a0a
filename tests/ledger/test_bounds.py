"""No script blocks the store for long, whatever the data. The commands and rows of one call are counted, not timed.

5 ms of a store are about 5,000 simple commands. A command whose cost grows with the data (HGETALL, SMEMBERS, DEL of a
hash) counts by the rows that it returns, or is not used at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relier.errors import InvalidSubmissionError
from relier.ledger import ledger as module
from relier.ledger.batches.membership import BatchHeader, Member
from relier.ledger.ledger import Ledger, load_scripts
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.moves.repair import REPAIR_SUBJECTS, Subject
from relier.ledger.moves.worker import COMMIT_ATTEMPTS, COMMIT_TASKS
from relier.ledger.records import Lease
from relier.ledger.schedule_records import FIRE_RUNS
from relier.store import Call
from tests.support.ledger_world import DAY, World
from tests.support.servers import Server

MOST_COMMANDS = 5_000
READS = {"stats": 1_100, "list": 600}  # a command that reads a record costs 4 µs with the script's own work, not 1
MOST_ROWS = 15_000  # a claim of 1,000 tasks has a dozen values for each
MANY = 10_000
LUA = Path(module.__file__).parent / "lua"


def fill(world: World, body: str, n: int = MANY) -> None:
    """Run Lua with `i` from 1 to n, to create more data than a test could push one by one."""
    for first in range(1, n + 1, 1000):
        last = min(first + 999, n)
        world.command("EVAL", f"for i = {first}, {last} do {body} end", 1, world.prefix)


def leaves(raw: Any) -> int:
    return sum(map(leaves, raw)) if isinstance(raw, list) else 1


def submitted(world: World, n: int, **fields: Any) -> list[str]:
    tasks = [
        world.new(**{name: value(i) if callable(value) else value for name, value in fields.items()}) for i in range(n)
    ]
    for chunk in Ledger.chunks(tasks):
        world.store.run(world.ledger.submit(chunk))
    return [task.id for task in tasks]


def with_parts(world: World, task: str) -> str:
    """Give the task 10,000 steps, like the body of a large chord."""
    fill(world, f"redis.call('HSET', KEYS[1] .. 's:{task}', 'part' .. i, string.rep('x', 100))")
    key = world.key("task", task)
    flags = world.command("GET", key).split()[5].decode().strip("-")
    line = world.command("GET", key)[:96].decode().split()
    line[5] = flags + "s"
    world.command("SETRANGE", key, 0, " ".join(line).ljust(96))
    return task


STEPPED = """for _, id in ipairs(ARGV) do
  for i = 1, 20 do redis.call('HSET', KEYS[1] .. 's:' .. id, 's' .. i, string.rep('x', 100)) end
  local line = string.gsub(redis.call('GETRANGE', KEYS[1] .. 't:' .. id, 0, 95), ' mo 0 +$', ' mos 0')
  redis.call('SETRANGE', KEYS[1] .. 't:' .. id, 0, string.format('%-96s', line))
end"""


def with_few_steps(world: World, ids: list[str]) -> None:
    for first in range(0, len(ids), 100):
        world.command("EVAL", STEPPED, 1, world.prefix, *ids[first : first + 100])


def owning(world: World, n: int) -> None:
    submitted(world, n)
    for seq in range(1, n // 1000 + 1):
        world.store.run(world.ledger.claim("boot", seq, ["default"], 1000))


def leases(world: World) -> list[Lease]:
    return [Lease(i, f, "boot") for i, f in world.store.run(world.ledger.owned("boot")).items()]


Calls = Iterator[Call[Any]]


def of_claim(world: World) -> Calls:
    with_parts(world, world.push())
    yield world.ledger.claim("boot", 1, ["default"], 1, rung=False)
    submitted(world, 1500, queue="late", expires_in_ms=1000)
    world.advance(1000)
    yield world.ledger.claim("boot", 2, ["late"], 1000)
    with_few_steps(world, submitted(world, 1000, queue="stepped", key=lambda i: f"k{i}", expires_in_ms=DAY))
    yield world.ledger.claim("boot", 3, ["stepped"], 1000)
    yield world.ledger.claim("boot", 3, ["stepped"], 1000)
    limited(world, 1000)
    yield world.ledger.claim("boot", 4, ["limited"], 1000)


def limited(world: World, n: int, keys: int = 5) -> list[str]:
    """Return tasks with the largest number of limits, none of which is reached."""
    limits = tuple(RunLimit(f"k{i}", f"k{i}", LimitNumbers(10_000, 1, 100_000)) for i in range(keys))
    return submitted(world, n, queue="limited", limits=limits)


def of_limit(world: World) -> Calls:
    fill(world, "redis.call('HSET', KEYS[1] .. 'lanes', 'k' .. i .. ' q', '-k' .. i)")
    fill(world, "redis.call('ZADD', KEYS[1] .. 'ln:k' .. i .. ' q', i, 't' .. i)")
    yield world.ledger.limit("k", 0, LimitNumbers(1))


def of_limits(world: World) -> Calls:
    fill(world, "redis.call('HSET', KEYS[1] .. 'limited', 'k' .. i, i)")
    fill(world, "redis.call('HSET', KEYS[1] .. 'limits', 'k' .. i, '1 0 0 1')")
    yield world.ledger.limits()


def of_lanes(world: World) -> Calls:
    fill(world, "redis.call('HSET', KEYS[1] .. 'lanes', 'k' .. i .. ' q', '-k' .. i)")
    fill(world, "redis.call('ZADD', KEYS[1] .. 'ln:k' .. i .. ' q', i, 't' .. i)")
    yield world.ledger.lanes()


def of_get(world: World) -> Calls:
    yield world.ledger.get(with_parts(world, world.push()))


def of_steps(world: World) -> Calls:
    yield world.ledger.steps(with_parts(world, world.push()))


def of_stats(world: World) -> Calls:
    for _ in range(2):
        submitted(world, 2000, queue=lambda i: f"q{i}")
    submitted(world, 2000, queue=lambda i: f"q{i % 50}")
    fill(world, "redis.call('ZADD', KEYS[1] .. 'boots', i, 'boot' .. i)")
    yield world.ledger.stats()


def of_list(world: World) -> Calls:
    fill(world, "redis.call('ZADD', KEYS[1] .. 'due', 5000000000000, string.format('t%06d', i))", 20_000)
    world.sound = False
    for cursor in (None, "5000000000000 t019000", "5000000000000 gone", "5000000000000 t010000x"):
        yield world.ledger.list("due", cursor=cursor, most=1000)
    submitted(world, 1000, queue="keyed", key=lambda i: f"k{i}")
    yield world.ledger.list("ready", "keyed", most=1000)


def of_owned(world: World) -> Calls:
    owning(world, 8000)
    yield world.ledger.owned("boot")


def of_beat(world: World) -> Calls:
    fill(world, "redis.call('SADD', KEYS[1] .. 'x:boot', i .. ' 1')")
    yield world.ledger.beat("boot", 5000)


def of_revive(world: World) -> Calls:
    owning(world, 3000)
    world.advance(2000)
    fill(
        world,
        "redis.call('ZADD', KEYS[1] .. 'boots', 1, 'dead' .. i) redis.call('HSET', KEYS[1] .. 'w:dead' .. i, 'a', 1)",
    )
    yield world.ledger.revive(worker_id="boot")
    yield world.ledger.revive(10_000, interval_ms=5000)


def of_promote(world: World) -> Calls:
    submitted(world, 1000, delay_ms=1000, key=lambda i: f"k{i}", queue=lambda i: f"q{i}")
    submitted(world, 1000, expires_in_ms=1000, key=lambda i: f"l{i}", queue=lambda i: f"r{i}")
    record = "redis.call('HSET', KEYS[1] .. 'sd:s' .. i, 'version', i, 'state', 'active')"
    fill(world, f"redis.call('ZADD', KEYS[1] .. 'sch:native', i, 's' .. i) if i > 11 then {record} end")
    world.advance(1000)
    yield world.ledger.promote(10_000)
    yield world.ledger.promote(10_000, skip_schedules=9_000)


def of_fire(world: World) -> Calls:
    at = world.now + 1
    version = world.store.run(world.ledger.schedule("s", "0", b"{}", at)).version
    world.advance(100)
    runs = [
        (at + n, world.new(key=f"k{n}", on_conflict="replace", expires_in_ms=DAY, queue=f"q{n}"))
        for n in range(FIRE_RUNS)
    ]
    yield world.ledger.fire("s", version, at, at + FIRE_RUNS, runs, missed=3)


def of_schedules(world: World) -> Calls:
    many = "redis.call('ZADD', KEYS[1] .. 'sch:native', i, 's' .. i) redis.call('HSET', KEYS[1] .. 'sd:s' .. i,"
    fill(world, f"{many} 'version', i, 'state', 'active', 'group', 'native', 'definition', '')")
    fill(world, "for n = 1, 20 do redis.call('RPUSH', KEYS[1] .. 'sf:s' .. i, '[]') end", 100)
    yield world.ledger.schedules()
    yield world.ledger.schedules("s1")


def of_reap(world: World) -> Calls:
    submitted(world, 1000, key=lambda i: f"k{i}", result_ttl_ms=1, tomb_ttl_ms=1, queue=lambda i: f"q{i}")
    claim = world.store.run(world.ledger.claim("boot", 1, [f"q{n}" for n in range(1000)], 1000))
    for start in range(0, 1000, COMMIT_ATTEMPTS):
        ended = claim.tasks[start : start + COMMIT_ATTEMPTS]
        world.store.run(world.ledger.commit([(one.lease, None, ()) for one in ended]))
    world.advance(10)
    yield world.ledger.reap(10_000)


def of_reconcile(world: World) -> Calls:
    """The most subjects, all sound; then as many that are damaged, each behind five limits."""
    claimed = limited(world, REPAIR_SUBJECTS)
    world.store.run(world.ledger.claim("boot", 1, ["limited"], REPAIR_SUBJECTS))
    subjects = [Subject("task", task.encode()) for task in claimed]
    yield world.ledger.reconcile(subjects, "0", "1")
    for key in range(5):
        world.command("DEL", world.key("slots", f"k{key}"))
    yield world.ledger.reconcile(subjects, "1", "2")
    waiting = limited(world, REPAIR_SUBJECTS)
    world.command("DEL", world.key("ready", "limited"))
    for task in waiting:
        world.command("ZREM", world.key("lane", "k0,k1,k2,k3,k4 limited"), task)
    yield world.ledger.reconcile([Subject("task", task.encode()) for task in waiting], "1", "2")
    fill(world, "redis.call('HSET', KEYS[1] .. 'lanes', 'k' .. i .. ' q', '-k' .. i)", 1000)
    yield world.ledger.reconcile([Subject("waiting", b"", b"limited")], "1", "2")
    world.sound = False


def of_commit(world: World) -> Calls:
    seq = 1
    submitted(world, COMMIT_ATTEMPTS, key=lambda i: f"k{i}", expires_in_ms=DAY)
    submitted(world, 1, queue="last")
    world.store.run(world.ledger.claim("boot", 1, ["default", "last"], 1000))
    *held, last = leases(world)
    with pytest.raises(InvalidSubmissionError, match="split it"):
        world.ledger.commit([(lease, b"1", ()) for lease in [*held, last]])
    yield world.ledger.commit([(lease, b"1", ()) for lease in held])
    yield world.ledger.commit([(last, b"1", [world.new() for _ in range(COMMIT_TASKS - 1)])])
    limited(world, COMMIT_ATTEMPTS, keys=2)
    while len(leases(world)) < COMMIT_ATTEMPTS:
        seq += 1
        world.store.run(world.ledger.claim("boot", seq, ["limited"], 1000))
    yield world.ledger.commit([(lease, b"1", ()) for lease in leases(world)])


def with_members(world: World, n: int = MANY) -> str:
    """Create a batch of many waiting tasks."""
    world.store.run(world.ledger.open_batch(BatchHeader(id="g", open=True, lease_ms=DAY)))
    submitted(world, n, member=lambda i: Member(batch="g", place=i))
    return "g"


def of_cancel_batch(world: World) -> Calls:
    batch = with_members(world, 1000)
    world.store.run(world.ledger.claim("boot", 1, ["default"], 500))
    yield world.ledger.cancel_batch(batch)
    yield world.ledger.cancel_batch(batch, "600", most=1000)


def of_members(world: World) -> Calls:
    yield world.ledger.members(with_members(world, 3000), most=1000)


def of_results(world: World) -> Calls:
    fill(world, "redis.call('HSET', KEYS[1] .. 'gr:g', i, string.rep('x', 100))")
    yield world.ledger.results("g")


def of_events(world: World) -> Calls:
    fill(world, "redis.call('XADD', KEYS[1] .. 'ev:tasks', i .. '-1', 'submit 1', '- queued 1 0 0 - -\\nq\\nn\\nt')")
    for position in ("start", "now", "20-1", "20-0", "20-7"):
        yield world.ledger.events("tasks", position, most=1000)


def of_batches(world: World) -> Calls:
    fill(world, "redis.call('ZADD', KEYS[1] .. 'batches', i, 'g' .. i)")
    yield world.ledger.batches(most=1000)


def of_outcomes(world: World) -> Calls:
    minute, hour = world.now // 60_000, world.now // 3_600_000
    for first in (f"m' .. ({minute} - i)", f"h' .. ({hour} - i)"):
        fields = "for f = 1, 690 do redis.call('HSET', KEYS[1] .. 'n:" + first + ", 'done ' .. f .. '\\nq\\nn', 1) end"
        fill(world, fields, 70)
    yield world.ledger.outcomes("minute", 360)
    yield world.ledger.outcomes("hour", 72)


LARGE: dict[str, Callable[[World], Calls]] = {
    "claim": of_claim,
    "get": of_get,
    "steps": of_steps,
    "stats": of_stats,
    "list": of_list,
    "owned": of_owned,
    "beat": of_beat,
    "revive": of_revive,
    "promote": of_promote,
    "fire": of_fire,
    "schedules": of_schedules,
    "reap": of_reap,
    "reconcile": of_reconcile,
    "commit": of_commit,
    "limit": of_limit,
    "limits": of_limits,
    "cancel_batch": of_cancel_batch,
    "members": of_members,
    "results": of_results,
    "batches": of_batches,
    "lanes": of_lanes,
    "events": of_events,
    "outcomes": of_outcomes,
}
# What these do is as much as they are asked for: one key, one task, or the tasks their arguments name.
BY_ARGUMENTS = {
    "open",
    "register",
    "retire",
    "order",
    "checkpoint",
    "step",
    "progress",
    "retry",
    "release",
    "bury",
    "forfeit",
}
BY_ARGUMENTS |= {
    "replay",
    "cancel",
    "discard",
    "pause",
    "resume",
    "lock",
    "renew",
    "conclude",
    "unlock",
    "ring_outbox",
    "submit",
    "schedule",
    "unschedule",
    "open_batch",
    "extend_batch",
    "seal_batch",
    "batch",
    "watch",
}


def test_every_script_has_a_bound() -> None:
    assert LARGE.keys() | BY_ARGUMENTS == load_scripts().names()
    assert not LARGE.keys() & BY_ARGUMENTS


def commands_of(server: Server) -> int:
    stats = server.info("commandstats")
    counted = {name: int(text.partition("calls=")[2].partition(",")[0]) for name, text in stats.items()}
    scripts = ("cmdstat_eval", "cmdstat_evalsha", "cmdstat_info", "cmdstat_config", "cmdstat_script", "cmdstat_wait")
    return sum(n for name, n in counted.items() if not name.startswith(scripts))


@pytest.mark.parametrize("script", LARGE)
def test_the_work_of_one_call_is_bounded(boot: Any, worlds: Any, flavour: str, script: str) -> None:
    server: Server = boot(flavour=flavour, config={"appendonly": "no"})
    world: World = worlds(server)
    world.sound = False
    world.join()
    for call in LARGE[script](world):
        assert call.script == script
        server.command("CONFIG", "RESETSTAT")
        raw = world.store.run(replace(call, parse=lambda raw: raw))
        commands, rows = commands_of(server), leaves(raw)
        assert commands <= READS.get(script, MOST_COMMANDS), f"{script}{call.args[:6]}: {commands} commands"
        assert rows <= MOST_ROWS, f"{script}{call.args[:6]}: {rows} values"


def test_the_place_of_a_cursor_is_found_by_halving(boot: Any, worlds: Any, flavour: str) -> None:
    server: Server = boot(flavour=flavour, config={"appendonly": "no"})
    world: World = worlds(server)
    world.sound = False
    fill(world, "redis.call('ZADD', KEYS[1] .. 'due', 5000000000000, string.format('t%06d', i))", 20_000)
    server.command("CONFIG", "RESETSTAT")
    world.store.run(world.ledger.list("due", cursor="5000000000000 t010000x", most=1))
    assert commands_of(server) <= 30


# Commands that are as long as what they meet, and where that is known to be short.
LONG = re.compile(r"'(HGETALL|HKEYS|HVALS|SMEMBERS|DEL|LRANGE|KEYS|SUNION|SORT)', ?([A-Z]+)|'Z?RANGE', [^,]+, 0, -1")
SHORT = {"BATCH", "MORE", "COUNTS", "HISTORY", "LOCK", "IDEM", "TASK", "OUTBOX", "WORKER", "BELL", "FIRES", "OUTCOMES"}


def test_no_command_grows_with_the_data() -> None:
    for path in sorted(LUA.rglob("*.lua")):
        for found in LONG.finditer(re.sub(r"--.*", "", path.read_text())):
            line = path.read_text()[found.start() :].split("\n")[0]
            assert found[2] in SHORT, f"{path.name}: {line}"
            assert "DEL" not in found[0] or "STEPS" not in line, f"{path.name}: {line}; UNLINK frees it later"
