"""rl audit: a sound namespace has no findings, even while it changes; every kind of damage is found."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from relier.cli.audit import audit, auditor, chord_rules, rules, schedule_rules
from relier.cli.audit.findings import AuditReport
from relier.codec import encode
from relier.envelope import seal
from relier.ledger.ledger import load_scripts
from relier.ledger.moves.repair import Subject
from relier.ledger.nodes import Role
from relier.ledger.records import Admission, AdmissionLimit, Join, Submission, new_task_id
from relier.ledger.schedule_records import ScheduleState
from relier.settings import Settings
from relier.store import SyncStore
from tests.support.cli_desk import Desk, Run, RunJson


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "PAUSE", 0.0)


def look(desk: Desk, between: Callable[[], object] = lambda: None) -> AuditReport:
    """Run an audit without its pauses. `between` is called in place of each pause."""
    return audit(desk.store, desk.ledger, sleep=lambda _: between() and None)


def kinds(report: AuditReport) -> set[str]:
    return {finding.kind for finding in report.findings}


def furnish(desk: Desk) -> dict[str, str]:
    """Fill a namespace with a bit of everything that it can hold."""
    ids = desk.one_of_each()
    ids["held"] = desk.start(on_lost="hold", queue="held").task_id
    desk.run(desk.ledger.revive(worker_id=desk.boot, cause="killed"))
    desk.boot = desk.join(queues=["default"], host="web2")
    ids["with key"] = desk.push(key="order-1", key_ttl_ms=60_000, queue="mail")
    ids["done with key"] = desk.done(key="order-2", key_ttl_ms=60_000, queue="x")
    lease = desk.start(queue="y")
    desk.run(desk.ledger.checkpoint(lease, 1, b"1"))
    desk.run(desk.ledger.step(lease, "pay", b"1"))
    ids["saved"] = lease.task_id
    asked = desk.start(queue="z").task_id
    desk.run(desk.ledger.cancel(asked, desk.version(asked)))
    tomb = desk.cancelled(queue="tomb", tomb_ttl_ms=60_000)
    desk.run(desk.ledger.discard(tomb, desk.version(tomb)))
    ids["tomb"] = tomb
    limited = Submission(id=new_task_id(), name="shop.charge", payload=b"1")
    desk.run(desk.ledger.submit([limited], Admission((AdmissionLimit.per_window("all", 10, 1000),), max_bytes=10_000)))
    replayed = desk.dead(queue="again")
    desk.replay(replayed)
    run = desk.dead(queue="w")
    desk.run(desk.ledger.discard(run, desk.version(run)))
    plan(desk)
    return ids


def plan(desk: Desk, name: str = "nightly") -> None:
    """Create schedules in every state, one of which has fired."""
    ledger = desk.ledger
    now = desk.run(ledger.schedules()).now_ms
    for state in (ScheduleState.PAUSED, ScheduleState.DISABLED, ScheduleState.ENDED):
        desk.run(ledger.schedule(f"{name} {state}", "0", b"{}", None, state=state, group="celery"))
    at = now + 100
    version = desk.run(ledger.schedule(name, "0", b"{}", at)).version
    while desk.run(ledger.schedules()).now_ms < at:
        pass
    task = Submission(id=new_task_id(), name="shop.charge", payload=b"1")
    assert desk.run(ledger.fire(name, version, at, at + 86_400_000, [(at, task)])).verdict == "ok"


# --- nothing is wrong --------------------------------------------------------------------------------------------


def test_a_namespace_with_everything_is_sound(desk: Desk, run: Run, run_json: RunJson) -> None:
    furnish(desk)
    report = look(desk)
    assert report.findings == ()
    assert report.ok
    assert report.books["missing"] == 0
    expected = {"task", "more", "history", "checkpoint", "steps", "due", "ready", "owned", "ended", "boots", "leases"}
    assert expected | {"worker", "asked", "bell", "idem", "rate", "meta", "clock", "counts", "queues"} <= set(
        report.keys
    )
    result = run("audit")
    assert result.exit_code == 0
    assert "✓ No task was lost, and no unused key was left behind." in result.stdout
    assert report.equation in result.stdout
    answer = run_json("audit")
    assert answer["ok"] is True
    assert answer.keys() == {
        "ok", "namespace", "keys", "records", "entries", "overdue", "books", "findings", "untold", "seconds",
        "repaired",
    }  # fmt: skip
    assert sum(answer["records"].values()) == answer["keys"]["task"]


def test_an_empty_namespace_is_sound(run: Run) -> None:
    result = run("audit")
    assert result.exit_code == 0
    assert "0 accepted + 0 replayed − 0 ended" in result.stdout


CONTENT = """
local rows, read = {}, {string = {'GET'}, hash = {'HGETALL'}, list = {'LRANGE', 0, -1}, set = {'SMEMBERS'},
  zset = {'ZRANGE', 0, -1, 'WITHSCORES'}}
