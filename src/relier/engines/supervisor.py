"""`--processes N`: a parent that starts worker processes, sees one die, and returns its tasks at once.

Each child tells, over a pipe, the boot it works under at every beat, whether the store answered it or not. The parent
    - revives a dead child's tasks the moment it is gone, with its exit code as the cause, and starts another;
    - beats for a child that cannot (its GIL is held by a long computation): only while it uses CPU and is not stopped,
      and only until its task's hard timeout or for a minute. Then it kills the child.
It imports none of the application's modules and stays small.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relier.errors import RelierError
from relier.failure import how_it_ended
from relier.ledger.ledger import Ledger, load_scripts
from relier.settings import Settings
from relier.stop_signals import stop_signals
from relier.store import SyncStore
from relier.store.heartbeat import heartbeat_settings, retry_pause

log = logging.getLogger("relier.supervisor")

TELL_FD = "RELIER_SUPERVISOR_FD"
STALL_S = 60.0  # how long the parent beats for a child that does not
GRACE_S = 10.0  # past a task's hard timeout
LATE_S = 12.0  # past the grace: more than a child needs to leave, where the store is away, too (engines/leaving.py)
AWAY_S = 2.0  # between two looks of the parent: it was held up itself
QUICK_S, QUICK_JOINED_S = 10.0, 1.0  # a child that lived shorter failed to start; one that had joined, hardly
EXIT_CLEAN, EXIT_FORCED, EXIT_RECYCLE = 0, 3, 4
CANNOT_START = (1, 2)


def told(boot: str, hard_deadline: float | None) -> bytes:
    """One line from child to parent: this boot beats; when its nearest hard timeout is (monotonic)."""
    return f"{boot} {hard_deadline or 0:.3f}\n".encode()


@dataclass(slots=True)
class Child:
    """One worker process as its parent knows it."""

    process: subprocess.Popen[bytes]
    pipe: int
    began: float
    boots: list[str] = field(default_factory=list)
    heard: float = 0.0  # its last beat (monotonic)
    beat_due: float = 0.0  # when we beat for it again, should it still be silent
    hard_deadline: float = 0.0
    cpu: float = 0.0
    told: float = 0.0  # to stop (monotonic)
    killed: str = ""  # why we killed it
    rest: bytes = b""

    def take(self, data: bytes, now: float) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            boot, deadline = line.decode().split()
            if boot not in self.boots:
                self.boots.append(boot)
            self.heard, self.hard_deadline = now, float(deadline)

    @property
    def killed_at(self) -> float:
        """When a child that tells nothing is given up."""
        stall = self.heard + STALL_S
        return min(stall, self.hard_deadline + GRACE_S) if self.hard_deadline else stall


class Supervisor:
    """Keeps `processes` children running `command` until it is told to stop."""

    def __init__(
        self, settings: Settings, command: Sequence[str], processes: int, changed: Callable[[], bool] | None = None
    ) -> None:
        self._settings = settings
        self._command = list(command)
        self._count = processes
        self._changed = changed  # `rl dev`: whether the code changed since the last look
        # One thread does all: whatever it asks of the store must not keep it from the children for long.
        self._store = SyncStore(heartbeat_settings(settings, settings.heartbeat_ttl), load_scripts())
        self._ledger = Ledger(settings)
        self._selector = selectors.DefaultSelector()
        self._children: list[Child] = []
        self._orphaned: list[tuple[str, str]] = []  # boot, cause: to be revived when the store can be reached
        self._away = False  # the store could not be reached to revive them
        self._starts: list[float] = []  # when the missing children are started
        self._stops = 0
        self._interrupts = 0
        self._failures = 0
        self._worked = False  # some child came as far as a boot
        self._looked = time.monotonic()
        self._code = EXIT_CLEAN

    def run(self) -> int:
        """Until told to stop and every child has left. The worst exit code of the children."""
        waker, woken = socket.socketpair()
        for end in (waker, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        for number in stop_signals():
            signal.signal(number, self._told_to_stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the selector
        self._selector.register(waker, selectors.EVENT_READ)
        self._starts = [0.0] * self._count
        with contextlib.closing(self._store):
            self._look()
            while self._children or not self._stops:
                self._wait(waker)
                self._look()
        return self._code

    def _wait(self, waker: socket.socket) -> None:
        now = time.monotonic()
        lease = self._settings.heartbeat_ttl
        pause = min([lease / 8, 0.5, *(max(0.0, at - now) for at in self._starts)])
        for key, _ in self._selector.select(pause):
            if key.fileobj is waker:
                waker.recv(4096)
            else:
                self._hear(key.data)

    def _hear(self, child: Child) -> bool:
        """Take what it said. False: there is nothing more."""
        try:
            data = os.read(child.pipe, 65536)
        except BlockingIOError:
            return False
        if data:
            child.take(data, time.monotonic())
        else:
            self._close(child)
        return bool(data)

    def _close(self, child: Child) -> None:
        if child.pipe >= 0:
            self._selector.unregister(child.pipe)
            os.close(child.pipe)
            child.pipe = -1

    def _look(self) -> None:
        """Bury the dead, return their work, start the missing, keep the silent alive."""
        for child in [child for child in self._children if child.process.poll() is not None]:
            self._ended(child)
        self._return_orphans()
        if self._stops:
            self._starts = []
        now = time.monotonic()
        self._forgive(now - self._looked)
        self._looked = now
        for _ in [at for at in self._starts if at <= now]:
            self._start(now)
        self._starts = [at for at in self._starts if at > now]
        if self._stops:
            self._tell_to_stop()
        self._beat_for([child for child in self._children if self._mind(child, now)])
        if self._changed is not None and self._changed() and not self._stops:
            log.info("the code changed: the worker starts over")
            self._failures, self._starts = 0, [now] * len(self._starts)  # what failed to start may be mended now
            for child in self._children:
                child.told = now
                self._signal(signal.SIGTERM, child)

    def _forgive(self, away: float) -> None:
        """Time in which we could not look ourselves, because the host stood still, does not count against a child."""
        for child in self._children if away > AWAY_S else ():
            child.heard += away
            child.hard_deadline += away if child.hard_deadline else 0.0
            child.told += away if child.told else 0.0

    def _start(self, now: float) -> None:
        ours, theirs = os.pipe()
        for end in (ours, theirs):  # a task's own children may hold the far end open for as long as they like
            os.set_blocking(end, False)
        try:
            process = subprocess.Popen(  # noqa: S603 - our own command line
                self._command,
                env=os.environ | {TELL_FD: str(theirs)},
                pass_fds=[theirs],
                process_group=0,  # Ctrl-C in a terminal reaches the parent alone, which decides
            )
        finally:
            os.close(theirs)
        child = Child(process, ours, now, heard=now)
        self._children.append(child)
        self._selector.register(ours, selectors.EVENT_READ, child)
        log.info("worker process %d started", process.pid)

    def _ended(self, child: Child) -> None:
        code = child.process.returncode
        while child.pipe >= 0 and self._hear(child):  # what it said last
            pass
        self._close(child)
        self._children.remove(child)
        if self._stops and code == -signal.SIGTERM and not child.boots:
            code = EXIT_CLEAN  # it was told to stop before it could listen
        cause = child.killed or how_it_ended(code)
        self._orphaned += [(boot, cause) for boot in child.boots]
        came_to_work = bool(child.boots or child.told or self._stops)
        if code in (EXIT_CLEAN, EXIT_FORCED, EXIT_RECYCLE) and came_to_work:
            log.info("worker process %d left (%d)", child.process.pid, code)
        else:
            returned = "; its tasks are returned" if child.boots else ""
            log.error("worker process %d is gone: %s%s", child.process.pid, cause, returned)
        if self._stops:
            forced = child.boots and code not in (EXIT_CLEAN, EXIT_RECYCLE)
            self._code = max(self._code, EXIT_FORCED if forced else EXIT_CLEAN)
            return
        self._worked = self._worked or bool(child.boots)
        if code in CANNOT_START and not self._worked and self._changed is None:
            log.error("no worker process can start; see what the first one said")
            self._stops, self._code = 1, code
            return
        now = time.monotonic()
        quick = now - child.began < (QUICK_JOINED_S if child.boots else QUICK_S)
        failed = code not in (EXIT_CLEAN, EXIT_RECYCLE) or not came_to_work  # a module may exit 0 when it is imported
        self._failures = self._failures + 1 if failed and quick else 0
        self._starts.append(now + (min(30.0, 0.25 * 2 ** min(self._failures, 10)) if self._failures else 0.0))

    def _return_orphans(self) -> None:
        """Return what dead boots held. The first that fails ends the round, and is the last of the next."""
        while self._orphaned:
            orphan = self._orphaned.pop(0)
            if not self._revive(*orphan):
                self._orphaned.append(orphan)
                break

    def _revive(self, boot: str, cause: str) -> bool:
        """Return what a dead boot held. False: not yet; the sweep of any worker would do it, too."""
        try:
            while True:
                swept = self._store.run(
                    self._ledger.revive(deepest=self._settings.resurrection_max_queue_depth, boot=boot, cause=cause)
                )
                if swept.outcomes:
                    log.info("the tasks of worker %s were returned (%d)", boot, len(swept.outcomes))
                self._away = False
                if not swept.pending or swept.deferred:
                    return True
        except RelierError as error:
            if not self._away:  # once for an outage, however long it is
                log.warning("the tasks of worker %s cannot be returned yet: %s", boot, error)
            self._away = True
            return False

    def _mind(self, child: Child, now: float) -> bool:
        """Return whether the child computes and cannot beat; kill one that is silent, or leaves, for too long."""
        lease = self._settings.heartbeat_ttl
        if child.killed:
            return False
        if child.told and now > child.told + self._settings.graceful_shutdown_timeout + LATE_S:
            self._kill(child, f"it did not leave within {now - child.told:.0f} s", "did not leave in time")
            return False
        if not child.boots or now - child.heard < lease / 2:
            return False
        if now > child.killed_at:
            silent = now - child.heard
            self._kill(child, f"no sign of life for {silent:.0f} s", f"has not beaten for {silent:.0f} s")
            return False
        if now < child.beat_due:
            return False
        state, cpu = process_state(child.process.pid)
        busy, child.cpu, child.beat_due = cpu > child.cpu, cpu, now + lease / 4
        return busy and state not in "TtZX"

    def _beat_for(self, children: Sequence[Child]) -> None:
        """Beat for all in one pipeline: a store that is away costs one deadline, not one for each child."""
        lease = self._settings.heartbeat_ttl
        calls = [self._ledger.beat(child.boots[-1], round(1000 * lease)) for child in children]
        answers = self._store.run_many(calls)
        for child, answer in zip(children, answers, strict=True):
            if isinstance(answer, RelierError):
                child.beat_due = time.monotonic() + retry_pause(lease)

    def _kill(self, child: Child, why: str, words: str) -> None:
        child.killed = f"its supervisor killed it: {why} (does something hold the GIL?)"
        log.error("worker process %d %s and is killed", child.process.pid, words)
        child.process.kill()

    def _told_to_stop(self, number: int, _frame: object) -> None:
        """Only counts: a child may be half started right now. The next look tells them all."""
        self._stops += 1
        if number == signal.SIGINT:
            self._interrupts += 1

    def _tell_to_stop(self) -> None:
        for child in self._children:
            if not child.told:
                child.told = time.monotonic()
                log.info("worker process %d is told to stop", child.process.pid)
                self._signal(signal.SIGTERM, child)
            elif self._interrupts > 1:  # at every look: it may overtake the SIGTERM, and then only drains
                self._signal(signal.SIGINT, child)

    def _signal(self, number: int, child: Child) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.process.send_signal(number)


def process_state(pid: int) -> tuple[str, float]:
    """State letter and CPU ticks used, from /proc; ("?", 0) where there is none."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return fields[0], float(fields[11]) + float(fields[12])
    except (OSError, IndexError, ValueError):
        return "?", 0.0
