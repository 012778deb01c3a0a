"""Records that another program damaged, at every move: a verdict or a typed error, nothing half done, no other task
affected."""

from __future__ import annotations

from typing import Any

import pytest

from relier.errors import CorruptRecordError, InvalidSubmissionError, LedgerError, TaskNotFoundError
from relier.ledger.records import Admission, Lease
from relier.states import State
from tests.support.ledger_world import DAY, HOUR, World

GOOD = "queued 1 0 - 0 - 0".ljust(96)
SPEC = "1800000000000000 - - 0 - - - - - - -"
TEXTS = {
    "a word": "x",
    "binary": b"\xff\xfe\x00\x01" * 30,
    "line 1 cut short": "queued 1 0",
    "line 1 not padded": f"queued 1 0 - 0 - 0\n{SPEC}\ndefault\nname\n{{}}",
    "line 1 too wide": f"{GOOD} \n{SPEC}\ndefault\nname\n{{}}",
    "no line 2": f"{GOOD}\n",
    "garbage in line 2": f"{GOOD}\n???\ndefault\nname\n{{}}",
    "line 2 cut short": f"{GOOD}\n1800000000000000 - - 0 -\ndefault\nname\n{{}}",
    "no queue": f"{GOOD}\n{SPEC}\n\nname\n{{}}",
    "no end of line 4": f"{GOOD}\n{SPEC}\ndefault\nname",
    "an unknown state": f"{'queuee 1 0 - 0 - 0'.ljust(96)}\n{SPEC}\ndefault\nname\n{{}}",
    "a version that is no number": f"{'queued x 0 - 0 - 0'.ljust(96)}\n{SPEC}\ndefault\nname\n{{}}",
    "JSON": '{"id": "task000", "state": "queued"}',
}
every_text = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
OTHER_TYPES = {
    "list": ("RPUSH", "x"),
    "hash": ("HSET", "state", "queued"),
    "set": ("SADD", "x"),
    "zset": ("ZADD", "1", "x"),
}
every_type = pytest.mark.parametrize("kind", OTHER_TYPES)


def spoil(world: World, task: str, text: str | bytes, side: str = "task") -> None:
    world.sound = False
    world.command("SET", world.key(side, task), text)


def usurp(world: World, task: str, kind: str, side: str = "task") -> None:
    """Replace the record, or a key next to it, by a key of another type."""
    world.sound = False
    command, *rest = OTHER_TYPES[kind]
    world.command("DEL", world.key(side, task))
    world.command(command, world.key(side, task), *rest)


def assert_dead_letter(world: World, task: str, text: str | bytes) -> None:
    """Check that a person sees the task: it is listed as dead, with a reason, a history, and the bytes that were
    found."""
    (record,) = world.run(world.ledger.list("ended", "dead")).records
    assert (record.id, record.reason) == (task, "corrupt_record")
    found = world.get(task)
    assert found.payload == (text.encode() if isinstance(text, str) else text)
    assert found.history[-1].move == "corrupt"
    world.audit()


@every_text
def test_a_claim_buries_an_unreadable_record(clocked: World, text: str) -> None:
    broken, sound = clocked.push(key="k"), clocked.push()
    spoil(clocked, broken, text)
    assert [one.record.id for one in clocked.claim()] == [sound]
    assert_dead_letter(clocked, broken, text)
    clocked.run(clocked.ledger.discard(broken, clocked.version(broken)))
    assert clocked.submit(clocked.new(key="k"))[0].status == "new"


@every_text
def test_promote_buries_an_unreadable_record(clocked: World, text: str) -> None:
    broken, sound = clocked.push(delay_ms=1), clocked.push(delay_ms=2)
    spoil(clocked, broken, text)
    clocked.advance(2)
    assert clocked.run(clocked.ledger.promote()).count == 1
    assert clocked.members("ready", "default") == [sound]
    assert_dead_letter(clocked, broken, text)


