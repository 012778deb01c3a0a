"""Supervise worker processes for `--processes N`: start them, and at once revive the tasks of a process that dies.

At every heartbeat each child writes its worker id to a socket, whether the store answered or not. The parent
    - revives a dead child's tasks as soon as the child is gone, with its exit code as the cause, and starts another;
      a child that works reports them, because only children know the application's hooks;
    - sends heartbeats for a child that cannot, because a long computation holds its GIL. It does so only while the
      child uses CPU and is not stopped, and only until the task's hard timeout or for a minute. Then it kills the
      child.
With shards, each child works for one shard, and a child that is replaced is replaced in its shard.
The parent imports none of the application's modules and stays small.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import selectors
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relier.engines.monitoring.supervisor_monitor import SupervisorMonitor
from relier.engines.supervision.supervised_shard import SupervisedShard
from relier.failure import how_it_ended
from relier.settings import Settings
from relier.stop_signals import refuse_on_windows, stop_signals
from relier.store.connect.heartbeat import retry_pause

log = logging.getLogger("relier.supervisor")

REPORT_FD = "RELIER_SUPERVISOR_FD"
MONITOR_FD = "RELIER_SUPERVISOR_MONITOR_FD"  # the socket on which the parent asks a child for its health and metrics
OF_PARENT = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")  # the parent reports to systemd
STALL_S = 60.0  # how long the parent sends heartbeats for a silent child
GRACE_S = 10.0  # how long a silent child may continue after a task's hard timeout
LATE_S = 12.0  # after the grace period: longer than a child needs to shut down, even in an outage (engines/shutdown.py)
AWAY_S = 2.0  # if the parent's checks are further apart than this, the parent itself was paused
QUICK_S, QUICK_JOINED_S = 10.0, 1.0  # a child that failed sooner failed to start; the second: if it had registered
EXIT_CLEAN, EXIT_FORCED, EXIT_RECYCLE = 0, 3, 4
KINDS = {EXIT_CLEAN: "clean", EXIT_FORCED: "forced", EXIT_RECYCLE: "recycle"}  # in the metrics
CANNOT_START = (1, 2)
DRAINED = "drained"


def child_report(worker_id: str, hard_deadline: float | None) -> bytes:
    """Return the line that a child writes at every heartbeat: its worker id and nearest hard timeout (monotonic)."""
    return f"{worker_id} {hard_deadline or 0:.3f}\n".encode()


def drained_line(seconds: float) -> bytes:
    """Return the last line of a child: how long it took to shut down, whatever made it do so."""
    return f"{DRAINED} {seconds:.3f}\n".encode()


def swept_line(task_id: str, state: str) -> bytes:
    """Return the line that informs a child about a task that was revived or is dead: its id and new state."""
    return f"{task_id} {state}\n".encode()


@dataclass(slots=True)
class Child:
    """Hold what the parent knows about one worker process."""

    process: subprocess.Popen[bytes]
    pipe: int
    began: float
    shard: int
    worker_ids: list[str] = field(default_factory=list)
    last_report: float = 0.0  # when its last line arrived (monotonic)
    beat_due: float = 0.0  # when the parent sends its next heartbeat for this child, if the child is still silent
    hard_deadline: float = 0.0
    cpu: float = 0.0
    stopping_since: float = 0.0  # when it was told to stop (monotonic); 0: not yet
    drained_s: float | None = None  # how long its shutdown took, as it says itself
    killed: str = ""  # why the parent killed it
    rest: bytes = b""
    number: int = 0  # its place among the children, in the metrics

    def take(self, data: bytes, now: float) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            worker_id, deadline = line.decode().split()
            if worker_id == DRAINED:
                self.drained_s = float(deadline)
                continue
            if worker_id not in self.worker_ids:
                self.worker_ids.append(worker_id)
            self.last_report, self.hard_deadline = now, float(deadline)

    @property
    def killed_at(self) -> float:
        """Return when a silent child is killed (monotonic)."""
        stall = self.last_report + STALL_S
        return min(stall, self.hard_deadline + GRACE_S) if self.hard_deadline else stall


@dataclass(frozen=True, slots=True)
class Start:
    """A child to start: when (monotonic; math.inf: when the code has changed), and in which shard."""

    at: float
    shard: int


class Supervisor:
    """Keep `processes` children running `command` until told to stop. They are dealt to the shards in turn."""

    def __init__(
        self,
        settings: Settings,
        command: Sequence[str],
        processes: int,
        changed: Callable[[], bool] | None = None,
        shards: Sequence[int] = (0,),
    ) -> None:
        refuse_on_windows("a worker")
        self._settings = settings
        self._command = list(command)
        self._dealt = [shards[number % len(shards)] for number in range(processes)]
        self._changed = changed  # `rl dev`: returns whether the code changed since the last check
        self._shards = {shard: SupervisedShard(settings.of_shard(shard)) for shard in shards}
        self._selector = selectors.DefaultSelector()
        self._children: list[Child] = []
        self._starts: list[Start] = []  # the missing children
        self._stops = 0
        self._interrupts = 0
        self._failures = Counter[int]()  # quick ones in a row, by shard
        self._worked = False  # whether any child has registered so far
        self._unable: set[int] = set()  # shards of which a child could not start
        self._checked_at = time.monotonic()
        self._code = EXIT_CLEAN
        self._monitor = SupervisorMonitor(settings, lambda: bool(self._stops))

    def run(self) -> int:
        """Run until told to stop and every child has ended. Return the children's worst exit code."""
        waker, woken = socket.socketpair()
        for end in (waker, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        for number in stop_signals():
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the selector
        self._selector.register(waker, selectors.EVENT_READ)
        self._starts = [Start(0.0, shard) for shard in self._dealt]
        self._monitor.start()
        with contextlib.ExitStack() as stack:
            stack.callback(self._monitor.close)
            for shard in self._shards.values():
                stack.callback(shard.close)
            self._check_children()
            while self._children or not self._stops:
                self._wait(waker)
                self._check_children()
        return self._code

    def _wait(self, waker: socket.socket) -> None:
        now = time.monotonic()
        lease = self._settings.heartbeat_ttl
        pause = min([lease / 8, 0.5, *(max(0.0, start.at - now) for start in self._starts)])
        for key, _ in self._selector.select(pause):
            if key.fileobj is waker:
                waker.recv(4096)
            else:
                self._read_pipe(key.data)

    def _read_pipe(self, child: Child) -> bool:
        """Read the child's pipe. Return False if there is nothing more to read."""
        try:
            data = os.read(child.pipe, 65536)
        except BlockingIOError:
            return False
        except ConnectionResetError:  # the child ended before it read everything
            data = b""
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

    def _check_children(self) -> None:
        """Handle children that ended, revive their tasks, start missing children, send heartbeats for silent ones."""
        for child in [child for child in self._children if child.process.poll() is not None]:
            self._ended(child)
        for shard in self._shards.values():
            shard.return_orphans()
        self._pass_on_swept()
        if self._stops:
            self._starts = []
        now = self._monitor.ran_at = time.monotonic()
        self._extend_after_pause(now - self._checked_at)
        self._checked_at = now
        for start in [start for start in self._starts if start.at <= now]:
            self._start(now, start.shard)
        self._starts = [start for start in self._starts if start.at > now]
        if self._stops:
            self._signal_children()
        self._beat_for([child for child in self._children if self._needs_heartbeat(child, now)])
        if self._changed is not None and self._changed() and not self._stops:
            log.info("code changed: restarting the worker")
            # The change may have fixed the failure.
            self._failures.clear()
            self._starts = [Start(now, start.shard) for start in self._starts]
            for child in self._children:
                child.stopping_since = now
                self._signal(signal.SIGTERM, child)

    def _extend_after_pause(self, away: float) -> None:
        """Extend the children's times if the parent itself was paused, for example because the host was suspended."""
        for child in self._children if away > AWAY_S else ():
            child.last_report += away
            child.hard_deadline += away if child.hard_deadline else 0.0
            child.stopping_since += away if child.stopping_since else 0.0

    def _start(self, now: float, shard: int) -> None:
        ours, theirs = (end.detach() for end in socket.socketpair())
        for end in (ours, theirs):  # a task's own children may keep the far end open forever
            os.set_blocking(end, False)
        number, door = self._monitor.open_door()
        passed = {REPORT_FD: theirs} | ({} if door is None else {MONITOR_FD: door.fileno()})
        try:
            process = subprocess.Popen(  # noqa: S603 - our own command line
                [*self._command, "--shards", str(shard)] if self._settings.shards > 1 else self._command,
                env=self._environment() | {name: str(end) for name, end in passed.items()},
                pass_fds=[*passed.values()],
                process_group=0,  # Ctrl-C in a terminal reaches only the parent, which decides
            )
        finally:
            os.close(theirs)
            if door is not None:
                door.close()
        child = Child(process, ours, now, shard, last_report=now, number=number)
        self._children.append(child)
        self._selector.register(ours, selectors.EVENT_READ, child)
        log.info("worker process pid=%d started%s", process.pid, self._place_of(child))

    def _place_of(self, child: Child) -> str:
        """Return where a child works, for log lines, if there are several shards."""
        return f" shard={child.shard}" if self._settings.shards > 1 else ""

    def _environment(self) -> dict[str, str]:
        """Return the environment of a child."""
        return {name: value for name, value in os.environ.items() if name not in OF_PARENT}

    def _ended(self, child: Child) -> None:
        code = child.process.returncode
        while child.pipe >= 0 and self._read_pipe(child):  # read its last lines
            pass
        took = time.monotonic() - child.stopping_since if child.stopping_since else child.drained_s
        self._monitor.child_ended(child.number, KINDS.get(code, "died"), took)
        self._close(child)
        self._children.remove(child)
        if self._stops and code == -signal.SIGTERM and not child.worker_ids:
            code = EXIT_CLEAN  # told to stop before it had installed its handlers
        cause = child.killed or how_it_ended(code)
        self._shards[child.shard].orphaned(child.worker_ids, cause)
        came_to_work = bool(child.worker_ids or child.stopping_since or self._stops)
        if code in (EXIT_CLEAN, EXIT_FORCED, EXIT_RECYCLE) and came_to_work:
            log.info("worker process %d exited with status %d", child.process.pid, code)
        else:
            returned = "; its tasks are returned" if child.worker_ids else ""
            log.error("worker process %d died: %s%s", child.process.pid, cause, returned)
        if self._stops:
            forced = child.worker_ids and code not in (EXIT_CLEAN, EXIT_RECYCLE)
            self._code = max(self._code, EXIT_FORCED if forced else EXIT_CLEAN)
            return
        if self._is_hopeless(child, code):
            log.error("no worker process can start; see the error of the first one")
            self._stops, self._code = 1, code
            return
        if code in CANNOT_START and self._changed is not None and not child.worker_ids and not child.stopping_since:
            log.error("the worker cannot start with this code; correct it; saving the file restarts the worker")
            self._starts.append(Start(math.inf, child.shard))
            return
        now = time.monotonic()
        quick = now - child.began < (QUICK_JOINED_S if child.worker_ids else QUICK_S)
        failed = code not in (EXIT_CLEAN, EXIT_RECYCLE) or not came_to_work  # a module may exit with 0 on import
        failures = self._failures[child.shard] = self._failures[child.shard] + 1 if failed and quick else 0
        pause = min(30.0, 0.25 * 2 ** min(failures, 10)) if failures else 0.0
        self._starts.append(Start(now + pause, child.shard))

    def _is_hopeless(self, child: Child, code: int) -> bool:
        """Return whether no child can start: none has ever registered, and one of each shard could not start."""
        self._worked = self._worked or bool(child.worker_ids)
        if code not in CANNOT_START or self._worked or self._changed is not None:
            return False
        self._unable.add(child.shard)
        return self._unable == set(self._shards)

    def _pass_on_swept(self) -> None:
        """Pass revived and dead tasks on to a child, which logs them and calls hooks. Try again later if none can."""
        able = [child for child in self._children if child.worker_ids and child.pipe >= 0 and not child.stopping_since]
        for child in able:
            swept = self._shards[child.shard].swept
            with contextlib.suppress(OSError):  # its buffer is full, or it has just ended
                while swept:
                    os.write(child.pipe, swept_line(*swept[0]))
                    swept.pop(0)

    def _needs_heartbeat(self, child: Child, now: float) -> bool:
        """Return whether the child computes and needs a heartbeat from the parent.

        Kill a child that has been silent, or shutting down, for too long.
        """
        lease = self._settings.heartbeat_ttl
        if child.killed:
            return False
        if child.stopping_since and now > child.stopping_since + self._settings.graceful_shutdown_timeout + LATE_S:
            self._kill(child, f"it did not leave within {now - child.stopping_since:.0f} s", "did not leave in time")
            return False
        if not child.worker_ids or now - child.last_report < lease / 2:
            return False
        if now > child.killed_at:
            silent = now - child.last_report
            self._kill(child, f"no sign of life for {silent:.0f} s", f"has sent no heartbeat for {silent:.0f} s")
            return False
        if now < child.beat_due:
            return False
        state, cpu = process_state(child.process.pid)
        busy, child.cpu, child.beat_due = cpu > child.cpu, cpu, now + lease / 4
        return busy and state not in "TtZX"

    def _beat_for(self, children: Sequence[Child]) -> None:
        for number, shard in self._shards.items():
            here = [child for child in children if child.shard == number]
            answered = shard.beat_for([child.worker_ids[-1] for child in here]) if here else []
            for child, was_answered in zip(here, answered, strict=True):
                if not was_answered:
                    child.beat_due = time.monotonic() + retry_pause(self._settings.heartbeat_ttl)

    def _kill(self, child: Child, why: str, words: str) -> None:
        child.killed = f"its supervisor killed it: {why} (does something hold the GIL?)"
        log.error("worker process %d %s and is killed", child.process.pid, words)
        child.process.kill()

    def _on_signal(self, number: int, _frame: object) -> None:
        """Only count the signal, because a child may be in the middle of starting. `_check_children` passes it on."""
        self._stops += 1
        if number == signal.SIGINT:
            self._interrupts += 1

    def _signal_children(self) -> None:
        for child in self._children:
            if not child.stopping_since:
                child.stopping_since = time.monotonic()
                log.info("stopping worker process %d", child.process.pid)
                self._signal(signal.SIGTERM, child)
            elif self._interrupts > 1:  # repeat: if it overtakes the SIGTERM, the child only drains
                self._signal(signal.SIGINT, child)

    def _signal(self, number: int, child: Child) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.process.send_signal(number)


def process_state(pid: int) -> tuple[str, float]:
    """Return the process's state letter and used CPU ticks from /proc, or ("?", 0) if they are not available."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return fields[0], float(fields[11]) + float(fields[12])
    except (OSError, IndexError, ValueError):
        return "?", 0.0