for _, key in ipairs(redis.call('KEYS', KEYS[1] .. '*')) do
  local how = read[redis.call('TYPE', key).ok]
  local value = redis.call(how[1], key, unpack(how, 2))
  if type(value) == 'table' then table.sort(value) end
  rows[#rows + 1] = cjson.encode({key, value, redis.call('PTTL', key) >= 0})
end
table.sort(rows)
return rows
"""


def test_an_audit_writes_nothing(desk: Desk, run: Run) -> None:
    furnish(desk)
    before = desk.command("EVAL", CONTENT, 1, desk.ledger.prefix)
    assert look(desk).ok
    for command in ("tasks", "dlq", "queues", "workers", "audit"):
        assert run(command).exit_code == 0
    assert desk.command("EVAL", CONTENT, 1, desk.ledger.prefix) == before


def test_a_namespace_that_keeps_changing_is_sound(desk: Desk, settings: Settings) -> None:
    """Meanwhile, a worker pushes, runs, fails, replays and retires as fast as it can."""
    furnish(desk)
    enough, rounds, trouble = threading.Event(), [0], []

    def work() -> None:
        try:
            with SyncStore(settings, load_scripts()) as store:
                other = Desk(store, settings)
                while not enough.is_set():
                    other.boot = other.join(queues=["busy"])
                    other.done(queue="busy", key=f"k{rounds[0]}", key_ttl_ms=1000)
                    dead = other.dead(queue="busy")
                    other.replay(dead)
                    other.run(other.ledger.retry(other.claim("busy").lease, 0, "x"))
                    other.run(other.ledger.commit([(other.claim("busy").lease, b"1", ())]))
                    other.run(other.ledger.discard(dead, other.version(dead)))
                    other.cancelled(queue="busy", delay_ms=1000)
                    other.run(other.ledger.retire(other.boot))
                    rounds[0] += 1
        except Exception as error:  # noqa: BLE001 - told by the test's own thread
            trouble.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        reports = [look(desk) for _ in range(20)]
        while rounds[0] < 20 and worker.is_alive():
            reports.append(look(desk))
    finally:
        enough.set()
        worker.join()
    assert not trouble
    assert [report.findings for report in reports if not report.ok] == []


# --- something is wrong ------------------------------------------------------------------------------------------


def waiting_join(desk: Desk, group: str = "g1") -> str:
    """Create a chord's join that has received one part of two, has checked for the other, and keeps waiting."""
    join = Submission(
        id=f"{group}.chord", name="relier.chord", payload=message({}), queue="joins", delay_ms=60_000, join=Join(1, "a")
    )
    desk.run(desk.ledger.commit([(desk.start(queue="members"), b"1", [join])]))
    desk.run(desk.ledger.retry(desk.claim("joins").lease, 60_000, quiet=True))
    return join.id


def message(headers: dict[str, object], body: bytes | str = "[[], {}, {}]") -> bytes:
    """Return the payload of a Celery task."""
    return seal(encode([[{"headers": headers, "body": body}], {}]), schema_version=1, pushed_ms=1)


def helper_without_lease(desk: Desk) -> None:
    desk.run(desk.ledger.register("relay-1", 600_000, "{}", Role.RELAY))
    desk.command("ZREM", desk.key("helper_leases"), "relay-1")


def test_helpers_are_sound(desk: Desk, run: Run) -> None:
    desk.run(desk.ledger.register("relay-1", 600_000, "{}", Role.RELAY))
    assert run("audit").exit_code == 0


Damage = Callable[[Desk, dict[str, str]], object]
DAMAGES: dict[str, tuple[str, Damage]] = {
    "a key of somebody else's": ("unknown_key", lambda d, _: d.command("SET", d.ledger.prefix + "zzz", 1)),
    "a kind of key we do not know": ("unknown_key", lambda d, _: d.command("SET", d.ledger.prefix + "z:1", 1)),
    "ended tasks of no state": ("unknown_key", lambda d, _: d.command("ZADD", d.key("ended", "lost"), 1, "x")),
    "a set where a hash belongs": (
        "wrong_type",
        lambda d, ids: (d.command("DEL", d.key("pauses")), d.command("SADD", d.key("pauses"), "x")),
    ),
    "the list of queues of another type": (
        "books_unreadable",
        lambda d, _: (d.command("DEL", d.key("queues")), d.command("SET", d.key("queues"), "x")),
    ),
    "the list of boots of another type": (
        "books_unreadable",
        lambda d, _: (d.command("DEL", d.key("boots")), d.command("SET", d.key("boots"), "x")),
    ),
    "a task of another type": ("wrong_type", lambda d, _: d.command("SADD", d.key("task", "x"), "x")),
    "an index of another type": ("wrong_type", lambda d, _: d.command("SET", d.key("ready", "odd"), "x")),
    "a record that is none": ("corrupt_record", lambda d, _: d.command("SET", d.key("task", "x"), "garbage")),
    "queued, but not in its queue": (
        "record_in_no_index",
        lambda d, ids: d.command("ZREM", d.key("ready", "mail"), ids["with key"]),
    ),
    "scheduled, but not in the schedule": (
        "record_in_no_index",
        lambda d, ids: d.command("ZREM", d.key("due"), ids["scheduled"]),
    ),
    "running, but nobody's": (
        "record_in_no_index",
        lambda d, ids: d.command("ZREM", d.key("owned", d.boot), ids["saved"]),
    ),
    "dead, but not listed": (
        "record_in_no_index",
        lambda d, ids: d.command("ZREM", d.key("ended", "dead"), ids["dead"]),
    ),
    "in two indexes": (
        "record_in_wrong_index",
        lambda d, ids: d.command("ZADD", d.key("due"), 10**13, ids["with key"]),
    ),
    "done, and still in a queue": (
        "record_in_wrong_index",
        lambda d, ids: d.command("ZADD", d.key("ready", "mail"), 1, ids["done"]),
    ),
    "an entry without a record": (
        "entry_without_record",
        lambda d, _: d.command("ZADD", d.key("ready", "mail"), 1, "ghost"),
    ),
    "a vanished record": ("entry_without_record", lambda d, ids: d.command("DEL", d.key("task", ids["queued"]))),
    "an entry that leads to a tombstone": (
        "entry_without_record",
        lambda d, ids: d.command("ZADD", d.key("due"), 10**13, ids["tomb"]),
    ),
    "a live record that expires": (
        "live_with_expiry",
        lambda d, ids: d.command("PEXPIRE", d.key("task", ids["queued"]), 10**7),
    ),
    "a live task's checkpoint that expires": (
        "live_with_expiry",
        lambda d, ids: d.command("PEXPIRE", d.key("checkpoint", ids["saved"]), 10**7),
    ),
    "a live task's key that expires": (
        "live_with_expiry",
        lambda d, _: d.command("PEXPIRE", d.key("idem", "order-1"), 10**7),
    ),
    "an ended record that does not": (
        "ended_without_expiry",
        lambda d, ids: d.command("PERSIST", d.key("task", ids["done"])),
    ),
    "a tombstone that does not": (
        "tombstone_without_expiry",
        lambda d, ids: d.command("PERSIST", d.key("task", ids["tomb"])),
    ),
    "a used key that does not": ("key_without_expiry", lambda d, _: d.command("PERSIST", d.key("idem", "order-2"))),
    "a limit's mark that does not": ("rate_without_expiry", lambda d, _: d.command("PERSIST", d.key("rate", "all"))),
    "statistics that do not": (
        "statistics_without_expiry",
        lambda d, _: d.command("PERSIST", next(iter(d.command("KEYS", d.key("outcomes", "h*"))))),
    ),
    "a history of nobody": ("side_without_record", lambda d, _: d.command("RPUSH", d.key("history", "ghost"), "x")),
    "more of nobody": ("side_without_record", lambda d, _: d.command("HSET", d.key("more", "ghost"), "x", "x")),
    "a checkpoint of nobody": ("side_without_record", lambda d, _: d.command("SET", d.key("checkpoint", "ghost"), "x")),
    "steps beside a tombstone": (
        "side_without_record",
        lambda d, ids: d.command("HSET", d.key("steps", ids["tomb"]), "x", "x"),
    ),
    "steps of a done task": ("side_of_ended", lambda d, ids: d.command("HSET", d.key("steps", ids["done"]), "x", "x")),
    "an owner who is not registered": (
        "owned_without_boot",
        lambda d, _: (d.command("ZREM", d.key("boots"), d.boot), d.command("ZREM", d.key("leases"), d.boot)),
    ),
    "a worker key of nobody": (
        "worker_key_without_boot",
        lambda d, _: d.command("HSET", d.key("worker", "x"), "a", "b"),
    ),
    "requests to nobody": ("worker_key_without_boot", lambda d, _: d.command("SADD", d.key("asked", "x"), "a 1")),
    "a lease of nobody": ("lease_without_boot", lambda d, _: d.command("ZADD", d.key("leases"), 5000, "x")),
    "a helper's lease of nobody": ("lease_without_boot", lambda d, _: d.command("ZADD", d.key("helpers"), 5000, "x")),
    "a helper without its lease": ("boot_incomplete", lambda d, _: helper_without_lease(d)),
    "a boot without its key": ("boot_incomplete", lambda d, _: d.command("DEL", d.key("worker", d.boot))),
    "a boot without its lease": ("boot_incomplete", lambda d, _: d.command("ZREM", d.key("leases"), d.boot)),
    "a queue nobody lists": ("queue_unknown", lambda d, _: d.command("SREM", d.key("queues"), "mail")),
    "a bell rung twice": ("bell_too_long", lambda d, _: d.command("RPUSH", d.key("bell", "mail"), "1", "1")),
    "a key of no task": ("key_without_record", lambda d, _: d.command("SET", d.key("idem", "k"), "ghost")),
    "a key its task does not know": (
        "key_without_record",
        lambda d, ids: d.command("SET", d.key("idem", "k"), ids["queued"]),
    ),
    "a lost task": (
        "books",
        lambda d, ids: (
            d.command("DEL", d.key("task", ids["queued"])),
            d.command("ZREM", d.key("ready", "default"), ids["queued"]),
        ),
    ),
    "a chord that nobody completes": ("join_without_members", lambda d, _: waiting_join(d)),
    "a schedule in no index": (
        "schedule_in_no_index",
        lambda d, _: d.command("ZREM", d.key("schedules", "native"), "nightly"),
    ),
    "an active schedule without a time": (
        "schedule_in_no_index",
        lambda d, _: d.command("ZADD", d.key("schedules", "native"), "+inf", "nightly"),
    ),
    "a paused schedule in no index": (
        "schedule_in_no_index",
        lambda d, _: d.command("ZREM", d.key("schedules", "celery"), "nightly paused"),
    ),
    "a schedule without its record": (
        "schedule_entry_without_record",
        lambda d, _: d.command("DEL", d.key("schedule", "nightly")),
    ),
    "a schedule in two groups": (
        "schedule_entry_without_record",
        lambda d, _: d.command("ZADD", d.key("schedules", "celery"), 1, "nightly"),
    ),
    "a history without its schedule": (
        "history_without_schedule",
        lambda d, _: d.command("RPUSH", d.key("fires", "ghost"), "x"),
    ),
    "a schedule that cannot be read": (
        "schedule_unreadable",
        lambda d, _: d.command("HDEL", d.key("schedule", "nightly"), "version"),
    ),
    "a schedule that expires": (
        "live_with_expiry",
        lambda d, _: d.command("PEXPIRE", d.key("schedule", "nightly"), 10**7),
    ),
    "a task nobody submitted": ("books", lambda d, _: d.command("HINCRBY", d.key("counts"), "submitted", -1)),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found(desk: Desk, run: Run, name: str) -> None:
    kind, damage = DAMAGES[name]
    ids = furnish(desk)
    damage(desk, ids)
    report = look(desk)
    assert kind in kinds(report)
    assert not report.ok
    for finding in report.findings:
        assert finding.problem.endswith(".")
        assert finding.advice
    result = run("audit")
    assert result.exit_code == 1
    # The first words: a span or a server's own words may differ from one look to the next.
    assert any(finding.kind == kind and finding.problem[:40] in result.stdout for finding in report.findings)


def test_the_output_says_that_workers_repair_and_what_they_repaired(desk: Desk, run: Run) -> None:
    task = desk.push(queue="repaired")
    desk.command("ZREM", desk.key("ready", "repaired"), task)
    assert "Running workers repair most of these within seconds" in run("audit").stdout
    desk.run(desk.ledger.reconcile([Subject("task", task.encode())], "0", "0"))
    result = run("audit")
    assert result.exit_code == 0
    assert "Workers have repaired 1 damaged key so far: queued 1." in result.stdout


def test_every_kind_of_finding_is_covered_by_a_test() -> None:
    source = Path(rules.__file__).read_text()
    source += Path(chord_rules.__file__).read_text() + Path(schedule_rules.__file__).read_text()
    told = set(re.findall(r'(?:finding|Finding|_left_over|_must_expire)\(\s*(?:seen,\s*)?"(\w+)"', source))
    assert told == {kind for kind, _ in DAMAGES.values()}


LEADS = {
    "a member": message({"group": "g1"}),
    "a step before a member": message({}, '[[], {}, {"chain": [{"options": {"group_id": "g1"}}]}]'),
    "a pickled one": message({}, b"\x80\x04\x8c\x02g1\x94."),
    "a compressed one, perhaps": message({"compression": "application/x-gzip"}, b"\x00"),
    "one that cannot be read, perhaps": b'{"body":"aes-gcm:k1:AAAA"}',
}


@pytest.mark.parametrize("payload", LEADS.values(), ids=LEADS)
def test_a_chord_that_a_task_can_complete_is_no_finding(desk: Desk, payload: bytes) -> None:
    waiting_join(desk)
    task = desk.push(payload=payload, queue="members")
    assert look(desk).ok
    desk.run(desk.ledger.cancel(task, desk.version(task)))
    assert kinds(look(desk)) == {"join_without_members"}


def test_a_chord_that_completes_during_the_audit_is_no_finding(desk: Desk) -> None:
    join = waiting_join(desk)
    lease = desk.start(queue="members")
    last = Submission(id=join, name="relier.chord", payload=b"", queue="joins", delay_ms=1, join=Join(2, "b"))
    assert look(desk, between=lambda: desk.run(desk.ledger.commit([(lease, b"2", [last])]))).ok


def test_a_chord_younger_than_an_hour_is_no_finding(desk: Desk) -> None:
    join = Submission(
        id="g1.chord", name="relier.chord", payload=message({}), queue="joins", delay_ms=60_000, join=Join(2, "a")
    )
    desk.run(desk.ledger.commit([(desk.start(queue="members"), b"1", [join])]))
    assert look(desk).ok


def test_the_advice_repairs_the_finding(desk: Desk) -> None:
    """An unregistered worker id holds a task. Once it is declared lost, as the finding advises, the task comes back."""
    task = desk.start().task_id
    desk.command("ZREM", desk.key("boots"), desk.boot)
    desk.command("ZREM", desk.key("leases"), desk.boot)
    (finding,) = [found for found in look(desk).findings if found.kind == "owned_without_boot"]
    assert f"boots' 0 {desk.boot}`" in finding.advice
    desk.command("ZADD", desk.key("boots"), 0, desk.boot)
    desk.run(desk.ledger.revive())
    assert desk.get(task).record.state == "queued"
    assert look(desk).ok


def test_pausing_and_resuming_repairs_a_schedule_in_no_index(desk: Desk, run: Run) -> None:
    added = run("schedules", "add", "often", "tests.support.jobs.common.quick", "--every", "60")
    assert added.exit_code == 0, added.output
    desk.command("ZREM", desk.key("schedules", "native"), "often")
    assert kinds(look(desk)) == {"schedule_in_no_index"}
    for act in ("pause", "resume"):
        assert run("schedules", act, "often").exit_code == 0
    assert look(desk).ok


def test_a_problem_that_disappears_on_recheck_is_no_finding(desk: Desk) -> None:
    task = desk.push()
    key, score = desk.key("ready", "default"), desk.command("ZSCORE", desk.key("ready", "default"), task)
    desk.command("ZREM", key, task)
    looks: list[int] = []

    def heal() -> None:
        looks.append(1)
        if len(looks) == 2:
            desk.command("ZADD", key, score, task)

    assert look(desk, heal).ok
    assert len(looks) >= 2


def test_a_problem_that_changes_on_each_check_is_no_finding(desk: Desk) -> None:
    """The task changes all the time, so two checks find it in different places."""
    task = desk.push()
    desk.command("PEXPIRE", desk.key("task", task), 10**7)

    def other() -> None:
        desk.command("PERSIST", desk.key("task", task))
        desk.command("SET", desk.key("task", task), "garbage")

    assert "live_with_expiry" not in kinds(look(desk, other))


def test_the_audit_pauses_between_checks(desk: Desk) -> None:
    slept: list[float] = []
    assert audit(desk.store, desk.ledger, sleep=slept.append).ok
    assert slept == []
    desk.command("SET", desk.ledger.prefix + "zzz", 1)
    audit(desk.store, desk.ledger, sleep=slept.append)
    assert slept == [0.2, 0.2]


def test_suspects_beyond_the_limit_are_only_counted(desk: Desk, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "MOST_SUSPECTS", 10)
    for n in range(25):
        desk.command("SET", f"{desk.ledger.prefix}zzz{n}", 1)
    report = look(desk)
    assert (len(report.findings), report.untold, report.ok) == (10, 15, False)
    assert "15 further suspects not checked again" in run("audit").stdout


def test_expired_records_that_are_not_reaped_are_only_noted(desk: Desk, run: Run) -> None:
    task, gone = desk.done(), desk.done()
    for one in (task, gone):
        desk.command("ZADD", desk.key("ended", "done"), 1, one)
    desk.command("DEL", desk.key("task", gone))  # its own expiry was quicker
    result = run("audit")
    assert result.exit_code == 0
    assert "2 ended records should have been removed over a minute ago: no worker sweeps." in result.stdout


def test_a_prefix_with_special_characters_of_scan_is_audited(settings: Settings, scripts: object) -> None:
    odd = settings.replace(key_prefix="a*[b]?\\")
    with SyncStore(odd, load_scripts()) as store:
        desk = Desk(store, odd)
        desk.push()
        report = look(desk)
        assert report.ok
        assert report.keys["task"] == 1
        for key in store.command("KEYS", "a\\*\\[b\\]\\?*"):
            store.command("DEL", key)


def test_a_namespace_with_many_keys_is_sound(desk: Desk) -> None:
    for _ in range(20):
        tasks = [Submission(id=new_task_id(), name="n", payload=b"1") for _ in range(100)]
        desk.run(desk.ledger.submit(tasks))
    report = look(desk)
    assert report.ok
    assert report.records["queued"] >= 2000
    assert report.entries >= 2000
