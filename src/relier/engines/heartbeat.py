"""Send the worker's heartbeats from a separate thread, over a separate connection.

So a blocked event loop does not look like a dead worker: the thread sends the heartbeats and logs that the loop is
blocked. One write per worker extends the leases of all its tasks. The worker trusts its lease from the moment a
heartbeat was *sent*. After `trusted_until` the worker is suspect: it stops claiming and `ctx.guard()` raises, but its
tasks continue, because an outage must not make healthy workers drop their work. Only the store's answer `gone` makes
the tasks lost. A heartbeat that failed is repeated soon (store/connect/heartbeat.py), so that a flapping store does
not cost a healthy worker its lease.
"""

from __future__ import annotations

import asyncio
import logging
import math
import selectors
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from types import FrameType

from relier.background import run_until_done
from relier.engines.task_events import TaskEvent, buried_event, log_event
from relier.errors import HardTimeoutError, RelierError, StoreUnavailableError
from relier.failure import failure_of, write_failure
from relier.ledger.ledger import Ledger
from relier.ledger.nodes import Orders
from relier.ledger.records import Beat, new_worker_id
from relier.run.attempt import Attempt
from relier.settings import Settings
from relier.store import Scripts, SyncStore
from relier.store.connect.heartbeat import heartbeat_settings, retry_pause
from relier.store.sync_wire import run_sync
from relier.store.until_answered import until_answered
from relier.submit.birth import BirthMark
from relier.submit.client import place_of

log = logging.getLogger("relier.worker")

GLANCE_S = 0.25  # the longest pause between two checks of this thread
BLOCKED_S = 1.0  # an event loop that has been blocked for this long is reported
GRACE_S = 10.0  # how long a task has to end after its hard timeout
DEAF_S = 2.0  # an event loop that has been blocked for this long is given up when the process must end
HAND_BACK_S = 2.0  # how long to try to hand tasks back without the loop while the store does not answer
LATE_S = 5.0  # how long after the shutdown deadline a healthy loop may take to hand tasks back


@dataclass(frozen=True, slots=True)
class BeatAnswered:
    """Report that the store answered a heartbeat."""

    worker_id: str
    beat: Beat


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """Report that worker id `worker_id` is gone, and that `reborn` is registered in its place.

    `emptied`: no sweep declared the worker lost; the store was emptied and no longer knows it.
    """

    worker_id: str
    reborn: str
    emptied: bool = False


@dataclass(frozen=True, slots=True)
class AttemptOverdue:
    """Report an attempt that did not end after its hard timeout and was buried. Its process must end.

    `event` is already logged, because a blocked loop would not do so. It is None if the ledger refused the burial: the
    attempt had lost its lease.
    """

    attempt: Attempt
    event: TaskEvent | None = None


HeartbeatEvent = BeatAnswered | WorkerLost | AttemptOverdue


@dataclass(slots=True)
class Liveness:
    """Share what the event loop and the heartbeat thread know about each other. Only one side writes each value."""

    worker_id: str = field(default_factory=new_worker_id)
    trusted_until: float = 0.0  # monotonic; written by the heartbeat thread
    turned: float = field(default_factory=time.monotonic)  # when the loop last ran; written by the loop
    glanced: float = field(default_factory=time.monotonic)  # when the heartbeat thread last ran; written by it
    polled_ms: int = 0  # when the last claim was sent, by the worker's clock; written by the loop
    attempts: Mapping[tuple[str, str], Attempt] = field(default_factory=dict)
    loop_thread: int = 0

    @property
    def suspect(self) -> bool:
        return time.monotonic() > self.trusted_until

    def trusted_by(self, worker_id: str) -> float:
        """Return how long an attempt under this worker id may trust its lease: not at all once the id has changed."""
        return self.trusted_until if self.worker_id == worker_id else 0.0


