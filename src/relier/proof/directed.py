"""Schedules written by hand: corners that chance seldom turns. The checker watches them like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from relier.ledger.records import Admission, Join, Lease, Limit, Submission
from relier.proof.ghost import Violation
from relier.proof.world import SECOND, World
from relier.store.call import Call, Durability, parsed


class Stage:
    """A world without actors: each call runs when and as the schedule says."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger = world.ledger

    def submission(self, task_id: str, **more: Any) -> Submission:
        sub = Submission(id=task_id, name="work", payload=b"p", **more)
        self.world.subs[task_id] = sub
        return sub

    def joins(self, size: int, parts: str, task_id: str = "j", **more: Any) -> list[Submission]:
        """The same join once for every part, each letter one."""
        sub = self.submission(task_id, **{"delay_ms": 60_000, **more})
        return [replace(sub, join=Join(size, part)) for part in parts]

    def other(self, task_id: str, **more: Any) -> Submission:
        """What a task goes on as."""
        sub = Submission(id=task_id, **{"name": "other", "payload": b"o", **more})
        self.world.others[sub.args()[-1]] = sub
        return sub

    def run(self, *calls: Call[Any]) -> Any:
        answer: Any = None
        for call in calls:
            answer = call.parse(self.world.apply(call))
        return answer

    def push(self, *subs: Submission) -> None:
        self.run(self.ledger.submit(subs))

    def claim(self, boot: str, seq: int, queues: Sequence[str] = ("default",), want: int = 1) -> list[Lease]:
        return [claimed.lease for claimed in self.run(self.ledger.claim(boot, seq, queues, want)).tasks]

    def wait(self, seconds: float) -> None:
        self.world.now += int(seconds * SECOND)


def same_fence_twice(stage: Stage) -> None:
    """A failover loses a claim and lands on a host whose clock is behind by exactly that much: two boots hold the task
    under one fence, one of them in good faith. Only the owner can tell them apart."""
    world, ledger = stage.world, stage.ledger
    stage.run(ledger.register("A", 2000), ledger.register("B", 2000))
    stage.push(stage.submission("t"))
    images = world.backend.snapshot(), world.checker.snapshot()
    now, last = world.now, world.last_us
    (lost,) = stage.claim("A", 1)
    world.backend.restore(images[0])
    world.checker.restore(images[1], Durability.REPLICATED)
    world.now, world.last_us = now, last
    (held,) = stage.claim("B", 1)
    if lost.fence != held.fence:
        raise AssertionError(f"the schedule missed its point: {lost} {held}")
    stage.run(ledger.commit([(lost, None, ())]), ledger.commit([(held, None, ())]), ledger.commit([(held, None, ())]))


def own_zombie(stage: Stage) -> None:
    """A boot hands a task back and claims it again; then its first attempt, which nobody could stop, finishes."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 2000))
    stage.push(stage.submission("t"))
    (first,) = stage.claim("A", 1)
    stage.run(ledger.release([first]))
    (second,) = stage.claim("A", 2)
    stage.run(
        ledger.checkpoint(second, 1, b"new"), ledger.checkpoint(first, 9, b"old"), ledger.step(first, "x", b"old")
    )
    stage.run(ledger.commit([(first, b"late", ())]), ledger.commit([(second, None, ())]))


def lost_acts(stage: Stage) -> None:
    """A frozen worker wakes after it was declared lost and before it was swept out: beat, claim and register, whatever
    comes first, are all told gone."""
    ledger, boots = stage.ledger, stage.world.checker.memory.boots
    stage.run(ledger.register("A", 2000))
    stage.push(stage.submission("t"), stage.submission("u"))
    stage.claim("A", 1, want=2)
    for _ in range(20):
        if "A" not in boots or boots["A"].lost:
            break
        stage.wait(0.4)
        stage.run(ledger.revive(1, interval_ms=250))
    stage.run(ledger.beat("A", 2000), ledger.claim("A", 2, ["default"], 1), ledger.register("A", 2000))


def outage(stage: Stage) -> None:
    """Nobody reaches the store for five leases. The sweeper is back first, the healthy worker within a quarter of a
    lease: it must still be a member, and its task its own."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 2000))
    stage.push(stage.submission("t"))
    (lease,) = stage.claim("A", 1)
    stage.wait(10)
    stage.run(ledger.revive(interval_ms=500))
    stage.wait(0.5)
    stage.run(ledger.revive(interval_ms=500))
    if not stage.run(ledger.beat("A", 2000)).alive:
        raise Violation("healthy-survives-an-outage", "A was declared lost though it beat as soon as it could")
    stage.run(ledger.commit([(lease, None, ())]))


