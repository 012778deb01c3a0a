"""Simulated runs of what follows the end of a task: follow-ups, joins, and tasks that continue as another task."""

from __future__ import annotations

from proof.directed.stage import Stage
from relier.ledger.records import Admission


def follow_up_twice(stage: Stage) -> None:
    """Two tasks name the same follow-up: the second finds that it exists."""
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
    """A burial is repeated after its follow-up ran, ended and was reaped: the follow-up must not run again. A zombie's
    burial must not submit it either."""
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
    """A task continues as another one, in another queue, and keeps its key, its bytes and its place in time. Repeating
    the retry changes nothing. A task that was asked to cancel does not continue."""
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
    """Three tasks end, one of them by a burial, and deliver their parts. A zombie and two repeats deliver none. The
    third part queues the join. Then a replayed member delivers a part to a join that is done."""
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
    """The deadline comes before the last part: the join runs with the parts it has, and accepts parts while it runs and
    after it is dead. A replay sees all of them."""
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
    """A replayed member delivers its part again: there is still one part, with the later value."""
    ledger = stage.ledger
    stage.run(ledger.register("A", 2000))
    (part,) = stage.joins(2, "0")
    stage.push(stage.submission("t"))
    (lease,) = stage.claim("A", 1)
    stage.run(ledger.bury(lease, "gave_up", "", [part], b"failed"))
    stage.run(ledger.replay("t", stage.world.backend.model.tasks["t"].version, "n"))
    (lease,) = stage.claim("A", 2)
    stage.run(ledger.commit([(lease, b"worked", [part])]))
