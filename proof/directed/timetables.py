"""Simulated runs of users' schedules."""

from __future__ import annotations

from typing import Any

from proof.directed.stage import Stage
from proof.simulator.world import SECOND
from relier.errors import StoreFullError
from relier.ledger.schedule_records import DECLARE, NEW, ScheduleState
from relier.store.call import result_or_error

PAUSED, DISABLED = ScheduleState.PAUSED, ScheduleState.DISABLED


def _now(stage: Stage) -> int:
    return (stage.world.last_us or stage.world.time_us()) // 1000


def _create(stage: Stage, ahead: int = 1000, name: str = "s", **more: Any) -> tuple[str, int]:
    """Create a schedule that is due in a second. Return its version and its next time."""
    at = _now(stage) + ahead
    answer = stage.run(stage.ledger.schedule(name, NEW, b"d", at, **more))
    return answer.version, at


def edited_under_a_scheduler(stage: Stage) -> None:
    """A scheduler sees that a schedule is due, and freezes. Meanwhile the schedule is fired, edited to the same next
    time, and due again."""
    ledger = stage.ledger
    version, at = _create(stage)
    stage.wait(1)
    late = ledger.fire("s", version, at, at + 2000, [(at, stage.submission("old"))])
    stage.run(ledger.fire("s", version, at, at + 1000, [(at, stage.submission("first"))]))
    stage.run(ledger.schedule("s", version, b"e", at + 500), late)
    edited = stage.run(ledger.schedules("s")).schedules[0].version
    stage.wait(1)
    stage.run(ledger.fire("s", version, at + 500, at + 2000, [(at + 500, stage.submission("older"))]))
    stage.run(ledger.fire("s", edited, at + 500, at + 2000, [(at + 500, stage.submission("new"))]), late)


def edited_with_an_old_clock(stage: Stage) -> None:
    """An editor computed the next time long ago. The answer says from which time on to compute it again."""
    ledger = stage.ledger
    version, at = _create(stage, 60_000)
    stage.wait(5)
    answer = stage.run(ledger.schedule("s", version, b"e", at - 58_000))
    stage.run(ledger.schedule("s", version, b"e", answer.floor_ms), ledger.schedule("n", NEW, b"e", answer.floor_ms))
    stage.run(ledger.schedule("s", version, b"e", answer.floor_ms + 10))
    stage.wait(1)
    stage.run(ledger.schedule("s", NEW, b"f", answer.floor_ms + 90_000), ledger.promote())


def time_goes_back(stage: Stage) -> None:
    """TIME is set back under a scheduler that saw several due occurrences, and then under an editor."""
    ledger, world = stage.ledger, stage.world
    version, at = _create(stage)
    stage.wait(4)
    runs = [(at + 1000 * n, stage.submission(f"r{n}")) for n in range(3)]
    fire = ledger.fire("s", version, at, at + 3000, runs)
    world.skew -= 2 * SECOND  # the first is due, the last is not
    stage.run(fire)
    world.skew -= 2 * SECOND
    stage.run(fire)
    world.skew += 4 * SECOND
    stage.run(fire, fire)
    world.skew -= 4 * SECOND
    answer = stage.run(ledger.schedule("s", version, b"e", at + 1000))
    stage.run(ledger.schedule("s", version, b"e", answer.floor_ms + 1), ledger.promote())
    world.skew += 4 * SECOND


def removed_before_time_goes_back(stage: Stage) -> None:
    """A schedule fires and is removed. TIME goes back, and a schedule of the same name is created."""
    ledger, world = stage.ledger, stage.world
    version, at = _create(stage)
    stage.wait(2)
    stage.run(ledger.fire("s", version, at, at + 1000, [(at, stage.submission("r"))]))
    stage.run(ledger.unschedule("s", version))
    world.skew -= 2 * SECOND
    answer = stage.run(ledger.schedule("s", NEW, b"d", at))
    if answer.verdict == "ok":
        world.skew += 2 * SECOND
        stage.run(ledger.fire("s", answer.version, at, at + 1000, [(at, stage.submission("again"))]))
    else:
        stage.run(ledger.schedule("s", NEW, b"d", answer.floor_ms + 1))
        world.skew += 2 * SECOND


def once(stage: Stage) -> None:
    """A schedule has one time. It ends, is declared again unchanged, and then with another time."""
    ledger = stage.ledger
    at = _now(stage) + 1000
    declared = ledger.schedule("s", DECLARE, b"d", at, origin="app")
    version = stage.run(declared).version
    stage.wait(1)
    fire = ledger.fire("s", version, at, None, [(at, stage.submission("r"))])
    stage.run(fire, fire, ledger.promote(), declared)
    stage.run(ledger.schedule("s", DECLARE, b"d", None, state=ScheduleState.ENDED, origin="app"))
    stage.run(ledger.schedule("s", DECLARE, b"d", at + 5000, origin="app"))
    stage.run(ledger.schedule("s", DECLARE, b"e", at + 5000, origin="app"), ledger.promote(), fire)