class HeartbeatThread(threading.Thread):
    """Send heartbeats, watch the event loop, and bury tasks that do not end after their hard timeout."""

    def __init__(
        self,
        settings: Settings,
        scripts: Scripts,
        liveness: Liveness,
        about: str,
        on_event: Callable[[HeartbeatEvent], None],
        give_up: Callable[[], None],
        on_beat: Callable[[Liveness], None] | None = None,
        leave_by: Callable[[], float] = lambda: math.inf,
        birth: BirthMark | None = None,
        report: Callable[[], str] = lambda: "",
    ) -> None:
        super().__init__(name="relier-heart", daemon=True)
        self._lease = settings.heartbeat_ttl
        self._patience = settings.redis_deadline  # for registering, which no later heartbeat repeats
        self._store = SyncStore(heartbeat_settings(settings, self._lease), scripts)
        self._ledger = Ledger(settings)
        self._liveness = liveness
        self._about = about
        self._on_event = on_event
        self._give_up = give_up
        self._on_beat = on_beat
        self._leave_by = leave_by
        self._birth = birth or BirthMark(partial(place_of, settings))
        self._born = ""  # the birth mark of the store in which the worker id is registered
        self._report = report
        self._orders: Orders | None = None  # what the worker takes along when it must register under a new id
        self._ending = threading.Event()
        self._poked = False
        self._away = False
        self._reported_at = 0.0
        self._resumed_at = 0.0  # when this process continued after a pause (monotonic)
        self._buried: dict[tuple[str, str], float] = {}

    def join_namespace(self) -> None:
        """Register the worker id and start the thread. Raise if the store cannot be reached."""
        self._born = self._birth.mark
        self._repeat_until_answered(partial(self._register, self._liveness.worker_id), self._patience)
        self._sign()
        self._liveness.glanced = time.monotonic()
        self.start()

    def poke(self) -> None:
        """Send a heartbeat at the next check, because a claim was refused: the store no longer knows the worker."""
        self._poked = True

    def end(self) -> None:
        self._ending.set()

    def run(self) -> None:
        due, seen, patient_until = time.monotonic() + self._lease / 4, time.monotonic(), 0.0
        while not self._wait(min(GLANCE_S, self._lease / 8, due - time.monotonic())):
            now = time.monotonic()
            if now - seen > GRACE_S / 2:  # this thread was paused, and perhaps the tasks too
                patient_until = now + GRACE_S
            seen = self._liveness.glanced = now
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
            except Exception:  # without this thread the worker would lose its lease
                log.exception("heartbeat thread of worker %s failed and continues", self._liveness.worker_id)
        self._store.close()

    def _wait(self, seconds: float) -> bool:
        """Wait for the next check. Return whether the thread must end.

        If the wait took much longer and the process hardly computed, the process itself was paused: SIGSTOP, a frozen
        container, a suspended host, an overloaded machine. A loop that was paused with it was not blocked.
        """
        began, used = time.monotonic(), time.process_time()
        ends = self._ending.wait(max(0.0, seconds))
        late = time.monotonic() - began - max(0.0, seconds)
        if late > BLOCKED_S / 2 and time.process_time() - used < late / 2:
            self._resumed_at = time.monotonic()
        return ends

    def _register(self, worker_id: str) -> None:
        sent = time.monotonic()
        if not self._store.run(self._ledger.register(worker_id, self._lease_ms, self._about, orders=self._orders)):
            raise RelierError(
                f"the ledger refused the worker id {worker_id}: it was declared lost; start the worker again"
            )
        self._liveness.worker_id = worker_id  # first: no attempt of the old worker id may see the new trust
        self._liveness.trusted_until = sent + self._lease * 0.8

    def _repeat_until_answered(self, act: Callable[[], object], seconds: float) -> None:
        """Repeat `act` until the store answers or the time is up: a single try has only a heartbeat's deadline."""
        until = time.monotonic() + seconds

        def again(error: RelierError) -> None:
            if not isinstance(error, StoreUnavailableError) or time.monotonic() >= until:
                raise error

        async def send() -> None:
            act()

        async def pause(seconds: float) -> None:
            self._ending.wait(seconds)

        run_sync(until_answered(send, again, repeat(retry_pause(self._lease)), pause))

    @property
    def _lease_ms(self) -> int:
        return round(1000 * self._lease)

    def _beat(self, sent: float) -> bool:
        """Send a heartbeat. Return whether the store answered."""
        liveness = self._liveness
        try:
            polled = str(liveness.polled_ms or "")
            beat = self._store.run(self._ledger.beat(liveness.worker_id, self._lease_ms, polled, self._report()))
            if not beat.alive:
                self._start_over()
                return True
        except RelierError as error:
            if liveness.suspect and not self._away:
                self._away = True
                log.warning("store unreachable for nearly a lease, claiming stopped: %s", error)
            self._sign()
            return False
        liveness.trusted_until = sent + self._lease * 0.8
        self._orders = beat.orders or self._orders
        if self._away:
            log.info("store reachable again, claiming resumed")
        self._away = False
        self._sign()
        self._on_event(BeatAnswered(liveness.worker_id, beat))
        return True

    def _sign(self) -> None:
        """Report to the parent process, even if the store did not answer.

        Otherwise the parent would mistake an outage for a process that cannot send heartbeats.
        """
        if self._on_beat is not None:
            self._on_beat(self._liveness)

    def _start_over(self) -> None:
        lost, reborn = self._liveness.worker_id, new_worker_id()
        born = self._store.run(self._ledger.open(self._born))
        self._birth.learn(born)
        self._register(reborn)
        self._sign()
        emptied, self._born = self._born not in {"", born}, born
        why = "is not known to the emptied store" if emptied else "was declared lost"
        log.warning("worker %s %s; it continues as %s, and its running tasks are cancelled", lost, why, reborn)
        self._on_event(WorkerLost(lost, reborn, emptied))

    def _watch_loop(self, now: float) -> None:
        blocked = now - max(self._liveness.turned, self._resumed_at)
        if blocked < BLOCKED_S:
            self._reported_at = 0.0
        elif blocked >= 2 * self._reported_at:  # at 1 s, 2 s, 4 s, …: not one log line per check
            frame = sys._current_frames().get(self._liveness.loop_thread)  # noqa: SLF001 - no other way to another thread's stack
            if is_idle(frame):  # its turn is due, and the system has not scheduled it yet
                return
            self._reported_at = blocked
            log.warning("the event loop has been blocked for %.1f s%s", blocked, self._blocking_task(frame))

    def _blocking_task(self, frame: FrameType | None) -> str:
        if frame is None:
            return ""
        stack = "".join(traceback.format_stack(frame)[-8:])
        who = next((a for a in list(self._liveness.attempts.values()) if _holds_loop(a)), None)
        name = f" by task {who.ctx.task_name} {who.ctx.task_id}" if who else ""
        return f"{name}; use `def` or isolate=True for code that computes or blocks:\n{stack}"

    def _bury_overdue(self, now: float) -> None:
        for attempt in list(self._liveness.attempts.values()):
            limit = attempt.overdue_at
            overdue = limit is not None and now > limit + GRACE_S and attempt.key not in self._buried
            if overdue and not self._bury(attempt, now):
                break  # heartbeats come first: wait for one deadline per round, not one per task
        if self._buried and now - self._liveness.turned > DEAF_S and now - min(self._buried.values()) > DEAF_S:
            self._leave_all()

    def _bury(self, attempt: Attempt, now: float) -> bool:
        """Bury the attempt's task. Return whether the store answered."""
        timeout = attempt.task.options.hard_timeout
        error = HardTimeoutError(
            f"the task ran into its hard timeout of {timeout:g} s, was asked to stop, and still ran {GRACE_S:g} s later"
        )
        try:
            bury = self._ledger.bury(attempt.lease, "TimeoutError", write_failure(failure_of(error)))
            settled = self._store.run(bury)
        except RelierError as trouble:
            log.warning("task %s did not end, and could not be buried yet: %s", attempt.ctx.task_id, trouble)
            return False
        event = buried_event(attempt, "TimeoutError", str(error)) if settled.ok else None
        if event is not None:
            log_event(event)
        self._buried[attempt.key] = now
        self._on_event(AttemptOverdue(attempt, event))
        return True

    def _leave_if_late(self, now: float) -> None:
        """End the process if its shutdown is late and the loop is blocked. A healthy loop shuts down by itself."""
        if now > self._leave_by() + LATE_S and now - self._liveness.turned > DEAF_S:
            self._leave_all()

    def _leave_all(self) -> None:
        """Hand back the tasks of a loop that no longer responds, and end the process."""
        attempts = [a for a in list(self._liveness.attempts.values()) if a.key not in self._buried]
        leases = [a.lease for a in attempts if a.lease.worker_id == self._liveness.worker_id]
        try:
            if leases:
                log.warning("event loop not responding: %d tasks are handed back without it", len(leases))
                release = self._ledger.release(leases)
                self._repeat_until_answered(lambda: self._store.run(release), HAND_BACK_S)
        except RelierError as error:
            log.warning("tasks could not be handed back and return when the lease runs out: %s", error)
        self._give_up()


def is_idle(frame: FrameType | None) -> bool:
    """Return whether an event loop's thread runs nothing but the loop: asyncio waits in a selector, uvloop in C
    code."""
    code = None if frame is None else frame.f_code
    return code is run_until_done.__code__ or (code is not None and code.co_filename == selectors.__file__)


def _holds_loop(attempt: Attempt) -> bool:
    task = attempt.asyncio_task
    return task is not None and asyncio.current_task(task.get_loop()) is task