@every_text
def test_revive_buries_an_unreadable_record(clocked: World, text: str) -> None:
    broken = clocked.start().task_id
    sound = clocked.start().task_id
    spoil(clocked, broken, text)
    assert (sound, "queued") in clocked.lose().outcomes
    assert clocked.members("boots") == []
    assert_dead_letter(clocked, broken, text)


def test_a_buried_broken_record_can_be_replayed_and_discarded(clocked: World) -> None:
    task = clocked.push()
    spoil(clocked, task, "ruin")
    clocked.claim()
    clocked.replay(task, payload=b"mended")
    (claimed,) = clocked.claim(queues=["?"])
    assert claimed.payload == b"mended"
    assert clocked.commit(claimed.lease).verdict == "ok"
    clocked.audit()


READABLE = ("line 1 not padded", "line 1 too wide", "an unknown state", "a version that is no number", "no queue")


@pytest.mark.parametrize("what", READABLE)
def test_a_broken_record_releases_its_counters(clocked: World, what: str) -> None:
    """These are the bytes that it held and its idempotency key, if its second line can still be read."""
    guard = Admission(max_bytes=100_000)
    clocked.submit(clocked.new(id="t", key="k", key_ttl_ms=DAY), admission=guard)
    held = clocked.get("t").record.spec.held
    assert clocked.counts()["bytes"] == held
    spoil(clocked, "t", str(TEXTS[what]).replace(SPEC, f"1800000000000000 - {held} 0 - - {DAY} - - - -"))
    assert clocked.claim() == ()
    assert clocked.counts()["bytes"] == 0
    assert clocked.submit(clocked.new(id="next", key="k"))[0].status == "new"
    spec = clocked.get("t").record.spec
    assert (spec.held, spec.key_ttl_ms) == (held, DAY)
    clocked.cancel("next")
    clocked.replay("t", payload=b"mended")
    assert clocked.counts()["bytes"] == held
    assert clocked.submit(clocked.new(key="k"))[0].id == "t"
    (mended,) = clocked.claim(queues=["?"])
    clocked.commit(mended.lease)
    assert clocked.counts()["bytes"] == 0
    assert clocked.submit(clocked.new(key="k"))[0].status == "duplicate"
    clocked.audit()


@every_text
def test_a_broken_record_frees_its_key_whatever_is_left_of_it(clocked: World, text: str) -> None:
    task = clocked.push(key="k")
    spoil(clocked, task, text)
    clocked.claim()
    assert clocked.submit(clocked.new(key="k"))[0].status == "new"


def test_side_keys_of_a_broken_record_expire(clocked: World) -> None:
    lease = clocked.start(key="k")
    clocked.run(clocked.ledger.step(lease, "pay", b"1"))
    clocked.run(clocked.ledger.checkpoint(lease, 1, b"half"))
    spoil(clocked, lease.task_id, "ruin")
    clocked.lose()
    for side in ("task", "more", "history", "checkpoint", "steps"):
        assert clocked.pttl(side, lease.task_id) > 0, side


@pytest.mark.parametrize("number", ["9" * 30, "-5", "1e9", "0x10", "", "nan"])
def test_a_broken_record_releases_only_valid_numbers(clocked: World, number: str) -> None:
    clocked.submit(clocked.new(id="t"), admission=Admission(max_bytes=100_000))
    before = clocked.counts()["bytes"]
    spoil(clocked, "t", f"queued\n1800000000000000 - {number} 0 - - {number} - - - -\ndefault\nname\n{{}}")
    clocked.claim()
    assert clocked.counts()["bytes"] == before
    clocked.audit()


def refused(world: World, call: Any) -> str:
    """Return how a move is refused: its verdict or its error."""
    try:
        answer = world.run(call)
    except LedgerError as error:
        return type(error).__name__
    answer = answer[0] if isinstance(answer, list) else answer
    answer = getattr(answer, "settled", answer)
    return str(getattr(answer, "verdict", getattr(answer, "status", answer)))