def rare_sweeps(stage: Stage) -> None:
    """A worker is dead, a sweep comes every 14 s, and between two sweeps come others that cannot tell an outage from
    that pause: one with a longer lease, which beats, and one that dies at each start. The dead one is found."""
    ledger, boots = stage.ledger, stage.world.checker.memory.boots
    stage.run(ledger.register("A", 2000), ledger.register("B", 60_000))
    stage.push(stage.submission("t"))
    stage.claim("A", 1)
    for n in range(4):
        stage.wait(5)
        stage.run(ledger.beat("B", 60_000))
        stage.wait(5)
        stage.run(ledger.register(f"C{n}", 2000))
        stage.wait(4)
        stage.run(ledger.revive(interval_ms=14_000))
    if "A" in boots:
        raise Violation("the-dead-are-found", f"A has been dead for 28 leases: {boots['A']}")


def _lose_host(stage: Stage, boot: str, *company: str) -> None:
    """A boot takes what there is, and dies with its host."""
    ledger = stage.ledger
    stage.run(ledger.register(boot, 2000))
    taken = {lease.task_id for lease in stage.claim(boot, 1, want=9)}
    if not taken >= set(company):
        raise AssertionError(f"the schedule missed its point: {boot} took {taken}, not {company}")
    stage.run(ledger.revive(boot=boot, cause="host down"))


def hosts_die(stage: Stage) -> None:
    """Hosts die under a task that does no harm, as often as it may be scared. Then it fails by itself, which wipes that
    out, and they go on dying: once too often, and it is dead of it, and may be replayed."""
    ledger, tasks = stage.ledger, ("t", "u")
    stage.run(ledger.register("Z", 60_000))
    stage.push(stage.submission("t", max_resurrections=1), stage.submission("u", max_resurrections=9))
    for n in range(4):
        _lose_host(stage, f"A{n}", *tasks)
    leases = {lease.task_id: lease for lease in stage.claim("Z", 1, want=9)}
    stage.run(ledger.retry(leases["t"], 0, "it failed"), ledger.retry(leases["u"], 0, "not for me", putback=True))
    for n in range(5):
        _lose_host(stage, f"B{n}", *tasks)
    dead = stage.world.backend.model.tasks["t"]
    if dead.state != "dead":
        raise Violation("everything-ends", f"t is {dead.state} after {dead.more} and goes round for ever")
    stage.run(ledger.replay("t", dead.version, "again"))
    for n in range(4):
        _lose_host(stage, f"C{n}", *tasks)


def suspect_convicts_itself(stage: Stage) -> None:
    """Two suspects in one worker, each in its process. The worker testifies the death of one, which counts; then it
    dies itself, which does not; and the death of a boot that ran nothing else does again."""
    ledger = stage.ledger
    stage.run(ledger.register("Z", 60_000))
    stage.push(stage.submission("t", max_resurrections=1), stage.submission("u"))
    for n in range(2):
        _lose_host(stage, f"A{n}", "t", "u")
    lease = next(lease for lease in stage.claim("Z", 1, want=9) if lease.task_id == "t")
    stage.run(ledger.forfeit(lease, "exit 139"))
    stage.run(ledger.revive(boot="Z", cause="host down"))
    _lose_host(stage, "B", "t", "u")
    stage.run(ledger.register("C", 2000))
    stage.claim("C", 1)
    stage.run(ledger.revive(boot="C", cause="exit 137"))


