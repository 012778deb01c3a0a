"""Schedules of what follows from an end: follow-up tasks, joins, tasks that continue as another task."""

from __future__ import annotations

from proof.directed.stage import Stage
from relier.ledger.records import Admission


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
