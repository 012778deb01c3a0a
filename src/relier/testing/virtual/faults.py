"""Break attempts on purpose, at a named place: `run_pending(kill_after_step("charge"))`.

A fault fires once, for the first attempt that reaches its place. `run_pending` raises if a fault never fired, because
then the test does not test what its author thinks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from relier.task import RlTask


class SimulatedKill(BaseException):
    """Unwind the code of an attempt whose process the test has killed.

    Derived from BaseException, so that `except Exception` does not catch it. Nothing that the attempt does from here on
    reaches the store.
    """


class FaultPlace(Enum):
    START = auto()
    STEP = auto()
    END = auto()


@dataclass(eq=False)
class Fault:
    """Describe a fault for the first attempt that reaches a place. `task`: only for attempts of this task."""

    shown: str
    place: FaultPlace
    kills: bool
    step: str = ""
    task: RlTask[Any, Any] | None = None
    fired: bool = False

    def fires(self, place: FaultPlace, task_name: str, step: str = "") -> bool:
        """Return whether the fault is due here, and remember that it fired."""
        fits = place is self.place and self.step in ("", step)
        if self.fired or not fits or (self.task is not None and self.task.name != task_name):
            return False
        self.fired = True
        return True


def kill_after_step(name: str, *, task: RlTask[Any, Any] | None = None) -> Fault:
    """Kill the process of an attempt right after this step was recorded.

    The code after the step does not run, and nothing of it reaches the store. `finally` blocks and context managers do
    run: a database would roll back the transactions of a killed process, and in a test only they can do that. The task
    is revived when the lease of its worker has run out.
    """
    return Fault(f"kill_after_step({name!r})", FaultPlace.STEP, kills=True, step=name, task=task)


def kill_before_commit(*, task: RlTask[Any, Any] | None = None) -> Fault:
    """Kill the process of an attempt after its code returned, before its result is committed."""
    return Fault("kill_before_commit()", FaultPlace.END, kills=True, task=task)


def lose_lease(*, after_step: str = "", task: RlTask[Any, Any] | None = None) -> Fault:
    """Let another worker take over a task while its attempt runs, at its start or after a step.

    The attempt does not notice, as after a long pause of its process. Its next step, checkpoint or commit is refused,
    and the task runs again.
    """
    place, of = (FaultPlace.STEP, f"after_step={after_step!r}") if after_step else (FaultPlace.START, "")
    return Fault(f"lose_lease({of})", place, kills=False, step=after_step, task=task)


def never_fired(faults: tuple[Fault, ...], ran: list[Any]) -> str:
    """Return a message that names the faults that did not fire, or "" if all did."""
    left = [fault.shown for fault in faults if not fault.fired]
    if not left:
        return ""
    listed = "".join(f"\n  {each}" for each in ran) or " nothing"
    return f"{', '.join(left)} never happened: no attempt came to that place. What ran:{listed}"