def tombstone(stage: Stage) -> None:
    """An outbox row sent again after its record was discarded: its tombstone answers."""
    ledger = stage.ledger
    sub = stage.submission("t", tomb_ttl_ms=60_000)
    stage.run(ledger.register("A", 2000))
    stage.push(sub)
    (lease,) = stage.claim("A", 1)
    stage.run(ledger.commit([(lease, None, ())]))
    stage.run(ledger.discard("t", stage.world.backend.model.tasks["t"].version))
    stage.push(sub)
    stage.wait(61)
    stage.push(sub)


def burst(stage: Stage) -> None:
    """A limit of four: four pass, their repeats cost nothing, the fifth is refused, one more passes a while later."""
    admission = Admission((Limit.per_window("l", 4, 2000),))
    for n in range(1, 6):
        call = stage.ledger.submit([stage.submission(f"t{n}")], admission)
        for _ in range(2):
            parsed(call, stage.world.apply(call))
    stage.wait(0.5)
    stage.run(stage.ledger.submit([stage.submission("t6")], admission))


def follow_up_twice(stage: Stage) -> None:
    """Two tasks name the same follow-up: the second finds it there."""
    ledger = stage.ledger
    follow_up = stage.submission("f")
    stage.run(ledger.register("A", 2000))
    stage.push(stage.submission("t"), stage.submission("u"))
    for seq in (1, 2):
        (lease,) = stage.claim("A", seq)
        stage.run(ledger.commit([(lease, None, [follow_up])]))


def follow_up_after_reap(stage: Stage) -> None:
    """A commit is repeated after its follow-up ran, ended and was reaped: it must not run again."""
    ledger = stage.ledger
    follow_up = stage.submission("f", result_ttl_ms=100)
    stage.run(ledger.register("A", 2000))
    stage.push(stage.submission("t"))
    (lease,) = stage.claim("A", 1)
    commit = ledger.commit([(lease, None, [follow_up])])
    stage.run(commit)
    (second,) = stage.claim("A", 2)
    stage.run(ledger.commit([(second, None, ())]))
    stage.wait(1)
    stage.run(ledger.reap(), commit)


def bury_repeated(stage: Stage) -> None:
    """A burial is repeated after its follow-up ran, ended and was reaped: it must not run again, nor may a zombie's."""
    ledger = stage.ledger
    follow_up = stage.submission("f", result_ttl_ms=100)
    stage.run(ledger.register("A", 2000))
    stage.push(stage.submission("t"), stage.submission("u"))
    (lease,) = stage.claim("A", 1)
    bury = ledger.bury(lease, "gave_up", "", [follow_up])
    stage.run(bury, bury)
    (other,) = stage.claim("A", 2)
    stage.run(ledger.release([other]), ledger.bury(other, "late", "", [stage.submission("g")]))
    for seq in (3, 4):
        (second,) = stage.claim("A", seq)
        stage.run(ledger.commit([(second, None, ())]))
    stage.wait(1)
    stage.run(ledger.reap(), bury)