def moves_on(world: World, lease: Lease) -> dict[str, Any]:
    task, ledger = lease.task_id, world.ledger
    return {
        "submit": ledger.submit([world.new(id=task)]),
        "commit": ledger.commit([(lease, b"1", [world.new(id="follow")])]),
        "retry": ledger.retry(lease, 0),
        "release": ledger.release([lease]),
        "bury": ledger.bury(lease, "r"),
        "forfeit": ledger.forfeit(lease, "c"),
        "checkpoint": ledger.checkpoint(lease, 1, b""),
        "step": ledger.step(lease, "s", b""),
        "progress": ledger.progress(lease, "half"),
        "replay": ledger.replay(task, 1, "n"),
        "cancel": ledger.cancel(task, 1),
        "discard": ledger.discard(task, 1),
        "get": ledger.get(task),
    }


SETTLING = ("commit", "retry", "release", "bury", "forfeit")
CORRUPT = {"corrupt", "CorruptRecordError"}
GONE = {"missing", "TaskNotFoundError"}


@every_text
def test_marks_and_operators_leave_a_broken_record_unchanged(clocked: World, text: str) -> None:
    lease = clocked.start()
    spoil(clocked, lease.task_id, text)
    for move, call in moves_on(clocked, lease).items():
        if move not in SETTLING:
            with clocked.unchanged():
                assert refused(clocked, call) in CORRUPT, move


@every_text
@pytest.mark.parametrize("move", SETTLING)
def test_settling_a_broken_record_buries_it(clocked: World, text: str, move: str) -> None:
    """Its owner is the last worker that sees the record, so it ends here as a dead letter."""
    lease = clocked.start()
    spoil(clocked, lease.task_id, text)
    assert refused(clocked, moves_on(clocked, lease)[move]) == "corrupt"
    assert clocked.members("owned", "boot") == []
    assert clocked.state("follow") is None
    assert_dead_letter(clocked, lease.task_id, text)


@pytest.mark.parametrize("move", SETTLING)
def test_only_the_owner_buries_a_broken_record(clocked: World, move: str) -> None:
    lease = clocked.start()
    clocked.join("other")
    spoil(clocked, lease.task_id, "x")
    call = moves_on(clocked, Lease(lease.task_id, lease.fence, "other"))[move]
    with clocked.unchanged():
        assert refused(clocked, call) == "corrupt"


@every_type
def test_every_move_on_a_key_of_the_wrong_type_is_refused(clocked: World, kind: str) -> None:
    lease = clocked.start()
    usurp(clocked, lease.task_id, kind)
    calls = moves_on(clocked, lease)
    for move in calls.keys() - set(SETTLING):
        with clocked.unchanged():
            assert refused(clocked, calls[move]) in CORRUPT, move
    for move in SETTLING:
        assert refused(clocked, calls[move]) in CORRUPT, move
    assert clocked.command("TYPE", clocked.key("task", lease.task_id)) == kind.encode(), "not ours: left alone"


@pytest.mark.parametrize("how", ["emptied", "deleted"])
def test_every_move_on_a_missing_record_is_answered(clocked: World, how: str) -> None:
    lease = clocked.start()
    if how == "deleted":
        clocked.delete(lease.task_id)
    else:
        spoil(clocked, lease.task_id, "")
    calls = moves_on(clocked, lease)
    for move in calls.keys() - {*SETTLING, "submit"}:
        with clocked.unchanged():
            assert refused(clocked, calls[move]) in GONE, move
    for move in SETTLING:
        assert refused(clocked, calls[move]) in GONE, move
    assert clocked.state("follow") is None
    assert refused(clocked, calls["submit"]) == ("corrupt" if how == "emptied" else "new")


