"""An honest beat: its own thread, its own connection. A blocked event loop does not fake a death, and is reported.

One write per worker keeps all its leases. Trust is counted from when a beat was *sent*: past `trusted_until` the worker
is suspect, which means it stops claiming and `ctx.guard()` raises, but its tasks run on: an outage must not make
healthy workers drop their work. Only the store's answer `gone` makes them lost. A beat that failed is sent again soon
(store/heartbeat.py), so that a store that flaps does not cost a healthy worker its lease.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from relier.errors import HardTimeoutError, RelierError, StoreUnavailableError
from relier.failure import failure_of, write_failure
from relier.ledger.ledger import Ledger
from relier.ledger.records import Beat, new_boot
from relier.run.attempt import Attempt
from relier.settings import Settings
from relier.store import Scripts, SyncStore
from relier.store.heartbeat import heartbeat_settings, retry_pause
from relier.submit.birth import BirthMark
from relier.submit.client import place_of

log = logging.getLogger("relier.worker")

GLANCE_S = 0.25  # how often the thread looks around
BLOCKED_S = 1.0  # a loop that did not turn for so long is reported
GRACE_S = 10.0  # past its hard timeout a task has this long to end
DEAF_S = 2.0  # a loop that does not take an order for so long is given up
HAND_BACK_S = 2.0  # for handing back without the loop, where the store does not answer
LATE_S = 5.0  # past the time to leave: what a loop that turns needs to hand back and say so


@dataclass(frozen=True, slots=True)
class Heard:
    """A beat was answered."""

    boot: str
    beat: Beat


@dataclass(frozen=True, slots=True)
class Lost:
    """The boot was declared lost; `reborn` is the one registered in its place. `emptied`: nobody declared it lost, the
    store that knew it was emptied."""

    boot: str
    reborn: str
    emptied: bool = False


@dataclass(frozen=True, slots=True)
class Overdue:
    """An attempt would not end after its hard timeout, and was buried. Its process must go."""

    attempt: Attempt


News = Heard | Lost | Overdue


@dataclass(slots=True)
class Pulse:
    """What the loop and the heart show each other: plain values, written by one side each."""

    boot: str = field(default_factory=new_boot)
    trusted_until: float = 0.0  # monotonic; by the heart
    turned: float = field(default_factory=time.monotonic)  # the loop's last turn; by the loop
    polled_ms: int = 0  # the last claim, by the worker's clock; by the loop
    attempts: Mapping[tuple[str, str], Attempt] = field(default_factory=dict)
    loop_thread: int = 0

    @property
    def suspect(self) -> bool:
        return time.monotonic() > self.trusted_until


class Heart(threading.Thread):
    """Beats, watches the loop, and buries what would not end."""

    def __init__(
        self,
        settings: Settings,
        scripts: Scripts,
        pulse: Pulse,
        about: str,
        tell: Callable[[News], None],
        give_up: Callable[[], None],
        on_beat: Callable[[Pulse], None] | None = None,
        leave_by: Callable[[], float] = lambda: math.inf,
        birth: BirthMark | None = None,
    ) -> None:
        super().__init__(name="relier-heart", daemon=True)
        self._lease = settings.heartbeat_ttl
        self._patience = settings.redis_deadline  # for what is tried once, and has no next heartbeat
        self._store = SyncStore(heartbeat_settings(settings, self._lease), scripts)
        self._ledger = Ledger(settings)
        self._pulse = pulse
        self._about = about
        self._tell = tell
        self._give_up = give_up
        self._on_beat = on_beat
        self._leave_by = leave_by
        self._birth = birth or BirthMark(partial(place_of, settings))
        self._born = ""  # the birth mark of the store that knows the boot
        self._ending = threading.Event()
        self._poked = False
        self._away = False
        self._reported_at = 0.0
        self._buried: dict[tuple[str, str], float] = {}

    def join_namespace(self) -> None:
        """Register the boot, and begin. Raises where the store cannot be reached."""
        self._born = self._birth.mark
        self._insist(partial(self._register, self._pulse.boot), self._patience)
        self._sign()
        self.start()

    def poke(self) -> None:
        """Beat at the next glance: somebody was told that the boot is gone."""
        self._poked = True

    def end(self) -> None:
        self._ending.set()

    def run(self) -> None:
        due, seen, patient_until = time.monotonic() + self._lease / 4, time.monotonic(), 0.0
        while not self._ending.wait(max(0.0, min(GLANCE_S, self._lease / 8, due - time.monotonic()))):
            now = time.monotonic()
            if now - seen > GRACE_S / 2:  # this thread stood still, and the tasks perhaps with it
                patient_until = now + GRACE_S
            seen = now
            try:
                if now >= due or self._poked:
                    self._poked = False
                    due = now + self._lease / 4
                    if not self._beat(now):
                        due = time.monotonic() + retry_pause(self._lease)
                self._watch_loop(now)
                if now > patient_until:
                    self._bury_overdue(now)
                    self._leave_if_late(now)
            except Exception:  # a worker whose heart has stopped would hold up its tasks for ever
                log.exception("the heart of worker %s stumbled, and goes on", self._pulse.boot)
        self._store.close()

    def _register(self, boot: str) -> None:
        sent = time.monotonic()
        if not self._store.run(self._ledger.register(boot, self._lease_ms, self._about)):
            raise RelierError(f"the fresh boot {boot} is unknown to nobody but was refused; start the worker again")
        self._pulse.boot = boot  # before its trust, which no attempt of another boot may share
        self._pulse.trusted_until = sent + self._lease * 0.8

    def _insist(self, act: Callable[[], object], seconds: float) -> None:
        """Try until the store answers, or the time is over: one try has only the short time of a heartbeat."""
        until = time.monotonic() + seconds
        while True:
            try:
                act()
            except StoreUnavailableError:
                if time.monotonic() >= until:
                    raise
                self._ending.wait(retry_pause(self._lease))
            else:
                return

    @property
    def _lease_ms(self) -> int:
        return round(1000 * self._lease)

    def _beat(self, sent: float) -> bool:
        """Whether the store answered."""
        pulse = self._pulse
        try:
            beat = self._store.run(self._ledger.beat(pulse.boot, self._lease_ms, str(pulse.polled_ms or "")))
            if not beat.alive:
                self._start_over()
                return True
        except RelierError as error:
            if pulse.suspect and not self._away:
                self._away = True
                log.warning("the store has not been reached for nearly a lease; no new tasks are taken: %s", error)
            self._sign()
            return False
        pulse.trusted_until = sent + self._lease * 0.8
        if self._away:
            log.info("the store answers again; tasks are taken")
        self._away = False
        self._sign()
        self._tell(Heard(pulse.boot, beat))
        return True

    def _sign(self) -> None:
        """Also without the store: a parent must not take an outage for a process that cannot beat."""
        if self._on_beat is not None:
            self._on_beat(self._pulse)

    def _start_over(self) -> None:
        lost, reborn = self._pulse.boot, new_boot()
        born = self._store.run(self._ledger.open(self._born))
        self._birth.learn(born)
        self._register(reborn)
        self._sign()
        emptied, self._born = self._born not in {"", born}, born
        why = "is not known to the emptied store" if emptied else "was declared lost"
        log.warning("worker %s %s; it goes on as %s, what it ran is cancelled", lost, why, reborn)
        self._tell(Lost(lost, reborn, emptied))

    def _watch_loop(self, now: float) -> None:
        blocked = now - self._pulse.turned
        if blocked < BLOCKED_S:
            self._reported_at = 0.0
        elif blocked >= 2 * self._reported_at:  # at 1 s, 2 s, 4 s, …: not a line per glance
            self._reported_at = blocked
            log.warning("the event loop has been blocked for %.1f s%s", blocked, self._guilty())

    def _guilty(self) -> str:
        frame = sys._current_frames().get(self._pulse.loop_thread)  # noqa: SLF001 - no other way to another thread's stack
        if frame is None:
            return ""
        stack = "".join(traceback.format_stack(frame)[-8:])
        who = next((a for a in list(self._pulse.attempts.values()) if _holds_loop(a)), None)
        name = f" by task {who.ctx.task_name} {who.ctx.task_id}" if who else ""
        return f"{name}; use `def` or isolate=True for what computes or blocks:\n{stack}"

    def _bury_overdue(self, now: float) -> None:
        for attempt in list(self._pulse.attempts.values()):
            limit = attempt.overdue_at
            overdue = limit is not None and now > limit + GRACE_S and attempt.key not in self._buried
            if overdue and not self._bury(attempt, now):
                break  # beats come first: one deadline in a round, not one for each task
        if self._buried and now - self._pulse.turned > DEAF_S and now - min(self._buried.values()) > DEAF_S:
            self._leave_all()

    def _bury(self, attempt: Attempt, now: float) -> bool:
        """Whether the store answered."""
        timeout = attempt.task.options.hard_timeout
        error = HardTimeoutError(
            f"it ran into its hard timeout of {timeout:g} s, was told to stop, and still ran {GRACE_S:g} s later"
        )
        try:
            self._store.run(self._ledger.bury(attempt.lease, "TimeoutError", write_failure(failure_of(error))))
        except RelierError as trouble:
            log.warning("task %s would not end, and could not be buried yet: %s", attempt.ctx.task_id, trouble)
            return False
        log.error("task %s (%s): %s; its process is recycled", attempt.ctx.task_id, attempt.ctx.task_name, error)
        self._buried[attempt.key] = now
        self._tell(Overdue(attempt))
        return True

    def _leave_if_late(self, now: float) -> None:
        """A loop that turns leaves by itself, however long that takes."""
        if now > self._leave_by() + LATE_S and now - self._pulse.turned > DEAF_S:
            self._leave_all()

    def _leave_all(self) -> None:
        """The loop takes no order any more: hand back what it holds, and end the process."""
        attempts = [a for a in list(self._pulse.attempts.values()) if a.key not in self._buried]
        leases = [a.lease for a in attempts if a.lease.owner == self._pulse.boot]
        try:
            if leases:
                log.warning("the event loop takes no order any more: %d tasks are handed back without it", len(leases))
                release = self._ledger.release(leases)
                self._insist(lambda: self._store.run(release), HAND_BACK_S)
        except RelierError as error:
            log.warning("what this process held could not be handed back, its lease will run out: %s", error)
        self._give_up()


def _holds_loop(attempt: Attempt) -> bool:
    task = attempt.asyncio_task
    return task is not None and asyncio.current_task(task.get_loop()) is task