def goes_on_as_another(stage: Stage) -> None:
    """A task goes on as another one, in another queue, and holds what it held: its key, its bytes, its place in time.
    The repeat of the retry changes nothing; one that was asked to cancel does not go on at all."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 2000))
    sub = stage.submission("t", key="k", key_ttl_ms=5000, expires_in_ms=90_000)
    stage.run(ledger.submit([sub], Admission(max_bytes=1000)))
    (lease,) = stage.claim("A", 1)
    other = stage.other("t", queue="b", priority=2, payload=b"longer than before")
    again = ledger.retry(lease, 0, replace=other)
    stage.run(again, again)
    (lease,) = stage.claim("A", 2, ["default", "b"])
    stage.run(again, ledger.retry(lease, 300, quiet=True, replace=stage.other("t", on_lost="bury")))
    stage.wait(0.3)
    stage.run(ledger.promote())
    (lease,) = stage.claim("A", 3)
    stage.run(ledger.commit([(lease, b"r", ())]), again)
    stage.push(stage.submission("u"))
    (lease,) = stage.claim("A", 4)
    stage.run(ledger.cancel("u", stage.world.backend.model.tasks["u"].version))
    stage.run(ledger.retry(lease, 0, replace=stage.other("u", queue="b")))


def joined_by_three(stage: Stage) -> None:
    """Three ends, one of them a burial, bring their parts; a zombie and two repeats bring none. The third queues it.
    Then a member that was replayed has a part for what is done."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 2000))
    parts = stage.joins(3, "012", queue="b", priority=1)
    stage.push(stage.submission("t"), stage.submission("u"), stage.submission("v"))
    (first,) = stage.claim("A", 1)
    stage.run(ledger.release([first]), ledger.commit([(first, b"late", parts[:1])]))
    first, second, third = stage.claim("A", 2, want=3)
    bury = ledger.bury(first, "gave_up", "", parts[:1], b"gave up")
    commit = ledger.commit([(second, b"r", parts[1:2])])
    stage.run(bury, bury, commit, commit)
    stage.run(ledger.commit([(third, None, parts[2:])]))
    (join,) = stage.claim("A", 3, ["b"])
    stage.run(bury, commit, ledger.commit([(join, None, ())]))
    stage.run(ledger.replay("t", stage.world.backend.model.tasks["t"].version, "n"))
    (first,) = stage.claim("A", 4)
    stage.run(ledger.commit([(first, b"r", parts[:1])]), bury)


def joined_too_late(stage: Stage) -> None:
    """Its deadline comes before its last part: it runs with what it has, and takes parts while it runs and when it is
    dead. A replay sees them all."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 20_000))
    parts = stage.joins(3, "012", delay_ms=1000, queue="b")
    stage.push(stage.submission("t"), stage.submission("u"), stage.submission("v"))
    first, second, third = stage.claim("A", 1, want=3)
    stage.run(ledger.commit([(first, b"1", parts[:1])]))
    stage.wait(1)
    stage.run(ledger.promote())
    (join,) = stage.claim("A", 2, ["b"])
    stage.run(ledger.commit([(second, b"2", parts[1:2])]), ledger.bury(join, "incomplete"))
    stage.run(ledger.commit([(third, b"3", parts[2:])]))
    stage.run(ledger.replay("j", stage.world.backend.model.tasks["j"].version, "n"))
    (join,) = stage.claim("A", 3, ["b"])
    stage.run(ledger.commit([(join, None, ())]))


def joined_again(stage: Stage) -> None:
    """A member that was replayed brings its part once more: still one part, and its value is the later one."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 2000))
    (part,) = stage.joins(2, "0")
    stage.push(stage.submission("t"))
    (lease,) = stage.claim("A", 1)
    stage.run(ledger.bury(lease, "gave_up", "", [part], b"failed"))
    stage.run(ledger.replay("t", stage.world.backend.model.tasks["t"].version, "n"))
    (lease,) = stage.claim("A", 2)
    stage.run(ledger.commit([(lease, b"worked", [part])]))