@pytest.mark.parametrize("what", ["deleted", "emptied", *OTHER_TYPES])
def test_an_index_entry_without_a_record_is_a_stray(clocked: World, what: str) -> None:
    """There is nothing to run or to bury: claim, promote and revive remove the entry, count it and continue."""
    ready, due, running = clocked.push(queue="a"), clocked.push(delay_ms=1), clocked.start().task_id
    sound = clocked.push(queue="a")
    for task in (ready, due, running):
        clocked.sound = False
        if what == "deleted":
            clocked.delete(task)
        elif what == "emptied":
            clocked.command("SET", clocked.key("task", task), "")
        else:
            usurp(clocked, task, what)
    clocked.advance(1)
    assert [one.record.id for one in clocked.claim(queues=["a"])] == [sound]
    assert clocked.run(clocked.ledger.promote()).count == 0
    assert clocked.lose().outcomes == ((sound, "queued"),)
    assert clocked.counts()["strays"] == 3
    assert clocked.members("due") == clocked.members("boots") == []


@every_type
def test_a_resent_claim_skips_a_record_whose_key_was_overwritten(clocked: World, kind: str) -> None:
    clocked.push()
    clocked.push()
    one, two = clocked.claim()
    usurp(clocked, one.record.id, kind)
    again = clocked.run(clocked.ledger.claim("boot", 1, ["default"], 100))
    assert [task.lease for task in again.tasks] == [two.lease]


@pytest.mark.parametrize("side", ["more", "history", "checkpoint", "steps"])
@pytest.mark.parametrize(
    "move", ["commit", "retry", "release", "bury", "forfeit", "revive", "checkpoint", "step", "progress"]
)
def test_an_overwritten_side_key_stops_no_move_halfway(clocked: World, side: str, move: str) -> None:
    """The record decides. Data beside it may be lost, but not the task."""
    lease = clocked.start(key="k")
    clocked.run(clocked.ledger.checkpoint(lease, 1, b"half"))
    clocked.run(clocked.ledger.step(lease, "pay", b"1"))
    clocked.retry(lease)
    (claimed,) = clocked.claim()
    usurp(clocked, lease.task_id, "zset", side)
    if move == "revive":
        assert clocked.lose().outcomes == ((lease.task_id, "queued"),)
    else:
        call = moves_on(clocked, claimed.lease)[move]
        assert refused(clocked, call) in {"ok", "repeat"}
    places = [clocked.rank_of(lease.task_id, *index) for index in PLACES]
    assert len([rank for rank in places if rank is not None]) == 1, "it stands in exactly one index"


@pytest.mark.parametrize("move", ["submit", "commit", "follow up", "cancel", "reap", "replay"])
def test_an_overwritten_idempotency_mark_stops_no_move_halfway(clocked: World, move: str) -> None:
    keyed = {"key": "k", "key_ttl_ms": 1000}
    other = clocked.start(queue="other")
    before = [] if move in {"submit", "follow up"} else [clocked.start(**keyed)]
    if move == "reap":
        clocked.commit(before[0])
        clocked.advance(DAY)
    elif move == "replay":
        clocked.bury(before[0])
    usurp(clocked, "k", "list", "idem")
    if move == "submit":
        assert [answer.status for answer in clocked.submit(clocked.new(), clocked.new(**keyed))] == ["new", "new"]
    elif move == "follow up":
        assert clocked.commit(other, b"1", [clocked.new(), clocked.new(**keyed)]).verdict == "ok"
    elif move == "commit":
        assert clocked.commit(before[0]).verdict == "ok"
    elif move == "cancel":
        assert clocked.release(before[0]).verdict == "ok"
        clocked.cancel(before[0].task_id)
    elif move == "replay":
        assert clocked.replay(before[0].task_id).verdict == "ok"
    else:
        assert clocked.run(clocked.ledger.reap()) == 1
    for task, state in clocked.states().items():
        places = [clocked.rank_of(task, *index) for index in [*PLACES, ("owned", "boot"), ("ready", "other")]]
        assert any(rank is not None for rank in places), f"{task} is {state} and stands in no index"


PLACES = [
    ("due",),
    ("ready", "default"),
    ("owned", "boot"),
    ("ended", "done"),
    ("ended", "dead"),
    ("ended", "cancelled"),
]