def paused_while_due(stage: Stage) -> None:
    """A pause drops due occurrences, and a resume begins after now."""
    ledger = stage.ledger
    version, at = _create(stage)
    stage.wait(3)
    pause = ledger.schedule("s", version, b"d", None, state=PAUSED)
    paused = stage.run(pause, pause).version
    stage.run(ledger.fire("s", version, at, at + 1000, [(at, stage.submission("r"))]), ledger.promote())
    stage.run(ledger.fire("s", paused, at, at + 1000, [(at, stage.submission("r"))]))
    stage.run(ledger.schedule("s", paused, b"d", at + 1000), ledger.schedule("s", paused, b"d", at + 9000))
    stage.run(pause, ledger.promote())


def declared_while_paused(stage: Stage) -> None:
    """A deploy declares a paused schedule, unchanged and changed, and one that was removed."""
    ledger = stage.ledger
    at = _now(stage) + 1000
    same = ledger.schedule("s", DECLARE, b"d", at, origin="app")
    other = ledger.schedule("s", DECLARE, b"e", at + 9000, origin="app")
    version = stage.run(same).version
    stage.run(ledger.schedule("s", version, b"d", None, state=PAUSED, origin="app"), same, other)
    (stored,) = stage.run(ledger.schedules("s")).schedules
    stage.run(ledger.schedule("s", stored.version, b"e", None, state=DISABLED, origin="app"), other)
    stage.run(ledger.schedule("s", DECLARE, b"e", at + 9000, origin="other"), ledger.promote())


def declared_by_others(stage: Stage) -> None:
    """Code declares schedules that already exist: created at run time, by another application, or in another group."""
    ledger = stage.ledger
    at = _now(stage) + 9000
    _create(stage, 9000)
    stage.run(
        ledger.schedule("s", DECLARE, b"d", at, origin="app"), ledger.schedule("s", DECLARE, b"e", at, origin="app")
    )
    for origin, definition in (("app", b"d"), ("other", b"d"), ("app", b"e"), ("other", b"e")):
        stage.run(ledger.schedule("t", DECLARE, definition, at, origin=origin))
    for group in ("celery", "native"):
        stage.run(ledger.schedule("u", DECLARE, b"d", at, group=group, origin="app"))


def removed_by_two(stage: Stage) -> None:
    """Two operators remove a schedule. One of them read it before an edit."""
    ledger = stage.ledger
    version, at = _create(stage)
    edited = stage.run(ledger.schedule("s", version, b"e", at)).version
    stage.run(ledger.schedules("s"), ledger.schedules())
    for seen in (version, edited, edited):
        call = ledger.unschedule("s", seen)
        result_or_error(call, stage.world.apply(call))
    stage.wait(1)
    stage.run(ledger.fire("s", edited, at, at + 1000, [(at, stage.submission("r"))]), ledger.promote())


def two_groups(stage: Stage) -> None:
    """A schedule moves to another group: the processes that fire the first group no longer find it."""
    ledger = stage.ledger
    version, at = _create(stage)
    _create(stage, name="t", group="celery")
    stage.run(ledger.schedule("s", version, b"d", at, group="celery"))
    stage.wait(2)
    stage.run(ledger.promote(), ledger.schedules(group="celery"), ledger.schedules())


def many_due(stage: Stage) -> None:
    """More schedules are due than one promote returns."""
    for n in range(14):
        _create(stage, 1000 + n % 3, f"s{n}")
    stage.wait(2)
    for skip in (0, 5, 10, 13, 14, 20):
        stage.run(stage.ledger.promote(skip_schedules=skip))


def pushed_before_it_fires(stage: Stage) -> None:
    """Somebody has already pushed a task with the id of a run, and a task with the key of another run."""
    ledger = stage.ledger
    version, at = _create(stage)
    stage.push(stage.submission("r"), stage.submission("other", key="k"))
    stage.wait(3)
    keyed = stage.submission("keyed", key="k")
    runs = [(at, stage.submission("r")), (at + 1000, keyed), (at + 2000, stage.submission("last"))]
    stage.run(ledger.fire("s", version, at, at + 3000, runs, missed=2), ledger.schedules("s"))
    stage.wait(1)
    stage.run(ledger.fire("s", version, at + 3000, at + 9000, [(at + 3000, stage.submission("x"))], overlap="skip"))


def fired_when_full(stage: Stage) -> None:
    """A full store refuses a firing. Nothing has changed, and the schedule stays due until there is room."""
    ledger, world = stage.ledger, stage.world
    version, at = _create(stage)
    stage.wait(1)
    fire = ledger.fire("s", version, at, at + 1000, [(at, stage.submission("r"))])
    world.backend.full = True
    for call in (fire, ledger.fire("s", version, at, at + 1000, [], missed=1)):
        if not isinstance(world.apply(call), StoreFullError):
            raise KeyError("a full store took a firing")
    stage.run(ledger.promote())
    world.backend.full = False
    stage.run(fire)


def paused_when_full(stage: Stage) -> None:
    """A schedule that fills the store can be paused, disabled and removed."""
    ledger, world = stage.ledger, stage.world
    version, _ = _create(stage)
    other, _ = _create(stage, name="t")
    world.backend.full = True
    paused = stage.run(ledger.schedule("s", version, b"d", None, state=PAUSED)).version
    stage.run(ledger.schedule("t", other, b"d", None, state=DISABLED), ledger.unschedule("s", paused))
    world.backend.full = False