def lock_of_the_lost(stage: Stage) -> None:
    """A worker dies under a lock: the next one has it at once. What wakes up of it can take none, nor end that one."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 2000), ledger.register("B", 2000))
    stage.push(stage.submission("t"), stage.submission("u"), stage.submission("v"))
    first, second, _ = stage.claim("A", 1, want=3)
    stage.run(ledger.lock("k", "one", 60_000, first), ledger.lock("k", "two", 60_000, "web"))
    stage.run(ledger.revive(1, boot="A"))  # declared lost, not yet swept
    stage.run(ledger.lock("k", "three", 60_000, "web"), ledger.unlock("k", "one"), ledger.renew("k", "one", 60_000))
    for lease in (first, second):
        call = ledger.lock("l", f"late {lease.task_id}".replace(" ", "."), 60_000, lease)
        parsed(call, stage.world.apply(call))
        stage.run(ledger.revive(boot="A"))  # and now swept, gone
    stage.run(ledger.conclude("k", "three", 1000, b"r"), ledger.lock("k", "four", 60_000, "web"))
    stage.wait(1)
    stage.run(ledger.lock("k", "five", 60_000, "web"))


def lock_of_an_earlier_attempt(stage: Stage) -> None:
    """A boot hands a task back under its lock and claims it again: the lock is the later attempt's, at once and alone.
    Another task of the same boot waits."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 2000))
    stage.push(stage.submission("t"), stage.submission("u"))
    first, other = stage.claim("A", 1, want=2)
    stage.run(ledger.lock("k", "one", 60_000, first), ledger.lock("k", "same", 60_000, first))
    stage.run(ledger.lock("k", "other", 60_000, other), ledger.release([first]))
    (second,) = stage.claim("A", 2)
    stage.run(ledger.lock("k", "two", 60_000, second), ledger.lock("k", "late", 60_000, first))
    stage.run(ledger.conclude("k", "one", 60_000, b"late"), ledger.conclude("k", "two", 60_000, b"r"))


def lock_repeated(stage: Stage) -> None:
    """Every call of a lock's life arrives once more, and much later again."""
    ledger = stage.ledger
    take, go_on = ledger.lock("k", "one", 1000, "web"), ledger.renew("k", "one", 1000)
    done = ledger.conclude("k", "one", 1000, b"r")
    stage.run(take, take, go_on, go_on, done, done, ledger.conclude("k", "one", 1000, b"s"), take, go_on)
    stage.run(ledger.unlock("k", "one"), ledger.lock("k", "two", 1000, "web"))
    stage.wait(2)
    stage.run(done, ledger.lock("k", "two", 1000, "web"), done, ledger.unlock("k", "one"), ledger.unlock("k", "two"))
    stage.run(ledger.unlock("k", "two"), go_on, done, take)


def emptied(stage: Stage) -> None:
    """The store is emptied under a worker that runs a task: what comes of it is refused, and the mark is another."""
    world, ledger = stage.world, stage.ledger
    early = ledger.open()
    mark = stage.run(early)
    stage.run(ledger.open(), ledger.open(mark), ledger.register("A", 2000))
    stage.push(stage.submission("t"))
    (lease,) = stage.claim("A", 1)
    world.apply(ledger.get("never"))
    stage.wait(1)
    world.backend.wipe()
    world.checker.wiped()
    for call in (ledger.beat("A", 2000), ledger.commit([(lease, b"r", ())]), ledger.get("t"), early, early):
        world.apply(call)
    stage.run(ledger.open(), ledger.register("B", 2000))
    stage.run(ledger.open(mark), ledger.open(mark), ledger.open("another"))
    stage.push(stage.submission("t"))
    (again,) = stage.claim("B", 1)
    stage.run(ledger.commit([(lease, b"late", ())]), ledger.commit([(again, b"r", ())]))


def _watched(act: Callable[[Stage], None]) -> Callable[[World], Violation | None]:
    def watch(world: World) -> Violation | None:
        try:
            act(Stage(world))
        except Violation as violation:
            return violation
        except (KeyError, ValueError) as error:
            return Violation("no-script-stumbles", repr(error))
        return None

    return watch


SCHEDULES: dict[str, Callable[[World], Violation | None]] = {
    act.__name__: _watched(act)
    for act in (
        same_fence_twice,
        own_zombie,
        lost_acts,
        outage,
        rare_sweeps,
        hosts_die,
        suspect_convicts_itself,
        tombstone,
        burst,
        follow_up_twice,
        follow_up_after_reap,
        bury_repeated,
        goes_on_as_another,
        joined_by_three,
        joined_too_late,
        joined_again,
        lock_of_the_lost,
        lock_of_an_earlier_attempt,
        lock_repeated,
        emptied,
    )
}