def test_a_list_names_unreadable_records(clocked: World) -> None:
    broken, sound = clocked.push(), clocked.push()
    spoil(clocked, broken, "x")
    page = clocked.run(clocked.ledger.list("ready", "default"))
    assert ([record.id for record in page.records], page.corrupt) == ([sound], (broken,))
    assert clocked.run(clocked.ledger.owned("boot")) == {}
    assert clocked.run(clocked.ledger.stats()).queues[0].ready == 2


def test_a_damaged_history_can_still_be_read(clocked: World) -> None:
    lease = clocked.start()
    clocked.retry(lease)
    for garbage in ("not json", "[1]", '{"a": 1}', "\xff"):
        clocked.command("RPUSH", clocked.key("history", lease.task_id), garbage)
    assert [entry.move for entry in clocked.get(lease.task_id).history] == ["retry", *["unreadable"] * 4]


def test_a_corrupt_record_in_a_batch_does_not_affect_the_others(clocked: World) -> None:
    broken = clocked.push()
    spoil(clocked, broken, "x")
    answers = clocked.submit(clocked.new(), clocked.new(id=broken), clocked.new())
    assert [answer.status for answer in answers] == ["new", "corrupt", "new"]


def test_reap_takes_a_broken_record_whose_time_is_over(clocked: World) -> None:
    lease = clocked.start()
    clocked.bury(lease)
    spoil(clocked, lease.task_id, "x")
    clocked.advance(40 * DAY)
    assert clocked.run(clocked.ledger.reap()) == 1
    assert [name for name in clocked.dump() if lease.task_id in name] == []


def test_a_key_whose_holder_is_gone_is_free(clocked: World) -> None:
    lease = clocked.start(key="k", key_ttl_ms=HOUR)
    clocked.delete(lease.task_id)
    assert clocked.submit(clocked.new(key="k", queue="x"))[0].status == "new"


def test_a_broken_clock_is_reset(clocked: World) -> None:
    clocked.start()
    clocked.command("SET", clocked.key("clock"), "garbage")
    assert clocked.beat().alive
    assert clocked.revive().outcomes == ()
    assert clocked.state("task000") is State.RUNNING


def test_unknown_ids_are_reported(clocked: World) -> None:
    ledger = clocked.ledger
    for call in (ledger.get("no"), ledger.cancel("no", 1), ledger.replay("no", 1, "n")):
        with pytest.raises(TaskNotFoundError, match="no"):
            clocked.run(call)
    assert clocked.run(ledger.discard("no", 1)).verdict == "missing"


@pytest.mark.parametrize("word", ["", "a b", "\ud800", None])
def test_an_invalid_id_is_refused(clocked: World, word: Any) -> None:
    ledger = clocked.ledger
    for ask in (
        ledger.get,
        lambda i: ledger.cancel(i, 1),
        lambda i: ledger.replay(i, 1, "n"),
        lambda i: ledger.discard(i, 1),
    ):
        with pytest.raises(InvalidSubmissionError, match="the task id must be text"):
            ask(word)


def test_operators_get_advice_about_a_broken_record(clocked: World) -> None:
    task = clocked.push()
    spoil(clocked, task, "x")
    for call in (clocked.ledger.get(task), clocked.ledger.cancel(task, 1), clocked.ledger.discard(task, 1)):
        with pytest.raises(CorruptRecordError, match=r"another program wrote to .*delete it"):
            clocked.run(call)


@pytest.mark.parametrize("side", ["more", "history", "checkpoint", "steps"])
def test_a_side_key_of_another_type_hides_nothing_else(clocked: World, side: str) -> None:
    """`get` and `list` skip such a key: it must not hide a page of dead letters."""
    clocked.join()
    lease = clocked.start()
    clocked.bury(lease)
    clocked.sound = False
    clocked.command("DEL", clocked.key(side, lease.task_id))
    clocked.command("SADD", clocked.key(side, lease.task_id), "stranger")
    assert clocked.get(lease.task_id).record.state is State.DEAD
    page = clocked.run(clocked.ledger.list("ended", "dead"))
    assert [record.id for record in page.records] == [lease.task_id]
